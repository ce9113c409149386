package registry

import (
	"container/heap"
	"context"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/jobfilter"
)

const (
	// lanesPerRefill is how many lanes are read at once.
	lanesPerRefill = 256
	// tieSpare is how many entries of equal score are read again: some may have gone meanwhile.
	tieSpare = 64
	// indexBudget bounds the entries that one step of a merge takes from the indexes.
	indexBudget = 20_000
)

// laneMerge merges lanes by score: each lane is sorted already, and is read only as far as the list gets. Lanes whose
// first entry comes later than what the list has got to are not read at all.
type laneMerge struct {
	store    Index
	want     func(job.RecordID) bool
	after    place
	part     scores
	deadline time.Time // of the call
	chunk    int
	unopened []job.ShardLane // in the order of their due times
	heap     laneHeap
	opened   int
	at       place // of the last entry that was taken
}

// mergedLane is one lane of a merge.
type mergedLane struct {
	job.ShardLane
	buffer []job.IndexEntry
	from   int64 // score to read from
	skip   int   // entries of that score that were read
	last   place // of the entries that were read
	done   bool  // there are no more entries than in the buffer
	// tied: entries with the score of the place where the list continues have not been skipped yet.
	tied bool
}

// bound is the least place that the next entry of the lane can have.
func (l *mergedLane) bound() place {
	if len(l.buffer) > 0 {
		return place{Value: l.buffer[0].Score, Record: l.buffer[0].Record}
	}
	return place{Value: l.from}
}

// mergeLanes returns the selected records in the order of the index, which is that of due times for planned runs. runs
// includes runs that are records of their own.
func (r *Registry) mergeLanes(ctx context.Context, p *orderedPage, f job.Filter, plan jobfilter.Plan, part scores,
	runs bool) (*laneMerge, error) {
	lanes, _, err := r.findLanes(ctx, &f, &plan)
	if err != nil {
		return nil, err
	}
	m := &laneMerge{store: r.o.Store, after: p.from, part: part, unopened: lanes, deadline: p.started.Add(r.o.ScanTime)}
	m.want = func(id job.RecordID) bool {
		return (id.IsJob() || runs && id.IsRun()) && wantsRecord(&f, &plan, id)
	}
	return m, nil
}

// next takes entries from the lane with the least bound, and reads lanes whose entries have been used up.
func (m *laneMerge) next(ctx context.Context, n int) (step, error) {
	var s step
	m.chunk = min(max(2*n/max(1, len(m.heap)+len(m.unopened)), 8), filterChunk)
	for taken := 0; len(s.found) < n && taken < indexBudget; {
		if !m.hasNext() {
			s.ended = true
			break
		}
		if !m.knowsNext() {
			if m.isSpent() {
				s.spent = true
				break
			}
			if err := m.refill(ctx); err != nil {
				return step{}, err
			}
			continue
		}
		entry := m.heap[0].buffer[0]
		m.takeFirst()
		taken++
		m.at = place{Value: entry.Score, Record: entry.Record}
		if m.want(entry.Record) {
			s.found = append(s.found, candidate{entry, m.at})
		}
	}
	s.at = m.at
	return s, nil
}

// hasNext reports whether a lane may have more entries.
func (m *laneMerge) hasNext() bool {
	return len(m.heap) > 0 || len(m.unopened) > 0 && m.firstScore(m.unopened[0]) <= m.part.last
}

// knowsNext reports whether the next entry has been read.
func (m *laneMerge) knowsNext() bool {
	return len(m.heap) > 0 && len(m.heap[0].buffer) > 0 && !m.opensNext()
}

// opensNext reports whether the next entry may be in a lane that was not read yet.
func (m *laneMerge) opensNext() bool {
	if len(m.unopened) == 0 {
		return false
	}
	first := m.firstScore(m.unopened[0])
	return first <= m.part.last && (len(m.heap) == 0 || first <= m.heap[0].bound().Value)
}

// isSpent reports whether the call has read enough. Each call takes an entry at least, so that a list always comes to
// its end.
func (m *laneMerge) isSpent() bool {
	return m.at.Record != "" && (m.opened >= maxOpenedLanes || !time.Now().Before(m.deadline))
}

// takeFirst removes the next entry.
func (m *laneMerge) takeFirst() {
	l := m.heap[0]
	l.buffer = l.buffer[1:]
	if len(l.buffer) == 0 && l.done {
		heap.Pop(&m.heap)
	} else {
		heap.Fix(&m.heap, 0)
	}
}

