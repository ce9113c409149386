package redisstore

import (
	"context"
	"errors"
	"strconv"
	"sync"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/sharding"
	"github.com/fermata-io/fermata/internal/redis/rediserr"
)

// newsPerShard bounds the events of a shard that wait to be written and that no record
// is written with. What comes beyond them is lost, and counted.
const newsPerShard = 4096

// eventLine is what writing events needs. A nil one records none.
//
// An announcement is written no later than a decision that is made after it, of the same
// job: Apply, of which a shard has one call at a time, carries all announcements of its jobs
// before their decisions, and waits while FlushEvents is on its way with what the shard had.
// What writes beside it (Sweep, what mends the index) carries none: an announcement must
// not be on its way with one call while the next has the decision.
type eventLine struct {
	keep string // of each stream, about

	mu       sync.Mutex
	news     [][]announced // by shard
	some     map[int]bool
	flushing map[int]chan struct{} // shards that FlushEvents writes to; closed when it has
	waits    chan struct{}         // see Announced
}

type announced struct {
	key  job.Key
	text string
}

// newEventLine returns nil for no events to keep.
func newEventLine(keep, shards int) *eventLine {
	if keep == 0 {
		return nil
	}
	return &eventLine{
		keep: strconv.Itoa(max(100, keep/shards)), news: make([][]announced, shards),
		some: map[int]bool{}, flushing: map[int]chan struct{}{}, waits: make(chan struct{}, 1),
	}
}

// RecordsEvents tells whether events are recorded.
func (s *Store) RecordsEvents() bool { return s.events != nil }

// Announce puts happenings that are no decisions in line: they are written with what is
// next written in their shard, or by FlushEvents, and lost with this process before.
// One without a key goes to the shard that its node's name decides.
func (s *Store) Announce(happenings ...job.Happening) {
	l := s.events
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range happenings {
		h := &happenings[i]
		shard := s.shardOfHappening(h)
		if len(l.news[shard]) >= newsPerShard {
			s.metrics.eventsLost.Inc()
			continue
		}
		l.news[shard] = append(l.news[shard], announced{h.Key, encodeHappening(h)})
		l.waitsLocked(shard)
	}
}

// Announced has a token after something has come in line that FlushEvents may write.
func (s *Store) Announced() <-chan struct{} {
	if s.events == nil {
		return nil
	}
	return s.events.waits
}

// waitsLocked notes that something of the shard is in line.
func (l *eventLine) waitsLocked(shard int) {
	l.some[shard] = true
	select {
	case l.waits <- struct{}{}:
	default:
	}
}

func (s *Store) shardOfHappening(h *job.Happening) int {
	switch {
	case h.Kind == job.KindShardTaken:
		return h.Shard
	case h.Key == (job.Key{}):
		return sharding.ShardOf("", h.Node, len(s.shards))
	}
	return s.ShardOf(h.Key)
}

// take hands out what has to be written before decisions on these records: the first in
// line, as many as one call carries, and all that is of their jobs. It waits while the
// shard is flushed; when ctx ends meanwhile there is nothing.
func (l *eventLine) take(ctx context.Context, shard int, items []*applyItem) []announced {
	l.mu.Lock()
	defer l.mu.Unlock()
	for flushed := l.flushing[shard]; flushed != nil; flushed = l.flushing[shard] {
		l.mu.Unlock()
		select {
		case <-flushed:
		case <-ctx.Done():
		}
		l.mu.Lock()
		if ctx.Err() != nil {
			return nil
		}
	}
	n := min(len(l.news[shard]), applyItems)
	if rest := l.news[shard][n:]; len(rest) > 0 {
		n += lastOf(rest, items)
	}
	return l.cutLocked(shard, n)
}

// lastOf is the length of the part of the line that holds all that is of the items' jobs.
func lastOf(line []announced, items []*applyItem) int {
	jobs := make(map[job.Key]bool, len(items))
	for _, i := range items {
		jobs[i.record.Key()] = true
	}
	for n := len(line); n > 0; n-- {
		if jobs[line[n-1].key] {
			return n
		}
	}
	return 0
}

func (l *eventLine) cutLocked(shard, n int) []announced {
	all := l.news[shard]
	if l.news[shard] = all[n:]; len(all) == n {
		l.news[shard] = nil
		delete(l.some, shard)
	}
	return all[:n:n]
}

// flush hands out what waits in each shard, at most what one call carries. Until flushed,
// nobody else takes anything of these shards.
func (l *eventLine) flush() map[int][]announced {
	l.mu.Lock()
	defer l.mu.Unlock()
	taken := make(map[int][]announced, len(l.some))
	for shard := range l.some {
		if l.flushing[shard] == nil {
			l.flushing[shard] = make(chan struct{})
			taken[shard] = l.cutLocked(shard, min(len(l.news[shard]), applyItems))
		}
	}
	return taken
}

