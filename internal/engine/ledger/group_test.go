package ledger

import (
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
)

// asked are the answers to one SubmitAll, by place, and how many came at a time.
type asked struct {
	mu      sync.Mutex
	answers map[int]job.ChangeSummary
	sizes   []int
	twice   []int
}

func (a *asked) take(answers []job.ChangeSummary) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.sizes = append(a.sizes, len(answers))
	for _, r := range answers {
		if _, known := a.answers[r.Nth]; known {
			a.twice = append(a.twice, r.Nth)
		}
		a.answers[r.Nth] = r
	}
}

func submitAll(l *Ledger, changes ...job.Change) *asked {
	a := &asked{answers: map[int]job.ChangeSummary{}}
	l.SubmitAll(changes, a.take)
	return a
}

func TestManyAreAnsweredTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, store, rec := setup(t, Options{}, "a", "b", "c", "first")
		store.delay = time.Millisecond
		store.refuse = func(w job.Write) error {
			if w.Record == "ns/c" {
				return errType
			}
			return nil
		}
		l.Submit(job.Change{Record: "ns/first", Input: job.Pause{}}, func(job.ChangeResult) {})
		synctest.Wait() // on its way: what follows makes one batch
		got := submitAll(l,
			job.Change{Record: "ns/a", Input: job.Pause{}},
			job.Change{Record: "no record", Input: job.Pause{}},
			job.Change{Record: "ns/missing", Input: job.Pause{}},
			job.Change{Record: "ns/b", Input: job.Pause{}},
			job.Change{Record: "ns/a", Input: job.Pause{}}, // a job has one change in a round
			job.Change{Record: "ns/c", Input: job.Pause{}},
			job.Change{Record: "ns/b", Input: job.FinishAttempt{Token: 5}},
		)
		time.Sleep(time.Second)
		l.Stop()
		if len(got.answers) != 7 || got.twice != nil {
			t.Fatalf("answered: %v, twice: %v", got.answers, got.twice)
		}
		for nth, want := range map[int]error{0: nil, 1: job.ErrNotFound, 2: job.ErrNotFound, 3: nil, 4: nil, 5: errType, 6: nil} {
			r := got.answers[nth]
			if !errors.Is(r.Err, want) {
				t.Errorf("change %d: %v, want %v", nth, r.Err, want)
			}
			if want == nil && (r.Definition == nil || r.Definition.Queue != "q") {
				t.Errorf("change %d: without its definition: %+v", nth, r)
			}
		}
		if got.answers[6].Answer != job.Stale || got.answers[0].Answer != job.Applied {
			t.Errorf("answers: %+v", got.answers)
		}
		// The poisoned change makes the others of its round go one by one; changes decided without a write are
		// answered together.
		if !slices.ContainsFunc(got.sizes, func(n int) bool { return n > 1 }) {
			t.Errorf("answers never came together: %v", got.sizes)
		}
		if len(rec.notices) != 3 {
			t.Errorf("notices: %+v", rec.notices)
		}
		late := submitAll(l, job.Change{Record: "ns/a", Input: job.Pause{}})
		if !errors.Is(late.answers[0].Err, ErrClosed) {
			t.Errorf("a closed ledger answered %+v", late.answers)
		}
	})
}

// Nothing is answered before the store has it, and then a whole round in one call.
func TestARoundIsAnsweredInOneCall(t *testing.T) {
	ids := []string{"a", "b", "c", "d"}
	l, store, _ := setup(t, Options{}, ids...)
	hold := make(chan struct{})
	entered := make(chan struct{}, 1)
	store.before = func(writes []job.Write) {
		if writes[0].Record == "ns/a" {
			entered <- struct{}{}
			<-hold
		}
	}
	l.Submit(job.Change{Record: "ns/a", Input: job.Pause{}}, func(job.ChangeResult) {})
	<-entered
	changes := make([]job.Change, 0, len(ids))
	for _, id := range ids[1:] {
		changes = append(changes, job.Change{Record: job.RecordID("ns/" + id), Input: job.Pause{}})
	}
	got := submitAll(l, changes...)
	got.mu.Lock()
	if len(got.answers) != 0 {
		t.Errorf("answered before it was stored: %+v", got.answers)
	}
	got.mu.Unlock()
	close(hold)
	l.Stop()
	if len(got.answers) != 3 || !slices.Equal(got.sizes, []int{3}) {
		t.Errorf("%d answers, in calls of %v", len(got.answers), got.sizes)
	}
}
