package job

import (
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/fermata-io/fermata/internal/core/unixtime"
)

// A rename gives a job another id. The name of a job decides its shard, so a rename usually moves the job between two
// shards, which no script can change together. It takes these atomic steps, of which each may be repeated:
//
//  1. The shard of the new name reserves it ([RenameReserved]). The job runs on under its old name.
//  2. The shard of the old name takes the job out of its records and lanes, and keeps a copy ([KeptJob]) that nothing
//     can start. A job that has changed since it was read stays.
//  3. The shard of the new name stores the job, if the name is still reserved ([RenameDone]).
//  4. The shard of the old name removes the copy, and the old name is free.
//  5. The shard of the new name forgets the rename.
//
// A rename that is not to continue is aborted at the new name ([RenameAborted]). The two ends of a reservation exclude
// each other, and both are remembered until the old name has no copy: so it is always known whether a copy has to be
// returned to the old name, or removed.
//
// Until step 4 the old name, and until step 3 the new one, belong to a record with a [RenameMark]. It is a deleted job
// to everybody else: nodes of earlier versions neither start nor change it, nor create another job of this name.

// RenamePhase is how far a rename has got at its new name.
type RenamePhase string

// Phases. The zero value: the shard does not know the rename.
const (
	RenameReserved RenamePhase = "reserved"
	RenameDone     RenamePhase = "done"
	RenameAborted  RenamePhase = "aborted"
)

// Times of a rename, by the clock of the shard that has to do with it.
const (
	// RenameTime is the time within which a name may be reserved for a rename, and the job be taken: a call that
	// arrives later does nothing.
	RenameTime = 30 * time.Second
	// RenameGrace is how long after its reservation a rename is aborted that has not taken its job.
	RenameGrace = 2 * RenameTime
	// RenameMemory is how long an aborted rename is remembered, so that a late call does not begin it again. It is also
	// how long the signature of a kept job counts: see [KeptJob.IsOverdue].
	RenameMemory = 20 * RenameTime
)

// The shard of an old name keeps the request ids of the renames that have ended there, so that a repetition does not
// rename another job that was created under this name: those of the last FinishedRenamesAge, at most
// MaxFinishedRenames. When there are more, KeptFinishedRenames are left: the oldest ones of the namespace with the most
// are removed. Nodes of earlier builds keep the newest 1,000, whichever namespace they are of.
const (
	FinishedRenamesAge  = 24 * time.Hour
	MaxFinishedRenames  = 4000
	KeptFinishedRenames = MaxFinishedRenames - 250
)

// RenameMark is the part of the state of a record that only keeps a name for a rename.
type RenameMark struct {
	ID string // of the rename
	// Other is the id of the job under its other name.
	Other string
	// Arriving: the record keeps the new name; otherwise the old one.
	Arriving bool
}

// Rename identifies a rename.
type Rename struct {
	ID   string `json:"id"`
	From Key    `json:"from"`
	To   Key    `json:"to"`
}

// NamedRename is a rename as the shard of the new name has it.
type NamedRename struct {
	Rename
	Phase RenamePhase    `json:"phase"`
	AtMS  unixtime.Milli `json:"at"` // when the phase began
}

// RenameHandle is a rename as the shard of the new name has it, with what the next change of it needs.
type RenameHandle struct {
	NamedRename
	Shard int
	Lane  Lane   // of the record that keeps the name
	Entry string // as it is stored; "" there is none
}

// KeptJob is a job that was taken from its old name.
type KeptJob struct {
	Rename
	// AtMS is when the rename began, by the clock of the shard of the new name.
	AtMS      unixtime.Milli
	RequestID string
	By        Edit
	Job       StoredJob
	// Signature shows that a node with payload keys has taken the job as it is, for a rename that began at AtMS; "" if
	// that node has none.
	Signature string
}

// FinishedRename is what is kept of a rename that has ended, with its request id: which job it has renamed.
type FinishedRename struct {
	NewID string `json:"to"`
	// These do not change when a job is renamed. Revision is that of the rename: later edits have greater ones.
	CreatedMS       unixtime.Milli `json:"created"`
	CreateRequestID string         `json:"request,omitempty"`
	Revision        uint32         `json:"revision"`
}

