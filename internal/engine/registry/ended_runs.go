package registry

import (
	"cmp"
	"container/heap"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/unixtime"
)

// This file lists runs of all jobs that ended, the last end first. It merges the indexes of unsuccessful runs, one for
// each shard and queue, and the events of all shards, which have the runs that succeeded. Indexes of queues that the
// caller may not see are not read at all, so that neither pages nor tokens show anything of them.

// EndedRuns reads the indexes of ended runs.
type EndedRuns interface {
	// FindUnsuccessful lists the indexes of wanted queues that may have a run which ended at an instant or later.
	FindUnsuccessful(ctx context.Context, since unixtime.Milli, want func(job.QueueKey) bool) ([]job.UnsuccessfulIndex,
		error)
	ReadUnsuccessful(ctx context.Context, ranges []job.UnsuccessfulRange) ([][]job.IndexedRun, error)
	// ReadSuccesses fails with [job.ErrEventsOff] if no events are kept.
	ReadSuccesses(ctx context.Context, ranges []job.SuccessRange) ([][]job.SuccessEvent, error)
}

// runPlace is where a list of ended runs continues. Callers can read it: it names a queue that they may see, and how
// many runs of it ended in the same millisecond, or the number of an event.
type runPlace struct {
	EndMS  unixtime.Milli `json:"t"`
	Shard  int            `json:"s"`
	Queue  string         `json:"q,omitempty"` // namespace/queue; "" stands for the events of the shard
	Number uint64         `json:"n"`
	Filter string         `json:"f"`
}

func (p runPlace) compareSource(q runPlace) int {
	return cmp.Or(cmp.Compare(p.Shard, q.Shard), cmp.Compare(p.Queue, q.Queue))
}

// isBefore reports whether a list has a place before another one of another source.
func (p runPlace) isBefore(q runPlace) bool {
	return cmp.Or(cmp.Compare(q.EndMS, p.EndMS), p.compareSource(q)) < 0
}

func (p runPlace) encodeToken() string {
	text, err := json.Marshal(p)
	if err != nil {
		panic(err) // a struct of strings and numbers
	}
	return base64.RawURLEncoding.EncodeToString(text)
}

// parseRunPlace reads a token and refuses one of another list. Without a token, the place is that before the end of
// the window.
func parseRunPlace(q *job.EndedRunsQuery) (runPlace, error) {
	call := fmt.Sprintf("ListRuns %d %d %v", q.StartMS, q.EndMS, q.Outcomes)
	start := runPlace{EndMS: cmp.Or(q.EndMS, job.NeverMS) - 1, Shard: -1, Filter: fingerprintFilter(call, q.Filter)}
	if q.Token == "" {
		return start, nil
	}
	var p runPlace
	text, err := base64.RawURLEncoding.DecodeString(q.Token)
	if err == nil {
		err = json.Unmarshal(text, &p)
	}
	switch {
	case err != nil, p.Shard < 0, p.EndMS < 0, p.EndMS > start.EndMS, p.Queue != "" && p.Number > math.MaxInt32:
		return p, job.Invalid("page_token", "is not one that ListRuns gave")
	case p.Filter != start.Filter:
		return p, job.Invalid("page_token", "belongs to a listing with another parent, window or filter")
	}
	return p, nil
}

// runCandidate is an entry of a source with its place. run is nil if the source does not select it.
type runCandidate struct {
	at  runPlace
	run *job.EndedRun
}

// runSource is one index, or the events of a shard.
type runSource struct {
	queue  job.QueueKey // zero: the events of the shard
	next   runPlace     // where the next read starts, inclusive. Number: of entries of EndMS that were read
	before job.Place    // of events: the next read ends before it
	buffer []runCandidate
	done   bool // there are no more entries than in the buffer
}

// bound is the first place that the next entry of the source can have.
func (s *runSource) bound() runPlace {
	if len(s.buffer) > 0 {
		return s.buffer[0].at
	}
	return s.next
}

func (s *runSource) readsEvents() bool { return s.queue == job.QueueKey{} }

