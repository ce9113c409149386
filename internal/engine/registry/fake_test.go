package registry

import (
	"context"
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/schedule"
	"github.com/fermata-io/fermata/internal/core/unixtime"
)

const fakeShards = 4

// fake is a store and a ledger in memory. It orders its records by id, so that
// its cursors are stable.
type fake struct {
	onNow     func() // called when a clock is read
	Index            // only real stores have one
	EndedRuns        // likewise
	Renames          // likewise
	mu        sync.Mutex
	now       unixtime.Milli
	records   map[job.Key]job.Record
	history   map[job.Key][]job.Run
	payloads  map[job.RecordID]*job.RunPayload // that runs have of their own
	// meddle runs before the next change is decided, as a concurrent client.
	meddle func()
	err    error
	calls  []int // records of each Create
	// unconfirmed: Create stores everything and answers with ErrDurability.
	// vanishing: it answers that ids are taken, by jobs that are gone again.
	unconfirmed, vanishing bool

	// children are the states of runs and dead letters that are records of their
	// own.
	children map[job.RecordID]job.State
	letters  map[job.RecordID]job.DeadLetter
	settings map[job.QueueKey]job.QueueSettings
	// queueOwner is the identity of the last settings.
	queueOwner string
	// beforeSwap is what somebody else does just before settings are replaced.
	beforeSwap func()
	cells      map[string]string
	facts      job.Facts

	worst    [job.RankingCount][]job.Ranked
	overdue  []job.Ranked
	unranked []string

	got         int // jobs that Get has read
	letterReads int // reads of dead letters, of so many bytes each
	letterBytes int

	notices   []job.Notice
	nudged    []job.LaneHead
	cancelled []uint64
}

var start = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func newFake(t testing.TB) (*fake, *Registry) {
	t.Helper()
	f := &fake{
		now: unixtime.MilliOf(start), records: map[job.Key]job.Record{}, history: map[job.Key][]job.Run{}, payloads: map[job.RecordID]*job.RunPayload{},
		children: map[job.RecordID]job.State{}, letters: map[job.RecordID]job.DeadLetter{},
		settings: map[job.QueueKey]job.QueueSettings{}, cells: map[string]string{},
	}
	r, err := NewUnhurried(Options{Store: f, Rankings: f, SharedLimits: f, Ledger: f, Observer: f, Nudger: f, Canceller: f, Cluster: f})
	if err != nil {
		t.Fatal(err)
	}
	return f, r
}

func (f *fake) ShardOf(k job.Key) int {
	h := fnv.New32a()
	h.Write([]byte(k.Record()))
	return int(h.Sum32() % fakeShards)
}

func (f *fake) Now(context.Context, int) (unixtime.Milli, error) {
	if f.onNow != nil {
		f.onNow()
	}
	return f.now, f.err
}

func (f *fake) Create(_ context.Context, batches []job.CreateBatch) []job.CreateReply {
	replies := make([]job.CreateReply, len(batches))
	for i, b := range batches {
		replies[i] = f.create(b.Shard, b.Records)
	}
	f.beginRead(batches, replies)
	return replies
}

// beginRead takes the turn of a call some of whose jobs exist.
func (f *fake) beginRead(batches []job.CreateBatch, replies []job.CreateReply) {
	exists := func(r job.CreateResult) bool { return r.Code == job.Exists }
	if !slices.ContainsFunc(replies, func(r job.CreateReply) bool { return slices.ContainsFunc(r.Results, exists) }) ||
		batches[0].BeginRead == nil {
		return
	}
	end, err := batches[0].BeginRead()
	if err == nil {
		end()
		return
	}
	for _, reply := range replies {
		for i, r := range reply.Results {
			if exists(r) {
				reply.Results[i] = job.CreateResult{Code: job.Exists, Err: err}
			}
		}
	}
}

