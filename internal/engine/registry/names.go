package registry

import (
	"context"

	"github.com/fermata-io/fermata/internal/core/job"
)

// namesOf collects names that jobs have in common, such as those of their locks.
type namesOf[N comparable] struct {
	of func(*job.Definition) []N
	// known reports whether a name was added before.
	known func(N) bool
	add   func(N, *job.Record)
}

// visitNames collects the names of the jobs of a part of a listing, until there are size of them. All names of a job
// are added together, so that there may be a few more. It returns the token of what follows.
func visitNames[N comparable](ctx context.Context, r *Registry, f job.Filter, token, call string, size int,
	names namesOf[N]) (next string, err error) {
	count := 0
	var l *pageBuilder[job.Record]
	want := func(record job.Record) bool {
		all := names.of(record.Definition)
		if len(all) == 0 || !matchesFilter(f, &record) {
			return false
		}
		fresh := 0
		for _, n := range all {
			if !names.known(n) {
				fresh++
			}
		}
		if count > 0 && count+fresh > size {
			l.size = 0 // the page ends before this job
			return true
		}
		count += fresh
		for _, n := range all {
			names.add(n, &record)
		}
		return true
	}
	l, err = r.listJobs(f, scanRecords+bulkPage, token, call, want)
	if err != nil {
		return "", err
	}
	// What is read of the jobs is not answered.
	l.step, l.weight = filterChunk, func(job.Record) int { return 0 }
	err = l.fillPage(ctx)
	return l.next, err
}
