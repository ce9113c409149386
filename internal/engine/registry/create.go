package registry

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
)

// MaxBatch bounds CreateBatch.
const MaxBatch = 1000

const (
	// parts is into how many parts a batch is cut, each of some shards: one is decided
	// and encoded while another is on its way or with Redis.
	parts = 8
	// partSize is how many jobs are worth a part of their own.
	partSize = 64
)

// Create registers a job. See CreateBatch.
func (r *Registry) Create(ctx context.Context, d job.Definition, requestID string) (job.Record, error) {
	answer := r.CreateBatch(ctx, []job.CreateRequest{{Definition: d, RequestID: requestID}})[0]
	return answer.Record, answer.Err
}

// CreateBatch registers up to MaxBatch jobs with one script a shard. Each has an
// answer of its own: what is stored, or an [job.InvalidError], an
// [job.ExistsError], a [job.BusyError], or an error of the store. Definitions
// must be complete (see [job.WithDefaults]); an empty id is made up. The requests are the
// registry's from then on: what it answers refers to them.
func (r *Registry) CreateBatch(ctx context.Context, requests []job.CreateRequest) []job.CreateAnswer {
	answers := make([]job.CreateAnswer, len(requests))
	if len(requests) > MaxBatch {
		for i := range answers {
			answers[i].Err = job.Invalid("requests", "has %d entries, at most %d are allowed", len(requests), MaxBatch)
		}
		return answers
	}
	b := batch{r: r, answers: answers, shards: map[int][]*creation{}, trace: r.caller(ctx), limits: forCall(r.o.Limits)}
	b.group(requests)
	settle := b.reserve(ctx)
	b.run(ctx)
	settle()
	return answers
}

// creation is one request on its way.
type creation struct {
	index   int
	request *job.CreateRequest
	record  job.Record
	notices []job.Notice
	asIs    bool        // it was a job before: its payload is not checked
	spare   bool        // it is certain that this created nothing
	repeats []*creation // later ones of the batch for the same id, which create nothing
}

// batch groups creations by shard.
type batch struct {
	r       *Registry
	answers []job.CreateAnswer
	shards  map[int][]*creation
	trace   *job.Trace // of the call
	limits  job.Limits // with the work of the call
}

func (b *batch) group(requests []job.CreateRequest) {
	first := make(map[job.Key]*creation, len(requests))
	all := make([]creation, len(requests))
	for i := range requests {
		c, request := &all[i], &requests[i]
		c.index, c.request = i, request
		if fault := job.ValidateRequestID(request.RequestID); fault != "" {
			b.answers[i].Err = job.Invalid("request_id", "%s", fault)
			continue
		}
		d := &request.Definition
		if d.ID == "" {
			d.ID = makeID(d.Namespace, request.RequestID)
		}
		if earlier, ok := first[d.Key]; ok {
			earlier.repeats = append(earlier.repeats, c)
			continue
		}
		first[d.Key] = c
		shard := b.r.o.Store.ShardOf(d.Key)
		b.shards[shard] = append(b.shards[shard], c)
	}
}

// reserve takes out of the batch what is beyond the limit of its namespace. settle is to
// be called when the rest has its answers.
func (b *batch) reserve(ctx context.Context) (settle func()) {
	if len(b.r.measures()) == 0 {
		return func() {}
	}
	var all []*creation
	var demands []demand
	now := time.Now().UnixMilli()
	for _, items := range b.shards {
		for _, c := range items {
			all, demands = append(all, c), append(demands, b.demand(c, now))
		}
	}
	res, faults := b.r.reserve(ctx, demands)
	refused := map[*creation]bool{}
	for i, err := range faults {
		if err != nil {
			refused[all[i]] = true
			b.fail(all[i:i+1], err)
		}
	}
	for shard, items := range b.shards {
		items = slices.DeleteFunc(items, func(c *creation) bool { return refused[c] })
		if b.shards[shard] = items; len(items) == 0 {
			delete(b.shards, shard)
		}
	}
	return func() {
		stored := make([]amount, len(all))
		for i, c := range all {
			switch {
			case faults[i] != nil || c.spare:
			case c.record.Definition != nil:
				stored[i] = amount{1, b.r.sizeOf(c.record.Definition)}
			default:
				stored[i] = demands[i].amount
			}
		}
		res.settle(ctx, stored)
	}
}

