package job

import (
	"fmt"
	"slices"

	"github.com/fermata-io/fermata/internal/core/unixtime"
)

// A dead letter belongs to the queue that its job had when the run died, and so does what the run left: its error,
// output and payload. It stays there when the job moves. A checkpoint carries the queue.

// DefinitionIn returns the definition that the record of the dead letter has, of a job with definition d.
// It has the run's own payload, if there is one. The payload of another job's queue is not in it.
func (l *CheckpointDeadLetter) DefinitionIn(d *Definition) *Definition {
	letter := *d
	if l.Queue != "" {
		letter.Queue = l.Queue
	}
	switch {
	case l.Own == nil && letter.Queue == d.Queue:
		return &letter
	case l.Own == nil:
		return new(RunPayload).ApplyTo(&letter)
	}
	return l.Own.ApplyTo(&letter)
}

// Lane returns the lane of the dead letter.
func (l *CheckpointDeadLetter) Lane(namespace string) Lane {
	return Lane{Namespace: namespace, Queue: l.Queue, Priority: l.Priority}
}

// checkpointLetters returns what a checkpoint keeps of dead letters.
func checkpointLetters(letters []CheckpointDeadLetter) []CheckpointDeadLetter {
	letters = slices.Clone(letters)
	for i := range letters {
		letters[i].Priority = 0
	}
	return letters
}

// clockMargin is by how much the clocks that date edits and ends of runs are expected to differ at most.
const clockMargin = unixtime.Milli(60_000)

// LocateDeadLetters gives each dead letter without a queue the one that its job had when the run died, as far as the
// backup shows it; builds before this field wrote none. It removes the others, and returns a warning for each: in the
// present queue of the job, they might show what only callers of another queue may see.
func (b *Backup) LocateDeadLetters() (warnings []string) {
	if b.Checkpoint == nil {
		return nil
	}
	kept := make([]CheckpointDeadLetter, 0, len(b.Checkpoint.DeadLetters))
	for _, l := range b.Checkpoint.DeadLetters {
		if l.Queue == "" && l.Slot != LetterOfJob {
			then := b.definitionAt(l.Run.FinishedMS)
			if then == nil {
				warnings = append(warnings, fmt.Sprintf("the dead letter of run %s is left out: the backup does not say which "+
					"queue it was in, and the job may have been in another one; to restore it, write that queue into the "+
					"field queue of the dead letter", Clip(l.Run.ID, MaxNote)))
				continue
			}
			l.Queue = then.Queue
		}
		kept = append(kept, l)
	}
	b.Checkpoint.DeadLetters = kept
	return warnings
}

// definitionAt returns a definition that the job had at about this time, if the backup shows that no other one of that
// time had another queue; otherwise nil.
func (b *Backup) definitionAt(ms unixtime.Milli) (found *Definition) {
	for _, d := range b.latestDefinitions() {
		isFirst, isDated := d.Revision <= 1, d.UpdatedMS > 0
		if isDated && d.UpdatedMS > ms+clockMargin && !isFirst {
			continue
		}
		if found != nil && found.Queue != d.Queue {
			return nil
		}
		if found == nil {
			found = d
		}
		if isFirst || isDated && d.UpdatedMS <= ms-clockMargin {
			return found
		}
	}
	return nil
}

// latestDefinitions returns the definition of the job and those before it, newest first, until one is missing.
func (b *Backup) latestDefinitions() []*Definition {
	d := b.Definition
	d.Revision, d.UpdatedMS = max(1, b.Checkpoint.Revision), b.Checkpoint.UpdatedMS
	list := []*Definition{&d}
	for _, before := range b.Revisions {
		if before.Revision+1 != list[len(list)-1].Revision {
			break
		}
		list = append(list, before)
	}
	return list
}
