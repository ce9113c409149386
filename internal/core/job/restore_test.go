package job

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/fermata-io/fermata/internal/core/backoff"
	"github.com/fermata-io/fermata/internal/core/schedule"
)

func backupJob(overlap Overlap) *Compiled {
	d := WithDefaults(Definition{
		Key: Key{Namespace: "ns", ID: "j"}, Handler: "h", Overlap: overlap, Generation: 2, Revision: 3, AnchorMS: 1_000_000, CreatedMS: 1_000_000,
		Schedule: schedule.Spec{Kind: schedule.KindInterval, Every: time.Minute},
	})
	d.Priority, d.Backoff.Jitter = DefaultPriority, backoff.Jitter{Kind: backoff.JitterNone}
	c, err := Compile(&d)
	if err != nil {
		panic(err)
	}
	return c
}

// What is live is due again at no cost; what was asked to end has ended.
func TestAtRest(t *testing.T) {
	c := backupJob(OverlapSkip)
	due := New(c, 1_000_000).State
	due.Attempt, due.Losses, due.Failures = 1, 1, 2
	live := due.Leased(77)
	live.Acked = true
	s, _, ok := WithoutLeases(c, live, nil, 1_100_000)
	want := due
	want.Revision = 0
	if !ok || !sameState(s, want) || s.Token != 0 || s.Region != RegionDue {
		t.Errorf("live: %+v", s)
	}
	if !sameState(live, live) || sameState(live, due) {
		t.Error("sameState")
	}
	cancelled := live
	cancelled.Cancel = true
	if s, _, ok := WithoutLeases(c, cancelled, nil, 1_100_000); !ok || s.Attempt != 0 || s.Nominal <= due.Nominal || s.Runs != due.Runs+1 {
		t.Errorf("cancelled: %+v", s)
	}
	waiting := live
	waiting.Pending, waiting.PendingMode = "now", ManualKeep
	s, children, ok := WithoutLeases(c, waiting, nil, 1_100_000)
	if !ok || len(children) != 1 || children[0].State.ManualID != "now" || s.Children != 1 {
		t.Errorf("a manual run waits: %+v %+v", s, children)
	}
	deleted := live
	deleted.Deleting = true
	if _, _, ok := WithoutLeases(c, deleted, nil, 1_100_000); ok {
		t.Error("a deleted job has a checkpoint")
	}
}

func TestAtRestOfChildren(t *testing.T) {
	c := backupJob(OverlapAllowAll)
	parent := New(c, 1_000_000).State.Leased(5)
	d := Decide(c, parent, RunLeased{Token: 5}, 1_060_000)
	if d.Spawn == nil {
		t.Fatalf("%+v", d)
	}
	ended := d.Spawn.State
	ended.Cancel = true
	for name, tt := range map[string]struct {
		child State
		left  int
	}{"live": {d.Spawn.State, 1}, "cancelled": {ended, 0}} {
		s, children, ok := WithoutLeases(c, d.State, []Child{{Slot: d.Spawn.Slot, State: tt.child}}, 1_100_000)
		if !ok || len(children) != tt.left || len(s.ChildSlots()) != tt.left {
			t.Errorf("%s: %+v %+v", name, s, children)
		}
		if tt.left == 1 && (children[0].State.Live() || children[0].State.Started == 0 || children[0].State.Token != 0) {
			t.Errorf("%s: %+v", name, children[0])
		}
	}
}

