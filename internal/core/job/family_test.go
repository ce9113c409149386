package job

import (
	"fmt"
	"maps"
	"math/bits"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/fermata-io/fermata/internal/core/schedule"
	"github.com/fermata-io/fermata/internal/core/unixtime"
)

// family is a job with the records of its runs, driven as a node would drive
// them, without any IO.
type family struct {
	c        *Compiled
	parent   State
	children map[int]State
	letters  []State
	now      unixtime.Milli
	token    uint64
	live     map[uint64]bool // tokens of attempts that a worker has
	gone     bool
	story    []string
	fault    error
	asked    askedRuns // that were acknowledged, and have neither begun nor ended
	told     []Notice  // of the last step
}

func newFamily(t testing.TB, d Definition) *family {
	c := compile(t, d)
	return &family{c: c, parent: New(c, t0).State, children: map[int]State{}, now: t0, live: map[uint64]bool{}}
}

func (f *family) clone() *family {
	n := *f
	n.children, n.live = maps.Clone(f.children), maps.Clone(f.live)
	n.letters, n.story = slices.Clone(f.letters), slices.Clone(f.story)
	n.asked, n.told = slices.Clone(f.asked), nil
	return &n
}

// on decides an event of the parent and stores it.
func (f *family) on(ev Input) Decision {
	d := Decide(f.c, f.parent, ev, f.now)
	f.store(d, f.parent.Token)
	return d
}

func (f *family) store(d Decision, token uint64) {
	if !d.Changed {
		return
	}
	f.told = append(f.told, d.Notices...)
	if d.State.Revision != f.parent.Revision+1 {
		f.fail("the parent's revision went from %d to %d", f.parent.Revision, d.State.Revision)
	}
	if d.Definition != nil {
		f.c, _ = Compile(d.Definition)
	}
	f.parent, f.gone = d.State, d.Delete
	if d.Spawn != nil {
		if _, taken := f.children[d.Spawn.Slot]; taken {
			f.fail("slot %d is taken", d.Spawn.Slot)
		}
		f.children[d.Spawn.Slot] = d.Spawn.State
	}
	if d.DeadLetter {
		f.letters = append(f.letters, State{
			Region: RegionDead, Token: token, Revision: 1, Lane: d.State.Lane, Generation: d.State.Generation,
			Trigger: d.Ended.Trigger, ManualID: d.Ended.ManualID, Nominal: d.Ended.NominalMS, Due: d.Ended.DueMS,
			OwnPayload: d.Ended.OwnPayload,
		})
	}
}

// onChild decides an event of a child and stores it.
func (f *family) onChild(slot int, ev Input) ParentChildPair {
	child := f.children[slot]
	p := DecideChild(f.c, f.parent, child, ev, f.now)
	if p.Child.Changed {
		if p.Child.State.Revision != child.Revision+1 {
			f.fail("the revision of child %d went from %d to %d", slot, child.Revision, p.Child.State.Revision)
		}
		f.children[slot] = p.Child.State
		if p.Child.Delete {
			delete(f.children, slot)
			delete(f.live, child.Token)
		}
	}
	f.store(p.Parent, child.Token)
	return p
}

// lease hands a due parent out and does what admission would do.
func (f *family) lease() {
	f.now = max(f.now, f.parent.Due)
	f.token++
	f.parent = f.parent.Leased(f.token)
	leased := f.parent
	d := f.on(RunLeased{Token: f.token})
	if d.Arrival == ArrivalStart || d.Arrival == ArrivalSpawn {
		f.live[f.token] = true
		f.begins(&leased)
	}
	for _, slot := range d.CancelChildren {
		run := f.children[slot]
		f.onChild(slot, CancelRun{RunID: run.RunID()})
	}
	for _, slot := range d.TerminateChildren {
		f.onChild(slot, Terminate{})
	}
}

func (f *family) leaseChild(slot int) {
	child := f.children[slot]
	f.now = max(f.now, child.Due)
	f.token++
	f.children[slot] = child.Leased(f.token)
	if f.onChild(slot, RunLeased{Token: f.token}).Child.Arrival == ArrivalStart {
		f.live[f.token] = true
		f.begins(&child)
	}
}

// begins notes that a run has begun, which no run does at an excluded time.
func (f *family) begins(s *State) {
	f.asked = slices.DeleteFunc(f.asked, func(id string) bool { return id == s.RunID() })
	if until, ok := f.c.NextAllowed(f.now); (!ok || until != f.now) && !s.IgnoresExclusions() {
		f.fail("%s, due %d, begins at %d, which is excluded until %d", s.RunID(), s.Due, f.now, until)
	}
}

