package registry_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/unixtime"
)

// TestChangedHistoryLimitKeepsTheLatestRuns: after each change of its limit a history has the latest runs that it had, and
// those that end later, and lists of jobs show them.
func TestChangedHistoryLimitKeepsTheLatestRuns(t *testing.T) {
	t.Parallel()
	r := newRenameRig(t)
	for i, c := range []struct {
		ended         int // runs before the changes
		limits        []int
		between, most int
	}{
		{23, []int{5, 10}, 0, 10}, {23, []int{5, 7}, 1, 2}, {30, []int{10, 13}, 1, 10}, {24, []int{10, 5}, 0, 10},
		{24, []int{7, 5, 11}, 2, 10}, {3, []int{10, 5, 2, 10}, 0, 10}, {6, []int{4, 0, 4}, 1, 3}, {12, []int{100, 99, 100}, 3, 5},
		{1, []int{1, 2, 1}, 1, 2}, {9, []int{0, 3}, 2, 3},
	} {
		key := keyOf(fmt.Sprint("history-", i))
		d := jobOf(key.ID)
		d.HistoryLimit = c.limits[0]
		if _, err := r.Create(t.Context(), d, ""); err != nil {
			t.Fatal(err)
		}
		var want []unixtime.Milli // ends of the runs that are kept, newest first
		run := func(limit int) {
			r.advance(time.Hour)
			r.finish(key, job.OutcomeSucceeded)
			want = append([]unixtime.Milli{unixtime.Milli(r.clock.Load())}, want...)
			want = want[:min(limit, len(want))]
		}
		for range c.ended {
			run(c.limits[0])
		}
		for k, limit := range c.limits {
			if k > 0 {
				r.edit(t, key, "", func(d *job.Definition) { d.HistoryLimit = limit })
				want = want[:min(limit, len(want))]
			}
			r.wantHistory(key, want, c.most)
			for range c.between {
				run(limit)
				r.wantHistory(key, want, c.most)
			}
		}
		if err := r.Delete(t.Context(), key, ""); err != nil {
			t.Fatal(err)
		}
	}
	r.wantClean()
}

// wantHistory fails the test if the history of a job has other runs, or a list of jobs shows others.
func (r *renameRig) wantHistory(key job.Key, want []unixtime.Milli, most int) {
	r.t.Helper()
	ends := func(runs []job.Run) (at []unixtime.Milli) {
		for _, run := range runs {
			at = append(at, run.FinishedMS)
		}
		return at
	}
	record, err := r.Get(r.t.Context(), key)
	if err != nil {
		r.t.Fatal(err)
	}
	limit := record.Definition.HistoryLimit
	kept, err := r.store.Runs(r.t.Context(), key, limit)
	if have := ends(kept); err != nil || !slices.Equal(have, want) {
		r.t.Errorf("%s, limit %d: has %v, want %v; %v", key.ID, limit, have, want, err)
	}
	recent, err := r.RecentRuns(r.t.Context(), []job.Record{record}, most)
	if err != nil {
		r.t.Fatal(err)
	}
	if have, first := ends(recent[0]), want[:min(most, len(want))]; !slices.Equal(have, first) {
		r.t.Errorf("%s, limit %d: lists show %v, want %v", key.ID, limit, have, first)
	}
}
