package registry

import (
	"fmt"

	"github.com/fermata-io/fermata/internal/core/job"
)

// This file opens the payloads of a backup. The payload of a job has to open, or the job is not restored. The payload of
// a run or dead letter need not: it is restored sealed, so that one of them does not keep the job from being restored, and
// the run is held back until its payload opens.

// warnOfBackup adds what the backup of a snapshot lacks, and what of it this cluster could not restore or run.
func (r *Registry) warnOfBackup(b *job.Backup, snap *job.Snapshot) {
	warn := func(format string, args ...any) { b.Warnings = append(b.Warnings, fmt.Sprintf(format, args...)) }
	for _, run := range snap.Unreadable {
		warn("the run %s is missing: what is stored of it cannot be read", run)
	}
	if b.Checkpoint == nil {
		warn("the state is missing, because the definition is not valid: a restore registers it as a new job, or fails")
	}
	if _, err := r.openPayload(&b.Definition); err != nil {
		warn("nodes with the keys of this one would refuse to restore the job: its payload cannot be opened: %v", err)
	}
	for _, own := range ownPayloadsOf(b) {
		if _, err := r.openPayload(own.definition()); err != nil {
			warn("with the keys of this node, %s cannot run with its own payload, nor could it when it is restored: %v", own,
				err)
		}
	}
}

// sealBackupRuns seals the payloads that runs and dead letters of a backup have of their own, as that of its job, and
// returns warnings. A sealed one that cannot be opened stays as it is: whoever would deliver it cannot open it either,
// and holds the run back. A run whose payload is not sealed, but has to be, is left out.
func (r *Registry) sealBackupRuns(b *job.Backup) (warnings []string) {
	unsealed := map[*job.RunPayload]bool{}
	for _, own := range ownPayloadsOf(b) {
		d := own.definition()
		payload, err := r.openPayload(d)
		switch {
		case err != nil && d.PayloadKey == "":
			unsealed[*own.place] = true
			warnings = append(warnings, fmt.Sprintf("%s is left out: its own payload cannot be restored: %v", own, err))
		case err != nil:
			warnings = append(warnings, fmt.Sprintf("%s is restored, and held back when it is to run, until its own payload "+
				"can be opened: %v", own, err))
		case r.o.Sealer != nil && (d.PayloadKey == "" || d.SealVersion() < r.o.Sealer.Version()):
			r.sealPayload(d, payload)
			*own.place = job.RunPayloadOf(d)
		}
	}
	if len(unsealed) > 0 {
		b.Checkpoint.RemoveRuns(func(own *job.RunPayload) bool { return unsealed[own] })
	}
	return warnings
}

// ownPayload is the payload that a run of a backup has of its own.
type ownPayload struct {
	place  **job.RunPayload
	job    *job.Definition
	letter *job.CheckpointDeadLetter // nil: it is an unfinished run
	run    string                    // id
}

func (p ownPayload) String() string {
	if p.letter != nil {
		return "the dead letter of run " + job.Clip(p.run, job.MaxNote)
	}
	return "the run " + job.Clip(p.run, job.MaxNote)
}

// definition returns the definition with the payload, and with the fields that it is bound to if it is sealed.
func (p ownPayload) definition() *job.Definition {
	if p.letter != nil {
		return p.letter.DefinitionIn(p.job)
	}
	return (*p.place).ApplyTo(p.job)
}

func ownPayloadsOf(b *job.Backup) (list []ownPayload) {
	if b.Checkpoint == nil {
		return nil
	}
	for i := range b.Checkpoint.Children {
		if child := &b.Checkpoint.Children[i]; child.Own != nil {
			list = append(list, ownPayload{place: &child.Own, job: &b.Definition, run: child.State.RunID()})
		}
	}
	for i := range b.Checkpoint.DeadLetters {
		if l := &b.Checkpoint.DeadLetters[i]; l.Own != nil {
			list = append(list, ownPayload{place: &l.Own, job: &b.Definition, letter: l, run: l.Run.ID})
		}
	}
	return list
}

// sizeOfRunPayloads returns how many bytes runs and dead letters of backups have as payloads of their own.
func sizeOfRunPayloads(backups []job.Backup) (bytes int) {
	for i := range backups {
		for _, own := range ownPayloadsOf(&backups[i]) {
			bytes += len((*own.place).Payload)
		}
	}
	return bytes
}