// ask asks for a manual run.
func (f *family) ask(ev RequestManualRun) {
	if f.on(ev).Answer == Applied {
		f.asked = append(f.asked, ManualRunID(ev.RequestID))
	}
}

// vanished is an acknowledged manual run that has neither begun nor ended for a reason that
// it may end for; "" is none.
func (f *family) vanished() (id string) {
	f.asked = slices.DeleteFunc(f.asked, func(run string) bool {
		stays := stands(&f.parent, run) || f.first(func(s State) bool { return stands(&s, run) }) >= 0
		if !stays && !endedWell(f.told, run) && !f.parent.Deleting {
			id = run
		}
		return !stays
	})
	return id
}

func (f *family) fail(format string, args ...any) {
	if f.fault == nil {
		f.fault = fmt.Errorf(format, args...)
	}
}

// first is the first child for which ok holds; -1 when there is none.
func (f *family) first(ok func(State) bool) int {
	for slot := range MaxConcurrentRuns {
		if s, there := f.children[slot]; there && ok(s) {
			return slot
		}
	}
	return -1
}

// act is something that can happen to a family.
type act struct {
	name    string
	enabled func(*family) bool
	do      func(*family)
}

func familyActs(edit *Compiled) []act {
	anytime := func(*family) bool { return true }
	dueParent := func(f *family) bool { return f.parent.Region == RegionDue }
	liveParent := func(f *family) bool { return f.parent.Live() }
	dueChild := func(f *family) bool { return f.first(due) >= 0 }
	liveChild := func(f *family) bool { return f.first(leased) >= 0 }
	settle := func(o Outcome) func(*family) {
		return func(f *family) {
			delete(f.live, f.parent.Token)
			f.on(FinishAttempt{Token: f.parent.Token, Outcome: o, StartedMS: f.now})
		}
	}
	settleChild := func(o Outcome) func(*family) {
		return func(f *family) {
			slot := f.first(leased)
			token := f.children[slot].Token
			delete(f.live, token)
			f.onChild(slot, FinishAttempt{Token: token, Outcome: o, StartedMS: f.now})
		}
	}
	return []act{
		{"lease", dueParent, (*family).lease},
		{"lease child", dueChild, func(f *family) { f.leaseChild(f.first(due)) }},
		{"succeed", liveParent, settle(OutcomeSucceeded)},
		{"fail", liveParent, settle(OutcomeFailed)},
		{"child succeeds", liveChild, settleChild(OutcomeSucceeded)},
		{"child fails", liveChild, settleChild(OutcomeFailed)},
		{"child is lost", liveChild, func(f *family) {
			slot := f.first(leased)
			delete(f.live, f.children[slot].Token)
			f.onChild(slot, LoseLease{Token: f.children[slot].Token})
		}},
		{"child's loss is forgiven", liveChild, func(f *family) {
			slot := f.first(leased)
			delete(f.live, f.children[slot].Token)
			f.onChild(slot, ForgiveLoss{Token: f.children[slot].Token})
		}},
		{"backfill", anytime, func(f *family) {
			f.on(StartBackfill{Backfill{ID: fmt.Sprint(f.parent.Revision), NextMS: t0 - 180_001, ToMS: t0, Concurrency: uint8(1 + f.parent.Revision%2)}})
		}},
		{"stop backfill", func(f *family) bool { return len(f.parent.Backfills) > 0 }, func(f *family) {
			f.on(StopBackfill{ID: f.parent.Backfills[0].ID})
		}},
		{"run", anytime, func(f *family) { f.ask(RequestManualRun{RequestID: fmt.Sprint("r", f.parent.Revision)}) }},
		{"run, keep", anytime, func(f *family) {
			f.ask(RequestManualRun{RequestID: fmt.Sprint("k", f.parent.Revision), Mode: ManualKeep})
		}},
		{"run with payload", anytime, func(f *family) {
			id := fmt.Sprint("own", f.parent.Revision)
			f.ask(RequestManualRun{RequestID: id, Payload: &RunPayload{Payload: []byte(id)}})
		}},
		{"redrive", func(f *family) bool { return len(f.letters) > 0 }, func(f *family) {
			p := DecideChild(f.c, f.parent, f.letters[0], Redrive{}, f.now)
			if p.Child.Delete {
				f.letters = f.letters[1:]
			}
			f.store(p.Parent, 0)
		}},
		{"lose", liveParent, func(f *family) {
			delete(f.live, f.parent.Token)
			f.parent.Acked = true
			f.on(LoseLease{Token: f.parent.Token})
		}},
		{"return", liveParent, func(f *family) {
			delete(f.live, f.parent.Token)
			f.on(ReturnLease{Token: f.parent.Token})
		}},
		{"hold", liveParent, func(f *family) {
			delete(f.live, f.parent.Token)
			f.on(HoldBack{Token: f.parent.Token, Reason: HeldLock, Key: "k", UntilMS: f.now + 5000})
		}},
		{"hint", anytime, func(f *family) {
			f.on(SetHint{Hint{Source: HintOperator, AtMS: f.now + 10_000, UntilMS: f.now + 60_000}})
		}},
		{"pause", anytime, func(f *family) { f.on(Pause{}) }},
		{"resume", anytime, func(f *family) { f.on(Resume{CatchUp: true}) }},
		{"edit", anytime, func(f *family) { f.on(Update{New: edit}) }},
		{"delete", anytime, func(f *family) { f.on(Delete{}) }},
		{"wait", anytime, func(f *family) { f.now += 200_000 }},
	}
}

