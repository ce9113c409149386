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
	edits  map[string]bool         // of runs that died about when the job was edited
	own    map[string]*PayloadInfo // of runs that have one
	ended  map[string]unixtime.Milli
}

// drawMovedJob draws a job that was edited and had up to three dead runs, in any order.
func drawMovedJob(t *rapid.T, tb testing.TB) *movedJob {
	m := &movedJob{at: map[string]*Definition{}, edits: map[string]bool{}, own: map[string]*PayloadInfo{},
		ended: map[string]unixtime.Milli{}}
	d := def()
	d.Revision, d.Generation, d.CreatedMS, d.UpdatedMS, d.AnchorMS = 1, 1, t0, t0, t0
	now, edited := unixtime.Milli(t0), unixtime.Milli(0)
	for range rapid.IntRange(1, 12).Draw(t, "steps") {
		now += rapid.SampledFrom([]unixtime.Milli{1, 3_600_000}).Draw(t, "pause")
		if rapid.Bool().Draw(t, "edit") {
			old, next := d, d
			m.before = slices.Insert(m.before, 0, &old)
			next.Revision, next.UpdatedMS = d.Revision+1, now
			next.Queue = rapid.SampledFrom([]string{"a", "b"}).Draw(t, "queue")
			next.Labels = maps.Clone(map[string]string{"v": fmt.Sprint(next.Revision / 2)})
			d, edited = next, now
			continue
		}
		slot := len(m.snap.DeadLetters)
		if slot == DeadLettersPerJob {
			continue
		}
		m.addDeadRun(t, d, slot, now)
		m.edits[fmt.Sprintf("m-r%d", slot)] = edited > now-clockMargin
	}
	c := compile(tb, d)
	state := New(c, now).State
	state.Runs, state.Dead = DeadLettersPerJob, DeadLettersPerJob
	m.snap.Record = Record{Definition: c.Definition, State: state}
	for id, ended := range m.ended {
		soon := func(d *Definition) bool { return d.UpdatedMS > ended && d.UpdatedMS <= ended+clockMargin }
		m.edits[id] = m.edits[id] || soon(&d) || slices.ContainsFunc(m.before, soon)
	}
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
	m.at[id], m.ended[id] = &d, now
}

// TestDeadLettersComeBackAsTheyWere: each in the queue where it was, with its payload and what that is bound to,
// whatever was edited since. Of a backup without queues, those are left out whose queue it does not show.
func TestDeadLettersComeBackAsTheyWere(t *testing.T) {
	var located, leftOut, bound int
	rapid.Check(t, func(rt *rapid.T) {
		m := drawMovedJob(rt, t)
		c := compile(t, *m.snap.Record.Definition)
		cp, ok := c.Checkpoint(m.snap, c.UpdatedMS+1)
		if !ok {
			rt.Fatal("no checkpoint")
		}
		b := Backup{Definition: *c.Definition, Checkpoint: &cp, Revisions: m.before}
		isOld := rapid.Bool().Draw(rt, "of an earlier build")
		if n := len(m.before); isOld && n > 0 && rapid.Bool().Draw(rt, "lacks a revision") {
			gone := rapid.IntRange(0, n-1).Draw(rt, "which")
			b.Revisions = slices.Delete(slices.Clone(m.before), gone, gone+1)
		}
		for i := range cp.DeadLetters {
			if l := &cp.DeadLetters[i]; isOld {
				l.Queue, l.Binding = "", nil
			}
		}
		warnings := b.LocateDeadLetters()
		lost := len(m.at) - len(cp.DeadLetters)
		isComplete := !isOld || len(b.Revisions) == len(m.before)
		isSure := isComplete && (!isOld || !slices.Contains(slices.Collect(maps.Values(m.edits)), true))
		hasMoved := slices.ContainsFunc(m.before, func(d *Definition) bool { return d.Queue != c.Queue })
		if len(warnings) != lost || (lost > 0) != (isOld && len(m.at) > 0 && (!isComplete || hasMoved)) {
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
			if isOld {
				located++
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
			if want != nil && d.SealVersion() == SealOfWork && (isSure || !isOld) {
				bound++
				if !d.EqualBoundData(was) {
					rt.Fatalf("%s is bound to %v, was to %v", child.Run.ID, d.Binding(), was.Binding())
				}
			}
		}
	})
	if located == 0 || leftOut == 0 || bound == 0 {
		t.Errorf("%d dead letters were located, %d left out, %d bound to other fields", located, leftOut, bound)
	}
}
