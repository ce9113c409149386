package job

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/fermata-io/fermata/internal/core/backoff"
	"github.com/fermata-io/fermata/internal/core/schedule"
	"github.com/fermata-io/fermata/internal/core/unixtime"
)

// walkAnyDefinition: whatever passes validation compiles, and no sequence of
// events breaks a job that has it. A delay is never negative: what follows a run
// that ended is not due before its end, unless it is of the schedule alone and waits for
// Resume: that one is planned by the clock that the pause has stopped.
func walkAnyDefinition(t *rapid.T) {
	d, limits := anyDefinition(t), anyLimits(t)
	if rapid.IntRange(0, 9).Draw(t, "mend") > 0 {
		d = mended(d, limits)
	}
	wrong := Validate(&d, limits)
	c, err := Compile(&d)
	if len(wrong) > 0 {
		return
	}
	if err != nil {
		t.Fatalf("valid, but: %v\n%+v", err, d)
	}
	f := &family{c: c, parent: New(c, t0).State, children: map[int]State{}, now: t0, live: map[uint64]bool{}}
	acts := familyActs(c)
	for range rapid.IntRange(1, 40).Draw(t, "steps") {
		able := slices.DeleteFunc(slices.Clone(acts), func(a act) bool { return !a.enabled(f) })
		a := able[rapid.IntRange(0, len(able)-1).Draw(t, "step")]
		f.step(t, a)
		if f.gone {
			return
		}
		s := f.parent
		since, onTime := f.now, s.Source == DelaySchedule || s.Source == DelayJitter
		if s.Region == RegionPaused && (onTime || s.Source == DelayCatchUp) {
			since = min(since, s.PausedMS)
		}
		late := c.Schedule.Kind == schedule.KindOnce && onTime // after a manual run
		if ended := a.name == "fail" || a.name == "succeed"; ended && s.HasRun() && s.Due < since && !late {
			t.Fatalf("after %q: due %d, %d ms before\n%+v\n%+v", a.name, s.Due, int64(f.now-s.Due), s, d)
		}
		f.explained(t)
	}
}

// explained: at any instant, and whatever is known beside, there are reasons, and
// their instants lie where they must.
func (f *family) explained(t *rapid.T) {
	var children []Child
	for _, slot := range f.parent.ChildSlots() {
		children = append(children, Child{Slot: slot, State: f.children[slot]})
	}
	facts := Facts{ClusterKnown: rapid.Bool().Draw(t, "asked"), Held: true, Workers: 1, FreeSlots: rapid.IntRange(0, 1).Draw(t, "slots")}
	if rapid.Bool().Draw(t, "limits") {
		facts.Queue, facts.QueueLive = QueueSettings{MaxConcurrency: 2, Rate: 1, Paused: rapid.Bool().Draw(t, "queue paused")}, rapid.IntRange(0, 2).Draw(t, "live")
		facts.Target = backoff.Circuit{Failures: 1, OpenUntilMS: f.now + 1}
	}
	s := f.parent
	if s.Source == DelayHeld {
		s.Held.Reason = HoldReason(rapid.IntRange(int(HeldOverlap), int(HeldQueue)).Draw(t, "gate"))
	}
	for _, now := range []int64{int64(f.now), int64(max(f.now, s.Due))} {
		e := Explain(f.c, s, children, facts, unixtime.Milli(now))
		if len(e.Reasons) == 0 || e.Summary == "" {
			t.Fatalf("not explained: %+v", s)
		}
		for _, r := range e.Reasons {
			if r.Message == "" || strings.Contains(r.Message, "%!") || r.SinceMS > unixtime.Milli(now) || r.UntilMS != 0 && r.UntilMS <= unixtime.Milli(now) {
				t.Fatalf("at %d: %+v\n%+v", now, r, s)
			}
		}
	}
}

func TestInvariantsForAnyValidDefinition(t *testing.T) { rapid.Check(t, walkAnyDefinition) }

// FuzzDefinition follows the input and, when that is used up, continues at random: short inputs give whole walks
// too, and none is rejected for its length.
func FuzzDefinition(f *testing.F) {
	for n := range 16 {
		f.Add([]byte{byte(n)})
	}
	walk := rapid.MakeFuzz(walkAnyDefinition)
	f.Fuzz(func(t *testing.T, input []byte) {
		var seed [32]byte
		copy(seed[:], input)
		rest := make([]byte, 16<<10)
		_, _ = rand.NewChaCha8(seed).Read(rest) // never fails
		walk(t, slices.Concat(input[min(8, len(input)):], rest))
	})
}
