package job

import (
	"fmt"

	"github.com/fermata-io/fermata/internal/core/unixtime"
)

// Revisions: the definitions that a job had before. Each edit stores the definition that it replaces.

// Bounds of the stored revisions of a job.
const (
	DefaultRevisions = 10
	MaxRevisions     = 50
	// MaxRevisionBytes bounds the revisions of one job together. The oldest ones are removed first; a definition that
	// is larger by itself is not stored.
	MaxRevisionBytes = 256 << 10
)

// RemoveRevisions is a value of Write.Revisions: no revision of the job is kept.
const RemoveRevisions = -1

// ReasonPayloadUnreadable is the reason of a PreconditionError about a job or a revision whose
// stored payload cannot be opened.
const ReasonPayloadUnreadable = "PAYLOAD_UNREADABLE"

// Edit describes the call that stored a definition. The zero value is unknown: the definition is as it was created,
// or a node that does not record edits stored it.
type Edit struct {
	Identity string // the subject of the caller, at most MaxTrailText bytes
	Method   string // name of the method, without its service
}

// JobRevision is a definition that a job has or had.
type JobRevision struct {
	*Definition
	// Before is the revision before it; nil: it is not stored, or there was none. Its sealed payload is that of the
	// definition if both open to the same payload.
	Before *Definition
}

// JobRevisions are the definitions of a job: the current one, then stored earlier ones, newest first.
type JobRevisions []JobRevision

// Find returns a revision; nil: it is not stored. 0 is the current one.
func (r JobRevisions) Find(revision uint32) *JobRevision {
	for i := range r {
		if revision == 0 || r[i].Revision == revision {
			return &r[i]
		}
	}
	return nil
}

// RevisionDiff are two revisions of a job that are to be compared. The sealed payload of From is that of To if both
// open to the same payload.
type RevisionDiff struct {
	From, To    *Definition
	ToIsCurrent bool
}

// EarlierRevisions returns those definitions that a job had before: others belong to a job of the same id that was
// deleted, or are the current one.
func EarlierRevisions(current *Definition, stored []*Definition) (earlier []*Definition) {
	last := current.Revision
	for _, d := range stored {
		if d.CreatedMS == current.CreatedMS && d.Revision < last {
			earlier, last = append(earlier, d), d.Revision
		}
	}
	return earlier
}

// AsRevision returns a definition as it is stored as a revision: without the ids of requests and the trace.
func (d *Definition) AsRevision() *Definition {
	r := *d
	r.CreateRequestID, r.UpdateRequestIDs, r.Trace = "", nil, nil
	return &r
}

// ReplacesSeal reports whether the revisions of the job have to be removed with an edit: the payload was not sealed
// and now is, so that no unsealed copy may stay.
func (d *Definition) ReplacesSeal(before *Definition) bool {
	return before.PayloadKey == "" && len(before.Payload) > 0 && d.PayloadKey != ""
}

// MissingRevisionError means that a revision of a job is not stored.
func MissingRevisionError(key Key, revision uint32) error {
	return &MissingPartError{Key: key, Collection: "revisions", ID: fmt.Sprint(revision)}
}

// StoredAt returns when the definition was stored.
func (d *Definition) StoredAt() unixtime.Milli { return max(d.CreatedMS, d.UpdatedMS) }