// demand is what a creation takes at about a time.
func (b *batch) demand(c *creation, now int64) demand {
	d := c.request.Definition
	d.Generation, d.Revision = 1, 1
	d.AnchorMS, d.CreatedMS, d.UpdatedMS = now, now, now
	d.CreateRequestID, d.Trace = c.request.RequestID, b.trace
	return demand{key: d.Key, amount: amount{1, b.r.sizeSealed(d)}}
}

// run writes the creations. Parts have disjoint shards, and so disjoint answers.
func (b *batch) run(ctx context.Context) {
	n := min(parts, len(b.shards), 1+len(b.answers)/partSize)
	if n <= 1 {
		b.part(ctx, slices.Collect(maps.Keys(b.shards)))
		return
	}
	cut := make([][]int, n)
	i := 0
	for shard := range b.shards {
		cut[i%n] = append(cut[i%n], shard)
		i++
	}
	var wg sync.WaitGroup
	for _, shards := range cut {
		wg.Go(func() { b.part(ctx, shards) })
	}
	wg.Wait()
}

// part writes the creations of some shards.
func (b *batch) part(ctx context.Context, shards []int) {
	writes := make([]job.CreateBatch, 0, len(shards))
	owners := make([][]*creation, 0, len(shards))
	for _, shard := range shards {
		if good, records := b.prepare(ctx, shard, b.shards[shard]); len(good) > 0 {
			writes = append(writes, job.CreateBatch{Shard: shard, Records: records})
			owners = append(owners, good)
		}
	}
	if len(writes) == 0 {
		return
	}
	b.r.beginWrite(ctx) // the call waits for it
	for i, reply := range b.r.o.Store.Create(ctx, writes) {
		b.settle(writes[i].Shard, owners[i], &reply)
	}
}

// prepare completes what can be created and decides its first state; the rest is
// answered.
func (b *batch) prepare(ctx context.Context, shard int, items []*creation) ([]*creation, []job.Record) {
	now, err := b.r.o.Store.Now(ctx, shard)
	if err != nil {
		b.fail(items, err)
		return nil, nil
	}
	good, records := items[:0], make([]job.Record, 0, len(items))
	var first job.Decision
	for _, c := range items {
		if ctx.Err() != nil { // nobody waits for the rest
			c.spare = true
			b.fail([]*creation{c}, ctx.Err())
			continue
		}
		if !b.prepareOne(c, now, &first) {
			continue
		}
		if b.r.o.Sealer != nil {
			sealed := *c.record.Definition // the request keeps its own, to be compared
			b.r.seal(&sealed, sealed.Payload)
			c.record.Definition = &sealed
		}
		good = append(good, c)
		records = append(records, c.record)
	}
	return good, records
}

// prepareOne completes the first request for an id that has no fault; those before it are
// answered with theirs. First is room for the decision.
func (b *batch) prepareOne(c *creation, now int64, first *job.Decision) bool {
	for {
		err := c.prepare(b.r, now, b.limits, b.trace, first)
		if err == nil {
			return true
		}
		b.answers[c.index].Err = err
		if len(c.repeats) == 0 {
			c.spare = true
			return false
		}
		next := c.repeats[0]
		c.index, c.request, c.repeats = next.index, next.request, c.repeats[1:]
	}
}

