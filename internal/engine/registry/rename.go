package registry

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/unixtime"
)

// This file gives jobs other names: see job.Rename for the steps. Any node may take the next step of a rename at any
// time: the call that asked for it, a call about a job whose name a rename keeps, and the node that holds a shard in
// which a rename has been left.

const (
	// takeTries is how often a job is read again that changes before it is taken.
	takeTries = 8
	// renameSteps bounds the steps that one call takes with a rename: five end it.
	renameSteps = 12
	// finishRenameTime bounds the steps that end a rename whose caller has gone.
	finishRenameTime = 10 * time.Second
)

// Renames is what the registry needs of the store to rename jobs.
type Renames interface {
	// ReadStoredJob reads all that is stored of a job; nil: there is no such job.
	ReadStoredJob(ctx context.Context, key job.Key) (*job.StoredJob, error)
	// ReserveName reserves the new name for a job like this one.
	ReserveName(ctx context.Context, r job.Rename, like *job.Record, now unixtime.Milli) (job.RenameHandle,
		job.CreateCode, error)
	// TakeJob takes a job out of its records. taken is false if it has changed, or the call comes too late.
	TakeJob(ctx context.Context, kept *job.KeptJob, now unixtime.Milli) (taken bool, err error)
	// StoreRenamed stores the job under its new name, and ReturnKept under its old one.
	StoreRenamed(ctx context.Context, h job.RenameHandle, as *job.StoredJob, now unixtime.Milli) (stored bool,
		reply job.CreateReply, err error)
	ReturnKept(ctx context.Context, kept *job.KeptJob) (stored bool, reply job.CreateReply, err error)
	// AbortRename, ReleaseName and ForgetRename end a rename.
	AbortRename(ctx context.Context, h job.RenameHandle, like job.Lane, now unixtime.Milli) (aborted bool, err error)
	ReleaseName(ctx context.Context, kept *job.KeptJob) error
	ForgetRename(ctx context.Context, h job.RenameHandle) error
	// ReadRename, FindRename and ReadKept read the ends of a rename, and ListRenames those of some shards.
	ReadRename(ctx context.Context, r job.Rename) (job.RenameHandle, error)
	FindRename(ctx context.Context, end job.RenameEnd) (job.RenameHandle, error)
	ReadKept(ctx context.Context, shard int, id string) (*job.KeptJob, error)
	ListRenames(ctx context.Context, shards []int) (kept, named []job.RenameEnd, err error)
	// ReadFinishedRename reads which job a request has renamed that had this name; nil: none is known.
	ReadFinishedRename(ctx context.Context, from job.Key, requestID string) (*job.FinishedRename, error)
	// Confirm returns nil when everything that the shard holds now is confirmed.
	Confirm(ctx context.Context, shard int) error
}

// Rename gives a job another name, under which it is returned. Its errors are [job.MissingError], [job.EtagError],
// [job.InvalidError], [job.ExistsError] if there is a job of the new name, [job.BusyError] if the new name is not free
// yet, [job.PreconditionError] if runs of the job are live, and [job.ErrConflict] if the job kept changing. After any
// other error the job may have either name; a repetition with the same request id ends the rename.
func (r *Registry) Rename(ctx context.Context, q job.RenameRequest) (job.Record, error) {
	if err := r.validateRename(q); err != nil {
		return job.Record{}, err
	}
	record, err := r.Get(ctx, q.Key)
	if err != nil && !errors.Is(err, job.ErrNotFound) {
		return job.Record{}, err
	}
	// An earlier copy of this call may have renamed the job, whatever the old name is now.
	present, earlierErr := r.readRenamedBefore(ctx, q)
	switch {
	case earlierErr != nil:
		return job.Record{}, earlierErr
	case present.repeated:
		return present.answer(q)
	case err != nil:
		return job.Record{}, err
	case present.job != nil:
		return job.Record{}, &job.ExistsError{Key: q.NewKey(), Reason: "choose another name, or delete it before"}
	case record.Definition.WasRenamedBy(q.RequestID, q.Key.ID):
		return job.Record{}, renamedBeforeError(q.Key)
	}
	if have := record.Definition.Etag(); q.Etag != "" && q.Etag != have {
		return job.Record{}, &job.EtagError{Key: q.Key, Have: have, Want: q.Etag}
	}
	if err := job.CheckRename(q.Key, &record.State); err != nil {
		return job.Record{}, err
	}
	renamed, err := r.beginRename(ctx, q, &record)
	if err == nil {
		return renamed, nil
	}
	// A copy that was at work at the same time may have come before this one.
	present, earlierErr = r.readRenamedBefore(ctx, q)
	switch {
	case earlierErr == nil && present.repeated:
		return present.answer(q)
	case errors.Is(err, job.ErrRenamedBefore):
		return job.Record{}, renamedBeforeError(q.Key)
	}
	return job.Record{}, err
}

