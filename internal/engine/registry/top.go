package registry

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
)

const (
	// topSpare is how many more index entries are read than requested: some may be outdated.
	topSpare = 20
	// topScan bounds the entries that are read for a caller who may not see all jobs.
	topScan = 1000
)

// TopJobs lists the worst jobs of a namespace or of all, the worst first. Its cost grows with the answer, not with
// the number of jobs: the store keeps bounded indexes, whose entries are compared with their jobs.
func (r *Registry) TopJobs(ctx context.Context, q job.TopQuery) ([]job.TopJob, error) {
	if err := validateTop(&q); err != nil {
		return nil, err
	}
	if q.Shards == nil {
		q.Shards = make([]int, r.o.Store.Shards())
		for i := range q.Shards {
			q.Shards[i] = i
		}
	}
	var jobs []job.TopJob
	for n := q.Limit + topSpare; ; n = min(4*n, topScan) {
		var more bool
		var err error
		jobs, more, err = r.findTopJobs(ctx, q, n)
		if err != nil {
			return nil, err
		}
		// Hidden jobs must not take the places of others.
		if q.Covers == nil || !more || len(jobs) >= q.Limit || n >= topScan {
			break
		}
	}
	slices.SortFunc(jobs, func(a, b job.TopJob) int { return compareByRank(q.Ranking, &a, &b) })
	return jobs[:min(q.Limit, len(jobs))], nil
}

// findTopJobs finds the wanted jobs among the first n entries of the indexes; more: there may be
// more entries.
func (r *Registry) findTopJobs(ctx context.Context, q job.TopQuery, n int) (jobs []job.TopJob, more bool, err error) {
	entries, err := r.o.Store.ListRanked(ctx, q.Shards, q.Ranking, q.Namespace, n)
	if err != nil {
		return nil, false, err
	}
	var waiting []job.Ranked
	if q.Ranking == job.RankingLate {
		waiting, err = r.o.Store.ListOverdue(ctx, q.Shards, q.Namespace, n)
		if err != nil {
			return nil, false, err
		}
	}
	jobs, stale, err := r.compareEntries(ctx, &q, entries, waiting)
	if err != nil {
		return nil, false, err
	}
	if len(stale) > 0 {
		// The answer is right without it.
		if err := r.o.Store.RemoveRanked(ctx, q.Ranking, stale); err != nil {
			r.o.Logger.Debug("failed to remove outdated entries of a ranking index", "error", err)
		}
	}
	return jobs, max(len(entries), len(waiting)) >= n, nil
}

func validateTop(q *job.TopQuery) error {
	var v []job.Violation
	if q.Ranking >= job.RankingCount {
		v = append(v, job.Violation{Field: "kind", Description: "is unknown"})
	}
	if q.Limit < 0 || q.Limit > job.MaxTopJobs {
		v = append(v, job.Violation{Field: "limit",
			Description: fmt.Sprintf("is %d, want 1 to %d, or 0 for %d", q.Limit, job.MaxTopJobs, job.DefaultTopJobs)})
	}
	if q.Namespace != "" {
		v = append(v, job.ValidateKey(job.Key{Namespace: q.Namespace, ID: "x"})...) // an id stands in
	}
	if len(v) > 0 {
		return &job.InvalidError{Violations: v}
	}
	q.Limit = cmp.Or(q.Limit, job.DefaultTopJobs)
	return nil
}

// compareEntries reads the jobs of index entries and of overdue records, each once, and returns the outdated
// entries.
func (r *Registry) compareEntries(ctx context.Context, q *job.TopQuery, entries,
	waiting []job.Ranked) (jobs []job.TopJob, stale []job.Ranked, err error) {
	overdue := make(map[job.Key]int64, len(waiting))
	var keys []job.Key
	for _, w := range waiting {
		key := w.Record.Key()
		if _, known := overdue[key]; key != (job.Key{}) && !known {
			overdue[key] = w.Rank // the first is the worst
			keys = append(keys, key)
		}
	}
	indexed := make(map[job.Key]job.Ranked, len(entries))
	for _, e := range entries {
		key := e.Record.Key()
		if key == (job.Key{}) {
			continue
		}
		indexed[key] = e
		if _, known := overdue[key]; !known {
			keys = append(keys, key)
		}
	}
	records, err := r.readWithinBytes(ctx, keys)
	if err != nil {
		return nil, nil, err
	}
	for i, record := range records {
		entry, isIndexed := indexed[keys[i]]
		if isIndexed && (record == nil || rankOf(record, q.Ranking) == 0) {
			stale = append(stale, entry)
		}
		if record == nil || record.State.Deleting || q.Covers != nil && !q.Covers(record.Definition.Queue) {
			continue
		}
		j := job.TopJob{Record: *record}
		if q.Ranking == job.RankingLate {
			r.setLateness(ctx, &j, overdue[keys[i]])
		}
		if q.Ranking == job.RankingFailing && rankOf(record, q.Ranking) > 0 || q.Ranking == job.RankingLate && j.Lag > 0 {
			jobs = append(jobs, j)
		}
	}
	return jobs, stale, nil
}

// readWithinBytes reads jobs in small parts, the worst first, until it has read maxRead bytes of payloads. The answer
// has the jobs that it read.
func (r *Registry) readWithinBytes(ctx context.Context, keys []job.Key) ([]*job.Record, error) {
	records, size := make([]*job.Record, 0, len(keys)), 0
	for part := range slices.Chunk(keys, readAtOnce) {
		more, err := r.o.Store.Get(ctx, part)
		if err != nil {
			return nil, err
		}
		records = append(records, more...)
		for _, record := range more {
			if record != nil {
				size += len(record.Definition.Payload)
			}
		}
		if size >= maxRead {
			break
		}
	}
	return records, nil
}

func rankOf(r *job.Record, which job.Ranking) int64 {
	ranks := r.State.Ranks()
	if which == job.RankingLate {
		return ranks.Late
	}
	return ranks.Failing
}

// setLateness sets how late a job is: by its waiting run, or else by the last run that missed the objective.
func (r *Registry) setLateness(ctx context.Context, j *job.TopJob, overdueMS int64) {
	waits := overdueMS
	if s := &j.State; s.Region == job.RegionDue {
		// What a gate holds back is due later, and late all the same.
		if now, err := r.shardNow(ctx, j.Definition.Key); err == nil {
			if lag, ok := s.Lag(now); ok {
				waits = max(waits, lag)
			}
		}
	}
	waited := time.Duration(waits) * time.Millisecond
	if waited > max(j.Definition.MaxLag, 0) && (j.Definition.MaxLag > 0 || waited > job.OverdueAfter) {
		j.Lag, j.Waiting = waited, true
		return
	}
	j.Lag = time.Duration(j.State.Ranks().Late) * time.Millisecond
}

// compareByRank orders the worst first, and equals by name.
func compareByRank(which job.Ranking, a, b *job.TopJob) int {
	byName := cmp.Compare(a.Definition.Record(), b.Definition.Record())
	if which == job.RankingLate {
		return cmp.Or(cmp.Compare(b.Lag, a.Lag), byName)
	}
	return cmp.Or(cmp.Compare(rankOf(&b.Record, which), rankOf(&a.Record, which)), byName)
}
