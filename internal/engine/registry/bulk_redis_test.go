package registry_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/jobfilter"
	"github.com/fermata-io/fermata/internal/core/schedule"
)

// TestDeadLettersAreChangedByFilterOnRedis: by fields of the job and of the dead run. A run that died again before the
// page is repeated is left alone.
func TestDeadLettersAreChangedByFilterOnRedis(t *testing.T) {
	for _, action := range []job.BulkAction{job.BulkRedriveDeadLetters, job.BulkDiscardDeadLetters} {
		t.Run(action.String(), func(t *testing.T) {
			r := newRig(t)
			for i := range 4 {
				d := jobOf(fmt.Sprintf("j%d", i))
				if i == 3 {
					d.Schedule = schedule.Spec{Kind: schedule.KindOnce, At: time.Now().Add(-time.Second)}
				}
				if _, err := r.Create(t.Context(), d, ""); err != nil {
					t.Fatal(err)
				}
				if _, _, err := r.RunJob(t.Context(), d.Key, job.RequestManualRun{RequestID: "m"}); err != nil {
					t.Fatal(err)
				}
				r.die(t, d.Key)
			}
			left := func() (n int) {
				page, err := r.ListDeadLetters(t.Context(), job.Filter{Namespace: "default"}, 0, "")
				if err != nil {
					t.Fatal(err)
				}
				return len(page.DeadLetters)
			}
			if total := r.changeMatching(t, action, "op-1", `last_error = "404"`); total.Matched != 0 || left() != 4 {
				t.Errorf("%+v, %d left", total, left())
			}
			const some = `last_error = "503" AND labels.team = ops AND (id = j0 OR id = j3)`
			for range 2 { // the second call repeats the first
				total := r.changeMatching(t, action, "op-2", some)
				if total != (job.BulkCounts{Matched: 2, Changed: 2}) || left() != 2 {
					t.Errorf("%+v, %d left", total, left())
				}
			}
			_, err := r.Get(t.Context(), job.Key{Namespace: "default", ID: "j3"})
			if discarded := errors.Is(err, job.ErrNotFound); discarded != (action == job.BulkDiscardDeadLetters) {
				t.Errorf("the one-time job: %v", err)
			}
		})
	}
}

// changeMatching makes a change, page by page, and returns its counts.
func (r *rig) changeMatching(t *testing.T, action job.BulkAction, id, filter string) job.BulkCounts {
	t.Helper()
	condition, err := jobfilter.Parse(filter)
	if err != nil {
		t.Fatal(err)
	}
	q := job.BulkRequest{Action: action, RequestID: id,
		Filter: job.Filter{Namespace: "default", Condition: condition}}
	for {
		page, err := r.ChangeMatching(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		if q.Token = page.Next; q.Token == "" {
			return page.Total
		}
	}
}

// TestRedrivenRunThatDiedAgain is not redriven by the repetition of the page that redrove it.
func TestRedrivenRunThatDiedAgain(t *testing.T) {
	r := newRig(t)
	d := jobOf("once")
	d.Schedule = schedule.Spec{Kind: schedule.KindOnce, At: time.Now().Add(-time.Second)}
	if _, err := r.Create(t.Context(), d, ""); err != nil {
		t.Fatal(err)
	}
	r.die(t, d.Key)
	record, err := r.Get(t.Context(), d.Key)
	if err != nil || record.State.LastFinished == 0 {
		t.Fatalf("%+v %v", record.State, err)
	}
	redrive := job.Redrive{FinishedMS: record.State.LastFinished - 1}
	change := func() job.ChangeResult {
		return r.book.SubmitAndWait(t.Context(), job.Change{Record: d.Key.Record(), Input: redrive})[0]
	}
	if got := change(); got.Err != nil || got.Answer != job.NotDead {
		t.Errorf("of another death: %+v", got)
	}
	redrive.FinishedMS++
	if got := change(); got.Err != nil || got.Answer != job.Applied {
		t.Errorf("of this death: %+v", got)
	}
}