func (f *fake) create(shard int, records []job.Record) job.CreateReply {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err != nil {
		return job.CreateReply{Err: f.err}
	}
	f.calls = append(f.calls, len(records))
	var reply job.CreateReply
	if f.unconfirmed {
		reply.Err = job.ErrDurability
	}
	for _, r := range records {
		key := r.Definition.Key
		if f.ShardOf(key) != shard {
			panic("record in the wrong shard")
		}
		old, ok := f.records[key]
		switch {
		case f.vanishing:
			reply.Results = append(reply.Results, job.CreateResult{Code: job.Exists})
		case ok && old.State.Deleting:
			reply.Results = append(reply.Results, job.CreateResult{Code: job.Tombstone})
		case ok:
			reply.Results = append(reply.Results, job.CreateResult{Code: job.Exists, Existing: &old})
		default:
			f.records[key] = r
			reply.Results = append(reply.Results, job.CreateResult{Code: job.Created})
			reply.Earlier = append(reply.Earlier, job.LaneHead{Lane: r.State.Lane, DueMS: r.IndexMS})
		}
	}
	return reply
}

func (f *fake) Get(_ context.Context, keys []job.Key) ([]*job.Record, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := make([]*job.Record, len(keys))
	f.got += len(keys)
	for i, k := range keys {
		if r, ok := f.records[k]; ok {
			out[i] = &r
		}
	}
	return out, f.err
}

func (f *fake) ReadStates(_ context.Context, entries []job.IndexEntry) ([]*job.State, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := make([]*job.State, len(entries))
	for i, e := range entries {
		if r, ok := f.records[e.Record.Key()]; ok {
			out[i] = &r.State
		}
	}
	return out, f.err
}

func (f *fake) ListFailing(context.Context, string) ([]job.Ranked, bool, error) {
	return f.worst[job.RankingFailing], false, f.err
}

func (f *fake) Revisions(_ context.Context, _ int, ids []job.RecordID) ([][]*job.Definition, error) {
	return make([][]*job.Definition, len(ids)), f.err
}

func (f *fake) Shards() int { return fakeShards }

func (f *fake) DefinitionBytes(d *job.Definition) int { return len(d.Record()) + len(d.Payload) }

func (f *fake) WrittenBytes(w *job.Restoration) job.WrittenBytes {
	return job.WrittenBytes{Definition: f.DefinitionBytes(w.Record.Definition)}
}

func (f *fake) StoredBytes(*job.StoredJob) int { return 0 }

// ListRanked gives what the test has put in, whether it is true or not.
func (f *fake) ListRanked(_ context.Context, shards []int, which job.Ranking, namespace string, n int) ([]job.Ranked, error) {
	return f.ranked(shards, f.worst[which], namespace, n), f.err
}

func (f *fake) ListOverdue(_ context.Context, shards []int, namespace string, n int) ([]job.Ranked, error) {
	return f.ranked(shards, f.overdue, namespace, n), f.err
}

func (f *fake) ranked(shards []int, list []job.Ranked, namespace string, n int) (out []job.Ranked) {
	for _, e := range list {
		key := e.Record.Key()
		e.Shard = f.ShardOf(key)
		if slices.Contains(shards, e.Shard) && (namespace == "" || key.Namespace == namespace) && len(out) < n {
			out = append(out, e)
		}
	}
	return out
}

func (f *fake) RemoveRanked(_ context.Context, which job.Ranking, entries []job.Ranked) error {
	for _, e := range entries {
		f.unranked = append(f.unranked, string(e.Record))
	}
	return f.err
}

func (f *fake) List(_ context.Context, namespace, cursor string, budget int) ([]job.Record, string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var all []job.Record
	for _, r := range f.records {
		if r.Definition.Namespace == namespace {
			all = append(all, r)
		}
	}
	// By the reversed id, so that chunks are not sorted by id.
	slices.SortFunc(all, func(a, b job.Record) int { return strings.Compare(reversed(a), reversed(b)) })
	// The cursor is the reversed id before the chunk: deletions do not move it.
	after, ok := strings.CutPrefix(cursor, "after ")
	if cursor != "" && !ok {
		return nil, "", fmt.Errorf("%w: %q", job.ErrCursor, cursor)
	}
	from := len(all)
	if i := slices.IndexFunc(all, func(r job.Record) bool { return reversed(r) > after }); i >= 0 {
		from = i
	}
	to := min(from+budget, len(all))
	next := ""
	if to < len(all) {
		next = "after " + reversed(all[to-1])
	}
	return all[from:to], next, f.err
}

func reversed(r job.Record) string {
	b := []byte(r.Definition.ID)
	slices.Reverse(b)
	return string(b)
}