// flushed lets the shard go on, with what could not be written first in line again.
func (l *eventLine) flushed(shard int, failed []announced) {
	l.back(shard, failed)
	l.mu.Lock()
	defer l.mu.Unlock()
	close(l.flushing[shard])
	delete(l.flushing, shard)
	if l.some[shard] { // which came meanwhile, or was more than one call carries
		l.waitsLocked(shard)
	}
}

// back undoes take.
func (l *eventLine) back(shard int, taken []announced) {
	if len(taken) == 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.news[shard] = append(taken, l.news[shard]...)
	l.waitsLocked(shard)
}

// FlushEvents writes what Announce has put in line.
func (s *Store) FlushEvents(ctx context.Context) error {
	if s.events == nil {
		return nil
	}
	taken := s.events.flush()
	ops := make([]*op, 0, len(taken))
	for shard, line := range taken {
		argv := make([]any, 0, 2*len(line)+2)
		for _, a := range line {
			argv = append(argv, 0, a.text)
		}
		keys := s.shards[shard]
		ops = append(ops, call(s.scripts.announce, shard, []string{keys.meta, keys.events}, s.events.close(argv, len(line))))
	}
	if len(ops) == 0 {
		return nil
	}
	// What is decided waits for the flush of its shard, and need not for those of servers
	// that are away.
	var flushes sync.WaitGroup
	for _, group := range s.byServer(ctx, ops) {
		flushes.Go(func() {
			// The error of each op tells what becomes of it.
			_ = s.perform(ctx, group...)
			for _, o := range group {
				s.flushed(o, taken[o.shard])
			}
		})
	}
	flushes.Wait()
	return firstError(ops)
}

// flushed lets a shard go on after its flush.
func (s *Store) flushed(o *op, line []announced) {
	switch {
	case o.err == nil:
		line = nil
	case errors.Is(o.err, job.ErrNoMemory):
		s.metrics.eventsLost.Add(float64(len(line)))
		line = nil
	}
	s.events.flushed(o.shard, line)
}

// close ends the arguments of a script that records events.
func (l *eventLine) close(argv []any, events int) []any { return append(argv, l.keep, events) }

// withEvents adds the events of the writes, and what goes with them before them.
func (c *applyCall) withEvents(s *Store, argv []any, writes []job.Write) []any {
	n := 0
	for _, a := range c.news {
		argv, n = append(argv, 0, a.text), n+1
	}
	for i, item := range c.items {
		if item.write < 0 || writes == nil {
			continue
		}
		w := &writes[item.write]
		labels := w.Current.Labels
		if d := w.Decision.Definition; d != nil {
			labels = d.Labels
		}
		for k := range w.Decision.Notices {
			if h, ok := job.Happened(&w.Decision.Notices[k], labels); ok {
				argv, n = append(argv, i+1, encodeHappening(&h)), n+1
			}
		}
	}
	return s.events.close(argv, n)
}

// forgo is for a call that is made again without events, for lack of memory.
func (s *Store) forgo(c *applyCall) {
	if s.events == nil {
		return
	}
	n, _ := c.op.argv[len(c.op.argv)-1].(int)
	s.metrics.eventsLost.Add(float64(n))
	c.news = nil
}

// settleNews puts what calls that failed were to write back in line.
func (s *Store) settleNews(calls []*applyCall) {
	for _, c := range calls {
		if c.op.err != nil && !errors.Is(c.op.err, rediserr.ErrUnconfirmed) {
			s.events.back(c.shard, c.news)
		}
	}
}

// created adds the events of new jobs, of which some are paused from the start.
func (l *eventLine) created(argv []any, records []*newRecord) []any {
	n := 0
	for i, r := range records {
		argv, n = append(argv, i+1, encodeHappening(firstHappening(job.KindJobCreated, r.record))), n+1
		if state := &r.record.State; state.Paused {
			h := firstHappening(job.KindJobPaused, r.record)
			h.Reason = state.PauseNote
			argv, n = append(argv, i+1, encodeHappening(h)), n+1
		}
	}
	return l.close(argv, n)
}

// restored adds the event of a job that came back. Its instant is that of its entry: the
// job's own may be long ago.
func (l *eventLine) restored(argv []any, r *job.Record) []any {
	h := firstHappening(job.KindJobRestored, r)
	h.AtMS = 0
	return l.close(append(argv, 1, encodeHappening(h)), 1)
}

func firstHappening(kind string, r *job.Record) *job.Happening {
	d := r.Definition
	return &job.Happening{
		Kind: kind, AtMS: d.UpdatedMS, Key: d.Key, Queue: r.State.Lane.Queue, DueMS: r.State.Due, Failures: r.State.Failures, Labels: d.Labels,
	}
}

// swept is what there is to tell of a job that is deleted because its time has come.
func (s *Store) swept(record job.RecordID, lane job.Lane) []job.Notice {
	key := record.Key()
	if s.events == nil || key == (job.Key{}) || !record.IsJob() {
		return nil
	}
	return []job.Notice{{Kind: job.JobDeleted, Key: key, Queue: lane.Queue, Reason: "retention"}}
}
