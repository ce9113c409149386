package job

import "github.com/fermata-io/fermata/internal/core/unixtime"

// Discard deletes a dead run for good: the dead letter of the run RunID, or the one-time job whose run is dead. The
// slot of a dead letter may have another run by now.
type Discard struct {
	RunID string
	// FinishedMS, when set, is when the run died: a run that died again since is left alone, as NotDead.
	FinishedMS unixtime.Milli
}

func (Discard) isEvent() {}

// DecidesOnLetter reports whether an input of a dead letter's record is decided on the letter and its job.
func DecidesOnLetter(ev Input) bool {
	switch ev.(type) {
	case Redrive, Discard:
		return true
	}
	return false
}

// isDeadSince reports whether the record is a one-time job that died at an instant; 0 is any.
func (t *transition) isDeadSince(finishedMS unixtime.Milli) bool {
	return t.Region == RegionDead && !t.c.Recurring() && (finishedMS == 0 || t.LastFinished == finishedMS)
}

// isLetterSince reports whether the record of a run is a dead letter of a run that died at an instant; 0 is any.
func (s *State) isLetterSince(finishedMS unixtime.Milli) bool {
	return s.Region == RegionDead && s.Children == 0 && (finishedMS == 0 || s.LastFinished == finishedMS)
}

// discardJob deletes a one-time job whose run is dead.
func (t *transition) discardJob(ev Discard) Answer {
	if t.Deleting || !t.isDeadSince(ev.FinishedMS) {
		return t.answerUnchanged(NotDead, t.stateBefore())
	}
	t.removeDeletedJob()
	return t.finishDecision(Applied)
}

// discardLetter deletes a dead letter. The job is not changed, except for its revision: a redrive of the same letter
// that was decided before is decided again.
func discardLetter(c *Compiled, parent, letter State, ev Discard, now unixtime.Milli) ParentChildPair {
	if !letter.isLetterSince(ev.FinishedMS) || ev.RunID != letter.RunID() {
		return ParentChildPair{
			Child: Decision{Answer: NotDead, State: letter}, Parent: Decision{Answer: NotDead, State: parent},
		}
	}
	pair := ParentChildPair{Parent: Decision{State: parent}}
	t := pair.Parent.beginTransition(c, At(now))
	t.finishDecision(Applied)
	letter.Revision++
	pair.Child = Decision{Answer: Applied, Changed: true, State: letter, Delete: true}
	return pair
}
