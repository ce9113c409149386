package job

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/fermata-io/fermata/internal/core/schedule"
)

// checkOwnPayload checks that a run that was requested with a payload has it, and no other: familyActs gives it the
// request id for a payload.
func checkOwnPayload(s *State) error {
	var want *PayloadInfo
	if s.Trigger == TriggerManual && strings.HasPrefix(s.ManualID, "own") {
		want = (&RunPayload{Payload: []byte(s.ManualID)}).Describe()
	}
	if (want == nil) != (s.OwnPayload == nil) || want != nil && *want != *s.OwnPayload {
		return fmt.Errorf("run %s has the payload %v, want %v", s.RunID(), s.OwnPayload, want)
	}
	return nil
}

// requestPayload asks for a run with a payload of its own.
func (f *family) requestPayload(id, payload string) Decision {
	return f.on(RequestManualRun{RequestID: id, Payload: &RunPayload{Payload: []byte(payload)}})
}

// TestARunWithPayloadLeavesTheJobAlone: the plan, the definition and the backoff are as they were, whatever becomes of
// the run.
func TestARunWithPayloadLeavesTheJobAlone(t *testing.T) {
	for _, outcome := range []Outcome{OutcomeSucceeded, OutcomeFailed, OutcomeCancelled} {
		f := newFamily(t, def())
		f.now = f.parent.Due
		f.lease()
		f.on(FinishAttempt{Token: f.token, Outcome: OutcomeFailed, StartedMS: f.now})
		before := f.parent
		d := f.requestPayload("own1", "own1")
		if d.Answer != Applied || d.Spawn == nil || d.Spawn.Payload == nil || d.Definition != nil {
			t.Fatalf("the request: %+v", d)
		}
		f.leaseChild(0)
		f.onChild(0, FinishAttempt{Token: f.token, Outcome: outcome, StartedMS: f.now})
		after := f.parent
		if after.Due != before.Due || after.RunID() != before.RunID() || after.Failures != before.Failures ||
			after.Source != before.Source || after.Children != 0 || after.OwnBytes != 0 {
			t.Errorf("after %v: %+v, before %+v", outcome, after, before)
		}
	}
}

// TestRunsWithPayloadsJoinNothing: each is a run of its own, beside a waiting manual run and beside each other, and one
// after the other.
func TestRunsWithPayloadsJoinNothing(t *testing.T) {
	f := newFamily(t, def())
	f.lease()
	f.on(RequestManualRun{RequestID: "waits"})
	for _, id := range []string{"own1", "own2", "own3"} {
		if d := f.requestPayload(id, id); d.Answer != Applied {
			t.Errorf("%s: %v", id, d.Answer)
		}
	}
	if d := f.on(RequestManualRun{RequestID: "joins"}); d.Answer != Joined {
		t.Errorf("a request without a payload: %v", d.Answer)
	}
	if id, joined, _ := f.parent.RequestedRun("joins"); id != "m-waits" || !joined {
		t.Errorf("it joined %s", id)
	}
	if d := f.requestPayload("own2", "another"); d.Answer != Duplicate || len(f.children) != 3 {
		t.Errorf("a repeated request: %v, %d runs", d.Answer, len(f.children))
	}
	f.token++
	f.children[0] = f.children[0].Leased(f.token)
	if p := f.onChild(0, RunLeased{Token: f.token}); p.Child.Arrival != ArrivalHeld || f.children[0].Held.Reason != HeldOverlap {
		t.Errorf("beside a live run: %v, %+v", p.Child.Arrival, f.children[0].Held)
	}
	if err := f.check(); err != nil {
		t.Error(err)
	}
}

