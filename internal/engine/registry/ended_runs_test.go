package registry

import (
	"context"
	"testing"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/unixtime"
)

// othersSuccesses has the successes of others, and before them one of namespace mine.
type othersSuccesses struct {
	*fake
	others uint64
}

func (s othersSuccesses) ReadSuccesses(_ context.Context, ranges []job.SuccessRange) ([][]job.SuccessEvent, error) {
	out := make([][]job.SuccessEvent, len(ranges))
	for i, r := range ranges {
		at := min(s.others+1, r.Before.Seq)
		if r.Before.MS > 1 {
			at = s.others + 1
		}
		for ; r.Shard == 0 && at > 0 && len(out[i]) < r.Limit; at-- {
			namespace := "other"
			if at == 1 {
				namespace = "mine"
			}
			run := &job.EndedRun{Key: job.Key{Namespace: namespace, ID: "j"}, Queue: "q", Run: job.Run{Outcome: job.OutcomeSucceeded}}
			out[i] = append(out[i], job.SuccessEvent{Place: job.Place{MS: unixtime.Milli(1), Seq: at - 1}, Run: run})
		}
	}
	return out, nil
}

func (othersSuccesses) ReadEntries(_ context.Context, entries []job.IndexEntry) ([]*job.Record, error) {
	return make([]*job.Record, len(entries)), nil
}

// TestSuccessesOfOthersEndNoPage: a page of the runs of a caller who may not see all is the same whatever others have.
func TestSuccessesOfOthersEndNoPage(t *testing.T) {
	f, r := newFake(t)
	for _, others := range []uint64{0, 10, 3 * scanRecords} {
		store := othersSuccesses{f, others}
		r.o.Store, r.o.ScanTime = store, time.Minute
		q := job.EndedRunsQuery{Outcomes: []job.Outcome{job.OutcomeSucceeded}, Filter: job.Filter{AllNamespaces: true,
			Limited: true, Scope: func(q job.QueueKey) bool { return q.Namespace == "mine" }}}
		page, err := r.ListEndedRuns(t.Context(), q)
		if err != nil || len(page.Runs) != 1 || page.Next != "" || page.Incomplete {
			t.Errorf("beside %d runs of others: %d runs, token %q, incomplete %v: %v", others, len(page.Runs), page.Next, page.Incomplete, err)
		}
	}
}
