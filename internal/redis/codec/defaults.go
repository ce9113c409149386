package codec

import (
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/fermata-io/fermata/internal/core/backoff"
	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/schedule"
	storagev1 "github.com/fermata-io/fermata/proto/fermata/storage/v1"
)

// Encoding is how compactly records are encoded. The schema of the keyspace selects the encoding of new
// records. Every encoding is decoded, whatever the schema is.
type Encoding uint8

const (
	// EncodingFull is the encoding of schema 1: every field is stored.
	EncodingFull Encoding = iota
	// EncodingSparse is the encoding of schema 2: fields with default values are omitted, which
	// halves the size of a simple job with a small payload.
	EncodingSparse
	// EncodingCompact is the encoding of schemas 3 and 4: nominal times of states and intervals
	// of whole seconds also take fewer bytes, so that simple jobs fit into the next smaller size
	// classes of Redis's allocator.
	EncodingCompact
)

// EncodingOf is the encoding of a keyspace with this schema.
func EncodingOf(schema int) Encoding {
	switch {
	case schema < 2:
		return EncodingFull
	case schema == 2:
		return EncodingSparse
	default:
		return EncodingCompact
	}
}

// ForStates is the encoding for states of a job that keeps up to history ended runs. Compact
// states would leave gaps in the allocator's size class of 48 bytes when their jobs run. The names
// of ended runs would fill these gaps one by one, and settling would take Redis a tenth longer.
func (f Encoding) ForStates(history int) Encoding {
	if f == EncodingCompact && history > 0 {
		return EncodingSparse
	}
	return f
}

// Groups of a definition's fields, as bits of the stored fields usual and told. usual has the bits of the omitted
// groups. Records that use told instead have the bits of all other groups there.
const (
	groupLane          uint32 = 1 << iota // queue, priority
	groupRetry                            // retry policy
	groupBackoff                          // backoff policy
	groupTimes                            // timeout and grace, retention, life of dead letters
	groupFirstRevision                    // generation and revision 1, not edited since the anchor
	allGroups          = 1<<iota - 1
)

// defaults has the values of omitted fields. They belong to the stored format: the defaults for
// new jobs may change, these never do.
var defaults = job.Definition{
	Queue: "default", Priority: 5, Generation: 1, Revision: 1,
	Retry: backoff.Retry{
		Strategy: backoff.Exponential, Base: time.Second, Multiplier: 2, MaxDelay: 5 * time.Minute, MaxAttempts: 3,
		Jitter: backoff.Jitter{Kind: backoff.JitterDown, Fraction: 0.1},
	},
	Backoff: backoff.Recurring{
		Multiplier: 2, MaxExponent: 5, MaxDelay: time.Hour,
		Jitter: backoff.Jitter{Kind: backoff.JitterDown, Fraction: 0.1},
	},
	Timeout: 30 * time.Second, TimeoutGrace: 5 * time.Second, Retention: time.Hour, DeadLetterTTL: 7 * 24 * time.Hour,
}

// defaultState has the values of fields that the tail of a state omits.
var defaultState = job.State{Lane: job.Lane{Queue: "default", Priority: 5}, Generation: 1}

// defaultRetryOf is the retry policy that is omitted: a recurring job has one attempt.
func defaultRetryOf(d *job.Definition) backoff.Retry {
	retry := defaults.Retry
	if d.Recurring() {
		retry.MaxAttempts = 1
	}
	return retry
}

// omitDefaults removes groups with default values from a definition's message, which has no
// policies yet, and shortens request ids.
func omitDefaults(m *storagev1.Definition, d *job.Definition) {
	m.CreateRequestId, m.CreateRequestUuid = packUUID(m.CreateRequestId)
	m.UpdateRequestId, m.UpdateRequestUuid = packUUID(m.UpdateRequestId)
	if d.Queue == defaults.Queue && d.Priority == defaults.Priority {
		m.Usual |= groupLane
		m.Queue, m.Priority = "", 0
	}
	if d.Retry == defaultRetryOf(d) {
		m.Usual |= groupRetry
	}
	if d.Backoff == defaults.Backoff {
		m.Usual |= groupBackoff
	}
	if d.Timeout == defaults.Timeout && d.TimeoutGrace == defaults.TimeoutGrace && d.Retention == defaults.Retention &&
		d.DeadLetterTTL == defaults.DeadLetterTTL {
		m.Usual |= groupTimes
		m.TimeoutMs, m.TimeoutGraceMs, m.RetentionMs, m.DeadLetterTtlMs = 0, 0, 0, 0
	}
	if d.Generation == defaults.Generation && d.Revision == defaults.Revision && d.CreatedMS == d.AnchorMS &&
		d.UpdatedMS == d.AnchorMS {
		m.Usual |= groupFirstRevision
		m.Generation, m.Revision, m.CreatedMs, m.UpdatedMs = 0, 0, 0, 0
	}
}

// packInterval stores an interval of whole seconds in one field. It runs after omitDefaults. The
// message then lists the groups that are present instead of those that are omitted, because most
// jobs omit all of them.
func packInterval(m *storagev1.Definition, s schedule.Spec) {
	if s.Kind != schedule.KindInterval || s.Every == 0 || s.Every%time.Second != 0 {
		return
	}
	m.IntervalS = int64(s.Every / time.Second)
	m.Usual, m.Told = 0, allGroups&^m.Usual
	m.Schedule.Kind, m.Schedule.EveryMs = 0, 0
	if proto.Size(m.Schedule) == 0 {
		m.Schedule = nil
	}
}

// omissions are the fields of a definition's message that list what it omits.
type omissions struct {
	omitted, present uint32
	intervalS        int64
}

// omittedGroups returns the omitted groups; false if the message has an unknown group.
func (l *omissions) omittedGroups() (uint32, bool) {
	groups := l.omitted
	if l.intervalS != 0 {
		groups = allGroups &^ l.present
	}
	return groups, (l.omitted|l.present)&^allGroups == 0
}

// unpackInterval undoes packInterval. It runs before restoreDefaults, because the default retry
// policy depends on the schedule.
func (l *omissions) unpackInterval(s *schedule.Spec) {
	if l.intervalS != 0 {
		s.Kind, s.Every = schedule.KindInterval, durationOfSeconds(l.intervalS)
	}
}

// restoreDefaults undoes omitDefaults. An omitted group may still hold fields of a later version:
// these are in Definition.Unknown.
func restoreDefaults(d *job.Definition, groups uint32) {
	if groups&groupLane != 0 {
		d.Queue, d.Priority = defaults.Queue, defaults.Priority
	}
	if groups&groupRetry != 0 {
		d.Retry = defaultRetryOf(d)
	}
	if groups&groupBackoff != 0 {
		d.Backoff = defaults.Backoff
	}
	if groups&groupTimes != 0 {
		d.Timeout, d.TimeoutGrace = defaults.Timeout, defaults.TimeoutGrace
		d.Retention, d.DeadLetterTTL = defaults.Retention, defaults.DeadLetterTTL
	}
	if groups&groupFirstRevision != 0 {
		d.Generation, d.Revision, d.CreatedMS, d.UpdatedMS = defaults.Generation, defaults.Revision, d.AnchorMS, d.AnchorMS
	}
}
