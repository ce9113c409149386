package registry

import (
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
