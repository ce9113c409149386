package job

import (
	"errors"
	"testing"
	"time"

	"github.com/fermata-io/fermata/internal/core/schedule"
)

var errZone = errors.New("no such zone")

// unusable is a live record whose definition does not compile.
func unusable(t *testing.T) (Definition, State) {
	t.Helper()
	w := walk(t, def())
	w.lease().ack()
	d := def()
	d.Schedule = schedule.Spec{Kind: schedule.KindCron, Cron: []string{"* * * * *"}, TimeZone: "Mars/Olympus"}
	if _, err := Compile(&d); err == nil {
		t.Fatal("the definition compiles")
	}
	return d, w.s
}

func TestLeaseEndMakesAnUnusableRecordDead(t *testing.T) {
	d, live := unusable(t)
	for _, ev := range []Input{
		FinishAttempt{Token: live.Token, Outcome: OutcomeSucceeded}, LoseLease{Token: live.Token}, ReturnLease{Token: live.Token}, ForgiveLoss{Token: live.Token},
	} {
		got, err := DecideCorrupt(&d, live, errZone, ev, t0)
		if !errors.Is(err, ErrCorrupt) || !errors.Is(err, errZone) {
			t.Errorf("%T: %v", ev, err)
		}
		if !got.Changed || got.State.Region != RegionDead || got.IndexMS != NeverMS || got.State.Revision != live.Revision+1 {
			t.Errorf("%T: %+v", ev, got)
		}
		if err := got.State.Check(); err != nil {
			t.Errorf("%T: %v", ev, err)
		}
		again, err := DecideCorrupt(&d, got.State, errZone, ev, t0)
		if err != nil || again.Changed || again.Answer != Duplicate {
			t.Errorf("%T repeated: %+v, %v", ev, again, err)
		}
		if other, err := DecideCorrupt(&d, live, errZone, FinishAttempt{Token: live.Token + 1}, t0); err != nil || other.Answer != Stale || other.Changed {
			t.Errorf("another token: %+v, %v", other, err)
		}
	}
}

func TestUnusableRecordCanBeRepaired(t *testing.T) {
	d, live := unusable(t)
	aside, _ := DecideCorrupt(&d, live, errZone, LoseLease{Token: live.Token}, t0)
	good := def()
	good.Schedule.Every = time.Hour
	got, err := DecideCorrupt(&d, aside.State, errZone, Update{New: compile(t, good)}, t0)
	if err != nil || got.State.Region != RegionDue || got.Definition == nil || got.Definition.Schedule.Every != time.Hour {
		t.Errorf("edited: %+v, %v", got, err)
	}
	if got, err := DecideCorrupt(&d, aside.State, errZone, Delete{}, t0); err != nil || !got.Delete {
		t.Errorf("deleted: %+v, %v", got, err)
	}
	if got, err := DecideCorrupt(&d, live, errZone, Delete{}, t0); err != nil || !got.State.Deleting {
		t.Errorf("deleted while live: %+v, %v", got, err)
	} else if got, err = DecideCorrupt(&d, got.State, errZone, LoseLease{Token: live.Token}, t0); !got.Delete || !errors.Is(err, ErrCorrupt) {
		t.Errorf("and its lease ended: %+v, %v", got, err)
	}
	for _, ev := range []Input{Pause{}, Resume{}, RequestManualRun{RequestID: "m"}, CancelRun{RunID: "r"}} {
		if got, err := DecideCorrupt(&d, aside.State, errZone, ev, t0); got.Changed || !errors.Is(err, ErrCorrupt) {
			t.Errorf("%T: %+v, %v", ev, got, err)
		}
	}
}

// TestUnusableChildIsDeleted: a run of a definition that does not compile ends with its
// lease, and gives its slot back.
func TestUnusableChildIsDeleted(t *testing.T) {
	d := familyDef(OverlapAllowAll)
	f := newFamily(t, d)
	f.lease()
	f.lease()
	fault := errors.New("bad")
	for _, ev := range []Input{LoseLease{Token: f.children[0].Token}, Terminate{}, CancelRun{}} {
		p, err := DecideCorruptChild(&d, f.parent, f.children[0], fault, ev, f.now)
		if !errors.Is(err, ErrCorrupt) || !p.Child.Delete || !p.Parent.Changed {
			t.Fatalf("%T: %+v, %v", ev, p, err)
		}
		if s := p.Parent.State; s.Children != 2 || s.Started != 2 || s.Dead != 1 || p.Parent.Ended == nil || s.Revision != f.parent.Revision+1 {
			t.Errorf("%T: parent %+v", ev, s)
		}
	}
	if p, err := DecideCorruptChild(&d, f.parent, f.children[0], fault, LoseLease{Token: 99}, f.now); err != nil || p.Child.Changed || p.Child.Answer != Stale {
		t.Errorf("a foreign token: %+v, %v", p, err)
	}
	f.on(Delete{})
	f.onChild(1, Terminate{})
	p, _ := DecideCorruptChild(&d, f.parent, f.children[0], fault, Terminate{}, f.now)
	if !p.Parent.Delete {
		t.Errorf("the deleted job stays: %+v", p.Parent)
	}
}