func (b *batch) settle(shard int, items []*creation, reply *job.CreateReply) {
	if reply.Err != nil && !errors.Is(reply.Err, job.ErrDurability) {
		b.fail(items, reply.Err)
		return
	}
	b.r.nudge(shard, reply.Earlier, reply.Holder)
	for i, c := range items {
		b.answer(c, reply.Results[i])
	}
	if reply.Err != nil {
		// The jobs are there and will run; only the caller has to ask again.
		b.fail(items, reply.Err)
	}
}

func (b *batch) fail(items []*creation, err error) {
	for _, c := range items {
		b.answers[c.index] = job.CreateAnswer{Err: err}
		b.fail(c.repeats, err)
	}
}

func (b *batch) answer(c *creation, result job.CreateResult) {
	key := c.record.Definition.Key
	c.spare = result.Code != job.Created
	switch result.Code {
	case job.Created:
		b.answers[c.index].Record = c.record
		b.r.observe(c.notices)
		b.judge(&c.record, c.repeats...)
	case job.Tombstone:
		b.fail([]*creation{c}, &job.BusyError{Key: key})
	case job.Exists:
		if result.Existing == nil { // created and deleted by others again and again
			b.fail([]*creation{c}, job.ErrConflict)
			return
		}
		b.judge(result.Existing, c)
		b.judge(result.Existing, c.repeats...)
	}
}

// judge answers requests for a job that exists.
func (b *batch) judge(existing *job.Record, items ...*creation) {
	for _, c := range items {
		b.answers[c.index] = b.r.judge(existing, c.request)
	}
}

// prepare completes the definition and decides the first state, in the memory given.
func (c *creation) prepare(r *Registry, now int64, limits job.Limits, trace *job.Trace, first *job.Decision) error {
	d := &c.request.Definition
	d.Generation, d.Revision = 1, 1
	d.AnchorMS, d.CreatedMS, d.UpdatedMS = now, now, now
	d.CreateRequestID, d.UpdateRequestIDs, d.Unknown = c.request.RequestID, nil, nil
	d.Trace = trace
	v := job.Validate(d, limits)
	if !c.asIs {
		v = append(v, r.payloadFaults(d, nil, limits)...)
	}
	if len(v) > 0 {
		return &job.InvalidError{Violations: v}
	}
	compiled, err := job.Compile(d)
	if err != nil {
		return job.Invalid("job.schedule", "%v", err)
	}
	job.NewInto(first, compiled, now)
	notices := first.Notices
	if note := c.request.PauseNote; note != "" {
		*first = job.Decide(compiled, first.State, job.Pause{Note: note}, now)
		notices = append(notices, first.Notices...)
	}
	c.record = job.Record{Definition: d, State: first.State, IndexMS: compiled.IndexMS(&first.State, now)}
	c.notices = notices
	return nil
}

// judge tells whether a job that exists is the one that is asked for.
func (r *Registry) judge(existing *job.Record, request *job.CreateRequest) job.CreateAnswer {
	d, asked := existing.Definition, request.Definition
	r.align(&asked, d)
	asked.KeepFirstDay(d)
	sameID := d.CreateRequestID == request.RequestID || d.CreateRequestID == "" || request.RequestID == ""
	edited := d.Revision > 1 && request.RequestID != "" && d.CreateRequestID == request.RequestID
	switch {
	case existing.State.Deleting:
		return job.CreateAnswer{Err: &job.BusyError{Key: d.Key}}
	case !sameID:
		return job.CreateAnswer{Err: &job.ExistsError{Key: d.Key, Reason: "it was created by another request"}}
	case edited, d.SameRequest(&asked):
		return job.CreateAnswer{Record: *existing}
	}
	return job.CreateAnswer{Err: &job.ExistsError{Key: d.Key, Reason: "it has another definition"}}
}

// makeID makes an id for a job without one: from its request id, so that a
// repeated request finds it, or by chance.
func makeID(namespace, requestID string) string {
	if requestID == "" {
		return "job-" + strings.ToLower(rand.Text())
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%s/%s", namespace, requestID))
	return "job-" + strings.ToLower(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(sum[:16]))
}
