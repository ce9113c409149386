package codec

import (
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/fermata-io/fermata/internal/core/backoff"
	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/schedule"
	storagev1 "github.com/fermata-io/fermata/proto/fermata/storage/v1"
)

// Encoding is how records are written. Any form is read, whatever the keyspace's schema.
type Encoding uint8

const (
	// EncodingFull is that of schema 1: every field is told.
	EncodingFull Encoding = iota
	// EncodingSparse is that of schema 2: what is as usual is left out, which halves what
	// a plain job with a small payload takes.
	EncodingSparse
	// EncodingCompact is that of schemas 3 and 4: besides, nominal times of states and intervals of
	// whole seconds take fewer bytes, so that the texts of plain jobs fit into the next
	// smaller classes of the allocator.
	EncodingCompact
)

// EncodingOf is the form of a keyspace of this schema.
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

// ForStates is the form of the states of a job that keeps so many ended runs. Tight states
// leave gaps in the allocator's class of 48 bytes when their jobs run, into which the names
// of ended runs would go one by one: settling would take Redis a tenth longer.
func (f Encoding) ForStates(history int) Encoding {
	if f == EncodingCompact && history > 0 {
		return EncodingSparse
	}
	return f
}

// Groups of a definition's fields, as bits of the stored fields usual and told. In
// usual the bit of a group that is left out is set, in told that of one that is not.
const (
	groupLane          uint32 = 1 << iota // queue, priority
	groupRetry                            // retry policy
	groupBackoff                          // backoff policy
	groupTimes                            // timeout and grace, retention, life of dead letters
	groupFirstRevision                    // generation and revision 1, not edited since its anchor
	allGroups          = 1<<iota - 1
)

// defaults is what a field that is left out stands for. It is part of what is stored:
// the defaults of jobs may change, this never does.
var defaults = job.Definition{
	Queue: "default", Priority: 5, Generation: 1, Revision: 1,
	Retry: backoff.Retry{
		Strategy: backoff.Exponential, Base: time.Second, Multiplier: 2, MaxDelay: 5 * time.Minute, MaxAttempts: 3,
		Jitter: backoff.Jitter{Kind: backoff.JitterDown, Fraction: 0.1},
	},
	Backoff: backoff.Recurring{
		Multiplier: 2, MaxExponent: 5, MaxDelay: time.Hour, Jitter: backoff.Jitter{Kind: backoff.JitterDown, Fraction: 0.1},
	},
	Timeout: 30 * time.Second, TimeoutGrace: 5 * time.Second, Retention: time.Hour, DeadLetterTTL: 7 * 24 * time.Hour,
}

// defaultState is what the fields of a state stand for that its tail leaves out.
var defaultState = job.State{Lane: job.Lane{Queue: "default", Priority: 5}, Generation: 1}

// defaultRetryOf is the usual retry policy of such a job: one attempt if it recurs.
func defaultRetryOf(d *job.Definition) backoff.Retry {
	retry := defaults.Retry
	if d.Recurring() {
		retry.MaxAttempts = 1
	}
	return retry
}

// omitDefaults takes the groups that are as usual out of a definition's message, which has
// no policies yet, and packs what can be told in fewer bytes.
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
	if d.Generation == defaults.Generation && d.Revision == defaults.Revision && d.CreatedMS == d.AnchorMS && d.UpdatedMS == d.AnchorMS {
		m.Usual |= groupFirstRevision
		m.Generation, m.Revision, m.CreatedMs, m.UpdatedMs = 0, 0, 0, 0
	}
}

// packInterval puts an interval of whole seconds, after leaveOut, into one field, which also
// turns the groups that are left out into those that are told: of most jobs none are.
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

// omissions is what a definition's message says of what it leaves out.
type omissions struct {
	omitted, present uint32
	intervalS        int64
}

// omittedGroups are those that are left out. It is false for groups that are not known.
func (l *omissions) omittedGroups() (uint32, bool) {
	groups := l.omitted
	if l.intervalS != 0 {
		groups = allGroups &^ l.present
	}
	return groups, (l.omitted|l.present)&^allGroups == 0
}

// unpackInterval undoes pack, before putBack: what is usual depends on the schedule.
func (l *omissions) unpackInterval(s *schedule.Spec) {
	if l.intervalS != 0 {
		s.Kind, s.Every = schedule.KindInterval, durationOfSeconds(l.intervalS)
	}
}

// restoreDefaults undoes leaveOut. A group that is left out may still hold fields that this
// version does not know: those are kept apart.
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
		d.Timeout, d.TimeoutGrace, d.Retention, d.DeadLetterTTL = defaults.Timeout, defaults.TimeoutGrace, defaults.Retention, defaults.DeadLetterTTL
	}
	if groups&groupFirstRevision != 0 {
		d.Generation, d.Revision, d.CreatedMS, d.UpdatedMS = defaults.Generation, defaults.Revision, d.AnchorMS, d.AnchorMS
	}
}