// HasSealedPayload reports whether a payload of the job is sealed, also of its earlier revisions.
func (k *KeptJob) HasSealedPayload() bool {
	return slices.ContainsFunc(k.Job.Records, func(r StoredRecord) bool { return r.Definition.PayloadKey != "" }) ||
		slices.ContainsFunc(k.Job.Revisions, func(d *Definition) bool { return d.PayloadKey != "" })
}

// IsOverdue reports whether it is too late to seal the payloads of the job for its new name: the rename is aborted then,
// and the job returns to its old name. Otherwise whoever can write to Redis could keep a signed job, and have its payload
// sealed for the other name at any later time. now is an instant of the shard of the new name.
func (k *KeptJob) IsOverdue(now unixtime.Milli) bool { return now.Sub(k.AtMS) > RenameMemory }

// Finished is what is to be kept of the rename when it has ended.
func (k *KeptJob) Finished() FinishedRename {
	d := k.Job.Records[0].Definition
	return FinishedRename{
		NewID: k.To.ID, CreatedMS: d.CreatedMS, CreateRequestID: d.CreateRequestID, Revision: d.Revision + 1,
	}
}

// IsOf reports whether a job is the one that was renamed, under the name that it was given.
func (f *FinishedRename) IsOf(d *Definition) bool {
	return f != nil && d.ID == f.NewID && d.CreatedMS == f.CreatedMS && d.CreateRequestID == f.CreateRequestID &&
		d.Revision >= f.Revision
}

// ErrRenamedBefore means that the request of a rename has renamed a job of this name before.
var ErrRenamedBefore = errors.New("the request has renamed a job of this name before")

// StoredJob is all that a shard stores of a job that has no live runs.
type StoredJob struct {
	Records []StoredRecord // the job, then its dead letters
	// Revisions are the earlier definitions, newest first; RevisionsText is as it was read.
	Revisions     []*Definition
	RevisionsText string
}

// StoredRecord is a record with its ended runs.
type StoredRecord struct {
	Record
	ID   RecordID
	Runs []StoredRun
	// StateText and DefinitionText are as they were read.
	StateText, DefinitionText string
}

// StoredRun is an ended run as it is stored, in a slot of the history.
type StoredRun struct {
	Slot int    `json:"slot"`
	Text []byte `json:"text"`
}

// RenameEnd names a rename of which a shard has an entry. Phase and AtMS are those of an entry of the new name, if it
// can be read.
type RenameEnd struct {
	Shard int
	ID    string
	Phase RenamePhase
	AtMS  unixtime.Milli
}

// RenameStep is what a rename needs next.
type RenameStep uint8

// Steps.
const (
	RenameWait    RenameStep = iota // nothing for now
	RenameStore                     // store the job under its new name
	RenameRelease                   // remove what the shard of the old name keeps
	RenameForget                    // remove what the shard of the new name remembers
	RenameAbort                     // abort
	RenameReturn                    // return the job to its old name
	RenameOver                      // there is nothing left
)

// NextRenameStep returns what a rename needs next. The phase has to be read before it is read whether the old name
// keeps the job: a job that is no longer kept was stored before it was removed. age is how long the phase lasts.
func NextRenameStep(phase RenamePhase, kept bool, age time.Duration) RenameStep {
	switch {
	case kept && phase == RenameReserved:
		return RenameStore
	case kept && phase == RenameDone:
		return RenameRelease
	case kept && phase == RenameAborted:
		return RenameReturn
	case kept: // the new name was never reserved for it, or the abort is forgotten
		return RenameAbort
	case phase == RenameReserved && age > RenameGrace:
		return RenameAbort
	case phase == RenameDone, phase == RenameAborted && age > RenameMemory:
		return RenameForget
	case phase == "":
		return RenameOver
	}
	return RenameWait
}

// RenameRequest asks for a rename. If Etag is set and differs from the job's, the call is refused.
type RenameRequest struct {
	Key       Key
	NewID     string
	Etag      string
	RequestID string
}

// ReasonRenamedBefore is the reason of a PreconditionError about a rename whose request has renamed a job of this name
// before. That job has another name by now, or is deleted.
const ReasonRenamedBefore = "RENAMED_BEFORE"

// NewKey is the key of the job after the rename.
func (q *RenameRequest) NewKey() Key { return Key{Namespace: q.Key.Namespace, ID: q.NewID} }

// renamedRequest is how the request id of a rename is stored with the definition, so that a repetition is detected. No
// other request id has a space.
func renamedRequest(requestID, oldID string) string { return requestID + " " + oldID }