// newNameState is what a call that renames a job finds under the new name.
type newNameState struct {
	job      *job.Record // nil: there is none
	repeated bool        // an earlier copy of the call has renamed a job
	isItsJob bool        // and that is this one
}

// readRenamedBefore reads the job of the new name, and finds out whether an earlier copy of the call has ended.
func (r *Registry) readRenamedBefore(ctx context.Context, q job.RenameRequest) (newNameState, error) {
	var finished *job.FinishedRename
	if q.RequestID != "" {
		var err error
		finished, err = r.o.Store.ReadFinishedRename(ctx, q.Key, q.RequestID)
		if err != nil {
			return newNameState{}, err
		}
	}
	renamed, err := r.Get(ctx, q.NewKey())
	switch {
	case errors.Is(err, job.ErrNotFound):
		return newNameState{repeated: finished != nil}, nil
	case err != nil:
		return newNameState{}, err
	}
	d := renamed.Definition
	isItsJob := d.WasRenamedBy(q.RequestID, q.Key.ID) || finished.IsOf(d)
	return newNameState{job: &renamed, repeated: isItsJob || finished != nil, isItsJob: isItsJob}, nil
}

// answer is the answer to a call that is repeated.
func (s newNameState) answer(q job.RenameRequest) (job.Record, error) {
	if !s.isItsJob {
		return job.Record{}, renamedBeforeError(q.Key)
	}
	return *s.job, nil
}

// renamedBeforeError refuses a repeated call whose job has another name by now, or is deleted.
func renamedBeforeError(key job.Key) error {
	return &job.PreconditionError{Key: key, Reason: job.ReasonRenamedBefore,
		Text: "this request has renamed a job of this name before, and that job has been renamed again or deleted since: " +
			"to rename the job that has the name now, repeat the call with another request_id"}
}

func (r *Registry) validateRename(q job.RenameRequest) error {
	v := job.ValidateKey(q.Key)
	for _, fault := range job.ValidateKey(q.NewKey()) {
		v = append(v, job.Violation{Field: "new_id", Description: fault.Description})
	}
	if q.NewID == q.Key.ID {
		v = append(v, job.Violation{Field: "new_id", Description: "is the present name of the job"})
	}
	if fault := job.ValidateRequestID(q.RequestID); fault != "" {
		v = append(v, job.Violation{Field: "request_id", Description: fault})
	}
	if len(v) > 0 {
		return &job.InvalidError{Violations: v}
	}
	return nil
}

// beginRename reserves the name, takes the job and ends the rename.
func (r *Registry) beginRename(ctx context.Context, q job.RenameRequest, record *job.Record) (job.Record, error) {
	kept := &job.KeptJob{Rename: job.Rename{ID: rand.Text(), From: q.Key, To: q.NewKey()}, RequestID: q.RequestID,
		By: r.callerEdit(ctx)}
	now, err := r.shardNow(ctx, kept.To)
	if err != nil {
		return job.Record{}, err
	}
	kept.AtMS = now
	// Whatever refuses the rename does so before anything is stored.
	if err := r.readForRename(ctx, q, kept); err != nil {
		return job.Record{}, err
	}
	if !r.beginWrite(ctx) {
		return job.Record{}, context.Canceled
	}
	h, code, err := r.o.Store.ReserveName(ctx, kept.Rename, record, now)
	switch {
	case err == nil && code == job.Exists:
		return job.Record{}, &job.ExistsError{Key: kept.To, Reason: "choose another name, or delete it before"}
	case err == nil && code == job.Tombstone:
		return job.Record{}, r.describeBusyName(ctx, kept.To)
	}
	sent := false
	if err == nil {
		sent, err = r.takeJob(ctx, q, kept)
	}
	if err := r.endRename(ctx, h, sent, err); err != nil {
		return job.Record{}, err
	}
	return r.readRenamed(ctx, kept)
}

