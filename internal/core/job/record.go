package job

import (
	"strconv"
	"strings"
)

// RecordID is the id of a stored record: "namespace/job" is the record of a job, "namespace/job#r<slot>" that of
// a run that is live beside the job's own schedule, "namespace/job#d<slot>" that of a dead letter. Text from
// outside the process becomes a RecordID in [ParseRecordID] only. The methods return parts of the id without
// allocating; the parts of an invalid id are empty.
type RecordID string

// ParseRecordID parses the id of a record.
func ParseRecordID(text string) (RecordID, bool) {
	key, _ := RecordID(text).split()
	return RecordID(text), key != Key{}
}

// split returns the key of the job, and what follows the '#'.
func (r RecordID) split() (key Key, child string) {
	namespace, rest, ok := strings.Cut(string(r), "/")
	if !ok || namespace == "" {
		return Key{}, ""
	}
	id, child, _ := strings.Cut(rest, "#")
	if id == "" {
		return Key{}, ""
	}
	return Key{Namespace: namespace, ID: id}, child
}

// Key returns the key of the job that the record belongs to.
func (r RecordID) Key() Key {
	key, _ := r.split()
	return key
}

// Namespace returns the namespace of the job that the record belongs to.
func (r RecordID) Namespace() string { return r.Key().Namespace }

// Job returns the record of the job that the record belongs to: itself, if it is the record of a job.
func (r RecordID) Job() RecordID {
	key := r.Key()
	if key == (Key{}) {
		return ""
	}
	return r[:len(key.Namespace)+len("/")+len(key.ID)]
}

// IsJob reports whether the record is that of a job: its own state and definition.
// It is called for each leased run and does not parse the id.
func (r RecordID) IsJob() bool { return strings.IndexByte(string(r), '#') < 0 }

// IsRun reports whether the record is that of a run. It has a state; the definition is the job's.
func (r RecordID) IsRun() bool {
	_, ok := r.RunSlot()
	return ok
}

// IsLetter reports whether the record is that of a dead letter.
func (r RecordID) IsLetter() bool { return !r.IsJob() && !r.IsRun() }

// DefinedBy is the record whose definition r uses: r itself, or for a run that is a record of its own, the job.
func (r RecordID) DefinedBy() RecordID {
	if r.IsRun() {
		return r.Job()
	}
	return r
}

// Run returns the record of the run in a slot of the job.
func (r RecordID) Run(slot int) RecordID { return r + "#r" + RecordID(strconv.Itoa(slot)) }

// Letter returns the record of the dead letter in a slot of the job.
func (r RecordID) Letter(slot int) RecordID { return r + "#d" + RecordID(strconv.Itoa(slot)) }

// RunSlot returns the slot of a run; ok is false for other records.
func (r RecordID) RunSlot() (slot int, ok bool) {
	_, child := r.split()
	return parseSlot(child, 'r', MaxConcurrentRuns)
}

// LetterSlot returns the slot of a dead letter; ok is false for other records.
func (r RecordID) LetterSlot() (slot int, ok bool) {
	_, child := r.split()
	return parseSlot(child, 'd', DeadLettersPerJob)
}

func parseSlot(child string, kind byte, limit int) (slot int, ok bool) {
	if len(child) < 2 || child[0] != kind {
		return 0, false
	}
	slot, err := strconv.Atoi(child[1:])
	return slot, err == nil && slot >= 0 && slot < limit
}
