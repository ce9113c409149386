package redisstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/unixtime"
	"github.com/fermata-io/fermata/internal/redis/codec"
	"github.com/fermata-io/fermata/internal/redis/rediserr"
	"github.com/fermata-io/fermata/internal/redis/runner"
)

// A call for few records of one shard waits while another one of that shard is in flight, and is then sent together
// with those that wait, too: single registrations of many callers need one script for several jobs. Bytes and records
// of such a call, and of all that are sent together, are bounded, so that none waits for much of others. It waits no
// longer than a call may take: while Redis does not answer, calls fail and do not queue behind one another.
const (
	maxSharedCreateRecords = 32
	maxSharedCreateBytes   = 64 << 10
	maxSharedCreateWeight  = 256 << 10
)

// maxCreatePasses bounds the tries to create a record whose id is taken at first, and free when its record is read. More
// tries would fail as well: another caller creates and deletes the record again and again.
const maxCreatePasses = 3

// maxExistingRead bounds the existing records that are read at once: their payloads may be large.
const maxExistingRead = 32

// Create stores new records, in atomic steps of up to 200 of one shard, in one pipeline for each server.
// If a record exists, it is returned as stored. An unreadable record is overwritten: registering a job
// again repairs it. At maxmemory Err is job.ErrNoMemory and nothing of that step was stored. A reply whose
// Err is job.ErrDurability is complete; with any other Err it is empty, and the batch
// may be repeated. Calls for few records of one shard share steps with those of other callers.
func (s *Store) Create(ctx context.Context, batches []job.CreateBatch) []job.CreateReply {
	calls := make([]*createCall, len(batches))
	for i, b := range batches {
		calls[i] = s.newCreateCall(b)
	}
	if len(calls) == 1 && calls[0].mayShare() {
		s.createShared(ctx, batches[0].Shard, calls[0])
	} else {
		s.createGroups(ctx, groupsOf(calls))
	}
	for pass := 1; s.readLater(ctx, calls) && pass < maxCreatePasses; pass++ {
		s.createGroups(ctx, groupsOf(calls))
	}
	replies := make([]job.CreateReply, len(calls))
	for i, c := range calls {
		replies[i] = c.result()
	}
	return replies
}

// createShared stores the records of a call, with those of others of the shard that come meanwhile.
func (s *Store) createShared(ctx context.Context, shard int, c *createCall) {
	send := func(ctx context.Context, calls []*createCall) {
		s.createGroups(ctx, []createGroup{{shard: shard, calls: calls, shares: true}})
	}
	err := s.creations[shard].Do(ctx, c, c.bytes, s.runner.QueueWait(), send)
	if err != nil { // nothing was sent
		c.failed = rediserr.Wrap("create", err)
	}
}

// createGroups stores the records of groups, in one pipeline for each server.
func (s *Store) createGroups(ctx context.Context, groups []createGroup) {
	s.writeGroups(ctx, groups)
	for i := range groups {
		groups[i].reportEarlier(s)
	}
}

func (s *Store) writeGroups(ctx context.Context, groups []createGroup) {
	for range maxCreatePasses {
		var ops []*runner.Op
		for i := range groups {
			ops = append(ops, groups[i].buildSteps(s)...)
		}
		if len(ops) == 0 {
			return
		}
		s.runner.RunEach(ctx, ops)
		for i := range groups {
			groups[i].readReplies(ctx, s)
		}
	}
}

// createCall is a batch of one caller in progress.
type createCall struct {
	shard  int
	all    []newRecord
	todo   []*newRecord
	later  []*newRecord // whose ids exist, to be read by beginRead
	bytes  int
	out    job.CreateReply
	failed error
	// beginRead is BeginRead of the batch.
	beginRead func() (end func(), err error)
}

// groupsOf returns a group for each call.
func groupsOf(calls []*createCall) []createGroup {
	groups := make([]createGroup, len(calls))
	for i, c := range calls {
		groups[i] = createGroup{shard: c.shard, calls: calls[i : i+1]}
	}
	return groups
}

// createGroup are the batches of one shard whose records are stored together.
type createGroup struct {
	shard   int
	calls   []*createCall
	shares  bool         // its steps may share pipelines with calls of others
	steps   []createStep // of this pass
	earlier earlierLanes
}

