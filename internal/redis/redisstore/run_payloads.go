package redisstore

import (
	"context"
	"fmt"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/redis/codec"
	"github.com/fermata-io/fermata/internal/redis/rediserr"
)

// This file stores and reads the payloads that runs have of their own. That of a run is in the hash of definitions,
// under the id of its record: a definition with a payload and nothing else. That of a dead letter is in the letter's
// copy of the definition. The state of both describes it, with its digest. Nothing of this is stored for other runs.

// addSpawnedPayload writes the payload of a run that gets a record: the given one, or that of the dead letter before.
func (i *applyItem) addSpawnedPayload(run *job.Spawned, before *job.Write) error {
	if run.State.OwnPayload == nil {
		return nil
	}
	payload := run.Payload
	if payload == nil && before != nil {
		payload = job.RunPayloadOf(before.Current)
	}
	if !run.State.OwnPayload.Describes(payload) {
		return fmt.Errorf("%w: the payload of the run in slot %d is not the one that its state describes",
			job.ErrCorrupt, run.Slot)
	}
	text, err := codec.EncodeRunPayload(payload)
	if err != nil {
		return err
	}
	i.addStep(stepSpawnPayload, text)
	return nil
}

// letterDefinition is the definition of a dead letter: that of the job, or without its payload, if the run had one of
// its own, which follows by addLetterPayload.
func letterDefinition(w *job.Write) *job.Definition {
	if w.Decision.Ended.OwnPayload == nil {
		return w.Current
	}
	return new(job.RunPayload).ApplyTo(w.Current)
}

// addLetterPayload has the payload of the run that ends, whose record is that of before, copied into its dead letter.
func (i *applyItem) addLetterPayload(run *job.Run, before *job.Write) {
	if run.OwnPayload != nil && before != nil {
		i.addStep(stepLetterPayload, string(before.Record))
	}
}

// RunPayloads reads the payloads that runs and dead letters of one shard have of their own. It is nil for a record
// that does not exist, or whose stored payload cannot be read.
func (s *Store) RunPayloads(ctx context.Context, shard int, ids []job.RecordID) ([]*job.RunPayload, error) {
	out, _, err := s.readRunPayloads(ctx, shard, ids)
	return out, err
}

// readRunPayloads is RunPayloads. It also returns what the definition of each dead letter binds a sealed payload to.
func (s *Store) readRunPayloads(ctx context.Context, shard int, ids []job.RecordID) (out []*job.RunPayload,
	bindings []*job.Binding, err error) {
	out, bindings = make([]*job.RunPayload, len(ids)), make([]*job.Binding, len(ids))
	if len(ids) == 0 {
		return out, bindings, nil
	}
	read := &definitionsRead{shard: shard, missing: ids}
	s.completeDefinitions(ctx, []*definitionsRead{read})
	if read.err != nil {
		return nil, nil, rediserr.Wrap("definitions", read.err)
	}
	for i, id := range ids {
		if !read.texts.HasTextAt(i) {
			continue
		}
		payload, err := codec.DecodeRunPayload(read.texts.TextAt(i))
		if err != nil {
			s.runner.ReportCorrupt(shard, "read", err, string(id))
			continue
		}
		out[i] = payload
		if id.IsLetter() {
			d, err := codec.DecodeDefinition(id, read.texts.TextAt(i))
			if err == nil {
				bindings[i] = d.Binding()
			}
		}
	}
	return out, bindings, nil
}

// addRunPayloads adds the payloads of leased runs that have their own. A run whose payload is not the one that its
// state describes is set aside: it must not run with another one.
func (s *Store) addRunPayloads(ctx context.Context, shard int, reply *job.LeaseReply) {
	var ids []job.RecordID
	for i := range reply.Leased {
		if reply.Leased[i].Known.State.OwnPayload != nil {
			ids = append(ids, reply.Leased[i].Record)
		}
	}
	if len(ids) == 0 {
		return
	}
	payloads, err := s.RunPayloads(ctx, shard, ids)
	if err != nil {
		*reply = job.LeaseReply{Err: err}
		return
	}
	leased := reply.Leased[:0]
	for _, l := range reply.Leased {
		if l.Known.State.OwnPayload != nil {
			l.Own, payloads = payloads[0], payloads[1:]
			if !l.Known.State.OwnPayload.Describes(l.Own) {
				s.setAside(ctx, shard, l.Record, l.Known.State)
				s.runner.ReportCorrupt(shard, "lease", errOtherPayload, string(l.Record))
				continue
			}
		}
		leased = append(leased, l)
	}
	reply.Leased = leased
}

var errOtherPayload = fmt.Errorf("%w: its own payload is not the one that its state describes", codec.ErrCorrupt)

// addSnapshotPayloads adds the payloads of runs and dead letters that have their own. It removes those whose payload is
// not the one that they describe. Then complete is false: they have ended meanwhile, or are corrupt.
func (s *Store) addSnapshotPayloads(ctx context.Context, shard int, snap *job.Snapshot) (complete bool, err error) {
	var ids []job.RecordID
	id := snap.Record.Definition.Record()
	for _, child := range snap.Children {
		if child.State.OwnPayload != nil {
			ids = append(ids, id.Run(child.Slot))
		}
	}
	for _, l := range snap.DeadLetters {
		if l.Run.OwnPayload != nil {
			ids = append(ids, id.Letter(l.Slot))
		}
	}
	payloads, bindings, err := s.readRunPayloads(ctx, shard, ids)
	if err != nil {
		return false, err
	}
	before := len(snap.Children) + len(snap.DeadLetters)
	addOrRemove := func(own **job.RunPayload, binding **job.Binding, of *job.PayloadInfo, run string) (remove bool) {
		if of == nil {
			return false
		}
		*own, *binding = payloads[0], bindings[0]
		payloads, bindings = payloads[1:], bindings[1:]
		if of.Describes(*own) {
			return false
		}
		snap.Unreadable = append(snap.Unreadable, run)
		return true
	}
	children, letters := snap.Children[:0], snap.DeadLetters[:0]
	for _, child := range snap.Children {
		if !addOrRemove(&child.Own, new(*job.Binding), child.State.OwnPayload, child.State.RunID()) {
			children = append(children, child)
		}
	}
	for _, l := range snap.DeadLetters {
		if !addOrRemove(&l.Own, &l.Binding, l.Run.OwnPayload, l.Run.ID) {
			letters = append(letters, l)
		}
	}
	snap.Children, snap.DeadLetters = children, letters
	return len(children)+len(letters) == before, nil
}

// noDefinition is NO_DEFINITION of restore.lua. No definition is encoded so.
const noDefinition = "-"