// TestEveryAttemptHasTheRunsPayload: after a failure, lost workers, quarantine, and again after a redrive.
func TestEveryAttemptHasTheRunsPayload(t *testing.T) {
	d := def()
	d.Retry.MaxAttempts = 2
	f := newFamily(t, d)
	f.requestPayload("own1", "own1")
	want := f.children[0].OwnPayload
	attempt := func(slot int, ev func(token uint64) Input) {
		t.Helper()
		f.leaseChild(slot)
		leased := f.children[slot]
		if leased.OwnPayload == nil || *leased.OwnPayload != *want {
			t.Fatalf("leased with %+v", leased.OwnPayload)
		}
		leased.Acked = true
		f.children[slot] = leased
		f.onChild(slot, ev(leased.Token))
	}
	attempt(0, func(token uint64) Input { return LoseLease{Token: token} })
	attempt(0, func(token uint64) Input { return ReturnLease{Token: token} })
	attempt(0, func(token uint64) Input {
		return FinishAttempt{Token: token, Outcome: OutcomeFailed, StartedMS: f.now}
	})
	for len(f.letters) == 0 {
		attempt(0, func(token uint64) Input { return LoseLease{Token: token} })
	}
	if f.letters[0].OwnPayload == nil || *f.letters[0].OwnPayload != *want || f.parent.OwnBytes != 0 {
		t.Fatalf("the dead letter: %+v", f.letters[0])
	}
	p := DecideChild(f.c, f.parent, f.letters[0], Redrive{}, f.now)
	f.letters = nil
	f.store(p.Parent, 0)
	if f.parent.OwnBytes != want.size() || p.Parent.Spawn.Payload != nil {
		t.Errorf("redriven: %d bytes, %+v", f.parent.OwnBytes, p.Parent.Spawn)
	}
	attempt(0, func(token uint64) Input {
		return FinishAttempt{Token: token, Outcome: OutcomeSucceeded, StartedMS: f.now}
	})
	if f.parent.Succeeded != 1 || len(f.children) != 0 {
		t.Errorf("at last: %+v", f.parent)
	}
}

// TestAOneTimeJobHasNoRunWithPayload: not before its run, and not when it is dead or done.
func TestAOneTimeJobHasNoRunWithPayload(t *testing.T) {
	d := def()
	d.Schedule = schedule.Spec{Kind: schedule.KindOnce, At: (t0 + 60_000).Time()}
	for _, outcome := range []Outcome{OutcomeNone, OutcomeFailed, OutcomeSucceeded} {
		f := newFamily(t, d)
		if outcome != OutcomeNone {
			f.lease()
			f.on(FinishAttempt{Token: f.token, Outcome: outcome, StartedMS: f.now})
		}
		if d := f.requestPayload("own1", "own1"); d.Answer != OneTime || d.Changed {
			t.Errorf("after %v: %v", outcome, d.Answer)
		}
	}
	d.Schedule = schedule.Spec{}
	f := newFamily(t, d)
	if d := f.requestPayload("own1", "own1"); d.Answer != Applied || d.IndexMS != NeverMS {
		t.Errorf("of a job without a schedule: %v, deleted at %d", d.Answer, d.IndexMS)
	}
}

