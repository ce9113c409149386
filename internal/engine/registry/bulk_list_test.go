package registry

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
)

// keptProgress counts the changes whose progress is kept.
func keptProgress(f *fake) (n int) {
	for name, text := range f.cells {
		if strings.HasPrefix(name, "bulk/") && text != "" {
			n++
		}
	}
	return n
}

// TestProgressOfFewChangesIsKept: whoever begins changes again and again does not fill Redis. The progress of those that
// are finished makes room, the oldest first.
func TestProgressOfFewChangesIsKept(t *testing.T) {
	f, r := newFake(t)
	addJobs(t, r, 1)
	q := bulkRequest(t, job.BulkPauseJobs, "labels.team = a")
	for i := range 3 * maxKeptChanges {
		f.now = f.now.Add(time.Second)
		q.RequestID, q.Caller = fmt.Sprint("op-", i), fmt.Sprint("caller-", i%5)
		changeAll(t, r, q, false)
		if _, err := r.Resume(t.Context(), definition("a000").Key, false); err != nil {
			t.Fatal(err)
		}
	}
	if n := keptProgress(f); n > maxKeptChanges || n < maxKeptChanges/2 {
		t.Errorf("the progress of %d changes is kept, want up to %d", n, maxKeptChanges)
	}
	again, err := r.ChangeMatching(t.Context(), q)
	if err != nil || !again.Repeat || again.Total.Changed != 1 {
		t.Errorf("the last change, repeated: %+v, %v", again, err)
	}
}

// TestProgressOfOthersIsKept: identities with many finished changes make room for their own, and an identity with few
// keeps its progress.
func TestProgressOfOthersIsKept(t *testing.T) {
	f, r := newFake(t)
	addJobs(t, r, 1)
	change := func(id, caller string) job.BulkRequest {
		f.now = f.now.Add(time.Second)
		q := bulkRequest(t, job.BulkPauseJobs, "labels.team = a")
		q.RequestID, q.Caller = id, caller
		changeAll(t, r, q, false)
		if _, err := r.Resume(t.Context(), definition("a000").Key, false); err != nil {
			t.Fatal(err)
		}
		return q
	}
	first := change("op", "modest")
	for i := range 3 * maxKeptChanges {
		change(fmt.Sprint("op-", i), fmt.Sprint("caller-", i%7))
	}
	if again, err := r.ChangeMatching(t.Context(), first); err != nil || !again.Repeat {
		t.Errorf("the only change of an identity, repeated: %+v, %v", again, err)
	}
}

// largestProgress is how many bytes the largest progress of a change has that was stored.
type largestProgress struct {
	Limits
	bytes int
}

func (l *largestProgress) SwapCells(ctx context.Context, swaps []job.CellSwap) []job.CellReply {
	for _, s := range swaps {
		if strings.HasPrefix(s.Name, "bulk/") {
			l.bytes = max(l.bytes, len(s.New))
		}
	}
	return l.Limits.SwapCells(ctx, swaps)
}

// TestProgressIsBounded: the progress of a change, which counts for no quota of bytes, has a bound of its own, with the
// longest names too. The change loses no match by it.
func TestProgressIsBounded(t *testing.T) {
	_, r := newFake(t)
	const jobs = 600
	namespace := strings.Repeat("n", job.MaxName)
	for i := range jobs {
		d := definition(fmt.Sprintf("%0*d", job.MaxID, i))
		d.Key.Namespace = namespace
		if _, err := r.Create(t.Context(), d, ""); err != nil {
			t.Fatal(err)
		}
		run := job.RequestManualRun{RequestID: fmt.Sprintf("%0*d", job.MaxRequestID, i)}
		if _, _, err := r.RunJob(t.Context(), d.Key, run); err != nil {
			t.Fatal(err)
		}
	}
	largest := &largestProgress{Limits: r.o.SharedLimits}
	r.o.SharedLimits = largest
	for _, action := range []job.BulkAction{job.BulkCancelRuns, job.BulkPauseJobs, job.BulkResumeJobs} {
		q := bulkRequest(t, action, "id:*")
		q.Filter.Namespace = namespace
		largest.bytes = 0
		if page := changeAll(t, r, confirm(t, r, q), true); page.Total.Changed != jobs {
			t.Errorf("%v: %+v", action, page.Total)
		}
		const names = (job.MaxBulkNames + 1) * 350 // of the last page, and the match that ends the plan
		if largest.bytes < maxPlanBytes/2 || largest.bytes > maxPlanBytes+names {
			t.Errorf("%v: the progress of a change has %d bytes", action, largest.bytes)
		}
	}
	if most := maxPlanBytes + 66*350 + job.MaxBulkNames*350 + maxRefusedBytes + 1<<10; most > maxProgressBytes {
		t.Errorf("a progress may have %d bytes, more than %d", most, maxProgressBytes)
	}
}

// TestNamesOfRefusalsAreBounded: all reasons together show few names, and count all.
func TestNamesOfRefusalsAreBounded(t *testing.T) {
	result := &bulkResult{}
	long := job.BulkTarget{Record: job.RecordID(strings.Repeat("r", job.MaxName+job.MaxID)), RunID: strings.Repeat("i", job.MaxID)}
	for i := range 100 {
		result.refuse(fmt.Sprint("REASON_", i%5), long)
	}
	bytes, counted := 0, 0
	for _, f := range result.Refusals {
		bytes, counted = bytes+len(f.Names)*storedSize(long), counted+f.Count
	}
	if bytes == 0 || bytes > maxRefusedBytes || counted != 100 {
		t.Errorf("%d names of %d bytes", counted, bytes)
	}
}

// TestChangesUnderWayKeepTheirProgress: nobody begins more changes than a share of the list, an identity alone leaves
// room for others, and changes that nobody continues make room after a while.
func TestChangesUnderWayKeepTheirProgress(t *testing.T) {
	f, r := newFake(t)
	addJobs(t, r, 1)
	begin := func(i int, caller string) error {
		q := bulkRequest(t, job.BulkPauseJobs, "labels.team = a")
		q.RequestID, q.Caller = fmt.Sprint("op-", i), caller
		r.o.SharedLimits = &lossyCells{fake: f, lose: 3} // the result of the page is not stored
		_, err := r.ChangeMatching(t.Context(), q)
		if errors.Is(err, job.ErrUnavailable) {
			err = nil
		}
		if _, resumeErr := r.Resume(t.Context(), definition("a000").Key, false); resumeErr != nil {
			t.Fatal(resumeErr)
		}
		return err
	}
	var refused *job.BulkError
	begun := 0
	for ; begun < maxKeptChanges && !errors.As(begin(begun, "a"), &refused); begun++ {
	}
	if begun != maxKeptChanges/2 || refused == nil || refused.Reason != job.ReasonTooManyBulkChanges {
		t.Fatalf("one identity has begun %d changes, then %v", begun, refused)
	}
	if err := begin(1000, "b"); err != nil {
		t.Errorf("another identity: %v", err)
	}
	f.now = f.now.Add(idleChange)
	if err := begin(1001, "a"); err != nil {
		t.Errorf("after nobody has continued the others for a while: %v", err)
	}
}