// describeBusyName returns the error of a call that needs a name which is not free yet.
func (r *Registry) describeBusyName(ctx context.Context, key job.Key) error {
	records, err := r.o.Store.Get(ctx, []job.Key{key})
	renaming := err == nil && len(records) == 1 && records[0] != nil && records[0].State.Rename != nil
	return &job.BusyError{Key: key, Renaming: renaming}
}

// readRenamed returns the job as the rename has stored it, whatever others have done with it since.
func (r *Registry) readRenamed(ctx context.Context, kept *job.KeptJob) (job.Record, error) {
	as := kept.WithNewName(kept.AtMS, 0, false)
	want := as.Records[0].Record
	have, err := r.Get(ctx, kept.To)
	if err == nil && have.Definition.Etag() == want.Definition.Etag() && have.State.Revision == want.State.Revision {
		return have, nil
	}
	if err != nil && !errors.Is(err, job.ErrNotFound) {
		return job.Record{}, err
	}
	return want, r.sealRenamed(kept, &as)
}

// endRename ends a rename whose job was taken, or could not be taken: then err says why. The caller of the rename may
// have gone. After a lost reply the job may have been taken nevertheless: then the rename goes on. sent: a call that
// takes the job was sent. If none was, no late copy of one can arrive, and an abort need not be remembered.
func (r *Registry) endRename(ctx context.Context, h job.RenameHandle, sent bool, err error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), finishRenameTime)
	defer cancel()
	end, finishErr := r.finishRename(ctx, h, err != nil)
	if !sent && end == job.RenameAborted && finishErr == nil {
		h, finishErr = r.o.Store.ReadRename(ctx, h.Rename)
		if finishErr == nil && h.Phase == job.RenameAborted {
			finishErr = r.o.Store.ForgetRename(ctx, h)
		}
	}
	switch {
	case finishErr == nil && end == job.RenameDone:
		return nil
	case finishErr == nil && end == "" && err == nil:
		return nil // others have ended it: an aborted one would be remembered
	case err != nil:
		return err
	case finishErr != nil:
		return finishErr
	}
	return job.ErrConflict
}

// takeJob takes the job, which has been read, and reads it again until it does not change before it is taken. sent: a
// call that takes it was sent.
func (r *Registry) takeJob(ctx context.Context, q job.RenameRequest, kept *job.KeptJob) (sent bool, err error) {
	for try := range takeTries {
		if try > 0 {
			if err := r.readForRename(ctx, q, kept); err != nil {
				return sent, err
			}
		}
		now, err := r.shardNow(ctx, kept.From)
		if err != nil {
			return sent, err
		}
		if err := ctx.Err(); err != nil {
			return sent, err // the caller has gone
		}
		r.signRename(kept)
		sent = true
		taken, err := r.o.Store.TakeJob(ctx, kept, now)
		if taken {
			r.noteStored(ctx) // whatever ends the call now, any node may end the rename
		}
		if taken || err != nil {
			return sent, err
		}
	}
	return sent, job.ErrConflict
}

// readForRename reads the job, and refuses one that may not be renamed.
func (r *Registry) readForRename(ctx context.Context, q job.RenameRequest, kept *job.KeptJob) error {
	stored, err := r.o.Store.ReadStoredJob(ctx, q.Key)
	switch {
	case err != nil:
		return err
	case stored == nil:
		return &job.MissingError{Key: q.Key}
	}
	first := &stored.Records[0]
	switch have := first.Definition.Etag(); {
	case first.State.Deleting, !r.reachableQueues(ctx).Holds(first.Definition):
		return &job.MissingError{Key: q.Key}
	case q.Etag != "" && q.Etag != have:
		return &job.EtagError{Key: q.Key, Have: have, Want: q.Etag}
	}
	kept.Job = *stored
	if err := job.CheckRename(q.Key, &first.State); err != nil {
		return err
	}
	as := kept.WithNewName(0, r.o.Revisions, true)
	return r.sealRenamed(kept, &as)
}

