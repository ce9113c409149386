package redisstore

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/unixtime"
	"github.com/fermata-io/fermata/internal/redis/codec"
)

// applyItem is what apply.lua does to one record. Some arguments stand for places in KEYS, which are
// known when the call is built: a job.Lane for that of the lane, a rankingsPlaceholder for that of
// the rankings, an objectivesPlaceholder for that of the index of objectives, and so on.
type applyItem struct {
	record job.RecordID
	spawns job.RecordID // record that is spawned; "" for none
	guard  codec.Argument
	lane   job.Lane
	steps  []byte
	args   []any
	// leanSteps and leanArgs are how many steps and arguments remain when memory is short. Those
	// for history and dead letters come last.
	leanSteps, leanArgs int
	alwaysLean          bool // only the lean steps are ever sent
	write               int  // index of the write that gets the result; -1 for none
	// unrelated: no other item of the call depends on it.
	unrelated bool
	// partnerOffset leads from this item of a call to the item that it is together with; 0 for
	// none.
	partnerOffset int
	size          int // approximate bytes

	// Memory that nearly all items need. Arguments are pointers into the item, so that an item makes
	// no allocation (BenchmarkApplyItems: 10 for a call with 64).
	someSteps  [2]byte
	someArgs   [4]any
	state      codec.Argument
	score      int64
	field, run codec.Argument // of the history
}

