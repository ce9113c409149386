package fsck

import (
	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/redis/codec"
	"github.com/fermata-io/fermata/internal/redis/runner"
)

// checkRevisions looks for revisions of jobs that do not exist, and for some that cannot be read.
func (a *check) checkRevisions() error {
	return a.scanHash(a.keys.Revisions, smallStepSize, func(fields, texts []string) error {
		ids := make([]job.RecordID, len(fields))
		for i, field := range fields {
			ids[i] = job.RecordID(field)
			if _, err := codec.DecodeRevisions(ids[i], texts[i]); err != nil {
				a.addFinding(job.Finding{Fault: job.FaultUnreadable, Record: ids[i],
					Detail: "revisions: " + err.Error() + "; they go with the next edits"})
			}
		}
		if len(ids) == 0 {
			return nil
		}
		states := runner.NewFieldsRead(a.shard, a.keys.State, ids)
		if err := a.runner.Run(a.ctx, states); err != nil {
			return err
		}
		for i, id := range ids {
			if states.Reply.HasTextAt(i) {
				continue
			}
			if err := a.checkOrphanedRevisions(id); err != nil {
				return err
			}
		}
		return nil
	})
}

// checkOrphanedRevisions looks again: revisions are read before the state, because a job is deleted with both.
func (a *check) checkOrphanedRevisions(id job.RecordID) error {
	still := runner.NewFieldsRead(a.shard, a.keys.Revisions, []job.RecordID{id})
	if err := a.runner.Run(a.ctx, still); err != nil || !still.Reply.HasTextAt(0) {
		return err
	}
	if text, err := a.stateText(id); err != nil || text != "" {
		return err
	}
	f := job.Finding{Fault: job.FaultRevisions, Record: id, Detail: "earlier definitions of a job that does not exist"}
	if a.repair {
		if err := a.store.RemoveRevisions(a.ctx, a.shard, id); err != nil {
			return err
		}
		f.Repaired = true
	}
	a.addFinding(f)
	return nil
}