// signRename signs a job that is taken for a rename, with the payload keys of this node. Nodes that end the rename seal
// its payloads for the new name only if the signature is right. Whoever can write to Redis, and no more, cannot give a
// payload to another job that way, also not with the signature of an earlier rename: it covers all that was taken, and
// when the rename began, and it counts for [job.RenameMemory].
func (r *Registry) signRename(kept *job.KeptJob) {
	kept.Signature = ""
	if r.o.Sealer != nil {
		kept.Signature = r.o.Sealer.Sign(signedRenameText(kept))
	}
}

// isSignedRename reports whether a node with the payload keys of this one has taken a job as it is.
func (r *Registry) isSignedRename(kept *job.KeptJob) bool {
	return r.o.Sealer != nil && r.o.Sealer.Verify(signedRenameText(kept), kept.Signature)
}

// signedRenameText is what the signature of a rename covers: when it began, both names, and the records and revisions as
// stored, each with its length.
func signedRenameText(k *job.KeptJob) string {
	parts := []string{"timed rename", k.ID, strconv.FormatInt(int64(k.AtMS), 10), k.From.Namespace, k.From.ID, k.To.Namespace, k.To.ID, k.Job.RevisionsText}
	for _, r := range k.Job.Records {
		parts = append(parts, string(r.ID), r.DefinitionText)
	}
	var text strings.Builder
	for _, p := range parts {
		fmt.Fprintf(&text, "%d:%s,", len(p), p)
	}
	return text.String()
}

// sealRenamed seals the payloads of a renamed job again: a sealed payload is bound to the name. Of earlier revisions,
// a payload that cannot be opened stays as it is.
func (r *Registry) sealRenamed(kept *job.KeptJob, as *job.StoredJob) error {
	for i := range as.Records {
		before, after := &kept.Job.Records[i], &as.Records[i]
		if err := r.sealUnderName(before.Definition, after.Definition); err != nil {
			return &job.PreconditionError{Key: kept.From, Reason: job.ReasonPayloadUnreadable,
				Text: unreadablePayloadText(before.ID, err)}
		}
		after.DescribePayloadAnew(&before.Record)
	}
	for _, d := range as.Revisions {
		old := *d
		old.Key = kept.From
		_ = r.sealUnderName(&old, d)
	}
	return nil
}

// unreadablePayloadText is the text of the error about a record whose payload cannot be opened for a rename.
func unreadablePayloadText(id job.RecordID, err error) string {
	const fault = "is sealed, and cannot be opened to be sealed under the new name: "
	if slot, ok := id.LetterSlot(); ok {
		return fmt.Sprintf("the payload of its dead letter deadLetters/%d %s%v; discard this dead letter, or add its key, "+
			"and rename the job then", slot, fault, err)
	}
	return "its payload " + fault + err.Error()
}

// sealUnderName seals the payload of a definition that has another name.
func (r *Registry) sealUnderName(before, after *job.Definition) error {
	if before.PayloadKey == "" {
		return nil
	}
	payload, err := r.openPayload(before)
	if err == nil {
		r.sealPayload(after, payload)
	}
	return err
}

