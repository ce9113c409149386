package registry

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/unixtime"
	"github.com/fermata-io/fermata/internal/lib/callturn"
)

// MaxBatch bounds CreateBatch.
const MaxBatch = 1000

const (
	// maxParts is the maximum number of parts of a batch; each has the jobs of some shards. One part is decided
	// and encoded while another one waits for Redis.
	maxParts = 8
	// jobsPerPart is how many jobs justify one more part.
	jobsPerPart = 64
)

// Create registers a job. See CreateBatch.
func (r *Registry) Create(ctx context.Context, d job.Definition, requestID string) (job.Record, error) {
	answer := r.CreateBatch(ctx, []job.CreateRequest{{Definition: d, RequestID: requestID}})[0]
	return answer.Record, answer.Err
}

// CreateBatch registers up to MaxBatch jobs with one script a shard. Each request has its own answer: the
// stored job, or an [job.InvalidError], an [job.ExistsError], a [job.BusyError], or an error of the store.
// Definitions must be complete (see [job.WithDefaults]); an empty id is generated. The registry owns the
// requests from then on: answers refer to them.
func (r *Registry) CreateBatch(ctx context.Context, requests []job.CreateRequest) []job.CreateAnswer {
	answers := make([]job.CreateAnswer, len(requests))
	if len(requests) > MaxBatch {
		for i := range answers {
			answers[i].Err = job.Invalid("requests", "has %d entries, at most %d are allowed", len(requests), MaxBatch)
		}
		return answers
	}
	if len(requests) == 0 {
		return answers
	}
	b := createCall{r: r, answers: answers, shards: map[int][]*createItem{}, trace: r.callerTrace(ctx)}
	b.groupByShard(requests)
	b.namespace = requests[0].Definition.Namespace
	settle := b.claimQuota(ctx)
	defer settle()
	b.writeParts(ctx)
	return answers
}

// createItem is the state of one request of a CreateBatch call.
type createItem struct {
	index             int
	request           *job.CreateRequest
	record            job.Record
	notices           []job.Notice
	skipsPayloadCheck bool          // it existed as a job before
	created           bool          // certainly
	createdNothing    bool          // certainly
	repeats           []*createItem // later requests for the same id, which create nothing
}

// createCall is the state of one CreateBatch call, with its requests grouped by shard.
type createCall struct {
	r         *Registry
	namespace string
	answers   []job.CreateAnswer
	shards    map[int][]*createItem
	trace     *job.Trace // of the call
	work      scheduleWork
}

// createPart is the state of some shards of a CreateBatch call, which are prepared and written by one goroutine.
type createPart struct {
	*createCall
	turns  *turnsOfPart
	limits job.Limits
}

