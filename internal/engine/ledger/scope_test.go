package ledger

import (
	"errors"
	"testing"

	"github.com/fermata-io/fermata/internal/core/job"
)

// TestAChangeKeepsToItsQueues: a job that moves to another queue between the look at it and the
// write is left alone, whether or not the caller knew it.
func TestAChangeKeepsToItsQueues(t *testing.T) {
	for _, knows := range []bool{false, true} {
		l, store, _ := setup(t, Options{}, "a")
		store.before = func([]job.Write) {
			store.before = nil
			moved := *store.records["ns/a"].Definition
			moved.Queue = "web"
			store.records["ns/a"].Definition = &moved
			store.records["ns/a"].State.Revision++
		}
		change := job.Change{Record: "ns/a", Input: job.Pause{}, Covers: func(q job.QueueKey) bool { return q == job.QueueKey{Namespace: "ns", Queue: "q"} }}
		if knows {
			known := *store.records["ns/a"]
			change.Known = &known
		}
		if r := l.SubmitAndWait(t.Context(), change)[0]; !errors.Is(r.Err, job.ErrNotFound) {
			t.Errorf("known %v: %+v", knows, r)
		}
		if store.records["ns/a"].State.Paused {
			t.Errorf("known %v: the job is paused in a queue of others", knows)
		}
		// What a caller remembers of another queue does not refuse what is there now.
		change.Covers = func(q job.QueueKey) bool { return q.Queue == "web" }
		if r := l.SubmitAndWait(t.Context(), change)[0]; r.Err != nil || !store.records["ns/a"].State.Paused {
			t.Errorf("known %v: in its queue: %+v", knows, r)
		}
	}
}

// TestADeadLetterIsRedrivenByBothQueues: its own, and that of its job.
func TestADeadLetterIsRedrivenByBothQueues(t *testing.T) {
	for own, want := range map[string]bool{"q": true, "web": false} {
		l, store, _ := setup(t, Options{}, "a")
		letter := job.State{Region: job.RegionDead, Lane: job.Lane{Namespace: "ns", Queue: own}, Trigger: job.TriggerManual, ManualID: "x"}
		store.records["ns/a#d0"] = &job.Record{Definition: store.records["ns/a"].Definition, State: letter}
		r := l.SubmitAndWait(t.Context(), job.Change{Record: "ns/a#d0", Input: job.Redrive{}, Covers: func(q job.QueueKey) bool { return q.Queue == "q" }})[0]
		if done := r.Err == nil && r.Answer == job.Applied; done != want || !want && !errors.Is(r.Err, job.ErrNotFound) {
			t.Errorf("a letter of %s: %+v", own, r)
		}
	}
}

// TestRunsOfAFullNamespaceAreNotKept: what ends is stored without its history while the namespace has
// used up its bytes.
func TestRunsOfAFullNamespaceAreNotKept(t *testing.T) {
	full := true
	l, store, _ := setup(t, Options{Full: func(namespace string) bool { return full && namespace == "ns" }}, "a")
	for _, full = range []bool{true, false} {
		r := store.records["ns/a"]
		token := r.State.Token + 1
		r.State = r.State.Leased(token)
		if got := l.SubmitAndWait(t.Context(), job.Change{Record: "ns/a", Input: job.FinishAttempt{Token: token, Outcome: job.OutcomeSucceeded}})[0]; got.Err != nil {
			t.Fatal(got.Err)
		}
		last := store.batches[len(store.batches)-1]
		if len(last) != 1 || last[0].Bare != full {
			t.Errorf("full %v: %+v", full, last)
		}
	}
	if got := l.SubmitAndWait(t.Context(), job.Change{Record: "ns/a", Input: job.Pause{}})[0]; got.Err != nil {
		t.Fatal(got.Err)
	}
	if store.records["ns/a"].State.Succeeded != 2 {
		t.Errorf("%+v", store.records["ns/a"].State)
	}
}
