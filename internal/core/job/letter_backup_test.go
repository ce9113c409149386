package job

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/fermata-io/fermata/internal/core/unixtime"
)

// movedJob is a job with edits and dead runs, as a cluster has stored it.
type movedJob struct {
	snap   Snapshot
	before []*Definition           // revisions, newest first
	at     map[string]*Definition  // the definition when a run died, by the id of the run
	own    map[string]*PayloadInfo // of runs that have one
}

// drawMovedJob draws a job that was edited and had up to three dead runs, in any order.
func drawMovedJob(t *rapid.T, tb testing.TB) *movedJob {
	m := &movedJob{at: map[string]*Definition{}, own: map[string]*PayloadInfo{}}
	d := def()
	d.Revision, d.Generation, d.CreatedMS, d.UpdatedMS, d.AnchorMS = 1, 1, t0, t0, t0
	now := unixtime.Milli(t0)
	for range rapid.IntRange(1, 12).Draw(t, "steps") {
		now += rapid.SampledFrom([]unixtime.Milli{1, 3_600_000}).Draw(t, "pause")
		if rapid.Bool().Draw(t, "edit") {
			old, next := d, d
			m.before = slices.Insert(m.before, 0, &old)
			next.Revision, next.UpdatedMS = d.Revision+1, now
			next.Queue = rapid.SampledFrom([]string{"a", "b"}).Draw(t, "queue")
			next.Labels = maps.Clone(map[string]string{"v": fmt.Sprint(next.Revision / 2)})
			d = next
			continue
		}
		slot := len(m.snap.DeadLetters)
		if slot == DeadLettersPerJob {
			continue
		}
		m.addDeadRun(t, d, slot, now)
	}
	c := compile(tb, d)
	state := New(c, now).State
	state.Runs, state.Dead = DeadLettersPerJob, DeadLettersPerJob
	m.snap.Record = Record{Definition: c.Definition, State: state}
	return m
}

func (m *movedJob) addDeadRun(t *rapid.T, d Definition, slot int, now unixtime.Milli) {
	id := fmt.Sprintf("m-r%d", slot)
	l := CheckpointDeadLetter{Slot: slot, Queue: d.Queue, ExpireMS: NeverMS, Run: Run{
		ID: id, Trigger: TriggerManual, NominalMS: now, DueMS: now, FinishedMS: now, Outcome: OutcomeDead, Error: "of " + d.Queue}}
	if rapid.Bool().Draw(t, "own payload") {
		l.Own = &RunPayload{Payload: make([]byte, SealOverhead+3)}
		if rapid.Bool().Draw(t, "sealed") {
			l.Own.Key, l.Own.Payload[0] = "k", byte(rapid.IntRange(SealOfJob, SealOfWork).Draw(t, "version"))
		}
		l.Run.OwnPayload, l.Binding = l.Own.Describe(), d.Binding()
		m.own[id] = l.Run.OwnPayload
	}
	m.snap.DeadLetters = append(m.snap.DeadLetters, l)
	m.at[id] = &d
}

// TestDeadLettersComeBackAsTheyWere: each in the queue where it was, with its payload and what that is bound to,
// whatever was edited since. Those of a backup without queues are left out.
func TestDeadLettersComeBackAsTheyWere(t *testing.T) {
	var leftOut, bound int
	rapid.Check(t, func(rt *rapid.T) {
		m := drawMovedJob(rt, t)
		c := compile(t, *m.snap.Record.Definition)
		cp, ok := c.Checkpoint(m.snap, c.UpdatedMS+1)
		if !ok {
			rt.Fatal("no checkpoint")
		}
		b := Backup{Definition: *c.Definition, Checkpoint: &cp, Revisions: m.before}
		isOld := rapid.Bool().Draw(rt, "of an earlier build")
		for i := range cp.DeadLetters {
			if l := &cp.DeadLetters[i]; isOld {
				l.Queue, l.Binding = "", nil
			}
		}
		warnings := b.RemoveUnlocatedDeadLetters()
		lost := len(m.at) - len(cp.DeadLetters)
		if len(warnings) != lost || isOld != (len(cp.DeadLetters) == 0) && len(m.at) > 0 {
			rt.Fatalf("%d dead letters are left out: %q", lost, warnings)
		}
		leftOut += lost
		r, err := Restore(*c.Definition, cp, nil, c.UpdatedMS+1, DefaultLimits())
		if err != nil {
			rt.Fatal(err)
		}
		for _, child := range r.Children {
			was := m.at[child.Run.ID]
			if fault := child.State.Check(); fault != nil || child.State.Lane.Queue != was.Queue {
				rt.Fatalf("%s of queue %s: %+v, %v", child.Run.ID, was.Queue, child.State, fault)
			}
			want, has := m.own[child.Run.ID], child.State.OwnPayload
			if (want == nil) != (has == nil) || want != nil && (*want != *has || !has.Describes(RunPayloadOf(child.Definition))) {
				rt.Fatalf("%s has the payload %v, want %v", child.Run.ID, has, want)
			}
			d := child.Definition
			if d == nil {
				d = c.Definition
			}
			if d.Queue != was.Queue || want == nil && d.Queue != c.Queue && len(d.Payload) > 0 {
				rt.Fatalf("%s of queue %s has the definition %+v", child.Run.ID, was.Queue, d)
			}
			if want != nil && d.SealVersion() == SealOfWork {
				bound++
				if !d.EqualBoundData(was) {
					rt.Fatalf("%s is bound to %v, was to %v", child.Run.ID, d.Binding(), was.Binding())
				}
			}
		}
	})
	if leftOut == 0 || bound == 0 {
		t.Errorf("%d dead letters were left out, %d bound to other fields", leftOut, bound)
	}
}
