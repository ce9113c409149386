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
	// Jobs are read firstTopRead in one go, then more as long as their mean size allows, up to maxTopRead.
	firstTopRead = 8
	maxTopRead   = 64
)

// TopJobs lists the worst jobs of a namespace or of all, the worst first. Its cost grows with the answer, not with
// the number of jobs: the store keeps bounded indexes, whose entries are compared with their jobs. The list is
// incomplete if the call has read too many bytes of definitions, or too many jobs that the caller may not see.
func (r *Registry) TopJobs(ctx context.Context, q job.TopQuery) (job.TopList, error) {
	if err := validateTop(&q); err != nil {
		return job.TopList{}, err
	}
	if q.Shards == nil {
		q.Shards = make([]int, r.o.Store.Shards())
		for i := range q.Shards {
			q.Shards[i] = i
		}
	}
	s := topSearch{r: r, q: q, read: make(map[job.Key]*job.Record)}
	for n := q.Limit + topSpare; ; n = min(4*n, topScan) {
		more, err := s.findWorst(ctx, n)
		if err != nil {
			return job.TopList{}, err
		}
		// Hidden jobs must not take the places of others.
		if q.Covers == nil || !more || s.cut || len(s.found.Jobs) >= q.Limit {
			break
		}
		if n >= topScan {
			s.cut = true
			break
		}
	}
	jobs := s.found.Jobs
	slices.SortFunc(jobs, func(a, b job.TopJob) int { return compareByRank(q.Ranking, &a, &b) })
	return job.TopList{Jobs: jobs[:min(q.Limit, len(jobs))], Incomplete: s.cut}, nil
}

// topSearch is the state of one TopJobs call.
type topSearch struct {
	r    *Registry
	q    job.TopQuery
	read map[job.Key]*job.Record // jobs that were read; nil: there is none
	size int                     // bytes of their payloads
	cut  bool                    // the call has read as much as it may

	found job.TopList
}

// findWorst finds the wanted jobs among the first n entries of the indexes; more: there may be more entries.
func (s *topSearch) findWorst(ctx context.Context, n int) (more bool, err error) {
	rankings := s.r.o.Rankings
	entries, err := rankings.ListRanked(ctx, s.q.Shards, s.q.Ranking, s.q.Namespace, n)
	if err != nil {
		return false, err
	}
	var waiting []job.Ranked
	if s.q.Ranking == job.RankingLate {
		waiting, err = rankings.ListOverdue(ctx, s.q.Shards, s.q.Namespace, n)
		if err != nil {
			return false, err
		}
	}
	stale, err := s.compareEntries(ctx, entries, waiting)
	if err != nil {
		return false, err
	}
	if len(stale) > 0 {
		// The answer is right without it.
		if err := s.r.o.Store.RemoveRanked(ctx, s.q.Ranking, stale); err != nil {
			s.r.o.Logger.Debug("failed to remove outdated entries of a ranking index", "error", err)
		}
	}
	return max(len(entries), len(waiting)) >= n, nil
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

// compareEntries reads the jobs of index entries and of overdue records, each once, finds the wanted jobs, and returns
// the outdated entries.
func (s *topSearch) compareEntries(ctx context.Context, entries, waiting []job.Ranked) (stale []job.Ranked, err error) {
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
	if err := s.readJobs(ctx, keys); err != nil {
		return nil, err
	}
	s.found.Jobs = nil
	for _, key := range keys {
		record, known := s.read[key]
		if !known {
			continue
		}
		entry, isIndexed := indexed[key]
		if isIndexed && (record == nil || rankOf(record, s.q.Ranking) == 0) {
			stale = append(stale, entry)
		}
		if record != nil {
			s.addIfWanted(ctx, record, overdue[key])
		}
	}
	return stale, nil
}

// addIfWanted adds a job that is among the worst and that the caller may see.
func (s *topSearch) addIfWanted(ctx context.Context, record *job.Record, overdueMS int64) {
	if record.State.Deleting || s.q.Covers != nil && !s.q.Covers(record.Definition.Queue) {
		return
	}
	j := job.TopJob{Record: *record}
	if s.q.Ranking == job.RankingLate {
		s.r.setLateness(ctx, &j, overdueMS)
	}
	failing := s.q.Ranking == job.RankingFailing && rankOf(record, s.q.Ranking) > 0
	if failing || s.q.Ranking == job.RankingLate && j.Lag > 0 {
		s.found.Jobs = append(s.found.Jobs, j)
	}
}

// readJobs reads jobs that were not read before, the worst first, few at a time, until the call has read maxRead bytes
// of payloads. It keeps no payload, because answers have none.
func (s *topSearch) readJobs(ctx context.Context, keys []job.Key) error {
	keys = slices.DeleteFunc(slices.Clone(keys), func(k job.Key) bool { _, known := s.read[k]; return known })
	for n := firstTopRead; len(keys) > 0; n = s.nextRead(n) {
		if s.size >= maxRead {
			s.cut = true
			return nil
		}
		part := keys[:min(n, len(keys))]
		keys = keys[len(part):]
		records, err := s.r.o.Store.Get(ctx, part)
		if err != nil {
			return err
		}
		for i, record := range records {
			s.read[part[i]] = record
			if record != nil {
				s.size += record.ResponseSize()
				d := *record.Definition
				d.Payload, record.Definition = nil, &d
			}
		}
	}
	return nil
}

// nextRead is how many jobs are read next: at most twice as many as before, and as many as the bytes that are left
// allow by the mean size of those that were read.
func (s *topSearch) nextRead(before int) int {
	return min(2*before, maxTopRead, recordsWithin(maxRead-s.size, len(s.read), s.size))
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