func (i *applyItem) addStep(letter byte, args ...any) {
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

// stepsFor returns the steps and their arguments; for a lean call only the lean ones.
func (i *applyItem) stepsFor(lean bool) ([]byte, []any) {
	if lean || i.alwaysLean {
		return i.steps[:i.leanSteps], i.args[:i.leanArgs]
	}
	return i.steps, i.args
}

// isPlain reports whether the item may be sent in a plain group.
func (i *applyItem) isPlain() bool {
	if !i.unrelated {
		return false
	}
	switch string(i.steps) {
	case plainWrite, plainWriteHistory, plainDelete, plainDeleteTrim:
		return true
	}
	return false
}

// inSameGroup reports whether two items may be sent in one plain group.
func (i *applyItem) inSameGroup(other *applyItem, lean bool) bool {
	a, _ := i.stepsFor(lean)
	b, _ := other.stepsFor(lean)
	return i.isPlain() && other.isPlain() && i.lane == other.lane && bytes.Equal(a, b)
}

// compareItems sorts plain items of the same group together. General items follow in their original
// order, on which their relations depend.
func compareItems(a, b *applyItem) int {
	switch pa, pb := a.isPlain(), b.isPlain(); {
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

// planWrite makes the item of a write. before is the write that it is together with.
func (i *applyItem) planWrite(s *codec.ArgumentBuffer, w, before *job.Write, index int) error {
	i.record, i.guard, i.lane = w.Record, s.AppendGuard(w), w.From
	i.write, i.size, i.alwaysLean = index, len(w.Record)+64, w.Bare
	i.steps, i.args = i.someSteps[:0], i.someArgs[:0]
	if before != nil {
		i.addStep(stepTogether)
	}
	if w.IfExpired {
		i.addStep(stepIfExpired)
	}
	d := w.Decision
	if d.Delete {
		i.addStep(stepDelete)
		i.addHistoryDeletion(w)
		i.addRevisionDeletion(w)
		i.addRanks(d)
		i.addWatch(stepWatch, int64(d.WatchMS))
		i.endLeanSteps()
		return nil
	}
	var err error
	i.state, err = s.AppendState(&d.State, historyAfter(w))
	if err != nil {
		return err
	}
	if d.State.Region == job.RegionLeased {
		i.addStep(stepKeepLease, &i.state)
	} else {
		i.score = job.Score(d.State.Region, d.IndexMS)
		i.addStep(stepWrite, &i.state, &i.score)
	}
	if d.State.Lane != w.From {
		i.addStep(stepMove, d.State.Lane)
	}
	if err := i.addSpawn(s.Encoding, w, before); err != nil {
		return err
	}
	if err := i.addDefinition(s.Encoding, w); err != nil {
		return err
	}
	i.addWatch(stepWatch, int64(d.WatchMS))
	i.addRevisionRemoval(w)
	i.endLeanSteps()
	i.addRanks(d)
	if err := i.addRevision(s.Encoding, w); err != nil {
		return err
	}
	i.addRunMoves(w)
	return i.addHistory(s, w, before)
}

// objectivesPlaceholder stands for the place of the index of objectives.
type objectivesPlaceholder struct{}

// addWatch updates the index of objectives. Most decisions do not change it.
func (i *applyItem) addWatch(letter byte, atMS int64) {
	switch {
	case atMS > 0:
		i.addStep(letter, objectivesPlaceholder{}, atMS)
	case atMS == job.WatchNever:
		i.addStep(letter, objectivesPlaceholder{}, "")
	}
}

// rankingsPlaceholder stands for the place of the first ranking.
type rankingsPlaceholder struct{}

// addRanks updates the rankings of jobs. Most decisions do not change them.
func (i *applyItem) addRanks(d *job.Decision) {
	if !d.Ranked {
		return
	}
	var r job.Ranks
	if !d.Delete {
		r = d.State.Ranks()
	}
	i.addStep(stepRank, rankingsPlaceholder{}, rankText(r.Failing), rankText(r.Late))
}

// rankText encodes a rank; "" removes a job without one.
func rankText(rank int64) string {
	if rank == 0 {
		return ""
	}
	return strconv.FormatInt(rank, 10)
}

// addSpawn writes a run that becomes a record of its own. A running one takes over the lease of the
// record, with the score that the lease has by then. before is the write of the dead letter of which the run is made.
func (i *applyItem) addSpawn(f codec.Encoding, w, before *job.Write) error {
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
		score = job.Score(run.State.Region, unixtime.Milli(restingMS(run.State)))
	}
	i.addStep(stepSpawn, string(i.spawns), run.State.Lane, text, score)
	if err := i.addSpawnedPayload(run, before); err != nil {
		return err
	}
	i.addWatch(stepWatchSpawned, int64(run.WatchMS))
	return nil
}

// endLeanSteps marks the steps so far as those that are always sent.
func (i *applyItem) endLeanSteps() *applyItem {
	i.leanSteps, i.leanArgs = len(i.steps), len(i.args)
	return i
}

// addHistoryDeletion deletes the history of a record that is deleted.
func (i *applyItem) addHistoryDeletion(w *job.Write) {
	last := min(historyLimit(w.Current), int(min(w.Decision.State.Runs, codec.MaxHistory))) - 1
	if isChild(w.Record) {
		last = 0
	}
	if last >= 0 {
		i.addStep(stepTrim, 0, last)
	}
}

// addDefinition stores an edited definition and deletes history slots beyond its limit.
func (i *applyItem) addDefinition(f codec.Encoding, w *job.Write) error {
	d := w.Decision.Definition
	if d == nil {
		return nil
	}
	text, err := f.EncodeDefinition(d)
	if err != nil {
		return err
	}
	i.addStep(stepDefine, text)
	if limit, before := historyLimit(d), historyLimit(w.Current); limit < before {
		i.addStep(stepTrim, limit, before-1)
	}
	return nil
}

// addRunMoves moves the ended runs to the slots that they have in a history of another length. When memory is short
// they stay where they are, so that the latest runs are found again when the history has been filled anew.
func (i *applyItem) addRunMoves(w *job.Write) {
	d := w.Decision
	if d.Definition == nil {
		return
	}
	before, after, ended := historyLimit(w.Current), historyLimit(d.Definition), int64(d.State.Runs)
	if d.Ended != nil {
		ended-- // that one is not there yet
	}
	if before != after && before > 0 && after > 0 && ended > 0 {
		i.addStep(stepMoveRuns, before, after, ended)
	}
}

// addHistory writes the ended run into the history, and its dead letter. If the run was a record of
// its own, before is the write of that record.
func (i *applyItem) addHistory(s *codec.ArgumentBuffer, w, before *job.Write) error {
	d := w.Decision
	if d.Ended == nil {
		return nil
	}
	limit := historyAfter(w)
	keeps := limit > 0 && d.State.Runs > 0 && d.State.KeptRun == ""
	if !keeps && !d.DeadLetter {
		return nil
	}
	var err error
	i.run, err = s.AppendRun(d.Ended)
	if err != nil {
		return err
	}
	if keeps {
		i.field = s.AppendHistoryField(w.Record, int((d.State.Runs-1)%uint64(limit)))
		i.addStep(stepHistory, &i.field, &i.run)
		if err := i.addEarlierRun(w, limit); err != nil {
			return err
		}
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
	def, err := s.Encoding.EncodeDefinition(letterDefinition(w))
	if err != nil {
		return err
	}
	expires := d.Ended.FinishedMS.Add(w.Current.DeadLetterTTL)
	i.addStep(stepLetter, string(child), state, job.Score(job.RegionDead, expires), def, codec.HistoryField(child, 0),
		&i.run)
	i.addLetterPayload(d.Ended, before)
	return nil
}

// deadLetterState is the state of a dead letter. Its token is the last one of the run, so that it
// differs from the dead letter that had the slot before.
func deadLetterState(w, before *job.Write) job.State {
	s, run := &w.Decision.State, w.Decision.Ended
	token := w.Token
	if before != nil {
		token = before.Token
	}
	return job.State{
		Region: job.RegionDead, Token: token, Revision: 1, Lane: s.Lane, Generation: generationOf(run, s.Generation),
		Trigger: run.Trigger, ManualID: run.ManualID, Nominal: run.NominalMS, Due: run.DueMS, Attempt: run.Attempts,
		Losses:      run.Losses,
		LastOutcome: run.Outcome, LastStarted: run.StartedMS, LastFinished: run.FinishedMS, LastError: run.Error,
		SettledToken: token, Runs: 1, Dead: 1, OwnPayload: run.OwnPayload,
	}
}

// generationOf reads the generation of a scheduled run from its id: the state that follows may
// have a later one.
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

// historyAfter is how many runs the job keeps after the write.
func historyAfter(w *job.Write) int {
	if d := w.Decision.Definition; d != nil {
		return historyLimit(d)
	}
	return historyLimit(w.Current)
}

func historyLimit(d *job.Definition) int { return boundHistory(d.HistoryLimit) }

func boundHistory(limit int) int { return max(0, min(limit, codec.MaxHistory)) }
