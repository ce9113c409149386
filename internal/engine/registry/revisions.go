package registry

import (
	"context"
	"slices"

	"github.com/fermata-io/fermata/internal/core/job"
)

// callerEdit describes the call of a context.
func (r *Registry) callerEdit(ctx context.Context) job.Edit {
	if r.o.Edit == nil {
		return job.Edit{}
	}
	return r.o.Edit(ctx)
}

// Revisions returns the definitions of a job that the caller may reach. Those of queues that the caller may not
// reach are left out.
func (r *Registry) Revisions(ctx context.Context, key job.Key) (job.JobRevisions, error) {
	// The job is read first: a definition that is replaced after that is in both, and EarlierRevisions leaves it out.
	record, err := r.Get(ctx, key)
	if err != nil {
		return nil, err
	}
	earlier, err := r.earlierRevisions(ctx, record.Definition)
	if err != nil {
		return nil, err
	}
	out := job.JobRevisions{{Definition: record.Definition}}
	for _, d := range earlier {
		last := &out[len(out)-1]
		if d.Revision == last.Revision-1 {
			last.Before = r.alignPayload(d, last.Definition)
		}
		out = append(out, job.JobRevision{Definition: d})
	}
	return out, nil
}

// earlierRevisions reads the earlier definitions of a job that are in queues which the caller may reach.
func (r *Registry) earlierRevisions(ctx context.Context, current *job.Definition) ([]*job.Definition, error) {
	stored, err := r.o.Store.Revisions(ctx, r.o.Store.ShardOf(current.Key), []job.RecordID{current.Record()})
	if err != nil {
		return nil, err
	}
	scope := r.reachableQueues(ctx)
	return slices.DeleteFunc(job.EarlierRevisions(current, stored[0]),
		func(d *job.Definition) bool { return !scope.Holds(d) }), nil
}

// alignPayload returns a definition with the sealed payload of another one, if both open to the same payload:
// sealed twice, it looks different.
func (r *Registry) alignPayload(d, like *job.Definition) *job.Definition {
	aligned := *d
	r.reuseStoredPayload(&aligned, like)
	return &aligned
}

// DiffRevisions returns two revisions of a job. to 0 is the current one, from 0 the one before to. A revision that
// is not stored is a [job.MissingPartError].
func (r *Registry) DiffRevisions(ctx context.Context, key job.Key, from, to uint32) (job.RevisionDiff, error) {
	all, err := r.Revisions(ctx, key)
	if err != nil {
		return job.RevisionDiff{}, err
	}
	second := all.Find(to)
	if second == nil {
		return job.RevisionDiff{}, job.MissingRevisionError(key, to)
	}
	if from == 0 {
		from = max(1, second.Revision-1)
	}
	first := all.Find(from)
	if first == nil {
		return job.RevisionDiff{}, job.MissingRevisionError(key, from)
	}
	return job.RevisionDiff{From: r.alignPayload(first.Definition, second.Definition), To: second.Definition,
		ToIsCurrent: second == &all[0]}, nil
}

// RestoreRevision gives a job the definition of an earlier revision, as an edit. Its errors are those of
// [Registry.Update], a [job.MissingPartError] for a revision that is not stored or that the caller may not reach, and
// a [job.PreconditionError] for a payload that may not be delivered.
func (r *Registry) RestoreRevision(ctx context.Context, key job.Key, revision uint32,
	etag, requestID string) (job.Record, error) {
	return r.Update(ctx, job.UpdateRequest{Key: key, Etag: etag, RequestID: requestID, Restores: true,
		Merge: func(present job.Definition) (job.Definition, error) {
			old, err := r.findRevision(ctx, &present, revision)
			if err != nil {
				return job.Definition{}, err
			}
			if _, err := r.openPayload(old); err != nil {
				return job.Definition{}, &job.PreconditionError{Key: key, Reason: job.ReasonPayloadUnreadable,
					Text: "the payload of the revision cannot be delivered: " + err.Error()}
			}
			return old.WithFirstDay(), nil
		}})
}

// findRevision returns a revision of a job by its present definition.
func (r *Registry) findRevision(ctx context.Context, present *job.Definition,
	revision uint32) (*job.Definition, error) {
	if revision == present.Revision {
		return present, nil
	}
	earlier, err := r.earlierRevisions(ctx, present)
	if err != nil {
		return nil, err
	}
	at := slices.IndexFunc(earlier, func(d *job.Definition) bool { return d.Revision == revision })
	if at < 0 {
		return nil, job.MissingRevisionError(present.Key, revision)
	}
	return earlier[at], nil
}

// exportedRevisionBytes is about how many bytes the revisions of one page of an export may have, unless it has one
// job only.
const exportedRevisionBytes = 4 << 20

// addRevisions reads the earlier revisions of the jobs of one shard for an export. It returns about how many bytes
// they have.
func (r *Registry) addRevisions(ctx context.Context, shard int, backups []job.Backup) (bytes int, err error) {
	for done := 0; done < len(backups) && bytes <= exportedRevisionBytes; {
		ids := make([]job.RecordID, len(backups)-done)
		for i := range ids {
			ids[i] = backups[done+i].Definition.Record()
		}
		stored, err := r.o.Store.Revisions(ctx, shard, ids)
		if err != nil {
			return 0, err
		}
		for i, list := range stored {
			b := &backups[done+i]
			b.Revisions = job.EarlierRevisions(&b.Definition, list)
			bytes += r.sizeOfRevisions(b.Revisions)
		}
		done += len(stored)
	}
	return bytes, nil
}

func (r *Registry) sizeOfRevisions(list []*job.Definition) (bytes int) {
	for _, d := range list {
		bytes += r.o.Store.DefinitionBytes(d)
	}
	return bytes
}

// planRevisions completes a restoration: a job that takes a free id gets the revisions of the backup. A definition
// that is replaced is added to the revisions that the job has, as by an edit.
func (i *restoreItem) planRevisions(r *Registry) {
	d := i.plan.Record.Definition
	if p := i.present; p != nil {
		same := p.Definition.CreatedMS == d.CreatedMS
		i.plan.RemoveRevisions = !same || r.o.Revisions == 0 || d.ReplacesSeal(p.Definition)
		if !i.plan.RemoveRevisions && !p.Definition.Equal(d) {
			i.plan.Replaced, i.plan.Keep = p.Definition, r.o.Revisions
			d.LastEdit = i.by
		}
		if same {
			return
		}
	}
	given := make([]*job.Definition, 0, len(i.backup.Revisions))
	for _, old := range i.backup.Revisions {
		old.Key, old.CreatedMS, old.AnchorMS = d.Key, d.CreatedMS, old.StoredAt()
		old.Generation = 1
		if _, err := r.openPayload(old); err != nil && old.PayloadKey == "" {
			continue // a strict node accepts no payload that was not sealed
		}
		if job.ValidateKeyID(old.PayloadKey) != "" {
			continue // no node has such a key
		}
		if old.PayloadKey == "" {
			r.sealPayload(old, old.Payload)
		}
		given = append(given, old)
	}
	earlier := job.EarlierRevisions(d, given)
	i.plan.Revisions = earlier[:min(len(earlier), r.o.Revisions)]
}
