package redisstore

import (
	"cmp"
	"context"
	"errors"
	"strconv"
	"sync"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/sharding"
	"github.com/fermata-io/fermata/internal/redis/rediserr"
	"github.com/fermata-io/fermata/internal/redis/runner"
)

const (
	// maxAnnouncementsPerShard bounds the announcements of a shard that wait to be written. Further ones are
	// dropped and counted.
	maxAnnouncementsPerShard = 4096
	// maxAnnouncementBytes bounds the texts of those of all shards, in equal parts.
	maxAnnouncementBytes = 32 << 20
)

// eventQueue has the announcements of each shard: events that belong to no decision and wait to be
// written. A nil queue records none.
//
// An announcement is written before any later decision about the same job. A shard has one call of
// Apply at a time. Apply writes all announcements about its jobs before their decisions, and waits
// while FlushEvents writes the announcements of the shard. Calls beside Apply (Sweep, repairs of the
// index) write none: an announcement must not be in one call while the next has the decision.
type eventQueue struct {
	keep     string // about how many events each stream keeps
	maxBytes int    // of the announcements of a shard
	sizes    eventSizes

	mu       sync.Mutex
	waiting  [][]announcement // by shard
	bytes    []int            // of their texts, by shard
	nonEmpty map[int]bool
	flushing map[int]chan struct{} // shards that FlushEvents is writing; closed at the end
	wakeUp   chan struct{}         // see Announced
}

type announcement struct {
	key  job.Key
	text string
}

// newEventQueue returns nil if no events are kept.
func newEventQueue(keep, shards int) *eventQueue {
	if keep == 0 {
		return nil
	}
	return &eventQueue{
		keep: strconv.Itoa(max(100, keep/shards)), maxBytes: maxAnnouncementBytes / shards, sizes: make(eventSizes, shards),
		waiting: make([][]announcement, shards), bytes: make([]int, shards),
		nonEmpty: map[int]bool{}, flushing: map[int]chan struct{}{}, wakeUp: make(chan struct{}, 1),
	}
}

// RecordsEvents reports whether events are recorded.
func (s *Store) RecordsEvents() bool { return s.events != nil }

// Announce queues events that belong to no decision. They are written with the next decisions of their
// shard or by FlushEvents. Until then they are lost if this process ends. An event without a key
// belongs to the shard that its node's name selects.
func (s *Store) Announce(happenings ...job.Event) {
	l := s.events
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range happenings {
		h := &happenings[i]
		shard := s.shardOfEvent(h)
		if len(l.waiting[shard]) >= maxAnnouncementsPerShard || l.bytes[shard] >= l.maxBytes {
			s.metrics.eventsLost.Inc()
			continue
		}
		text := encodeEvent(h)
		l.waiting[shard], l.bytes[shard] = append(l.waiting[shard], announcement{h.Key, text}), l.bytes[shard]+len(text)
		l.wakeUpLocked(shard)
	}
}

// AnnouncedSignal receives after events have been queued that FlushEvents may write.
func (s *Store) AnnouncedSignal() <-chan struct{} {
	if s.events == nil {
		return nil
	}
	return s.events.wakeUp
}

// wakeUpLocked notes that the shard has announcements.
func (l *eventQueue) wakeUpLocked(shard int) {
	l.nonEmpty[shard] = true
	select {
	case l.wakeUp <- struct{}{}:
	default:
	}
}

func (s *Store) shardOfEvent(h *job.Event) int {
	switch {
	case h.Kind == job.KindShardTaken:
		return h.Shard
	case h.Key == (job.Key{}):
		return sharding.ShardOf("", h.Node, len(s.shards))
	}
	return s.ShardOf(h.Key)
}

// dequeueFor removes the announcements to be written before decisions about these records: as many as
// one call carries, and all that are about the same jobs. It waits while the shard is being flushed,
// and returns none if ctx ends meanwhile.
func (l *eventQueue) dequeueFor(ctx context.Context, shard int, items []*applyItem) []announcement {
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
	n := min(len(l.waiting[shard]), applyItems)
	if rest := l.waiting[shard][n:]; len(rest) > 0 {
		n += lengthThroughLast(rest, items)
	}
	return l.dequeueLocked(shard, n)
}

