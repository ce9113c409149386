package registry

import (
	"container/heap"
	"context"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/jobfilter"
)

const (
	// lanesPerRefill is how many lanes are read at once.
	lanesPerRefill = 64
	// tieSpare is how many entries of equal score are read again: some may have gone meanwhile.
	tieSpare = 64
	// indexBudget bounds the entries that one step of a merge takes from the indexes.
	indexBudget = 20_000
)

// laneMerge merges lanes by score: each lane is sorted already, and is read only as far as the list gets.
type laneMerge struct {
	store Index
	want  func(job.RecordID) bool
	end   int64 // last score
	chunk int
	heap  laneHeap
}

// mergedLane is one lane of a merge.
type mergedLane struct {
	job.ShardLane
	buffer []job.IndexEntry
	from   int64 // score to read from
	skip   int   // entries of that score that were read
	last   place // of the entries that were read
	done   bool  // there are no more entries than in the buffer
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
func (r *Registry) mergeLanes(ctx context.Context, f job.Filter, plan jobfilter.Plan, after place, part scores,
	runs bool) (*laneMerge, error) {
	lanes, err := r.o.Store.FindLanesWhere(ctx, func(l job.Lane) bool { return wantsLane(&f, &plan, l) })
	if err != nil {
		return nil, err
	}
	m := &laneMerge{store: r.o.Store, end: part.last, want: func(id job.RecordID) bool {
		return (id.IsJob() || runs && id.IsRun()) && wantsRecord(&f, &plan, id)
	}}
	skips := make([]int, len(lanes))
	if after.Record != "" {
		if skips, err = r.o.Store.SkipTies(ctx, lanes, after.Value, after.Record); err != nil {
			return nil, err
		}
	}
	for i, l := range lanes {
		lane := &mergedLane{ShardLane: l, from: max(after.Value, part.first), last: after}
		if lane.from == after.Value {
			lane.skip = skips[i]
		}
		if int64(l.DueMS) > lane.from { // the first score, or NeverMS
			lane.from, lane.skip = int64(l.DueMS), 0
		}
		if lane.from <= m.end {
			m.heap = append(m.heap, lane)
		}
	}
	heap.Init(&m.heap)
	return m, nil
}

// next pops entries from the lane with the least bound, and reads lanes whose entries have been used up.
func (m *laneMerge) next(ctx context.Context, n int) (found []candidate, more bool, err error) {
	m.chunk = min(max(2*n/max(1, len(m.heap)), 8), filterChunk)
	for taken := 0; len(m.heap) > 0 && len(found) < n && taken < indexBudget; {
		l := m.heap[0]
		if len(l.buffer) == 0 {
			if err := m.refill(ctx); err != nil {
				return nil, false, err
			}
			continue
		}
		entry := l.buffer[0]
		l.buffer = l.buffer[1:]
		taken++
		if len(l.buffer) == 0 && l.done {
			heap.Pop(&m.heap)
		} else {
			heap.Fix(&m.heap, 0)
		}
		if m.want(entry.Record) {
			found = append(found, candidate{entry, place{Value: entry.Score, Record: entry.Record}})
		}
	}
	return found, len(m.heap) > 0, nil
}

// refill reads the first lanes, as long as nothing of them is known.
func (m *laneMerge) refill(ctx context.Context) error {
	var lanes []*mergedLane
	for len(m.heap) > 0 && len(m.heap[0].buffer) == 0 && len(lanes) < lanesPerRefill {
		lanes = append(lanes, heap.Pop(&m.heap).(*mergedLane))
	}
	ranges := make([]job.IndexRange, len(lanes))
	for i, l := range lanes {
		spare := min(l.skip, tieSpare)
		ranges[i] = job.IndexRange{Shard: l.Shard, Lane: l.Lane, Min: l.from, Max: m.end, Skip: l.skip - spare,
			Limit: m.chunk + spare}
	}
	parts, err := m.store.ReadIndex(ctx, ranges)
	if err != nil {
		return err
	}
	for i, l := range lanes {
		l.takeRead(parts[i], len(parts[i]) < ranges[i].Limit, ranges[i].Skip)
		if len(l.buffer) > 0 || !l.done {
			heap.Push(&m.heap, l)
		}
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
