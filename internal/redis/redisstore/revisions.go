package redisstore

import (
	"context"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/redis/codec"
	"github.com/fermata-io/fermata/internal/redis/runner"
)

// The earlier definitions of a job are one field of the hash of revisions, so that they are moved or deleted with
// the job at once. Most jobs are never edited and have no such field: the calls that create them and their runs do
// not name the hash.

// revisionsPlaceholder stands for the place of the hash of revisions.
type revisionsPlaceholder struct{}

// addRevision adds the replaced definition to the revisions of the job. One that is too large is not stored.
func (i *applyItem) addRevision(f codec.Encoding, w *job.Write) error {
	if w.Decision.Definition == nil || w.Decision.RemoveRevisions || w.Revisions <= 0 {
		return nil
	}
	entry, err := encodeReplaced(f, w.Current)
	if err != nil || entry == nil {
		return err
	}
	i.addStep(stepRevise, revisionsPlaceholder{}, entry, w.Revisions, job.MaxRevisionBytes)
	i.size += min(len(entry)*w.Revisions, job.MaxRevisionBytes) // about what the script reads and writes
	return nil
}

// addRevisionRemoval deletes the revisions of a job that is to keep none of them.
func (i *applyItem) addRevisionRemoval(w *job.Write) {
	removes := w.Decision.RemoveRevisions || w.Revisions == job.RemoveRevisions
	if w.Decision.Definition != nil && removes && mayHaveRevisions(w) {
		i.addStep(stepForget, revisionsPlaceholder{})
	}
}

// addRevisionDeletion deletes the revisions of a job that is deleted.
func (i *applyItem) addRevisionDeletion(w *job.Write) {
	if w.Record.IsJob() && mayHaveRevisions(w) {
		i.addStep(stepForget, revisionsPlaceholder{})
	}
}

// mayHaveRevisions reports whether a job was ever edited.
func mayHaveRevisions(w *job.Write) bool { return w.Current != nil && w.Current.Revision > 1 }

// encodeReplaced encodes a definition that is to become a revision; nil: it is too large for one.
func encodeReplaced(f codec.Encoding, d *job.Definition) ([]byte, error) {
	entry, err := f.EncodeRevision(d)
	if len(entry) > job.MaxRevisionBytes {
		return nil, err
	}
	return entry, err
}

// encodeGivenRevisions encodes the revisions of a restoration: the definition that it replaces, or those of the backup.
func encodeGivenRevisions(f codec.Encoding, r *job.Restoration) ([]byte, error) {
	if r.Replaced != nil {
		return encodeReplaced(f, r.Replaced)
	}
	return f.EncodeRevisions(r.Revisions)
}

// revisionArguments are the arguments of restore.lua about revisions.
func revisionArguments(text []byte, r *job.Restoration, lanes *laneKeys) []any {
	most, place := 0, 0
	if r.Replaced != nil {
		most = r.Keep
	}
	if len(text) > 0 || r.RemoveRevisions {
		place = lanes.revisionsPlace()
	}
	return []any{place, text, most, job.MaxRevisionBytes}
}

// revisionReadBytes is about how many bytes of revisions one read of several jobs returns.
const revisionReadBytes = 2 << 20

// Revisions reads the earlier definitions of jobs of one shard, newest first, as they are stored: among them may be
// some of a deleted job of the same id, see [job.EarlierRevisions]. It stops after about 2 MiB and returns those of the
// first jobs, of one at least. What cannot be read is logged and left out.
func (s *Store) Revisions(ctx context.Context, shard int, ids []job.RecordID) ([][]*job.Definition, error) {
	out := make([][]*job.Definition, 0, len(ids))
	for bytes := 0; len(out) < len(ids) && bytes < revisionReadBytes; {
		id := ids[len(out)]
		read := runner.NewFieldsRead(shard, s.shards[shard].Revisions, []job.RecordID{id})
		read.ReplySize = largeDefinition
		if err := s.runner.Run(ctx, read); err != nil {
			return nil, err
		}
		list, err := codec.DecodeRevisions(id, read.Reply.TextAt(0))
		if err != nil {
			s.runner.ReportCorrupt(shard, "revisions", err, string(id))
		}
		out, bytes = append(out, list), bytes+len(read.Reply.TextAt(0))
	}
	return out, nil
}
