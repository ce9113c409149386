package registry

import (
	"context"
	"slices"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/jobfilter"
)

// sortedJobs are the selected jobs, sorted.
type sortedJobs struct {
	order job.Order
	list  []candidate
}

// sortJobs reads the index of the selected jobs completely, and their states if the order needs them. It refuses with
// a [job.TooManyToSortError] what is too much for one call.
func (r *Registry) sortJobs(ctx context.Context, f job.Filter, plan jobfilter.Plan, after place) (*sortedJobs, error) {
	limit := maxSorted
	if f.Order == job.OrderID {
		limit = maxIndexed
	}
	entries, err := r.readSelected(ctx, f, plan, limit)
	if err != nil {
		return nil, err
	}
	s := &sortedJobs{order: f.Order}
	if f.Order == job.OrderID {
		s.addByID(entries, after)
	} else if err := s.addByState(ctx, r.o.Store, entries, after); err != nil {
		return nil, err
	}
	s.sort()
	return s, nil
}

func (s *sortedJobs) sort() {
	slices.SortFunc(s.list, func(a, b candidate) int { return a.at.compare(b.at) })
}

func (s *sortedJobs) addByID(entries []job.IndexEntry, after place) {
	for _, e := range entries {
		if at := (place{Record: e.Record}); at.compare(after) > 0 {
			s.list = append(s.list, candidate{e, at})
		}
	}
}

func (s *sortedJobs) addByState(ctx context.Context, store Index, entries []job.IndexEntry, after place) error {
	states, err := store.ReadStates(ctx, entries)
	if err != nil {
		return err
	}
	for i, state := range states {
		if state == nil {
			continue
		}
		c := candidate{IndexEntry: entries[i]}
		at, ok := s.placeOf(&c, state)
		if ok && at.compare(after) > 0 {
			c.at = at
			s.list = append(s.list, c)
		}
	}
	return nil
}

func (s *sortedJobs) next(_ context.Context, n int) (step, error) {
	n = min(n, len(s.list))
	found := s.list[:n]
	s.list = s.list[n:]
	return step{found: found, ended: len(s.list) == 0}, nil
}

// placeOf sorts the greatest value first.
func (s *sortedJobs) placeOf(c *candidate, state *job.State) (place, bool) {
	at := place{Record: c.Record}
	switch s.order {
	case job.OrderFailures:
		at.Value = -int64(state.Failures)
		return at, state.Failures > 0 && state.Region < job.RegionDead
	case job.OrderLastRun:
		at.Value = int64(-state.LastStarted)
	}
	return at, true
}

// readSelected reads the index entries of all jobs that may be selected, at most limit.
func (r *Registry) readSelected(ctx context.Context, f job.Filter, plan jobfilter.Plan,
	limit int) ([]job.IndexEntry, error) {
	lanes, _, err := r.findLanes(ctx, &f, &plan)
	if err != nil {
		return nil, err
	}
	if len(lanes) > maxOpenedLanes {
		return r.readFailing(ctx, f, plan, limit)
	}
	part := scoresOf(plan.Status, f.Status)
	if f.Order == job.OrderFailures {
		part.last = min(part.last, job.Score(job.RegionDead, 0)-1)
	}
	entries, count, err := r.readLanes(ctx, lanes, part, limit)
	switch {
	case err != nil:
		return nil, err
	case count > limit:
		return r.readFailing(ctx, f, plan, limit)
	}
	return slices.DeleteFunc(entries, func(e job.IndexEntry) bool {
		return !e.Record.IsJob() || !wantsRecord(&f, &plan, e.Record)
	}), nil
}

// readLanes reads the entries of a part of each lane, if there are at most limit. count is how many there are.
func (r *Registry) readLanes(ctx context.Context, lanes []job.ShardLane, part scores,
	limit int) (entries []job.IndexEntry, count int, err error) {
	ranges := make([]job.IndexRange, len(lanes))
	for i, l := range lanes {
		ranges[i] = job.IndexRange{Shard: l.Shard, Lane: l.Lane, Min: part.first, Max: part.last, Limit: limit + 1}
	}
	counts, err := r.o.Store.CountIndex(ctx, ranges)
	if err != nil || sum(counts) > limit {
		return nil, sum(counts), err
	}
	var filled []job.IndexRange
	for i, n := range counts {
		if n > 0 {
			ranges[i].Expected = n
			filled = append(filled, ranges[i])
		}
	}
	parts, err := r.o.Store.ReadIndex(ctx, filled)
	entries = slices.Concat(parts...)
	return entries, len(entries), err
}

// readFailing reads the index of failing jobs for a list of them. That index is for all namespaces and queues, so it
// serves only callers who may see all of a namespace.
func (r *Registry) readFailing(ctx context.Context, f job.Filter, plan jobfilter.Plan, limit int) ([]job.IndexEntry,
	error) {
	if f.Order != job.OrderFailures || f.Covers != nil || f.Scope != nil || r.o.Rankings == nil {
		return nil, tooManyToSort(f.Order, limit)
	}
	list, isFull, err := r.o.Rankings.ListFailing(ctx, f.Namespace)
	if err != nil {
		return nil, err
	}
	var entries []job.IndexEntry
	for _, e := range list {
		if e.Record.IsJob() && wantsRecord(&f, &plan, e.Record) {
			entries = append(entries, job.IndexEntry{Shard: e.Shard, Record: e.Record, Score: e.Rank})
		}
	}
	if isFull || len(entries) > limit {
		return nil, tooManyToSort(f.Order, limit)
	}
	return entries, nil
}

func tooManyToSort(order job.Order, limit int) error {
	return &job.TooManyToSortError{OrderBy: order.String(), Limit: limit}
}

func sum(counts []int) (n int) {
	for _, c := range counts {
		n += c
	}
	return n
}