// createStep is one run of the script.
type createStep struct {
	op      *runner.Op
	lanes   *laneKeys
	records []*newRecord
}

func (s *Store) newCreateCall(b job.CreateBatch) *createCall {
	c := &createCall{shard: b.Shard, out: job.CreateReply{Results: make([]job.CreateResult, len(b.Records))},
		beginRead: b.BeginRead}
	c.all = make([]newRecord, len(b.Records))
	c.todo = make([]*newRecord, len(b.Records))
	for i := range b.Records {
		c.todo[i] = &c.all[i]
		if err := c.all[i].encodeRecord(&b.Records[i], i, s.form()); err != nil {
			c.failed = err
		}
		c.all[i].call, c.all[i].maxPayload = c, math.MaxInt
		if b.PayloadBytes != nil {
			c.all[i].maxPayload = b.PayloadBytes[i]
		}
		c.bytes += c.all[i].size()
	}
	return c
}

// mayShare reports whether the records of a call may be stored together with those of others.
func (c *createCall) mayShare() bool {
	return c.failed == nil && len(c.todo) <= maxSharedCreateRecords && c.bytes <= maxSharedCreateBytes
}

// buildSteps divides the remaining records into steps.
func (g *createGroup) buildSteps(s *Store) []*runner.Op {
	g.steps = nil
	var rest []*newRecord
	for _, c := range g.calls {
		if c.failed == nil {
			rest = append(rest, c.todo...)
		}
		c.todo = nil
	}
	var ops []*runner.Op
	for len(rest) > 0 {
		n := recordsPerCall(rest)
		o, lanes := s.createOp(g.shard, rest[:n])
		o.MayShare = g.shares
		g.steps = append(g.steps, createStep{o, lanes, rest[:n]})
		ops, rest = append(ops, o), rest[n:]
	}
	return ops
}

// readReplies reads the replies of a pass. It also reads the existing records, except for calls that need a turn to read
// them, because other calls would wait for that turn. Records to be tried again are in todo of their calls.
func (g *createGroup) readReplies(ctx context.Context, s *Store) {
	var taken []*newRecord
	for _, step := range g.steps {
		again, err := step.readReply(s)
		if err != nil {
			failCalls(step.records, err)
			continue
		}
		g.earlier.addPairs(step.lanes, step.op.Reply.ListAt(3), step.op.Reply.TextAt(4))
		taken = append(taken, again...)
	}
	var now []*newRecord
	for _, n := range taken {
		switch {
		case n.call.failed != nil:
		case n.call.beginRead != nil:
			n.call.later = append(n.call.later, n)
		default:
			now = append(now, n)
		}
	}
	if err := s.readExisting(ctx, now); err != nil {
		failCalls(now, err)
	}
}

// readLater reads the existing records of one caller's calls, with a turn for each part. It reports whether some records
// are to be tried again, which are in todo of their calls.
func (s *Store) readLater(ctx context.Context, calls []*createCall) (again bool) {
	var taken []*newRecord
	for _, c := range calls {
		if c.failed == nil {
			taken = append(taken, c.later...)
		}
		c.later = nil
	}
	for part := range slices.Chunk(taken, maxExistingRead) {
		if err := s.readInTurn(ctx, part); err != nil {
			failCalls(taken, err)
			break
		}
	}
	for _, c := range calls {
		if c.failed != nil && len(taken) > 0 {
			s.reportEarlierLanes(c.shard, earlierLanes{c.out.Earlier, c.out.Holder})
		}
		again = again || len(c.todo) > 0
	}
	return again
}

// readInTurn reads existing records of one caller's calls in one turn. Without a turn, they are answered with its error.
func (s *Store) readInTurn(ctx context.Context, taken []*newRecord) error {
	end, err := taken[0].call.beginRead()
	if err != nil {
		for _, n := range taken {
			n.call.out.Results[n.index].Err = err
		}
		return nil
	}
	defer end()
	return s.readExisting(ctx, taken)
}

// failCalls fails the calls that have some of these records.
func failCalls(records []*newRecord, err error) {
	for _, n := range records {
		n.call.failed = err
	}
}