func TestRestore(t *testing.T) {
	c := backupJob(OverlapSkip)
	state := New(c, 1_000_000).State
	state.Failures, state.Dead = 4, 1
	letter := CheckpointDeadLetter{Slot: 0, ExpireMS: 9_000_000, Run: Run{ID: "1-900000", NominalMS: 900_000, DueMS: 900_000, Outcome: OutcomeDead}}
	cp := Checkpoint{
		Generation: 2, Revision: 3, AnchorMS: 1_000_000, CreatedMS: 1_000_000, UpdatedMS: 1_000_000,
		State: withoutClusterState(state), ExpireMS: NeverMS, DeadLetters: []CheckpointDeadLetter{letter},
	}
	early, err := Restore(*c.Definition, cp, nil, 1_000_500, DefaultLimits())
	if err != nil || early.Record.State.Recovery || early.Record.IndexMS != state.Due || early.Replaces != nil || len(early.Children) != 1 {
		t.Fatalf("%+v %v", early, err)
	}
	if p := early.Children[0]; p.Record != "ns/j#d0" || p.IndexMS != 9_000_000 || p.State.Generation != 1 || p.State.Region != RegionDead {
		t.Errorf("dead letter %+v", p)
	}
	late, err := Restore(*c.Definition, cp, nil, 5_000_000, DefaultLimits())
	if err != nil || !late.Record.State.Recovery || late.Record.State.Paced || late.Record.State.Revision == early.Record.State.Revision {
		t.Errorf("overdue: %+v %v", late.Record.State, err)
	}

	present := Record{Definition: c.Definition, State: early.Record.State}
	present.State.Token, present.State.SettledToken, present.State.Revision, present.State.Dead = 9, 9, 40, 6
	again, err := Restore(*c.Definition, cp, &present, 1_000_500, DefaultLimits())
	if err != nil || !again.Unchanged {
		t.Errorf("dead runs since: %+v %v", again, err)
	}
	present.State.Failures = 0
	again, err = Restore(*c.Definition, cp, &present, 1_000_500, DefaultLimits())
	if s := again.Record.State; err != nil || again.Unchanged || s.Token != 9 || s.SettledToken != 9 || s.Revision != 41 || s.Dead != 6 || s.Failures != 4 {
		t.Errorf("in place: %+v %v", again, err)
	}
	if again.Record.Definition.Etag() != c.Etag() {
		t.Errorf("the definition is the same, its etag is %s", again.Record.Definition.Etag())
	}
	other := *c.Definition
	other.Handler = "other"
	if r, err := Restore(other, cp, &present, 1_000_500, DefaultLimits()); err != nil || r.Record.Definition.Etag() == c.Etag() {
		t.Errorf("another definition has the same etag: %v", err)
	}
	unfit := &PreconditionError{}
	busy := present
	busy.State = busy.State.Leased(10)
	if _, err := Restore(*c.Definition, cp, &busy, 1_000_500, DefaultLimits()); !errors.As(err, &unfit) || unfit.Reason != ReasonJobRuns {
		t.Errorf("live: %v", err)
	}
	twice := cp
	twice.DeadLetters = []CheckpointDeadLetter{letter, letter}
	bad := *c.Definition
	bad.Handler = ""
	for what, try := range map[string]func() (Restoration, error){
		"checkpoint.dead_letters[1].name": func() (Restoration, error) {
			return Restore(*c.Definition, twice, nil, 1_000_500, DefaultLimits())
		},
		"job.handler": func() (Restoration, error) { return Restore(bad, cp, nil, 1_000_500, DefaultLimits()) },
	} {
		if _, err := try(); err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func TestParseRunID(t *testing.T) {
	for _, r := range []Run{
		{ID: "7-1234", NominalMS: 1234}, {ID: "m-a-b", Trigger: TriggerManual, NominalMS: 5}, {ID: "b-a-1-99", Trigger: TriggerBackfill, NominalMS: 99},
	} {
		generation, manualID, ok := parseRunID(r)
		if !ok || RunID(r.Trigger, generation, r.NominalMS, manualID) != r.ID {
			t.Errorf("%+v: %d %q %v", r, generation, manualID, ok)
		}
	}
	for _, r := range []Run{{ID: "7-1234", NominalMS: 5}, {ID: "x", NominalMS: 5}, {ID: "", Trigger: TriggerManual}, {ID: "b-a-98", Trigger: TriggerBackfill, NominalMS: 99}} {
		if _, _, ok := parseRunID(r); ok {
			t.Errorf("%+v is taken for good", r)
		}
	}
}