// check returns the first violated invariant of a family.
func (f *family) check() error {
	if f.fault != nil {
		return f.fault
	}
	if f.gone {
		if len(f.children) > 0 {
			return fmt.Errorf("deleted with children left")
		}
		return nil
	}
	if err := f.parent.Check(); err != nil {
		return fmt.Errorf("parent: %w", err)
	}
	bits, ownBytes := uint64(0), uint64(0)
	for slot, s := range f.children {
		bits |= 1 << slot
		if err := checkOwnPayload(&s); err != nil {
			return fmt.Errorf("child %d: %w", slot, err)
		}
		ownBytes += s.OwnPayload.size()
		if err := s.Check(); err != nil {
			return fmt.Errorf("child %d: %w", slot, err)
		}
		if s.Children != 1<<slot || s.Started&^f.parent.Started != 0 {
			return fmt.Errorf("child %d has bits %b, begun %b of %b", slot, s.Children, s.Started, f.parent.Started)
		}
	}
	for i := range f.letters {
		if err := checkOwnPayload(&f.letters[i]); err != nil {
			return fmt.Errorf("dead letter: %w", err)
		}
	}
	if f.parent.OwnPayload != nil || f.parent.OwnBytes != ownBytes {
		return fmt.Errorf("%d bytes of payloads of runs, %d are counted; the job's own record has %v", ownBytes,
			f.parent.OwnBytes, f.parent.OwnPayload)
	}
	if bits != f.parent.Children {
		return fmt.Errorf("children %b, records %b", f.parent.Children, bits)
	}
	for _, b := range f.parent.Backfills {
		if b.Slots&^f.parent.Children != 0 {
			return fmt.Errorf("backfill %s has slots %b of %b", b.ID, b.Slots, f.parent.Children)
		}
	}
	return nil
}

// TestEverySequenceOfEventsKeepsParentAndChildrenConsistent walks all sequences of five
// events from jobs of each overlap policy, with their children.
func TestEverySequenceOfEventsKeepsParentAndChildrenConsistent(t *testing.T) {
	depth := 5
	if testing.Short() {
		depth = 4
	}
	for policy := OverlapSkip; policy <= OverlapTerminateOther; policy++ {
		t.Run(policy.String(), func(t *testing.T) {
			t.Parallel()
			acts := familyActs(compile(t, editedFamily(policy)))
			visited := 0
			var explore func(f *family, left int)
			explore = func(f *family, left int) {
				for _, a := range acts {
					if left == 0 || f.gone || !a.enabled(f) {
						continue
					}
					next := f.clone()
					next.step(t, a)
					visited++
					explore(next, left-1)
				}
			}
			explore(newFamily(t, familyDef(policy)), depth)
			t.Logf("%d transitions", visited)
		})
	}
}