// readReply reads the reply of the script and returns the records whose id exists:
// {code, clock, codes, {place, due ...}, lock value}.
func (step createStep) readReply(s *Store) (taken []*newRecord, err error) {
	unconfirmed := rediserr.Wrap(step.op.Name, step.op.Err)
	if unconfirmed != nil && !errors.Is(unconfirmed, job.ErrDurability) {
		return nil, unconfirmed
	}
	r := step.op.Reply
	codes := r.TextAt(2)
	if len(codes) < len(step.records) {
		return nil, fmt.Errorf("create: %w: %d answers for %d records", codec.ErrCorrupt, len(codes), len(step.records))
	}
	now := unixtime.Micro(r.IntAt(1))
	for k, n := range step.records {
		switch codes[k] {
		case '1', '2':
			taken = append(taken, n)
		case '3':
			s.metrics.countReplays("create", 1)
		}
		n.isAnswered = true
		out := &n.call.out
		out.Results[n.index] = job.CreateResult{Code: createCode(codes[k])}
		out.NowUS = max(out.NowUS, now)
		if unconfirmed != nil && out.Err == nil {
			out.Err = unconfirmed
		}
	}
	return taken, nil
}

// reportEarlier gives the lanes that became due earlier to one caller, which notifies the holder of the shard. If all
// calls have failed, although records were stored, the store notifies it.
func (g *createGroup) reportEarlier(s *Store) {
	for _, c := range g.calls {
		if c.failed == nil {
			c.out.Earlier = append(c.out.Earlier, g.earlier.heads...)
			c.out.Holder = cmp.Or(g.earlier.holder, c.out.Holder)
			return
		}
	}
	s.reportEarlierLanes(g.shard, g.earlier)
}

// result returns the reply of a call. Without an answer to each of its records, it is unknown what was stored: the
// caller that sent them has panicked.
func (c *createCall) result() job.CreateReply {
	switch {
	case c.failed != nil:
		return job.CreateReply{Err: c.failed}
	case !c.isAnswered():
		return job.CreateReply{Err: rediserr.Wrap("create", rediserr.ErrNoAnswer)}
	}
	return c.out
}

// isAnswered reports whether each record has had an answer.
func (c *createCall) isAnswered() bool {
	for i := range c.all {
		if !c.all[i].isAnswered {
			return false
		}
	}
	return true
}

// newRecord is a record to be created.
type newRecord struct {
	call  *createCall
	index int // among the records of the call
	// isAnswered: the reply of a script has had an answer for it.
	isAnswered bool
	id         job.RecordID
	lane       job.Lane
	score      int64
	state      string
	def        []byte
	replaces   string // unreadable state text that may be overwritten
	watchMS    int64  // when to check the objective of its run; 0: none
	maxPayload int    // of an existing record in the answer
	record     *job.Record
}

// encodeRecord encodes what is to be stored.
func (n *newRecord) encodeRecord(r *job.Record, index int, f codec.Encoding) (err error) {
	*n = newRecord{
		index: index, record: r, id: r.Definition.Record(), lane: r.State.Lane,
		score:   job.Score(r.State.Region, r.IndexMS),
		watchMS: int64(r.Definition.BreachAtMS(&r.State)),
	}
	n.state, err = f.ForStates(historyLimit(r.Definition)).EncodeState(&r.State)
	if err != nil {
		return fmt.Errorf("create %s: %w", n.id, err)
	}
	n.def, err = f.EncodeDefinition(r.Definition)
	if err != nil {
		return fmt.Errorf("create: %w", err)
	}
	return nil
}

// size is about how many bytes it is in a call of the script.
func (n *newRecord) size() int { return len(n.id) + len(n.state) + len(n.def) }

func createCode(digit byte) job.CreateCode {
	switch digit {
	case '1':
		return job.Exists
	case '2':
		return job.Tombstone
	}
	return job.Created
}

// recordsPerCall returns how many records fit into one call.
func recordsPerCall(records []*newRecord) int {
	size := 0
	for i, r := range records {
		size += r.size()
		if i == createItems || i > 0 && size > callBytes {
			return i
		}
	}
	return len(records)
}