// finishRename takes the steps of a rename until it has ended, and returns how it has. gaveUp: its caller does not
// take the job any more.
func (r *Registry) finishRename(ctx context.Context, h job.RenameHandle, gaveUp bool) (job.RenamePhase, error) {
	end := job.RenamePhase("")
	for range renameSteps {
		// The phase is read first: see job.NextRenameStep.
		now, err := r.o.Store.Now(ctx, h.Shard)
		if err != nil {
			return end, err
		}
		h, err = r.o.Store.ReadRename(ctx, h.Rename)
		if err != nil {
			return end, err
		}
		kept, err := r.o.Store.ReadKept(ctx, r.o.Store.ShardOf(h.From), h.ID)
		if err != nil {
			return end, err
		}
		if h.Phase == job.RenameDone || h.Phase == job.RenameAborted {
			end = h.Phase
		}
		step := job.NextRenameStep(h.Phase, kept != nil, now.Sub(h.AtMS))
		if step == job.RenameWait && gaveUp && h.Phase == job.RenameReserved {
			step = job.RenameAbort
		}
		if step == job.RenameStore && r.comesTooLate(kept, now) {
			step = job.RenameAbort
		}
		if step == job.RenameWait || step == job.RenameOver {
			return end, nil
		}
		if err := r.takeRenameStep(ctx, step, h, kept, now); err != nil {
			return end, err
		}
	}
	return end, job.ErrConflict
}

// comesTooLate reports whether the signature of a kept job does not count any more. A job that no node with these
// payload keys has signed is left to the node that took it: see storeRenamed.
func (r *Registry) comesTooLate(kept *job.KeptJob, now unixtime.Milli) bool {
	return kept.HasSealedPayload() && kept.IsOverdue(now) && r.isSignedRename(kept)
}

// takeRenameStep takes one step. A step that others have taken already has no effect.
func (r *Registry) takeRenameStep(ctx context.Context, step job.RenameStep, h job.RenameHandle, kept *job.KeptJob,
	now unixtime.Milli) error {
	if kept != nil {
		h.Rename = kept.Rename
	}
	from := r.o.Store.ShardOf(h.From)
	// What the step builds on must not be lost by a failover of one shard that the other one survives.
	confirmed := from
	if step == job.RenameRelease || step == job.RenameReturn {
		confirmed = h.Shard
	}
	if err := r.o.Store.Confirm(ctx, confirmed); err != nil {
		return err
	}
	switch step {
	case job.RenameStore:
		return r.storeRenamed(ctx, h, kept, now)
	case job.RenameRelease:
		return r.o.Store.ReleaseName(ctx, kept)
	case job.RenameForget:
		return r.o.Store.ForgetRename(ctx, h)
	case job.RenameReturn:
		_, reply, err := r.o.Store.ReturnKept(ctx, kept)
		r.nudgeHolder(from, reply.Earlier, reply.Holder)
		return err
	}
	like := h.Lane
	if kept != nil {
		like = kept.Job.Records[0].State.Lane
	}
	_, err := r.o.Store.AbortRename(ctx, h, like, now)
	return err
}

func (r *Registry) storeRenamed(ctx context.Context, h job.RenameHandle, kept *job.KeptJob, now unixtime.Milli) error {
	if kept.HasSealedPayload() && !r.isSignedRename(kept) {
		return &job.PreconditionError{Key: kept.From, Reason: job.ReasonPayloadUnreadable,
			Text: "its payload is sealed, and no node with the payload keys of this one has taken it for this rename"}
	}
	as, claim, err := r.claimQuotaForRename(ctx, kept, now)
	if err != nil {
		return err
	}
	stored := false
	defer claim.settleEdits(ctx, func(_ int, shrinks bool) bool {
		unknown := err == nil || mayBeStored(err) // an earlier copy of the call may have stored it
		return stored || unknown && !shrinks
	})
	stored, reply, err := r.o.Store.StoreRenamed(ctx, h, &as, now)
	if err != nil {
		return err
	}
	r.nudgeHolder(h.Shard, reply.Earlier, reply.Holder)
	if !stored {
		return nil // another one has stored or aborted it
	}
	r.o.Logger.Info("job renamed", "namespace", h.From.Namespace, "from", h.From.ID, "to", h.To.ID)
	return nil
}