// newRunSource returns a source that continues after a place of the list.
func newRunSource(shard int, queue job.QueueKey, after runPlace) *runSource {
	s := &runSource{queue: queue, next: runPlace{EndMS: after.EndMS, Shard: shard, Filter: after.Filter}}
	if !s.readsEvents() {
		s.next.Queue = queue.Namespace + "/" + queue.Queue
	}
	s.before = job.Place{MS: after.EndMS + 1}
	switch c := s.next.compareSource(after); {
	case c < 0: // its entries of this instant come before the place
		s.next.EndMS--
		s.before.MS--
	case c == 0:
		s.next.Number = after.Number
		s.before = job.Place{MS: after.EndMS, Seq: after.Number}
	}
	return s
}

// runMerge merges sources by the end of runs.
type runMerge struct {
	store   EndedRuns
	startMS unixtime.Milli
	ns      string // of events; "" for all
	heap    runHeap
}

// mergeEndedRuns opens the sources that a query needs.
func (r *Registry) mergeEndedRuns(ctx context.Context, q *job.EndedRunsQuery, after runPlace) (*runMerge, error) {
	m := &runMerge{store: r.o.Store, startMS: q.StartMS, ns: q.Filter.Namespace}
	if wantsUnsuccessful(q.Outcomes) {
		reaches := func(k job.QueueKey) bool { return reachesQueue(&q.Filter, k) }
		indexes, err := r.o.Store.FindUnsuccessful(ctx, q.StartMS, reaches)
		if err != nil {
			return nil, err
		}
		for _, x := range indexes {
			m.heap = append(m.heap, newRunSource(x.Shard, x.Queue, after))
		}
	}
	if wantsOutcome(q.Outcomes, job.OutcomeSucceeded) {
		for shard := range r.o.Store.Shards() {
			m.heap = append(m.heap, newRunSource(shard, job.QueueKey{}, after))
		}
	}
	heap.Init(&m.heap)
	return m, nil
}

// next pops entries from the source with the first bound, and reads sources whose entries have been used up.
func (m *runMerge) next(ctx context.Context, n int) (found []runCandidate, more bool, err error) {
	chunk := min(max(2*n/max(1, len(m.heap)), 8), filterChunk)
	for len(m.heap) > 0 && len(found) < n {
		s := m.heap[0]
		if len(s.buffer) == 0 {
			if err := m.refill(ctx, chunk); err != nil {
				return nil, false, err
			}
			continue
		}
		found = append(found, s.buffer[0])
		s.buffer = s.buffer[1:]
		if len(s.buffer) == 0 && s.done {
			heap.Pop(&m.heap)
		} else {
			heap.Fix(&m.heap, 0)
		}
	}
	return found, len(m.heap) > 0, nil
}

// refill reads the first sources, as long as nothing of them is known.
func (m *runMerge) refill(ctx context.Context, chunk int) error {
	var indexes, streams []*runSource
	for len(m.heap) > 0 && len(m.heap[0].buffer) == 0 && len(indexes)+len(streams) < lanesPerRefill {
		s := heap.Pop(&m.heap).(*runSource)
		if s.readsEvents() {
			streams = append(streams, s)
		} else {
			indexes = append(indexes, s)
		}
	}
	if err := m.readIndexes(ctx, indexes, chunk); err != nil {
		return err
	}
	if err := m.readStreams(ctx, streams, max(chunk, minEventsPerRead)); err != nil {
		return err
	}
	for _, s := range append(indexes, streams...) {
		if len(s.buffer) > 0 || !s.done {
			heap.Push(&m.heap, s)
		}
	}
	return nil
}

// minEventsPerRead is how many events a read has at least: few of them are about runs that succeeded.
const minEventsPerRead = 64

func (m *runMerge) readIndexes(ctx context.Context, sources []*runSource, chunk int) error {
	if len(sources) == 0 {
		return nil
	}
	ranges := make([]job.UnsuccessfulRange, len(sources))
	for i, s := range sources {
		ranges[i] = job.UnsuccessfulRange{
			UnsuccessfulIndex: job.UnsuccessfulIndex{Shard: s.next.Shard, Queue: s.queue},
			MinMS:             m.startMS, MaxMS: s.next.EndMS, Skip: int(s.next.Number), Limit: chunk,
		}
	}
	parts, err := m.store.ReadUnsuccessful(ctx, ranges)
	if err != nil {
		return err
	}
	for i, s := range sources {
		for _, e := range parts[i] {
			if e.EndMS != s.next.EndMS {
				s.next.EndMS, s.next.Number = e.EndMS, 0
			}
			s.next.Number++
			s.buffer = append(s.buffer, runCandidate{at: s.next, run: e.Run})
		}
		s.done = len(parts[i]) < chunk
	}
	return nil
}

