package registry

import (
	"context"
	"slices"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/jobfilter"
)

// This file serves lists without an order whose filter selects few jobs. The index of the selected lanes is read
// completely, or only the jobs that the filter names (find_named.go), and the jobs are listed by their names. So
// neither the work of a page nor its token depends on jobs that the filter excludes by namespace or queue, or that the
// caller may not see. Lists that select more walk the jobs of the whole keyspace.

const (
	// maxFewJobs bounds the selected jobs of a list that continues by name; it may begin with half as many, so that a
	// list which grows keeps its way.
	maxFewJobs = 2 * maxIndexed
	// entriesPerJob bounds the index entries that a page of a list without a filter reads, for each of its jobs.
	entriesPerJob = 20
	// minFewJobs is how many jobs may be selected however small the pages are.
	minFewJobs = 2000
	// maxLiveElsewhere bounds the live runs of other queues that a list of some queues looks at.
	maxLiveElsewhere = 1000
	// fewCall is what tokens of such lists belong to. A node of an older version refuses them.
	fewCall = "ListJobs by name"
)

// listFew lists the selected jobs by name. isServed: they are few enough. Otherwise the list walks all jobs, and leaves
// out those with names up to after.
func (r *Registry) listFew(ctx context.Context, f job.Filter, size int, token string) (page job.Page, isServed bool,
	after job.RecordID, err error) {
	plan, started := planOf(f), time.Now()
	at, err := parsePlace(token, fewCall, f)
	continues := err == nil && token != ""
	if r.o.Lanes == nil || token != "" && !continues {
		return job.Page{}, false, "", nil // the token is of a walk, or invalid
	}
	if plan.Nothing {
		return job.Page{}, true, "", nil
	}
	source, isServed, err := r.openFew(ctx, f, size, continues, at)
	if err != nil || !isServed {
		return job.Page{}, false, at.Record, err
	}
	p := &orderedPage{registry: r, size: size, started: started, from: at, at: at,
		want: func(record *job.Record) bool { return matchesFilter(f, record) }}
	if err := p.fill(ctx, source); err != nil {
		return job.Page{}, false, "", err
	}
	return p.page(), true, "", nil
}

// openFew returns the source of a list of few jobs: those that the filter names, or else all in the selected lanes.
func (r *Registry) openFew(ctx context.Context, f job.Filter, size int, continues bool, after place) (source candidates,
	isServed bool, err error) {
	plan := planOf(f)
	keys, isCurrent, ok, err := r.namedJobs(ctx, &f, &plan)
	switch {
	case err != nil:
		return nil, false, err
	case ok && (isCurrent || isRestricted(&f)):
		source, err = r.findNamed(ctx, keys, job.OrderID, after)
		return source, err == nil, err
	}
	entries, isServed, err := r.readFew(ctx, f, size, continues)
	if err != nil || !isServed {
		return nil, false, err
	}
	s := &sortedJobs{order: job.OrderID}
	s.addByID(entries, after)
	s.sort()
	return s, true, nil
}

// isRestricted reports whether a filter hides queues. Then new lanes may be missing from a list.
func isRestricted(f *job.Filter) bool { return f.Covers != nil || f.Scope != nil }

// readFew reads the index entries of the selected jobs. ok: they are few, and all of them are known.
func (r *Registry) readFew(ctx context.Context, f job.Filter, size int, continues bool) (entries []job.IndexEntry,
	ok bool, err error) {
	plan := planOf(f)
	lanes, isCurrent, err := r.findLanes(ctx, &f, &plan)
	if err != nil {
		return nil, false, err
	}
	limit := maxIndexed
	switch {
	case continues:
		limit = maxFewJobs
	case chunkSize(f, size) < filterChunk || size >= filterChunk && f.Condition == nil && f.Queue == "":
		limit = max(minFewJobs, min(maxIndexed, entriesPerJob*size))
	}
	if len(lanes) > maxOpenedLanes || !isCurrent && !isRestricted(&f) {
		return nil, false, nil
	}
	entries, count, err := r.readLanes(ctx, lanes, scoresOf(plan.Status, f.Status), limit)
	if err != nil || count > limit {
		return nil, false, err
	}
	if !isRestricted(&f) {
		live, ok, err := r.readLiveElsewhere(ctx, f, plan)
		if err != nil || !ok {
			return nil, false, err
		}
		entries = append(entries, live...)
	}
	return slices.DeleteFunc(entries, func(e job.IndexEntry) bool {
		return !e.Record.IsJob() || !wantsRecord(&f, &plan, e.Record)
	}), true, nil
}

// readLiveElsewhere reads the entries of live runs in the queues that a list does not select. Their jobs may have been
// moved to a selected queue meanwhile; the index has them there when their runs have ended. ok: these are few.
func (r *Registry) readLiveElsewhere(ctx context.Context, f job.Filter, plan jobfilter.Plan) (entries []job.IndexEntry,
	ok bool, err error) {
	if f.Queue == "" && plan.Queues == nil {
		return nil, true, nil
	}
	selects := func(queue string) bool {
		return (f.Queue == "" || f.Queue == queue) && (plan.Queues == nil || slices.Contains(plan.Queues, queue))
	}
	all := f
	all.Queue = ""
	allPlan := plan
	allPlan.Queues = nil
	lanes, _, err := r.findLanes(ctx, &all, &allPlan)
	if err != nil {
		return nil, false, err
	}
	lanes = slices.DeleteFunc(lanes, func(l job.ShardLane) bool { return selects(l.Lane.Queue) })
	if len(lanes) > maxOpenedLanes {
		return nil, false, nil
	}
	entries, count, err := r.readLanes(ctx, lanes, scoresOf(job.StatusRunning), maxLiveElsewhere)
	return entries, count <= maxLiveElsewhere, err
}