// claimQuotaForRename returns a job as it is stored under its new name, and claims the bytes by which it grows. It
// leaves out the revision if that does not fit. The rest is counted without a refusal: a job that is taken has to be
// stored.
func (r *Registry) claimQuotaForRename(ctx context.Context, kept *job.KeptJob, now unixtime.Milli) (as job.StoredJob,
	claim quotaClaim, err error) {
	as, err = r.renameKept(kept, now, true)
	if err != nil || !r.limitsBytesOf(kept.To.Namespace) {
		return as, claim, err
	}
	bare, err := r.renameKept(kept, now, false)
	if err != nil {
		return as, claim, err
	}
	demand := quotaDemand{key: kept.To, edits: true}
	demand.bytes = r.o.Store.StoredBytes(&bare) - r.o.Store.StoredBytes(&kept.Job)
	demand.revision = max(0, r.o.Store.StoredBytes(&as)-r.o.Store.StoredBytes(&bare))
	claim, faults := r.claimQuota(ctx, []quotaDemand{demand})
	if faults[0] != nil {
		claim.withholdRevision(0)
	}
	if claim.withheld[0] {
		as = bare
	}
	return as, claim, nil
}

// renameKept returns a kept job as it is stored under its new name.
func (r *Registry) renameKept(kept *job.KeptJob, now unixtime.Milli, addsRevision bool) (job.StoredJob, error) {
	as := kept.WithNewName(now, r.o.Revisions, addsRevision)
	return as, r.sealRenamed(kept, &as)
}

// finishRenameOf takes the steps of the rename that keeps the name of a record, if its job is taken. The record has
// to be read again after that.
func (r *Registry) finishRenameOf(ctx context.Context, record *job.Record) error {
	mark := record.State.Rename
	key := record.Definition.Key
	other := job.Key{Namespace: key.Namespace, ID: mark.Other}
	rename := job.Rename{ID: mark.ID, From: key, To: other}
	if mark.Arriving {
		rename.From, rename.To = other, key
	}
	_, err := r.finishRename(ctx, r.handleOf(rename), false)
	return err
}

// handleOf is a handle of a rename that is to be read.
func (r *Registry) handleOf(rename job.Rename) job.RenameHandle {
	return job.RenameHandle{NamedRename: job.NamedRename{Rename: rename}, Shard: r.o.Store.ShardOf(rename.To)}
}

// explainRename returns the error of a change of a record that keeps a name for a rename: it is missing, unless the
// rename has returned the job to its name meanwhile.
func (r *Registry) explainRename(ctx context.Context, record *job.Record) error {
	key := record.Definition.Key
	_, err := r.Get(ctx, key)
	if err == nil {
		return job.ErrConflict
	}
	return err
}

// FinishRenames takes the steps of the renames that some shards have entries of. Those that have just begun are left
// to their callers.
func (r *Registry) FinishRenames(ctx context.Context, shards []int) error {
	kept, named, err := r.o.Store.ListRenames(ctx, shards)
	errs := []error{err}
	for _, end := range kept {
		k, err := r.o.Store.ReadKept(ctx, end.Shard, end.ID)
		if err == nil && k != nil {
			_, err = r.finishRename(ctx, r.handleOf(k.Rename), false)
		}
		errs = append(errs, err)
	}
	clocks := map[int]unixtime.Milli{}
	for _, end := range named {
		remembered, err := r.isRemembered(ctx, end, clocks)
		if remembered || err != nil {
			errs = append(errs, err)
			continue
		}
		h, err := r.o.Store.FindRename(ctx, end)
		if err == nil && h.Phase != "" {
			_, err = r.finishRename(ctx, h, false)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// isRemembered reports whether an entry is that of an aborted rename which is only remembered: nothing is to be done
// about it yet. If its job is still kept, that is listed beside it. clocks has the instants of the shards.
func (r *Registry) isRemembered(ctx context.Context, end job.RenameEnd, clocks map[int]unixtime.Milli) (bool, error) {
	if end.Phase != job.RenameAborted {
		return false, nil
	}
	now, known := clocks[end.Shard]
	if !known {
		var err error
		now, err = r.o.Store.Now(ctx, end.Shard)
		if err != nil {
			return false, err
		}
		clocks[end.Shard] = now
	}
	return job.NextRenameStep(end.Phase, false, now.Sub(end.AtMS)) == job.RenameWait, nil
}
