package registry

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/fermata-io/fermata/internal/job"
)

// MaxBatch bounds CreateBatch.
const MaxBatch = 1000

// parallelShards is how many shards one batch writes to at once.
const parallelShards = 8

// Create registers a job. See CreateBatch.
func (r *Registry) Create(ctx context.Context, d job.Definition, requestID string) (job.Record, error) {
	answer := r.CreateBatch(ctx, []job.CreateRequest{{Definition: d, RequestID: requestID}})[0]
	return answer.Record, answer.Err
}

// CreateBatch registers up to MaxBatch jobs with one script a shard. Each has an
// answer of its own: what is stored, or an [job.InvalidError], an
// [job.ExistsError], a [job.BusyError], or an error of the store. Definitions
// must be complete (see [job.WithDefaults]); an empty id is made up.
func (r *Registry) CreateBatch(ctx context.Context, requests []job.CreateRequest) []job.CreateAnswer {
	answers := make([]job.CreateAnswer, len(requests))
	if len(requests) > MaxBatch {
		for i := range answers {
			answers[i].Err = job.Invalid("requests", "has %d entries, at most %d are allowed", len(requests), MaxBatch)
		}
		return answers
	}
	b := batch{r: r, answers: answers, shards: map[int][]*creation{}}
	b.group(requests)
	b.run(ctx)
	for _, again := range b.repeats {
		answers[again.index] = r.judgeRepeat(answers[again.first], again.request)
	}
	return answers
}

// creation is one request on its way.
type creation struct {
	index   int
	request job.CreateRequest
	record  job.Record
	notices []job.Notice
}

// batch groups creations by shard.
type batch struct {
	r       *Registry
	answers []job.CreateAnswer
	shards  map[int][]*creation
	repeats []repeat
}

// repeat is a request for the id of an earlier one of the same batch.
type repeat struct {
	index, first int
	request      *job.CreateRequest
}

func (b *batch) group(requests []job.CreateRequest) {
	first := map[job.Key]int{}
	for i := range requests {
		c := &creation{index: i, request: requests[i]}
		request := &c.request
		if fault := job.ValidateRequestID(request.RequestID); fault != "" {
			b.answers[i].Err = job.Invalid("request_id", "%s", fault)
			continue
		}
		d := &request.Definition
		if d.ID == "" {
			d.ID = makeID(d.Namespace, request.RequestID)
		}
		if earlier, ok := first[d.Key]; ok {
			b.repeats = append(b.repeats, repeat{index: i, first: earlier, request: request})
			continue
		}
		first[d.Key] = i
		shard := b.r.o.Store.ShardOf(d.Key)
		b.shards[shard] = append(b.shards[shard], c)
	}
}

func (b *batch) run(ctx context.Context) {
	if len(b.shards) == 1 {
		for shard, items := range b.shards {
			b.shard(ctx, shard, items)
		}
		return
	}
	slots := make(chan struct{}, parallelShards)
	var wg sync.WaitGroup
	for shard, items := range b.shards {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			b.shard(ctx, shard, items)
		})
	}
	wg.Wait()
}

// shard writes the creations of one shard. Shards have disjoint answers.
func (b *batch) shard(ctx context.Context, shard int, items []*creation) {
	now, err := b.r.o.Store.Now(ctx, shard)
	if err != nil {
		b.fail(items, err)
		return
	}
	good := make([]*creation, 0, len(items))
	records := make([]job.Record, 0, len(items))
	for _, c := range items {
		if err := c.prepare(now, b.r.o.Limits); err != nil {
			b.answers[c.index].Err = err
			continue
		}
		if b.r.o.Sealer != nil {
			sealed := *c.record.Definition // the request keeps its own, to be compared
			b.r.seal(&sealed)
			c.record.Definition = &sealed
		}
		good = append(good, c)
		records = append(records, c.record)
	}
	if len(good) == 0 {
		return
	}
	reply := b.r.o.Store.Create(ctx, shard, records)
	if reply.Err != nil && !errors.Is(reply.Err, job.ErrDurability) {
		b.fail(good, reply.Err)
		return
	}
	b.r.nudge(shard, reply.Earlier, reply.Holder)
	for i, c := range good {
		b.settle(c, reply.Results[i])
	}
	if reply.Err != nil {
		// The jobs are there and will run; only the caller has to ask again.
		b.fail(good, reply.Err)
	}
}

func (b *batch) fail(items []*creation, err error) {
	for _, c := range items {
		b.answers[c.index] = job.CreateAnswer{Err: err}
	}
}

func (b *batch) settle(c *creation, result job.CreateResult) {
	key := c.record.Definition.Key
	switch result.Code {
	case job.Created:
		b.answers[c.index].Record = c.record
		b.r.observe(c.notices)
	case job.Tombstone:
		b.answers[c.index].Err = &job.BusyError{Key: key}
	case job.Exists:
		if result.Existing == nil { // created and deleted by others again and again
			b.answers[c.index].Err = job.ErrConflict
			return
		}
		b.answers[c.index] = b.r.judge(result.Existing, &c.request)
	}
}

// prepare completes the definition and decides the first state.
func (c *creation) prepare(now int64, limits job.Limits) error {
	d := &c.request.Definition
	d.Generation, d.Revision = 1, 1
	d.AnchorMS, d.CreatedMS, d.UpdatedMS = now, now, now
	d.CreateRequestID, d.UpdateRequestID, d.Unknown = c.request.RequestID, "", nil
	if v := job.Validate(d, limits); len(v) > 0 {
		return &job.InvalidError{Violations: v}
	}
	compiled, err := job.Compile(d)
	if err != nil {
		return job.Invalid("job.schedule", "%v", err)
	}
	decision := job.New(compiled, now)
	c.record = job.Record{Definition: d, State: decision.State, IndexMS: compiled.IndexMS(decision.State, now)}
	c.notices = decision.Notices
	return nil
}

// judge tells whether a job that exists is the one that is asked for.
func (r *Registry) judge(existing *job.Record, request *job.CreateRequest) job.CreateAnswer {
	d, asked := existing.Definition, request.Definition
	r.align(&asked, d)
	sameID := d.CreateRequestID == request.RequestID || d.CreateRequestID == "" || request.RequestID == ""
	edited := d.Revision > 1 && request.RequestID != "" && d.CreateRequestID == request.RequestID
	switch {
	case existing.State.Deleting:
		return job.CreateAnswer{Err: &job.BusyError{Key: d.Key}}
	case !sameID:
		return job.CreateAnswer{Err: &job.ExistsError{Key: d.Key, Reason: "it was created by another request"}}
	case edited, d.Same(&asked):
		return job.CreateAnswer{Record: *existing}
	}
	return job.CreateAnswer{Err: &job.ExistsError{Key: d.Key, Reason: "it has another definition"}}
}

func (r *Registry) judgeRepeat(first job.CreateAnswer, request *job.CreateRequest) job.CreateAnswer {
	if first.Err != nil {
		return first
	}
	return r.judge(&first.Record, request)
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