// groupByShard groups the valid requests by shard. A request for an id that an earlier one has is a repeat of
// that one.
func (b *createCall) groupByShard(requests []job.CreateRequest) {
	first := make(map[job.Key]*createItem, len(requests))
	all := make([]createItem, len(requests))
	for i := range requests {
		c, request := &all[i], &requests[i]
		c.index, c.request = i, request
		if fault := job.ValidateRequestID(request.RequestID); fault != "" {
			b.answers[i].Err = job.Invalid("request_id", "%s", fault)
			continue
		}
		d := &request.Definition
		if d.ID == "" {
			d.ID = generateID(d.Namespace, request.RequestID)
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

// claimQuota claims the quota for all requests and fails those that are beyond the limit of their namespace.
// Call settle when the others have their answers.
func (b *createCall) claimQuota(ctx context.Context) (settle func()) {
	if len(b.r.activeQuotas()) == 0 {
		return func() {}
	}
	var all []*createItem
	var demands []quotaDemand
	now := unixtime.MilliOf(time.Now())
	for _, items := range b.shards {
		for _, c := range items {
			all, demands = append(all, c), append(demands, b.quotaDemandOf(c, now))
		}
	}
	claim, faults := b.r.claimQuota(ctx, demands)
	refused := map[*createItem]bool{}
	for i, err := range faults {
		if err != nil {
			refused[all[i]] = true
			b.failItems(all[i:i+1], err)
		}
	}
	for shard, items := range b.shards {
		items = slices.DeleteFunc(items, func(c *createItem) bool { return refused[c] })
		b.shards[shard] = items
		if len(items) == 0 {
			delete(b.shards, shard)
		}
	}
	return func() {
		stored := make([]quotaAmount, len(all))
		for i, c := range all {
			unknown := !c.created && !c.createdNothing
			mayBeCreated := !claim.demands[i].exists && mayBeStoredInBatch(b.answers[c.index].Err)
			switch {
			case faults[i] != nil, c.createdNothing, unknown && !mayBeCreated:
			case c.record.Definition != nil:
				stored[i] = quotaAmount{1, b.r.countedBytes(c.record.Definition)}
			default:
				stored[i] = demands[i].quotaAmount
			}
		}
		claim.settle(ctx, stored)
	}
}

// quotaDemandOf returns what an item takes of the quotas if it is created at about this time: as much as the largest of
// its requests, because the first valid one is stored.
func (b *createCall) quotaDemandOf(c *createItem, now unixtime.Milli) quotaDemand {
	most := b.countedBytesOf(c.request, now)
	for _, again := range c.repeats {
		most = max(most, b.countedBytesOf(again.request, now))
	}
	return quotaDemand{key: c.request.Definition.Key, quotaAmount: quotaAmount{1, most}}
}

// countedBytesOf returns how many bytes count for the quota if a request is stored.
func (b *createCall) countedBytesOf(request *job.CreateRequest, now unixtime.Milli) int {
	d := request.Definition
	d.Generation, d.Revision = 1, 1
	d.AnchorMS, d.CreatedMS, d.UpdatedMS = now, now, now
	d.CreateRequestID, d.Trace = request.RequestID, b.trace
	return b.r.countedBytesSealed(d)
}

// countParts returns how many parts of the call are written at once.
func (b *createCall) countParts() int {
	return min(maxParts, len(b.shards), 1+len(b.answers)/jobsPerPart)
}

// writeParts writes all items, in several parts at once. Parts have disjoint shards, and so disjoint answers.
func (b *createCall) writeParts(ctx context.Context) {
	n := b.countParts()
	if n <= 1 {
		b.writePart(ctx, slices.Collect(maps.Keys(b.shards)))
		return
	}
	cut := make([][]int, n)
	i := 0
	for shard := range b.shards {
		cut[i%n] = append(cut[i%n], shard)
		i++
	}
	callturn.RunParts(ctx, n, func(part int) { b.writePart(ctx, cut[part]) })
}

// writePart writes the items of some shards, with one call of the store.
func (b *createCall) writePart(ctx context.Context, shards []int) {
	turns := takeTurnsAside(ctx)
	defer turns.finish()
	limits, endTurn := b.r.limitsInTurns(ctx, b.namespace, &b.work, turns)
	defer endTurn()
	p := createPart{b, turns, limits}
	writes, owners := p.prepareShards(ctx, shards)
	endTurn()
	if len(writes) == 0 {
		return
	}
	err := turns.rejoin(ctx)
	if err != nil {
		for _, items := range owners {
			b.failUnwritten(items, err)
		}
		return
	}
	b.r.beginWrite(ctx) // the call waits for the reply
	for i, reply := range b.r.o.Store.Create(ctx, writes) {
		b.answerShard(ctx, writes[i].Shard, owners[i], &reply)
	}
}

// prepareShards returns what is to be written to some shards, with its items. It reads the clocks of all of them first: to
// read one may take long, and nothing that may should be done in the turn of a check.
func (p *createPart) prepareShards(ctx context.Context, shards []int) (writes []job.CreateBatch, owners [][]*createItem) {
	clocks := make([]unixtime.Milli, len(shards))
	faults := make([]error, len(shards))
	for i, shard := range shards {
		clocks[i], faults[i] = p.r.o.Store.Now(ctx, shard)
	}
	for i, shard := range shards {
		if faults[i] != nil {
			p.failUnwritten(p.shards[shard], faults[i])
			continue
		}
		good, records := p.prepareShard(ctx, clocks[i], p.shards[shard])
		if len(good) == 0 {
			continue
		}
		w := job.CreateBatch{Shard: shard, Records: records, PayloadBytes: p.payloadBounds(good)}
		if len(p.answers) > 1 { // a small request may name many large jobs that exist
			w.BeginRead = func() (func(), error) { return p.r.lookups.begin(ctx, p.namespace, p.turns) }
		}
		writes, owners = append(writes, w), append(owners, good)
	}
	return writes, owners
}

// sparePayload is how much larger than the payload that was asked for that of an existing job may be in the answer to a
// batch: a sealed payload is a little larger, and a job may have been edited.
const sparePayload = 4 << 10

// payloadBounds bounds the payloads of existing jobs in the answer to a batch: otherwise a batch of small jobs would
// read and return any number of large ones. A single job comes with any payload.
func (b *createCall) payloadBounds(items []*createItem) []int {
	if len(b.answers) == 1 {
		return nil
	}
	bounds := make([]int, len(items))
	for i, c := range items {
		most := len(c.request.Definition.Payload)
		for _, again := range c.repeats {
			most = max(most, len(again.request.Definition.Payload))
		}
		bounds[i] = most + sparePayload
	}
	return bounds
}

// prepareShard completes the definitions of a shard's items and decides their first states. Items that cannot
// be created are answered.
func (p *createPart) prepareShard(ctx context.Context, now unixtime.Milli, items []*createItem) ([]*createItem,
	[]job.Record) {
	good, records := items[:0], make([]job.Record, 0, len(items))
	var first job.Decision
	for _, c := range items {
		if ctx.Err() != nil { // the caller has gone
			p.failUnwritten([]*createItem{c}, ctx.Err())
			continue
		}
		if !p.prepareItem(c, now, &first) {
			continue
		}
		if p.r.o.Sealer != nil {
			sealed := *c.record.Definition // the request keeps its own, to be compared
			p.r.sealPayload(&sealed, sealed.Payload)
			c.record.Definition = &sealed
		}
		good = append(good, c)
		records = append(records, c.record)
	}
	return good, records
}

// prepareItem completes the first valid request for an id. The requests before it are answered with their
// errors. first is memory for the decision.
func (p *createPart) prepareItem(c *createItem, now unixtime.Milli, first *job.Decision) bool {
	for {
		err := c.buildRecord(p.r, now, p.limits, p.trace, first)
		if err == nil {
			return true
		}
		var refused *job.TurnError
		if len(c.repeats) == 0 || errors.As(err, &refused) { // the first one may be valid
			p.failUnwritten([]*createItem{c}, err)
			return false
		}
		p.answers[c.index].Err = err
		next := c.repeats[0]
		c.index, c.request, c.repeats = next.index, next.request, c.repeats[1:]
	}
}

func (b *createCall) answerShard(ctx context.Context, shard int, items []*createItem, reply *job.CreateReply) {
	if reply.Err != nil && !errors.Is(reply.Err, job.ErrDurability) {
		b.failItems(items, reply.Err)
		return
	}
	b.r.nudgeHolder(shard, reply.Earlier, reply.Holder)
	var notices []job.Notice
	for i, c := range items {
		if b.answerItem(ctx, c, reply.Results[i]) {
			notices = append(notices, c.notices...)
		}
	}
	b.r.observeNotices(notices)
	if reply.Err != nil {
		// The jobs are stored and will run, but the caller has to repeat the call.
		b.failItems(items, reply.Err)
	}
}

// failUnwritten fails items that were not written.
func (b *createCall) failUnwritten(items []*createItem, err error) {
	for _, c := range items {
		c.createdNothing = true
	}
	b.failItems(items, err)
}

func (b *createCall) failItems(items []*createItem, err error) {
	for _, c := range items {
		b.answers[c.index] = job.CreateAnswer{Err: err}
		b.failItems(c.repeats, err)
	}
}

// answerItem answers an item that the store has answered, and reports whether it was created.
func (b *createCall) answerItem(ctx context.Context, c *createItem, result job.CreateResult) (created bool) {
	key := c.record.Definition.Key
	c.created = result.Code == job.Created
	c.createdNothing = !c.created
	switch result.Code {
	case job.Created:
		b.answers[c.index].Record = c.record
		b.answerExisting(&c.record, false, c.repeats...)
	case job.Tombstone:
		b.failItems([]*createItem{c}, b.r.describeBusyName(ctx, key))
	case job.Exists:
		if result.Existing == nil { // or others keep creating and deleting it
			b.failItems([]*createItem{c}, cmp.Or(result.Err, job.ErrConflict))
			break
		}
		b.answerExisting(result.Existing, result.NoPayload, c)
		b.answerExisting(result.Existing, result.NoPayload, c.repeats...)
	}
	return result.Code == job.Created
}

// answerExisting answers requests for a job that exists. In a batch, each request is answered with a payload of its own
// size at most: a batch may name one large job any number of times.
func (b *createCall) answerExisting(existing *job.Record, noPayload bool, items ...*createItem) {
	for _, c := range items {
		answer := b.r.answerForExisting(existing, noPayload, c.request)
		if answer.Err == nil && len(b.answers) > 1 &&
			len(existing.Definition.Payload) > len(c.request.Definition.Payload)+sparePayload {
			definition := *existing.Definition
			definition.Payload, definition.PayloadKey = nil, ""
			answer.Record.Definition = &definition
		}
		b.answers[c.index] = answer
	}
}

// buildRecord completes the definition and decides the first state. first is memory for the decision.
func (c *createItem) buildRecord(r *Registry, now unixtime.Milli, limits job.Limits, trace *job.Trace,
	first *job.Decision) error {
	d := &c.request.Definition
	d.Generation, d.Revision = 1, 1
	d.AnchorMS, d.CreatedMS, d.UpdatedMS = now, now, now
	d.CreateRequestID, d.UpdateRequestIDs, d.Unknown = c.request.RequestID, nil, nil
	d.Trace = trace
	v := job.Validate(d, limits)
	if !c.skipsPayloadCheck {
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

// answerForExisting answers a request for a job that exists: with the job, if it is the requested one, or with
// an error.
func (r *Registry) answerForExisting(existing *job.Record, noPayload bool, request *job.CreateRequest) job.CreateAnswer {
	d, asked := existing.Definition, request.Definition
	r.reuseStoredPayload(&asked, d)
	asked.KeepFirstDay(d)
	sameID := d.CreateRequestID == request.RequestID || d.CreateRequestID == "" || request.RequestID == ""
	edited := d.Revision > 1 && request.RequestID != "" && d.CreateRequestID == request.RequestID
	switch {
	case existing.State.Deleting:
		return job.CreateAnswer{Err: &job.BusyError{Key: d.Key, Renaming: existing.State.Rename != nil}}
	case !sameID:
		return job.CreateAnswer{Err: &job.ExistsError{Key: d.Key, Reason: "it was created by another request"}}
	case edited, !noPayload && d.SameRequest(&asked):
		return job.CreateAnswer{Record: *existing}
	}
	return job.CreateAnswer{Err: &job.ExistsError{Key: d.Key, Reason: "it has another definition"}}
}

// generateID returns an id for a job without one: derived from the request id, so that a repeated request
// finds the job, or else random.
func generateID(namespace, requestID string) string {
	if requestID == "" {
		return "job-" + strings.ToLower(rand.Text())
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%s/%s", namespace, requestID))
	return "job-" + strings.ToLower(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(sum[:16]))
}
