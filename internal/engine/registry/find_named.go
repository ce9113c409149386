package registry

import (
	"context"
	"slices"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/jobfilter"
)

// This file serves lists whose filter names the ids of jobs. It reads the records of these jobs and no index of jobs,
// so that a list costs what it selects, however many jobs there are. In a list of all namespaces, the jobs may be in
// each namespace that the caller may see.

// maxNamedJobs bounds the records that a list looks up by their names. A filter has fewer ids, and most keyspaces fewer
// namespaces.
const maxNamedJobs = 256

// namedJobs returns the keys that a filter names. ok: these are few. Otherwise, or if the filter names no ids, the list
// reads indexes. isCurrent: the keys are of all namespaces that there were when the call began.
func (r *Registry) namedJobs(ctx context.Context, f *job.Filter,
	plan *jobfilter.Plan) (keys []job.Key, isCurrent, ok bool, err error) {
	if plan.IDs == nil {
		return nil, false, false, nil
	}
	namespaces, isCurrent, err := r.namespacesOf(ctx, f, plan)
	if err != nil || len(namespaces)*len(plan.IDs) > maxNamedJobs {
		return nil, false, false, err
	}
	for _, namespace := range namespaces {
		for _, id := range plan.IDs {
			key := job.Key{Namespace: namespace, ID: id}
			// The text of a filter may be any: only a valid key is that of its own record.
			if record := key.Record(); record.IsJob() && record.Key() == key && wantsRecord(f, plan, record) {
				keys = append(keys, key)
			}
		}
	}
	return keys, isCurrent, true, nil
}

// namespacesOf returns the namespaces that selected jobs may be in. Those of a list of all namespaces are read from the
// lanes that the caller may see.
func (r *Registry) namespacesOf(ctx context.Context, f *job.Filter, plan *jobfilter.Plan) (names []string,
	isCurrent bool, err error) {
	switch {
	case f.Namespace != "" && plan.Namespace != "" && f.Namespace != plan.Namespace:
		return nil, true, nil
	case f.Namespace != "":
		return []string{f.Namespace}, true, nil
	case plan.Namespace != "" && !isLimited(f):
		return []string{plan.Namespace}, true, nil
	}
	anyQueue, anyPlan := *f, *plan // a job that was moved may still be in a lane of its former queue
	anyQueue.Queue, anyPlan.Queues = "", nil
	lanes, isCurrent, err := r.findLanes(ctx, &anyQueue, &anyPlan)
	if err != nil {
		return nil, false, err
	}
	for _, l := range lanes {
		names = append(names, l.Lane.Namespace)
	}
	slices.Sort(names)
	return slices.Compact(names), isCurrent, nil
}

// namedRecords are records that a filter names, sorted. Each keeps the place that it had when it was found: no other
// page has it.
type namedRecords struct{ sortedJobs }

func (*namedRecords) placeOf(c *candidate, _ *job.State) (place, bool) { return c.at, true }

// findNamed returns the jobs with some keys, in an order.
func (r *Registry) findNamed(ctx context.Context, keys []job.Key, order job.Order, after place) (*namedRecords, error) {
	s := &namedRecords{sortedJobs{order: order}}
	entries := r.entriesOf(keys)
	var err error
	switch order {
	case job.OrderNextDue:
		err = s.addByScore(ctx, r.o.Store, entries, after)
	case job.OrderFailures, job.OrderLastRun:
		err = s.addByState(ctx, r.o.Store, entries, after)
	default:
		s.addByID(entries, after)
	}
	s.sort()
	return s, err
}

func (r *Registry) entriesOf(keys []job.Key) []job.IndexEntry {
	entries := make([]job.IndexEntry, len(keys))
	for i, key := range keys {
		entries[i] = job.IndexEntry{Shard: r.o.Store.ShardOf(key), Record: key.Record()}
	}
	return entries
}

// addByScore adds the jobs that exist at their places in the order of the index.
func (s *namedRecords) addByScore(ctx context.Context, store Index, entries []job.IndexEntry, after place) error {
	states, err := store.ReadStates(ctx, entries)
	if err != nil {
		return err
	}
	scores, err := store.ReadScores(ctx, entries, states)
	if err != nil {
		return err
	}
	for i, state := range states {
		if state != nil {
			s.addAt(entries[i], scoreOf(state, scores[i]), after)
		}
	}
	return nil
}

func (s *namedRecords) addAt(e job.IndexEntry, score int64, after place) {
	e.Score = score
	if at := (place{Value: score, Record: e.Record}); at.compare(after) > 0 {
		s.list = append(s.list, candidate{e, at})
	}
}

// scoreOf is the place of a state in the order of due times; indexed is its score in the index.
func scoreOf(s *job.State, indexed int64) int64 {
	if s.Region == job.RegionDue {
		return job.Score(job.RegionDue, s.Due)
	}
	return indexed
}

// findNamedRuns returns the planned runs of the jobs with some keys: of their own records and of those of their runs.
func (r *Registry) findNamedRuns(ctx context.Context, keys []job.Key, f job.Filter, after place,
	part scores) (*namedRecords, error) {
	s := &namedRecords{sortedJobs{order: job.OrderNextDue}}
	jobs := r.entriesOf(keys)
	states, err := r.o.Store.ReadStates(ctx, jobs)
	if err != nil {
		return nil, err
	}
	var runs []job.IndexEntry
	for i, state := range states {
		if state == nil {
			continue
		}
		for _, slot := range state.ChildSlots() {
			runs = append(runs, job.IndexEntry{Shard: jobs[i].Shard, Record: jobs[i].Record.Run(slot)})
		}
	}
	if len(runs) > 0 {
		more, err := r.o.Store.ReadStates(ctx, runs)
		if err != nil {
			return nil, err
		}
		jobs, states = append(jobs, runs...), append(states, more...)
	}
	for i, state := range states {
		if state == nil || state.Region != job.RegionDue {
			continue
		}
		queue := job.QueueKey{Namespace: jobs[i].Record.Namespace(), Queue: state.Lane.Queue}
		if at := scoreOf(state, 0); at <= part.last && reachesQueue(&f, queue) {
			s.addAt(jobs[i], at, after)
		}
	}
	s.sort()
	return s, nil
}
