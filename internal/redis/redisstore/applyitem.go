package redisstore

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/redis/codec"
)

// applyItem is what apply.lua does to one record. Arguments of type job.Lane
// stand for the lane's place in KEYS, which the call gives them; so do those of type
// worstPlace for that of the indexes of the worst, and objectivesPlace for that of objectives.
type applyItem struct {
	record job.RecordID
	spawns job.RecordID // record that is written beside it; "" none
	guard  codec.Argument
	lane   job.Lane
	steps  []byte
	args   []any
	// lean and leanArgs are how many steps and arguments are left when memory is
	// short: history and dead letters come last.
	lean, leanArgs int
	bare           bool // the call takes it as a lean one does
	write          int  // index of the write that is answered; -1 for a by-product
	// alone: no other item of the call is judged or written with it.
	alone bool
	// partner is the place among the items of a call, counted from this one, of
	// the item that it is together with; 0 is none.
	partner int
	size    int // bytes, about

	// What nearly all items need, without an allocation of its own: arguments are
	// pointers to what the item has anyway.
	someSteps  [2]byte
	someArgs   [4]any
	state      codec.Argument
	score      int64
	field, run codec.Argument // of the history
}

func (i *applyItem) step(letter byte, args ...any) {
	i.steps = append(i.steps, letter)
	i.args = append(i.args, args...)
	for _, a := range args {
		switch a := a.(type) {
		case string:
			i.size += len(a)
		case *string:
			i.size += len(*a)
		case []byte:
			i.size += len(a)
		case *codec.Argument:
			i.size += len(*a)
		}
	}
}

// cut returns the steps and their arguments, without what a lean call leaves out.
func (i *applyItem) cut(lean bool) ([]byte, []any) {
	if lean || i.bare {
		return i.steps[:i.lean], i.args[:i.leanArgs]
	}
	return i.steps, i.args
}

// plain tells whether the script may take the item with others of its kind, on its
// short way.
func (i *applyItem) plain() bool {
	if !i.alone {
		return false
	}
	switch string(i.steps) {
	case plainWrite, plainWriteHistory, plainDelete, plainDeleteTrim:
		return true
	}
	return false
}

// alike tells whether two items may be of one group.
func (i *applyItem) alike(other *applyItem, lean bool) bool {
	a, _ := i.cut(lean)
	b, _ := other.cut(lean)
	return i.plain() && other.plain() && i.lane == other.lane && bytes.Equal(a, b)
}

// compareItems brings plain items of a kind together. Others stay in their order,
// which tells what belongs together, after them.
func compareItems(a, b *applyItem) int {
	switch pa, pb := a.plain(), b.plain(); {
	case !pa && !pb:
		return 0
	case pa != pb:
		if pa {
			return -1
		}
		return 1
	}
	if c := bytes.Compare(a.steps, b.steps); c != 0 || a.lane == b.lane {
		return c
	}
	return strings.Compare(a.lane.String(), b.lane.String())
}

// plan makes it the item of a write. Before is the one it is together with.
func (i *applyItem) plan(s *codec.ArgumentBuffer, w, before *job.Write, index int) error {
	i.record, i.guard, i.lane = w.Record, s.AppendGuard(w), w.From
	i.write, i.size, i.bare = index, len(w.Record)+64, w.Bare
	i.steps, i.args = i.someSteps[:0], i.someArgs[:0]
	if before != nil {
		i.step(stepTogether)
	}
	if w.IfExpired {
		i.step(stepIfExpired)
	}
	d := w.Decision
	if d.Delete {
		i.step(stepDelete)
		i.forget(w)
		i.rank(d)
		i.watch(stepWatch, d.WatchMS)
		i.bounded()
		return nil
	}
	var err error
	if i.state, err = s.AppendState(&d.State, historyAfter(w)); err != nil {
		return err
	}
	if d.State.Region == job.RegionLeased {
		i.step(stepKeepLease, &i.state)
	} else {
		i.score = job.Score(d.State.Region, d.IndexMS)
		i.step(stepWrite, &i.state, &i.score)
	}
	if d.State.Lane != w.From {
		i.step(stepMove, d.State.Lane)
	}
	if err := i.spawn(s.Encoding, w); err != nil {
		return err
	}
	if err := i.define(s.Encoding, w); err != nil {
		return err
	}
	i.watch(stepWatch, d.WatchMS)
	i.bounded()
	i.rank(d)
	return i.remember(s, w, before)
}

// objectivesPlace stands for the place of the index of objectives.
type objectivesPlace struct{}

// watch brings the index of objectives up to date; most decisions leave it alone.
func (i *applyItem) watch(letter byte, atMS int64) {
	switch {
	case atMS > 0:
		i.step(letter, objectivesPlace{}, atMS)
	case atMS == job.WatchNever:
		i.step(letter, objectivesPlace{}, "")
	}
}

// worstPlace stands for the place of the first index of the worst jobs.
type worstPlace struct{}

// rank brings the indexes of the worst jobs up to date; most decisions leave them alone.
func (i *applyItem) rank(d *job.Decision) {
	if !d.Ranked {
		return
	}
	var r job.Ranks
	if !d.Delete {
		r = d.State.Ranks()
	}
	i.step(stepRank, worstPlace{}, rankText(r.Failing), rankText(r.Late))
}