// TestRunsWithPayloadsAreBounded by their number and bytes, exclusions, edits and the end of the job.
func TestRunsWithPayloadsAreBounded(t *testing.T) {
	f := newFamily(t, def())
	large := strings.Repeat("x", MaxRunPayload)
	answers := []Answer{}
	for _, id := range []string{"a", "b", "c"} {
		answers = append(answers, f.requestPayload(id, large).Answer)
	}
	if !slices.Equal(answers, []Answer{Applied, Applied, TooMany}) || f.parent.OwnBytes != MaxRunPayloads {
		t.Errorf("two of three fit: %v, %d bytes", answers, f.parent.OwnBytes)
	}
	f.onChild(1, CancelRun{RunID: "m-b"})
	if f.requestPayload("d", large).Answer != Applied {
		t.Error("no room after the end of a run")
	}
	f = newFamily(t, def())
	for i := range MaxConcurrentRuns {
		f.requestPayload(fmt.Sprint("r", i), "")
	}
	if d := f.requestPayload("one-more", ""); d.Answer != TooMany || d.Changed {
		t.Errorf("beside %d runs: %v", MaxConcurrentRuns, d.Answer)
	}

	f = newFamily(t, def())
	payload := &RunPayload{Payload: []byte("x")}
	if d := f.on(RequestManualRun{RequestID: "p", Payload: payload, Base: "another"}); d.Answer != Stale {
		t.Errorf("after an edit: %v", d.Answer)
	}
	if d := f.on(RequestManualRun{RequestID: "p", Payload: payload, Base: f.c.Etag()}); d.Answer != Applied {
		t.Errorf("without an edit: %v", d.Answer)
	}
	f.on(Delete{})
	if d := f.requestPayload("late", "x"); d.Answer != NoSuchRun {
		t.Errorf("of a deleted job: %v", d.Answer)
	}

	excluded := def()
	excluded.Schedule.Exclude.Periods = []schedule.Period{{From: (t0 - 1000).Time(), To: (t0 + 3600_000).Time()}}
	f = newFamily(t, excluded)
	if d := f.requestPayload("p", "x"); d.Answer != Excluded {
		t.Errorf("at an excluded time: %v", d.Answer)
	}
	if d := f.on(RequestManualRun{RequestID: "p", Payload: payload, IgnoreExclusions: true}); d.Answer != Applied ||
		d.Spawn.State.Due != f.now {
		t.Errorf("at an excluded time, on request: %v", d.Answer)
	}
}

// TestABackupKeepsPayloadsOfRuns: those of waiting and live runs and of dead letters, with what describes them.
func TestABackupKeepsPayloadsOfRuns(t *testing.T) {
	f := newFamily(t, def())
	for _, id := range []string{"own1", "own2"} {
		f.requestPayload(id, id)
	}
	f.leaseChild(1)
	own := func(id string) *RunPayload { return &RunPayload{Payload: []byte(id)} }
	snap := Snapshot{Record: Record{Definition: f.c.Definition, State: f.parent}}
	for slot, id := range []string{"own1", "own2"} {
		snap.Children = append(snap.Children, Child{Slot: slot, State: f.children[slot], Own: own(id)})
	}
	snap.Record.State.Dead, snap.Record.State.Runs = 1, 1
	snap.DeadLetters = []CheckpointDeadLetter{{Run: Run{ID: "m-own3", Trigger: TriggerManual, ManualID: "own3", NominalMS: t0, DueMS: t0,
		Outcome: OutcomeDead, OwnPayload: own("own3").Describe()}, Own: own("own3"), ExpireMS: NeverMS}}
	cp, ok := f.c.Checkpoint(snap, f.now)
	if !ok {
		t.Fatal("no checkpoint")
	}
	r, err := Restore(*f.c.Definition, cp, nil, f.now+3600_000, DefaultLimits())
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Children) != 3 || r.Record.State.OwnBytes != 8 {
		t.Fatalf("restored %d records, %d bytes", len(r.Children), r.Record.State.OwnBytes)
	}
	for _, child := range r.Children {
		if !child.State.OwnPayload.Describes(child.Own) || string(child.Own.Payload) != child.State.ManualID {
			t.Errorf("%s has %+v, described by %+v", child.Record, child.Own, child.State.OwnPayload)
		}
	}
	cp.Children[0].Own = &RunPayload{Payload: make([]byte, MaxRunPayload+1)}
	if _, err := Restore(*f.c.Definition, cp, nil, f.now, DefaultLimits()); err == nil {
		t.Error("a payload that is too large is restored")
	}
}

// TestIDsOfKeysAreBounded: a backup may name a key that no node has, but not any text.
func TestIDsOfKeysAreBounded(t *testing.T) {
	for id, good := range map[string]bool{"": true, "k1": true, "2026-11.a_b": true, "-k": false, "a b": false,
		strings.Repeat("k", 32): true, strings.Repeat("k", 33): false} {
		fault := ValidateRunPayload(&RunPayload{Payload: []byte("p"), Key: id}, DefaultLimits())
		if (fault == "") != good {
			t.Errorf("%q: %q", id, fault)
		}
	}
}
