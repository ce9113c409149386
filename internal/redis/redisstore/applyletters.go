package redisstore

import (
	"context"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/redis/codec"
	"github.com/fermata-io/fermata/internal/redis/runner"
)

// addDeadLetters makes the dead letters of deleted jobs go with them, and those that
// make room for another one leave the lane that they are in. A job with live runs
// of its own is kept by the policy until the last of them has ended.
func (s *Store) addDeadLetters(ctx context.Context, shard int, writes []job.Write, groups [][]*applyItem) error {
	var owners []int
	var ids []job.RecordID
	for i := range writes {
		for _, slot := range lettersToDelete(&writes[i]) {
			owners, ids = append(owners, i), append(ids, writes[i].Record.Letter(slot))
		}
	}
	if len(ids) == 0 {
		return nil
	}
	read := runner.NewFieldsRead(shard, s.shards[shard].State, ids)
	if err := s.runner.Run(ctx, read); err != nil {
		return err
	}
	for i, id := range ids {
		state, err := codec.DecodeState(id, read.Reply.TextAt(i))
		if err != nil {
			continue // the slot is empty
		}
		group := &groups[owners[i]]
		if !deletes(&writes[owners[i]]) {
			(*group)[len(*group)-1].addStep(stepLetterFrom, state.Lane)
			continue
		}
		item := &applyItem{
			record: id, guard: codec.AppendGuardPattern(nil, state.Token, state.Revision), lane: state.Lane,
			write: -1, size: len(id) + 64,
		}
		item.addStep(stepOnlyAfter)
		item.addStep(stepDelete)
		item.addStep(stepTrim, 0, 0)
		*group = append(*group, item.endLeanSteps())
	}
	return nil
}

// lettersToDelete lists the slots of dead letters that a write deletes or replaces.
func lettersToDelete(w *job.Write) []int {
	d := w.Decision
	switch {
	case isChild(w.Record):
	case d.Delete && d.State.Dead > 0:
		slots := make([]int, job.DeadLettersPerJob)
		for i := range slots {
			slots[i] = i
		}
		return slots
	case d.DeadLetter && d.State.Dead > job.DeadLettersPerJob:
		return []int{d.DeadSlot}
	}
	return nil
}