// WasRenamedBy reports whether this request has given the job its name.
func (d *Definition) WasRenamedBy(requestID, oldID string) bool {
	return requestID != "" && d.UpdateRequestIDs.Has(renamedRequest(requestID, oldID))
}

// CheckRename refuses a rename of a job that has runs which are live, or which are records of their own.
func CheckRename(key Key, s *State) error {
	switch {
	case s.Live():
		return &PreconditionError{Key: key, Reason: ReasonJobRuns,
			Text: "a run is in progress: wait for its end, or cancel it, and rename the job then"}
	case s.Children != 0:
		return &PreconditionError{Key: key, Reason: ReasonJobRuns,
			Text: "it has runs that are live, or wait beside its schedule: let them end or cancel them, and rename the " +
				"job then"}
	}
	return nil
}

// RenamePlaceholder returns a record that keeps a name for a rename. It is like a deleted job without a schedule,
// which nothing starts and nothing removes.
func RenamePlaceholder(r Rename, arriving bool, d *Definition, lane Lane, now unixtime.Milli) Record {
	key, other := r.From, r.To.ID
	if arriving {
		key, other = r.To, r.From.ID
	}
	kept := &Definition{
		Key: key, Queue: d.Queue, Priority: d.Priority, Handler: d.Handler,
		Generation: 1, Revision: 1, CreatedMS: now, UpdatedMS: now, AnchorMS: now, CreateRequestID: r.ID,
	}
	return Record{Definition: kept, IndexMS: NeverMS, State: State{
		Region: RegionDone, Revision: firstRevision(kept), Lane: lane, Generation: 1, Deleting: true,
		Rename: &RenameMark{ID: r.ID, Other: other, Arriving: arriving},
	}}
}

// WithNewName returns the job as it is stored under its new name: the same, whoever stores it, but for a run that
// waits for a gate. The rename counts as an edit, and the job keeps so many earlier revisions, with addsRevision also
// the definition that is replaced. now is an instant of the shard of the new name.
func (k *KeptJob) WithNewName(now unixtime.Milli, keepRevisions int, addsRevision bool) StoredJob {
	out := StoredJob{Records: make([]StoredRecord, len(k.Job.Records))}
	for i := range k.Job.Records {
		r := k.Job.Records[i]
		r.ID = RecordID(string(k.To.Record()) + strings.TrimPrefix(string(r.ID), string(k.From.Record())))
		d := *r.Definition
		d.ID = k.To.ID
		if i == 0 {
			d.Revision, d.UpdatedMS, d.LastEdit = d.Revision+1, k.AtMS, k.By
			if k.RequestID != "" {
				d.UpdateRequestIDs = d.UpdateRequestIDs.With(renamedRequest(k.RequestID, k.From.ID))
			}
			wakeRenamed(&r.Record, now)
		}
		r.Definition = &d
		// Who decided on an earlier job of this name must not find token and revision as they were.
		seed := d
		seed.CreatedMS, seed.CreateRequestID = k.AtMS, k.ID
		r.State.Revision = firstRevision(&seed)
		out.Records[i] = r
	}
	before := EarlierRevisions(k.Job.Records[0].Definition, k.Job.Revisions)
	if addsRevision {
		before = slices.Insert(before, 0, k.Job.Records[0].Definition)
	}
	for _, d := range before[:min(len(before), keepRevisions)] {
		renamed := *d
		renamed.ID = k.To.ID
		out.Revisions = append(out.Revisions, &renamed)
	}
	return out
}

// wakeRenamed makes a run due that waits to be woken by a gate: the gate would wake a job of the old name.
func wakeRenamed(r *Record, now unixtime.Milli) {
	s := &r.State
	if s.Region != RegionDue || s.Source != DelayHeld || s.Held.Reason == HeldPace || s.Due <= now {
		return
	}
	s.Due = max(now, s.Nominal)
	r.IndexMS = s.Due
	if s.Held.DueMS > 0 {
		r.IndexMS = min(s.Due, s.Held.DueMS)
	}
}

// WithOldName returns the job as it is stored if it returns to its old name: as it was, with another revision, so
// that a late call does not take it again.
func (k *KeptJob) WithOldName() StoredJob {
	out := StoredJob{Records: make([]StoredRecord, len(k.Job.Records)), Revisions: k.Job.Revisions}
	for i, r := range k.Job.Records {
		r.State.Revision++
		out.Records[i] = r
	}
	return out
}