func (f *fake) Runs(_ context.Context, key job.Key, limit int) ([]job.Run, error) {
	h := f.history[key]
	return h[:min(len(h), limit)], f.err
}

func (f *fake) RecentRuns(_ context.Context, records []job.Record, most int) ([][]job.Run, error) {
	runs := make([][]job.Run, len(records))
	for i := range records {
		h := f.history[records[i].Definition.Key]
		runs[i] = h[:min(len(h), most)]
	}
	return runs, f.err
}

func (f *fake) RunPayloads(_ context.Context, _ int, ids []job.RecordID) ([]*job.RunPayload, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := make([]*job.RunPayload, len(ids))
	for i, id := range ids {
		out[i] = f.payloads[id]
	}
	return out, f.err
}

func (f *fake) SubmitAndWait(_ context.Context, changes ...job.Change) []job.ChangeResult {
	var out []job.ChangeResult
	for _, c := range changes {
		if m := f.meddle; m != nil {
			f.meddle = nil
			m()
		}
		out = append(out, f.do(c))
	}
	return out
}

func (f *fake) do(c job.Change) job.ChangeResult {
	f.mu.Lock()
	defer f.mu.Unlock()
	key := c.Record.Key()
	r, ok := f.records[key]
	if f.err != nil || !ok {
		return job.ChangeResult{Err: firstOf(f.err, job.ErrNotFound)}
	}
	compiled, err := job.Compile(r.Definition)
	if err != nil {
		return job.ChangeResult{Err: err}
	}
	if !c.Record.IsJob() {
		return f.doChild(compiled, r, c)
	}
	d := job.Decide(compiled, r.State, c.Input, f.now)
	if d.Changed && !c.MayBegin() {
		return job.ChangeResult{Err: context.Canceled}
	}
	f.spawn(key, d)
	f.notices = append(f.notices, d.Notices...)
	if d.Delete {
		delete(f.records, key)
		return job.ChangeResult{Answer: d.Answer, Changed: true, Deleted: true}
	}
	r.State = d.State
	if d.Definition != nil {
		r.Definition = d.Definition
	}
	if d.Ended != nil {
		f.history[key] = append([]job.Run{*d.Ended}, f.history[key]...)
	}
	f.records[key] = r
	return job.ChangeResult{Answer: d.Answer, Changed: d.Changed, Record: r, Spawn: d.Spawn}
}

// doChild decides on a child record and its parent.
func (f *fake) doChild(c *job.Compiled, parent job.Record, change job.Change) job.ChangeResult {
	state, ok := f.children[change.Record]
	if !ok {
		return job.ChangeResult{Err: job.ErrNotFound}
	}
	pair := job.DecideChild(c, parent.State, state, change.Input, f.now)
	if (pair.Child.Changed || pair.Child.Delete) && !change.MayBegin() {
		return job.ChangeResult{Err: context.Canceled}
	}
	f.notices = append(f.notices, pair.Parent.Notices...)
	if pair.Child.Changed {
		f.children[change.Record] = pair.Child.State
	}
	if pair.Child.Delete {
		delete(f.children, change.Record)
		delete(f.letters, change.Record)
	}
	if pair.Parent.Changed {
		parent.State = pair.Parent.State
		f.records[c.Key] = parent
	}
	if pair.Parent.Delete {
		delete(f.records, c.Key)
	}
	if e := pair.Parent.Ended; e != nil {
		f.history[c.Key] = append([]job.Run{*e}, f.history[c.Key]...)
	}
	f.spawn(c.Key, pair.Parent)
	return job.ChangeResult{
		Answer: pair.Child.Answer, Changed: pair.Child.Changed || pair.Child.Delete, Deleted: pair.Child.Delete,
		Record: job.Record{Definition: c.Definition, State: pair.Child.State},
	}
}

func (f *fake) spawn(key job.Key, d job.Decision) {
	if d.Spawn != nil {
		f.children[key.Record().Run(d.Spawn.Slot)] = d.Spawn.State
		f.payloads[key.Record().Run(d.Spawn.Slot)] = d.Spawn.Payload
	}
}