// lengthThroughLast is the length of the prefix that has all announcements about the items' jobs.
func lengthThroughLast(line []announcement, items []*applyItem) int {
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

func (l *eventQueue) dequeueLocked(shard, n int) []announcement {
	all := l.waiting[shard]
	l.waiting[shard] = all[n:]
	if len(all) == n {
		l.waiting[shard] = nil
		delete(l.nonEmpty, shard)
	}
	l.bytes[shard] -= textBytes(all[:n])
	return all[:n:n]
}

func textBytes(line []announcement) int {
	n := 0
	for i := range line {
		n += len(line[i].text)
	}
	return n
}

// startFlush removes the announcements of each shard, at most as many as one call carries. Until
// endFlush, dequeueFor waits for these shards.
func (l *eventQueue) startFlush() map[int][]announcement {
	l.mu.Lock()
	defer l.mu.Unlock()
	taken := make(map[int][]announcement, len(l.nonEmpty))
	for shard := range l.nonEmpty {
		if l.flushing[shard] == nil {
			l.flushing[shard] = make(chan struct{})
			taken[shard] = l.dequeueLocked(shard, min(len(l.waiting[shard]), applyItems))
		}
	}
	return taken
}

// endFlush lets dequeueFor continue, and queues what could not be written again.
func (l *eventQueue) endFlush(shard int, failed []announcement) {
	l.requeue(shard, failed)
	l.mu.Lock()
	defer l.mu.Unlock()
	close(l.flushing[shard])
	delete(l.flushing, shard)
	if l.nonEmpty[shard] { // queued meanwhile, or more than one call carries
		l.wakeUpLocked(shard)
	}
}

// requeue undoes dequeueFor.
func (l *eventQueue) requeue(shard int, taken []announcement) {
	if len(taken) == 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waiting[shard], l.bytes[shard] = append(taken, l.waiting[shard]...), l.bytes[shard]+textBytes(taken)
	l.wakeUpLocked(shard)
}

// FlushEvents writes the events that Announce has queued.
func (s *Store) FlushEvents(ctx context.Context) error {
	if s.events == nil {
		return nil
	}
	taken := s.events.startFlush()
	ops := make([]*runner.Op, 0, len(taken))
	for shard, line := range taken {
		argv := make([]any, 0, 2*len(line)+2)
		for _, a := range line {
			argv = append(argv, 0, a.text)
		}
		keys := s.shards[shard]
		ops = append(ops, runner.NewScriptCall(s.scripts.announce, shard, []string{keys.Meta, keys.Events},
			s.events.appendEventCount(argv, len(line))))
	}
	if len(ops) == 0 {
		return nil
	}
	// Decisions wait for the flush of their shard. They must not also wait for unreachable
	// servers.
	var flushes sync.WaitGroup
	for _, group := range s.runner.GroupByServer(ctx, ops) {
		flushes.Go(func() {
			// Each op has its own error.
			_ = s.runner.Run(ctx, group...)
			for _, o := range group {
				s.endFlush(o, taken[o.Shard])
			}
		})
	}
	flushes.Wait()
	return runner.FirstError(ops)
}

// endFlush ends the flush of a shard.
func (s *Store) endFlush(o *runner.Op, line []announcement) {
	switch {
	case o.Err == nil:
		line = nil
	case errors.Is(o.Err, job.ErrNoMemory):
		s.metrics.eventsLost.Add(float64(len(line)))
		line = nil
	}
	s.events.endFlush(o.Shard, line)
}

// appendEventCount appends the last arguments of a script that records events.
func (l *eventQueue) appendEventCount(argv []any, events int) []any {
	return append(argv, l.keep, events)
}

// appendEvents appends the announcements of the call, then the events of its writes.
func (c *applyCall) appendEvents(s *Store, argv []any, writes []job.Write) []any {
	n := 0
	for _, a := range c.announcements {
		argv, n = append(argv, 0, a.text), n+1
	}
	for i, item := range c.items {
		if item.write < 0 || writes == nil {
			continue
		}
		w := &writes[item.write]
		d := cmp.Or(w.Decision.Definition, w.Current)
		for k := range w.Decision.Notices {
			notice := &w.Decision.Notices[k]
			if h, ok := job.NewDeparture(notice, w.Current, d); ok {
				argv, n = append(argv, i+1, encodeEvent(&h)), n+1
			}
			if h, ok := job.NewEvent(notice, d.Queue, d.Labels); ok {
				argv, n = append(argv, i+1, encodeEvent(&h)), n+1
			}
		}
	}
	return s.events.appendEventCount(argv, n)
}

// dropEvents counts the events of a call that is sent again without them, for lack of memory.
func (s *Store) dropEvents(c *applyCall) {
	if s.events == nil {
		return
	}
	n, _ := c.op.Argv[len(c.op.Argv)-1].(int)
	s.metrics.eventsLost.Add(float64(n))
	c.announcements = nil
}

// requeueAnnouncements queues the announcements of failed calls again.
func (s *Store) requeueAnnouncements(calls []*applyCall) {
	for _, c := range calls {
		if c.op.Err != nil && !errors.Is(c.op.Err, rediserr.ErrUnconfirmed) {
			s.events.requeue(c.shard, c.announcements)
		}
	}
}

// appendCreated appends the events of new jobs. A job may be created paused.
func (l *eventQueue) appendCreated(argv []any, records []*newRecord) []any {
	n := 0
	for i, r := range records {
		argv, n = append(argv, i+1, encodeEvent(newEvent(job.KindJobCreated, r.record))), n+1
		if state := &r.record.State; state.Paused {
			h := newEvent(job.KindJobPaused, r.record)
			h.Reason = state.PauseNote
			argv, n = append(argv, i+1, encodeEvent(h)), n+1
		}
	}
	return l.appendEventCount(argv, n)
}

// appendRestored appends the event of a restored job. Its time is that of its entry in the stream: the
// times of the job may be long ago.
func (l *eventQueue) appendRestored(argv []any, r *job.Record) []any {
	h := newEvent(job.KindJobRestored, r)
	h.AtMS = 0
	return l.appendEventCount(append(argv, 1, encodeEvent(h)), 1)
}

func newEvent(kind string, r *job.Record) *job.Event {
	d := r.Definition
	return &job.Event{
		Kind: kind, AtMS: d.UpdatedMS, Key: d.Key, Queue: d.Queue, DueMS: r.State.Due,
		Failures: r.State.Failures, Labels: d.Labels,
	}
}

// deletionNotices are the notices of a job that is deleted at the end of its retention.
func (s *Store) deletionNotices(record job.RecordID, lane job.Lane) []job.Notice {
	key := record.Key()
	if s.events == nil || key == (job.Key{}) || !record.IsJob() {
		return nil
	}
	return []job.Notice{{Kind: job.JobDeleted, Key: key, Queue: lane.Queue, Reason: "retention"}}
}