func (s *Store) createOp(shard int, records []*newRecord) (*runner.Op, *laneKeys) {
	keys := s.shards[shard]
	fixed := []string{keys.Meta, keys.State, keys.Def, keys.Lanes, keys.Lock}
	lanes := newLaneKeys(keys, len(fixed))
	argv := make([]any, 0, 4*len(records)+4)
	for rest := records; len(rest) > 0; {
		group := rest[:sameGroupCount(rest)]
		rest = rest[len(group):]
		least, width := group[0].score, group[0].argumentCount()
		for _, r := range group {
			least = min(least, r.score)
		}
		argv = append(argv, lanes.placeOf(group[0].lane), len(group), least, width)
		for _, r := range group {
			// Pointers, so that no argument is copied to the heap once more.
			argv = append(argv, (*string)(&r.id), &r.state, &r.score, r.def)
			if width > 4 {
				argv = append(argv, &r.replaces)
			}
			if width > 5 {
				argv = append(argv, lanes.objectivesPlace(), r.watchMS)
			}
		}
	}
	names := lanes.appendKeysTo(fixed)
	if s.events != nil {
		names, argv = append(names, keys.Events), s.events.appendCreated(argv, records)
	}
	return runner.NewScriptCall(s.scripts.create, shard, names, argv), lanes
}

// argumentCount is how many arguments of the script call it has.
func (n *newRecord) argumentCount() int {
	switch {
	case n.watchMS != 0:
		return 7
	case n.replaces != "":
		return 5
	}
	return 4
}

// sameGroupCount returns how many records at the beginning form one group of the script.
func sameGroupCount(records []*newRecord) int {
	first := records[0]
	for i, r := range records {
		if r.lane != first.lane || r.argumentCount() != first.argumentCount() {
			return i
		}
	}
	return len(records)
}

// readExisting reads the records that have the ids. Those to be tried again are in todo of their calls: the id is free
// by now, or its record is unreadable.
func (s *Store) readExisting(ctx context.Context, taken []*newRecord) error {
	for part := range slices.Chunk(taken, maxExistingRead) {
		if err := s.readExistingPart(ctx, part); err != nil {
			return err
		}
	}
	return nil
}

func (s *Store) readExistingPart(ctx context.Context, taken []*newRecord) error {
	byShard := map[int][]*newRecord{}
	for _, n := range taken {
		byShard[n.call.shard] = append(byShard[n.call.shard], n)
	}
	var reads []*rawRead
	for shard, records := range byShard {
		ids := make([]job.RecordID, len(records))
		for i, n := range records {
			ids[i] = n.id
		}
		reads = append(reads, s.newRawRead(shard, ids))
	}
	if err := s.performReads(ctx, reads); err != nil {
		return err
	}
	for _, r := range reads {
		for i, raw := range r.raw() {
			byShard[r.shard][i].takeExisting(s, raw)
		}
	}
	return nil
}

// takeExisting answers with what is stored under the id, or has the record tried again.
func (n *newRecord) takeExisting(s *Store, stored rawRecord) {
	record, err := stored.record(n.id)
	if err == nil && record != nil {
		out := &n.call.out.Results[n.index]
		out.Existing, out.NoPayload = n.withinAnswer(record)
		return
	}
	if err != nil {
		s.runner.ReportCorrupt(n.call.shard, "create", err, string(n.id))
		n.replaces = stored.state
	}
	n.call.todo = append(n.call.todo, n)
}

// withinAnswer leaves out the payload of an existing record that is too large for the answer.
func (n *newRecord) withinAnswer(existing *job.Record) (record *job.Record, noPayload bool) {
	d := existing.Definition
	if len(d.Payload) <= n.maxPayload {
		return existing, false
	}
	small := *d
	small.Payload, small.PayloadKey = nil, ""
	return &job.Record{Definition: &small, State: existing.State, IndexMS: existing.IndexMS}, true
}

// DefinitionBytes is how many bytes of Redis' memory the id and the definition of a job are,
// without what Redis adds.
func (s *Store) DefinitionBytes(d *job.Definition) int {
	text, err := s.form().EncodeDefinition(d)
	if err != nil {
		return 0 // it cannot be stored either
	}
	return len(d.Record()) + len(text)
}