func (f *fake) GetRecords(_ context.Context, shard int, ids []job.RecordID) ([]*job.Record, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := make([]*job.Record, len(ids))
	for i, id := range ids {
		key := id.Key()
		if f.ShardOf(key) != shard {
			panic("record of another shard")
		}
		r, ok := f.records[key]
		if !id.IsJob() {
			r.State, ok = f.children[id]
		}
		if ok {
			out[i] = &r
		}
	}
	return out, f.err
}

func (f *fake) ReadDeadLetters(_ context.Context, entries []job.IndexEntry) (letters []job.DeadLetter, _ int, _ error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, l := range f.letters {
		if slices.ContainsFunc(entries, func(e job.IndexEntry) bool { return e.Record == l.Record }) {
			letters = append(letters, l)
		}
	}
	return letters, 0, nil
}

func (f *fake) ListDeadLetters(_ context.Context, namespace, cursor string, budget int) ([]job.DeadLetter, string, int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var all []job.DeadLetter
	for _, l := range f.letters {
		if strings.HasPrefix(string(l.Record), namespace+"/") {
			all = append(all, l)
		}
	}
	slices.SortFunc(all, func(a, b job.DeadLetter) int { return strings.Compare(string(a.Record), string(b.Record)) })
	from, _ := strconv.Atoi(cursor)
	to := min(from+budget, len(all))
	next := ""
	if to < len(all) {
		next = strconv.Itoa(to)
	}
	f.letterReads++
	return all[min(from, to):to], next, f.letterBytes, f.err
}

func (f *fake) ReadCells(_ context.Context, names []string) []job.CellReply {
	out := make([]job.CellReply, len(names))
	for i, name := range names {
		out[i] = job.CellReply{Text: f.cells[name], NowMS: f.now, Err: f.err}
	}
	return out
}

func (f *fake) SwapCells(_ context.Context, swaps []job.CellSwap) []job.CellReply {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := make([]job.CellReply, len(swaps))
	for i, s := range swaps {
		if f.err == nil && f.cells[s.Name] == s.Old {
			f.cells[s.Name] = s.New
		}
		text := f.cells[s.Name]
		out[i] = job.CellReply{Text: text, Swapped: text == s.New, NowMS: f.now, Err: f.err}
	}
	return out
}

func (f *fake) ViewUnits(_ context.Context, names []string, _ int) []job.UnitsView {
	return make([]job.UnitsView, len(names))
}

func (f *fake) FreeUnits(_ context.Context, _ string, limit int) (int, error) {
	return limit - 2, f.err
}

func (f *fake) ReadQueueSettings(_ context.Context, q job.QueueKey) (job.QueueSettings, error) {
	return f.settings[q], f.err
}

func (f *fake) PutQueueSettings(_ context.Context, q job.QueueKey, s job.QueueSettings, identity string) error {
	f.settings[q], f.queueOwner = s, identity
	return f.err
}

func (f *fake) SwapQueueSettings(ctx context.Context, q job.QueueKey, old, s job.QueueSettings,
	identity string) error {
	if f.beforeSwap != nil {
		f.beforeSwap()
	}
	if f.settings[q] != old {
		return job.ErrSettingsChanged
	}
	return f.PutQueueSettings(ctx, q, s, identity)
}

func (f *fake) JobFacts(context.Context, int, job.QueueKey) job.Facts { return f.facts }

func firstOf(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// lease makes the record live, as a leasing script does.
func (f *fake) lease(key job.Key, token uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	r := f.records[key]
	r.State = r.State.Leased(token)
	f.records[key] = r
}

func (f *fake) Observe(n []job.Notice) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.notices = append(f.notices, n...)
}

func (f *fake) Nudge(_ int, heads []job.LaneHead, _ string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.nudged = append(f.nudged, heads...)
}

func (f *fake) CancelAttempt(_ job.RecordID, token uint64) { f.cancelled = append(f.cancelled, token) }

func definition(id string) job.Definition {
	d := job.WithDefaults(job.Definition{
		Key:      job.Key{Namespace: "default", ID: id},
		Handler:  "http",
		Schedule: schedule.Spec{Kind: schedule.KindInterval, Every: time.Minute},
	})
	d.Priority, d.HistoryLimit = job.DefaultPriority, job.DefaultHistoryLimit
	return d
}