// TestLongTracesKeepParentAndChildrenConsistent walks at random, and further.
func TestLongTracesKeepParentAndChildrenConsistent(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		policy := Overlap(rapid.IntRange(0, int(OverlapTerminateOther)).Draw(r, "overlap"))
		d := familyDef(policy)
		d.Misfire.Policy = MisfirePolicy(rapid.IntRange(0, 2).Draw(r, "misfire"))
		d.PauseAfter = rapid.IntRange(0, 3).Draw(r, "pause after")
		d.MaxLag = rapid.SampledFrom([]time.Duration{0, time.Millisecond, time.Minute}).Draw(r, "max lag")
		d.Schedule.MaxRuns = rapid.SampledFrom([]int{0, 0, 5}).Draw(r, "max runs")
		acts := familyActs(compile(t, editedFamily(policy)))
		f := newFamily(t, d)
		for range rapid.IntRange(1, 60).Draw(r, "steps") {
			able := slices.DeleteFunc(slices.Clone(acts), func(a act) bool { return !a.enabled(f) })
			f.step(r, able[rapid.IntRange(0, len(able)-1).Draw(r, "step")])
			if f.gone {
				return
			}
		}
	})
}

func familyDef(policy Overlap) Definition {
	d := def()
	d.Retry.MaxAttempts = 2
	d.Overlap, d.OverlapLimit = policy, 3
	return d
}

func editedFamily(policy Overlap) Definition {
	d := familyDef((policy + 1) % (OverlapTerminateOther + 1))
	d.Schedule = schedule.Spec{Kind: schedule.KindInterval, Every: 50 * time.Second}
	return d
}

type fataler interface {
	Helper()
	Fatalf(format string, args ...any)
}

// step does one act and checks what must hold after it.
func (f *family) step(t fataler, a act) {
	t.Helper()
	before := f.parent
	f.story = append(f.story, a.name)
	f.told = nil
	a.do(f)
	err := f.check()
	switch {
	case err == nil && f.vanished() != "":
		err = fmt.Errorf("an acknowledged manual run has vanished")
	case err != nil || f.gone:
	case f.parent.Runs < before.Runs || f.parent.Skipped < before.Skipped || f.parent.Dead < before.Dead:
		err = fmt.Errorf("a total fell")
	case f.parent.LastNominal < before.LastNominal:
		err = fmt.Errorf("the last nominal time fell from %d to %d", before.LastNominal, f.parent.LastNominal)
	case bits.OnesCount64(f.parent.Children) > MaxConcurrentRuns:
		err = fmt.Errorf("too many children")
	default:
		err = f.alone()
	}
	if err != nil {
		t.Fatalf("%v after %v\nbefore %+v\nafter  %+v\nchildren %+v", err, f.story, before, f.parent, f.children)
	}
}

// alone reports whether more runs are live than the policy allows.
func (f *family) alone() error {
	limit := 1
	switch f.c.Overlap {
	case OverlapAllowAll:
		return nil // the limit is checked when runs start
	case OverlapTerminateOther:
		return nil // by choice
	}
	for _, b := range f.parent.Backfills {
		if b.Concurrency > 1 {
			limit += int(b.Concurrency) // beside the job's runs, as asked for
		}
	}
	if n := len(f.live); n > limit && !f.parent.Deleting && !slices.Contains(f.story, "edit") && !slices.Contains(f.story, "stop backfill") {
		return fmt.Errorf("%d runs are live at once, %d allowed", n, limit)
	}
	return nil
}

// TestOneJobHasManyLanes: dead letters and live runs with records of their own stay in their lanes while the job moves to
// other queues. Documents have the number.
func TestOneJobHasManyLanes(t *testing.T) {
	d := familyDef(OverlapAllowAll)
	d.Retry.MaxAttempts, d.OverlapLimit = 1, MaxConcurrentRuns
	f := newFamily(t, d)
	moves := 0
	move := func() {
		moves++
		d.Queue = fmt.Sprint("q", moves)
		f.on(Update{New: compile(t, d)})
	}
	start := func() (slot int) {
		f.ask(RequestManualRun{RequestID: fmt.Sprint(moves), Mode: ManualKeep})
		slot = f.first(due)
		f.leaseChild(slot)
		return slot
	}
	for range DeadLettersPerJob {
		slot := start()
		f.onChild(slot, FinishAttempt{Token: f.children[slot].Token, Outcome: OutcomeFailed, StartedMS: f.now})
		move()
	}
	for range MaxConcurrentRuns {
		start()
		move()
	}
	if err := f.check(); err != nil {
		t.Fatal(err)
	}
	lanes := map[Lane]bool{f.parent.Lane: true}
	for _, s := range f.children {
		lanes[s.Lane] = true
	}
	for _, s := range f.letters {
		lanes[s.Lane] = true
	}
	if want := 1 + DeadLettersPerJob + MaxConcurrentRuns; len(lanes) != want {
		t.Errorf("%d lanes, want %d", len(lanes), want)
	}
}
