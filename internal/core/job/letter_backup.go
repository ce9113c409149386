package job

import (
	"fmt"
	"maps"
	"slices"
	"time"
)

// A dead letter belongs to the queue that its job had when the run died, and so does what the run left: its error,
// output and payload. It stays there when the job moves. Its record has a copy of the definition of that time, with the
// fields that a sealed payload of its own is bound to. A checkpoint carries the queue, and these fields if the job has
// others by now.

// Binding has the fields, beside the name of the job, that a payload of [SealOfWork] is bound to.
type Binding struct {
	Queue, Handler string
	Timeout        time.Duration
	MaxAttempts    int
	Labels         map[string]string
}

// String describes the binding.
func (b *Binding) String() string {
	if b == nil {
		return "that of the job"
	}
	return fmt.Sprintf("queue %s, handler %s, timeout %s, max_attempts %d, labels %v", b.Queue, b.Handler, b.Timeout,
		b.MaxAttempts, b.Labels)
}

// Binding returns the fields that a payload sealed for the definition is bound to.
func (d *Definition) Binding() *Binding {
	return &Binding{
		Queue: d.Queue, Handler: d.Handler, Timeout: d.Timeout, MaxAttempts: d.Retry.MaxAttempts,
		Labels: maps.Clone(d.Labels),
	}
}

// applyTo returns the definition with these fields.
func (b *Binding) applyTo(d *Definition) *Definition {
	bound := *d
	bound.Queue, bound.Handler, bound.Timeout, bound.Labels = b.Queue, b.Handler, b.Timeout, b.Labels
	bound.Retry.MaxAttempts = b.MaxAttempts
	return &bound
}

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
	case l.Binding != nil:
		return l.Own.ApplyTo(l.Binding.applyTo(&letter))
	}
	return l.Own.ApplyTo(&letter)
}

// Lane returns the lane of the dead letter.
func (l *CheckpointDeadLetter) Lane(namespace string) Lane {
	return Lane{Namespace: namespace, Queue: l.Queue, Priority: l.Priority}
}

// checkpointLetters returns what a checkpoint keeps of dead letters: the binding only of those whose payload does not
// open with the definition of the job, and is bound to it.
func checkpointLetters(d *Definition, letters []CheckpointDeadLetter) []CheckpointDeadLetter {
	letters = slices.Clone(letters)
	for i := range letters {
		l := &letters[i]
		l.Priority = 0
		if l.Binding == nil {
			continue
		}
		bound := l.DefinitionIn(d)
		plain := *l
		plain.Binding = nil
		if l.Own == nil || bound.SealVersion() != SealOfWork || bound.EqualBoundData(plain.DefinitionIn(d)) {
			l.Binding = nil
		}
	}
	return letters
}

// RemoveUnlocatedDeadLetters removes the dead letters that do not say in which queue they were, and returns a warning for
// each: in the present queue of the job, they might show what only callers of another queue may see. Builds before the
// field wrote none, and their backups do not show all the queues that a job was in.
func (b *Backup) RemoveUnlocatedDeadLetters() (warnings []string) {
	if b.Checkpoint == nil {
		return nil
	}
	kept := make([]CheckpointDeadLetter, 0, len(b.Checkpoint.DeadLetters))
	for _, l := range b.Checkpoint.DeadLetters {
		if l.Queue == "" && l.Slot != LetterOfJob {
			warnings = append(warnings, fmt.Sprintf("the dead letter of run %s is left out: the backup does not say which "+
				"queue it was in; to restore it, write that queue into the field queue of the dead letter, delete the job, "+
				"and import it again", Clip(l.Run.ID, MaxNote)))
			continue
		}
		kept = append(kept, l)
	}
	b.Checkpoint.DeadLetters = checkpointLetters(&b.Definition, kept)
	return warnings
}

// validBindings returns dead letters without the bindings with which no job could be stored.
func validBindings(d *Definition, letters []CheckpointDeadLetter, limits Limits) []CheckpointDeadLetter {
	letters = slices.Clone(letters)
	for i := range letters {
		if l := &letters[i]; l.Binding != nil && len(Validate(l.DefinitionIn(d), limits)) > 0 {
			l.Binding = nil
		}
	}
	return letters
}

// RemoveRuns removes the runs and dead letters with such a payload of their own.
func (cp *Checkpoint) RemoveRuns(isRemoved func(*RunPayload) bool) {
	s := &cp.State
	cp.Children = slices.DeleteFunc(slices.Clone(cp.Children), func(child Child) bool {
		removed := child.Own != nil && isRemoved(child.Own)
		if removed && s.Waiting == uint8(child.Slot)+1 {
			s.Pending, s.Waiting, s.PendingMode = "", 0, 0
		}
		return removed
	})
	cp.DeadLetters = slices.DeleteFunc(slices.Clone(cp.DeadLetters), func(l CheckpointDeadLetter) bool {
		return l.Own != nil && isRemoved(l.Own)
	})
}