// rankText leaves out of an index what has no rank.
func rankText(rank int64) string {
	if rank == 0 {
		return ""
	}
	return strconv.FormatInt(rank, 10)
}

// spawn writes a run that becomes a record of its own. A live one takes the lease
// of the record over, with the score that it has by then.
func (i *applyItem) spawn(f codec.Encoding, w *job.Write) error {
	run := w.Decision.Spawn
	if run == nil {
		return nil
	}
	text, err := f.ForStates(historyAfter(w)).EncodeState(&run.State)
	if err != nil {
		return fmt.Errorf("run in slot %d: %w", run.Slot, err)
	}
	i.spawns = w.Record.Run(run.Slot)
	var score any = ""
	if run.State.Region != job.RegionLeased {
		score = job.Score(run.State.Region, restingMS(run.State))
	}
	i.step(stepSpawn, string(i.spawns), run.State.Lane, text, score)
	i.watch(stepWatchSpawned, run.WatchMS)
	return nil
}

// bounded marks the steps so far as those that are taken in any case.
func (i *applyItem) bounded() *applyItem {
	i.lean, i.leanArgs = len(i.steps), len(i.args)
	return i
}

// forget deletes the history of a record that is deleted.
func (i *applyItem) forget(w *job.Write) {
	last := min(historyLimit(w.Current), int(min(w.Decision.State.Runs, codec.MaxHistory))) - 1
	if isChild(w.Record) {
		last = 0
	}
	if last >= 0 {
		i.step(stepTrim, 0, last)
	}
}

// define stores an edited definition and drops the history slots that it has no
// use for any more.
func (i *applyItem) define(f codec.Encoding, w *job.Write) error {
	d := w.Decision.Definition
	if d == nil {
		return nil
	}
	text, err := f.EncodeDefinition(d)
	if err != nil {
		return err
	}
	i.step(stepDefine, text)
	if limit, before := historyLimit(d), historyLimit(w.Current); limit < before {
		i.step(stepTrim, limit, before-1)
	}
	return nil
}

// remember writes the run that has ended into the history, and the dead letter.
// When the run was a record of its own, before is that record's write.
func (i *applyItem) remember(s *codec.ArgumentBuffer, w, before *job.Write) error {
	d := w.Decision
	if d.Ended == nil {
		return nil
	}
	limit := historyAfter(w)
	keeps := limit > 0 && d.State.Runs > 0
	if !keeps && !d.DeadLetter {
		return nil
	}
	var err error
	if i.run, err = s.AppendRun(d.Ended); err != nil {
		return err
	}
	if keeps {
		i.field = s.AppendHistoryField(w.Record, int((d.State.Runs-1)%uint64(limit)))
		i.step(stepHistory, &i.field, &i.run)
	}
	if !d.DeadLetter {
		return nil
	}
	child := w.Record.Letter(d.DeadSlot)
	letter := deadLetterState(w, before)
	state, err := s.Encoding.ForStates(historyAfter(w)).EncodeState(&letter)
	if err != nil {
		return err
	}
	def, err := s.Encoding.EncodeDefinition(w.Current)
	if err != nil {
		return err
	}
	expires := d.Ended.FinishedMS + w.Current.DeadLetterTTL.Milliseconds()
	i.step(stepLetter, string(child), state, job.Score(job.RegionDead, expires), def, codec.HistoryField(child, 0), &i.run)
	return nil
}

// deadLetterState is what a dead letter remembers of its run. Its token is the
// run's last one, so that it differs from the letter that had the slot before.
func deadLetterState(w, before *job.Write) job.State {
	s, run := &w.Decision.State, w.Decision.Ended
	token := w.Token
	if before != nil {
		token = before.Token
	}
	return job.State{
		Region: job.RegionDead, Token: token, Revision: 1, Lane: s.Lane, Generation: generationOf(run, s.Generation),
		Trigger: run.Trigger, ManualID: run.ManualID, Nominal: run.NominalMS, Due: run.DueMS, Attempt: run.Attempts, Losses: run.Losses,
		LastOutcome: run.Outcome, LastStarted: run.StartedMS, LastFinished: run.FinishedMS, LastError: run.Error,
		SettledToken: token, Runs: 1, Dead: 1,
	}
}

// generationOf is the generation of a scheduled run: the state that follows may
// be of a later one. The run's id tells it.
func generationOf(run *job.Run, otherwise uint32) uint32 {
	if run.Trigger != job.TriggerSchedule {
		return otherwise
	}
	text, _, _ := strings.Cut(run.ID, "-")
	n, err := strconv.ParseUint(text, 10, 32)
	if err != nil {
		return otherwise
	}
	return uint32(n)
}

// historyAfter is how many runs the job keeps when the write is done.
func historyAfter(w *job.Write) int {
	if d := w.Decision.Definition; d != nil {
		return historyLimit(d)
	}
	return historyLimit(w.Current)
}

func historyLimit(d *job.Definition) int { return max(0, min(d.HistoryLimit, codec.MaxHistory)) }
