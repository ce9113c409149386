package job

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/fermata-io/fermata/internal/core/schedule"
)

// step is one thing that can happen to a record in the explorer.
type step struct {
	name    string
	enabled func(State) bool
	do      func(*walker)
}

func always(State) bool   { return true }
func due(s State) bool    { return s.Region == RegionDue }
func leased(s State) bool { return s.Region == RegionLeased }

func steps(edit, end *Compiled) []step {
	settle := func(o Outcome) func(*walker) {
		return func(w *walker) { w.on(FinishAttempt{Token: w.s.Token, Outcome: o, StartedMS: w.now}) }
	}
	return []step{
		{"lease", due, func(w *walker) { w.lease() }},
		{"succeed", leased, settle(OutcomeSucceeded)},
		{"fail", leased, settle(OutcomeFailed)},
		{"time out", leased, settle(OutcomeTimedOut)},
		{"lose", leased, func(w *walker) { w.ack().on(LoseLease{Token: w.s.Token}) }},
		{"return", leased, func(w *walker) { w.on(ReturnLease{Token: w.s.Token}) }},
		{"pause", always, func(w *walker) { w.on(Pause{Note: "n"}) }},
		{"resume", always, func(w *walker) { w.on(Resume{}) }},
		{"run", always, func(w *walker) { w.on(RequestManualRun{RequestID: fmt.Sprint(w.s.Revision)}) }},
		{"cancel the waiting", func(s State) bool { return s.Pending != "" }, func(w *walker) { w.on(CancelRun{RunID: ManualRunID(w.s.Pending)}) }},
		{"cancel", func(s State) bool { return s.HasRun() }, func(w *walker) { w.on(CancelRun{RunID: w.s.RunID()}) }},
		{"edit", always, func(w *walker) { w.on(Update{New: edit}) }},
		{"end the schedule", always, func(w *walker) { w.on(Update{New: end}) }},
		{"delete", always, func(w *walker) { w.on(Delete{}) }},
		{"wait", always, func(w *walker) { w.after(90 * time.Second) }},
	}
}

// TestEverySequenceOfEventsKeepsTheInvariants walks all sequences of five events
// from several jobs. The walker checks the state, tokens, revisions and
// determinism after each; here come the rules that span steps.
func TestEverySequenceOfEventsKeepsTheInvariants(t *testing.T) {
	interval := def()
	interval.Retry.MaxAttempts = 2
	once := def()
	once.Schedule = schedule.Spec{Kind: schedule.KindOnce, At: (t0 + 1000).Time()}
	cron := def()
	cron.Schedule = schedule.Spec{Kind: schedule.KindCron, Cron: []string{"* * * * *"}}
	manual := def()
	manual.Schedule = schedule.Spec{}
	edited := def()
	edited.Schedule.Every = 7 * time.Second
	edited.Queue = "edited"
	ended := def()
	ended.Schedule.EndAt = (t0 + 1).Time()

	depth := 5
	if testing.Short() {
		depth = 4
	}
	for name, d := range map[string]Definition{"interval": interval, "once": once, "cron": cron, "manual": manual} {
		t.Run(name, func(t *testing.T) {
			visited := 0
			all := steps(compile(t, edited), compile(t, ended))
			var explore func(w walker, path []string, asked askedRuns)
			explore = func(w walker, path []string, asked askedRuns) {
				if len(path) == depth {
					return
				}
				for _, s := range all {
					if !s.enabled(w.s) {
						continue
					}
					next, before := w, w.s
					next.last = Decision{}
					s.do(&next)
					visited++
					if err := spanning(before, next); err != nil {
						t.Fatalf("%v after %v then %s\nbefore %+v\nafter  %+v", err, path, s.name, before, next.s)
					}
					kept, err := asked.after(before, next)
					if err != nil {
						t.Fatalf("%v after %v then %s\nbefore %+v\nafter  %+v", err, path, s.name, before, next.s)
					}
					if !next.last.Delete {
						explore(next, append(path[:len(path):len(path)], s.name), kept)
					}
				}
			}
			explore(*walk(t, d), nil, nil)
			t.Logf("%d transitions", visited)
		})
	}
}

// spanning checks what must hold between a state and the next.
func spanning(before State, w walker) error {
	after := w.s
	switch {
	case w.last.Delete:
		return nil
	case after.Runs < before.Runs || after.Skipped < before.Skipped || after.Lost < before.Lost:
		return fmt.Errorf("a total fell")
	case after.Runs > before.Runs && w.last.Ended == nil:
		return fmt.Errorf("a run ended without a record")
	case before.Region == RegionLeased && after.Region == RegionLeased && after.Lane != before.Lane:
		return fmt.Errorf("a live record changed its lane")
	case after.Generation == before.Generation && after.LastNominal < before.LastNominal:
		return fmt.Errorf("last nominal time fell")
	case before.HasRun() && after.HasRun() && after.Trigger == TriggerSchedule && before.Trigger == TriggerSchedule &&
		after.Generation == before.Generation && after.Nominal < before.Nominal:
		return fmt.Errorf("planned nominal time fell")
	case after.HasRun() && after.Trigger == TriggerSchedule && after.LastNominal != 0 &&
		after.Region != RegionLeased && after.Nominal <= after.LastNominal:
		return fmt.Errorf("a nominal time that ran is planned again")
	}
	return nil
}

// askedRuns are the ids of the manual runs that were acknowledged and have not ended.
type askedRuns []string

// after returns the ids that are left after a step. An acknowledged one must end in succeeded, dead, quarantined
// or cancelled by request, or have begun.
func (asked askedRuns) after(before State, w walker) (kept askedRuns, err error) {
	if w.last.Delete || w.s.Deleting { // which is by request
		return nil, nil
	}
	for _, id := range asked {
		switch {
		case stands(&w.s, id), w.last.Spawn != nil && stands(&w.last.Spawn.State, id):
			kept = append(kept, id)
		case before.RunID() == id && (before.Attempt+before.Losses > 0 || before.Live() && w.s.SettledToken == before.Token): // it has begun
		case endedWell(w.last.Notices, id):
		default:
			return nil, fmt.Errorf("the manual run %s was acknowledged and has vanished", id)
		}
	}
	for _, request := range w.s.Recent {
		if id := ManualRunID(request); w.last.Answer == Applied && !slices.Contains(before.Recent, request) {
			kept = append(kept, id)
		}
	}
	return kept, nil
}

// stands reports whether a run is current or waits.
func stands(s *State, id string) bool {
	return s.HasRun() && s.RunID() == id || s.Pending != "" && ManualRunID(s.Pending) == id
}

// endedWell reports whether one of the notices ends a run for a reason that it may end for.
func endedWell(told []Notice, id string) bool {
	return slices.ContainsFunc(told, func(n Notice) bool {
		ended := n.Kind == RunSucceeded || n.Kind == RunDead || n.Kind == RunQuarantined || n.Kind == RunCancelled && n.Reason == "requested"
		return ended && n.RunID == id
	})
}