func (m *runMerge) readStreams(ctx context.Context, sources []*runSource, chunk int) error {
	if len(sources) == 0 {
		return nil
	}
	ranges := make([]job.SuccessRange, len(sources))
	for i, s := range sources {
		ranges[i] = job.SuccessRange{Shard: s.next.Shard, FromMS: m.startMS, Before: s.before, Limit: chunk, Namespace: m.ns}
	}
	parts, err := m.store.ReadSuccesses(ctx, ranges)
	if err != nil {
		return err
	}
	for i, s := range sources {
		for _, e := range parts[i] {
			s.before = e.Place
			s.next.EndMS, s.next.Number = e.Place.MS, e.Place.Seq
			s.buffer = append(s.buffer, runCandidate{at: s.next, run: e.Run})
		}
		s.done = len(parts[i]) < chunk
	}
	return nil
}

// runHeap is a heap of sources by their bounds.
type runHeap []*runSource

func (h runHeap) Len() int           { return len(h) }
func (h runHeap) Less(i, j int) bool { return h[i].bound().isBefore(h[j].bound()) }
func (h runHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *runHeap) Push(x any)        { *h = append(*h, x.(*runSource)) }
func (h *runHeap) Pop() any {
	last := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return last
}

func wantsUnsuccessful(outcomes []job.Outcome) bool {
	for o := job.OutcomeFailed; o <= job.OutcomeCancelled; o++ {
		if wantsOutcome(outcomes, o) {
			return true
		}
	}
	return false
}

// wantsOutcome reports whether outcomes have this one. None stands for all but success.
func wantsOutcome(outcomes []job.Outcome, o job.Outcome) bool {
	if len(outcomes) == 0 {
		return o.IsUnsuccessful()
	}
	for _, want := range outcomes {
		if o == want && o != job.OutcomeNone {
			return true
		}
	}
	return false
}

// reachesQueue reports whether runs of a queue may be selected.
func reachesQueue(f *job.Filter, q job.QueueKey) bool {
	return (f.AllNamespaces || q.Namespace == f.Namespace) && (f.Queue == "" || q.Queue == f.Queue) &&
		f.CoversAll(q.Queue) && (f.Scope == nil || f.Scope(q))
}

// limitedScanFactor is how much longer a page may take for a caller who may not see all. The events of all are in one
// stream: pages of such a caller pass over those of others, and do not end by how many they are.
const limitedScanFactor = 10

// endedPage builds one page of ended runs.
type endedPage struct {
	registry *Registry
	query    *job.EndedRunsQuery
	size     int
	deadline time.Time
	at       runPlace // everything up to it has been looked at

	runs              []job.EndedRun
	looked, read      int
	ended, incomplete bool
}

// ListEndedRuns lists runs of all jobs that ended, the last end first. A run that ends while pages are read may be left
// out. The pages are stable otherwise.
func (r *Registry) ListEndedRuns(ctx context.Context, q job.EndedRunsQuery) (job.EndedRunsPage, error) {
	if err := validateEndedRuns(&q); err != nil {
		return job.EndedRunsPage{}, err
	}
	after, err := parseRunPlace(&q)
	if err != nil || planOf(q.Filter).Nothing {
		return job.EndedRunsPage{}, err
	}
	m, err := r.mergeEndedRuns(ctx, &q, after)
	if err != nil {
		return job.EndedRunsPage{}, err
	}
	p := &endedPage{registry: r, query: &q, size: cmp.Or(q.PageSize, DefaultPageSize), at: after,
		deadline: time.Now().Add(r.o.ScanTime)}
	if isLimited(&q.Filter) {
		p.deadline = p.deadline.Add((limitedScanFactor - 1) * r.o.ScanTime)
	}
	if err := p.fill(ctx, m); err != nil {
		return job.EndedRunsPage{}, err
	}
	page := job.EndedRunsPage{Runs: p.runs, Incomplete: p.incomplete}
	if !p.ended {
		page.Next = p.at.encodeToken()
	}
	return page, nil
}

