package fsck

import (
	"maps"
	"slices"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/redis/codec"
)

// checkRenames looks for records that keep a name for a rename that is over, and for renames that cannot be read.
func (a *check) checkRenames() error {
	err := a.scanHash(a.keys.Renames, 1, func(fields, _ []string) error { // a kept job has its payload and its history
		for _, field := range fields {
			if err := a.store.CheckRename(a.ctx, a.shard, field); err != nil {
				a.addFinding(job.Finding{Fault: job.FaultUnreadable, Detail: err.Error()})
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, id := range slices.Sorted(maps.Keys(a.renaming)) {
		if err := a.checkKeptName(id, a.renaming[id]); err != nil {
			return err
		}
	}
	return nil
}

// checkKeptName reads the rename of a record, then the record again: both go in one step.
func (a *check) checkKeptName(id job.RecordID, mark job.RenameMark) error {
	known, err := a.store.KnowsRename(a.ctx, a.shard, mark)
	if err != nil || known {
		return err
	}
	text, err := a.stateText(id)
	if err != nil || text == "" {
		return err
	}
	s, err := codec.DecodeState(id, text)
	if err != nil || s.Rename == nil || *s.Rename != mark {
		return nil
	}
	f := job.Finding{Fault: job.FaultState, Record: id, Lane: s.Lane.String(),
		Detail: "keeps a name for a rename that is over; a repair frees the name"}
	if a.repair {
		if err := a.store.FreeName(a.ctx, a.shard, id, mark, s.Lane); err != nil {
			return err
		}
		f.Repaired = true
	}
	a.addFinding(f)
	return nil
}