// firstScore is the least score that an entry of a lane can have, among those that the list still needs. The due time
// of a lane is its first score, or [job.NeverMS], which is less than all scores without one.
func (m *laneMerge) firstScore(l job.ShardLane) int64 {
	return max(m.after.Value, m.part.first, int64(l.DueMS))
}

// refill reads lanes that may have the next entry, and with them others whose entries will soon be used up.
func (m *laneMerge) refill(ctx context.Context) error {
	var lanes []*mergedLane
	opens := m.opensNext()
	for len(lanes) < lanesPerRefill && len(m.heap) > 0 && len(m.heap[0].buffer) == 0 {
		lanes = append(lanes, heap.Pop(&m.heap).(*mergedLane))
	}
	for opens && len(lanes) < lanesPerRefill && len(m.unopened) > 0 {
		lanes = append(lanes, m.openLane())
	}
	if m.opened > maxOpenedLanes && m.at.Record == "" {
		return tooManyToSort(job.OrderNextDue, maxOpenedLanes)
	}
	used := len(lanes)
	for _, l := range m.heap {
		if len(lanes) < lanesPerRefill && !l.done && len(l.buffer) <= m.chunk/4 {
			lanes = append(lanes, l)
		}
	}
	if err := m.read(ctx, lanes); err != nil {
		return err
	}
	for _, l := range lanes[:used] {
		if len(l.buffer) > 0 || !l.done {
			heap.Push(&m.heap, l)
		}
	}
	return nil
}

// openLane takes the first lane that was not read yet.
func (m *laneMerge) openLane() *mergedLane {
	l := &mergedLane{ShardLane: m.unopened[0], from: m.firstScore(m.unopened[0]), last: m.after}
	l.tied = m.after.Record != "" && l.from == m.after.Value
	m.unopened = m.unopened[1:]
	m.opened++
	return l
}

// read reads the next entries of lanes into their buffers.
func (m *laneMerge) read(ctx context.Context, lanes []*mergedLane) error {
	ranges := make([]job.IndexRange, len(lanes))
	for i, l := range lanes {
		spare := min(l.skip, tieSpare)
		ranges[i] = job.IndexRange{Shard: l.Shard, Lane: l.Lane, Min: l.from, Max: m.part.last, Skip: l.skip - spare,
			Limit: m.chunk + spare}
	}
	parts, err := m.store.ReadIndex(ctx, ranges)
	if err != nil {
		return err
	}
	var tied []*mergedLane
	for i, l := range lanes {
		l.takeRead(parts[i], len(parts[i]) < ranges[i].Limit, ranges[i].Skip)
		if l.tied && !l.done && len(l.buffer) == 0 {
			tied = append(tied, l)
		}
		l.tied = false
	}
	return m.skipTies(ctx, tied)
}

// skipTies passes over the entries with the score of the place where the list continues, in lanes that have many.
func (m *laneMerge) skipTies(ctx context.Context, lanes []*mergedLane) error {
	if len(lanes) == 0 {
		return nil
	}
	list := make([]job.ShardLane, len(lanes))
	for i, l := range lanes {
		list[i] = l.ShardLane
	}
	skips, err := m.store.SkipTies(ctx, list, m.after.Value, m.after.Record)
	if err != nil {
		return err
	}
	for i, l := range lanes {
		l.skip = max(l.skip, skips[i])
	}
	return nil
}

// takeRead takes what was read of the lane after skip entries of its first score.
func (l *mergedLane) takeRead(entries []job.IndexEntry, done bool, skip int) {
	l.done = done
	for _, e := range entries {
		if e.Score != l.from {
			l.from, skip = e.Score, 0
		}
		skip++
		if at := (place{Value: e.Score, Record: e.Record}); at.compare(l.last) > 0 {
			l.buffer, l.last = append(l.buffer, e), at
		}
	}
	l.skip = skip
}

// placeOf leaves out a record whose place in the index has changed to a later one: a later page has it.
func (m *laneMerge) placeOf(c *candidate, s *job.State) (place, bool) {
	region, _ := job.SplitScore(c.Score)
	switch {
	case s.Region == job.RegionDue:
		return place{Value: job.Score(job.RegionDue, s.Due), Record: c.Record}, true
	case s.Region == region:
		return c.at, true
	}
	return place{}, false
}

// laneHeap has the lane with the least bound first.
type laneHeap []*mergedLane

func (h laneHeap) Len() int           { return len(h) }
func (h laneHeap) Less(i, j int) bool { return h[i].bound().compare(h[j].bound()) < 0 }
func (h laneHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *laneHeap) Push(x any)        { *h = append(*h, x.(*mergedLane)) }
func (h *laneHeap) Pop() any {
	last := len(*h) - 1
	l := (*h)[last]
	*h = (*h)[:last]
	return l
}