func validateEndedRuns(q *job.EndedRunsQuery) error {
	if err := validateFilter(q.Filter, q.PageSize); err != nil {
		return err
	}
	if q.EndMS != 0 && q.EndMS <= q.StartMS {
		return job.Invalid("end_time", "must be after start_time")
	}
	return nil
}

func (p *endedPage) fill(ctx context.Context, m *runMerge) error {
	for {
		candidates, more, err := m.next(ctx, min(max(p.size-len(p.runs), p.looked-len(p.runs), 16), filterChunk))
		if err != nil {
			return err
		}
		full, err := p.take(ctx, candidates)
		switch {
		case err != nil || full:
			return err
		case !more:
			p.ended = true
			return nil
		case len(p.runs) >= p.size:
			return nil
		case p.looked >= scanRecords || p.read >= pageBytes || !time.Now().Before(p.deadline):
			p.incomplete = true
			return nil
		}
	}
}

// take adds those candidates that match. full: there was no room for all of them.
func (p *endedPage) take(ctx context.Context, candidates []runCandidate) (full bool, err error) {
	for len(candidates) > 0 {
		part := candidates[:min(readAtOnce, len(candidates))]
		candidates = candidates[len(part):]
		jobs, err := p.readJobs(ctx, part)
		if err != nil {
			return false, err
		}
		for _, c := range part {
			wanted := p.wantsRun(c.run) && p.wantsJob(c.run.Key, jobs)
			if wanted && len(p.runs) >= p.size {
				return true, nil
			}
			p.at = c.at
			if p.wantsRun(c.run) || !isLimited(&p.query.Filter) {
				p.looked++
			}
			if wanted {
				p.runs = append(p.runs, *c.run)
			}
		}
	}
	return false, nil
}

// wantsRun decides by what is known without the job.
func (p *endedPage) wantsRun(run *job.EndedRun) bool {
	if run == nil || !reachesQueue(&p.query.Filter, job.QueueKey{Namespace: run.Key.Namespace, Queue: run.Queue}) {
		return false
	}
	plan := planOf(p.query.Filter)
	return wantsRecord(&p.query.Filter, &plan, run.Key.Record()) &&
		(plan.Namespace == "" || run.Key.Namespace == plan.Namespace) &&
		(wantsOutcome(p.query.Outcomes, run.Outcome) || wantsOutcome(p.query.Outcomes, run.LastAttempt))
}

// readJobs reads the jobs of candidates, if they decide. A job that does not exist is nil.
func (p *endedPage) readJobs(ctx context.Context, part []runCandidate) (map[job.Key]*job.Record, error) {
	f := &p.query.Filter
	if f.Condition == nil && f.Covers == nil && f.Scope == nil {
		return nil, nil
	}
	jobs := map[job.Key]*job.Record{}
	var entries []job.IndexEntry
	for _, c := range part {
		if !p.wantsRun(c.run) {
			continue
		}
		if _, known := jobs[c.run.Key]; !known {
			jobs[c.run.Key] = nil
			entries = append(entries, job.IndexEntry{Shard: c.at.Shard, Record: c.run.Key.Record()})
		}
	}
	records, err := p.registry.o.Store.ReadEntries(ctx, entries)
	if err != nil {
		return nil, err
	}
	for i, record := range records {
		if record != nil && !record.State.Deleting {
			jobs[entries[i].Record.Key()] = record
			p.read += record.ResponseSize()
		}
	}
	return jobs, nil
}

// wantsJob decides by the job as it is now. A run of a deleted job is selected unless there is a condition. The job may
// have moved to a queue that the caller may not see.
func (p *endedPage) wantsJob(key job.Key, jobs map[job.Key]*job.Record) bool {
	f := &p.query.Filter
	record := jobs[key]
	if record == nil {
		return f.Condition == nil
	}
	return f.CoversAll(record.Definition.Queue) && f.Scope.Holds(record.Definition) &&
		(f.Condition == nil || f.Condition.Matches(record, f.NowMS))
}
