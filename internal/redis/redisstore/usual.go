package redisstore

import (
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/fermata-io/fermata/internal/core/backoff"
	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/schedule"
	storagev1 "github.com/fermata-io/fermata/proto/fermata/storage/v1"
)

// form is how records are written. Any form is read, whatever the keyspace's schema.
type form uint8

const (
	// formPlain is that of schema 1: every field is told.
	formPlain form = iota
	// formSpare is that of schema 2: what is as usual is left out, which halves what
	// a plain job with a small payload takes.
	formSpare
	// formTight is that of schemas 3 and 4: besides, nominal times of states and intervals of
	// whole seconds take fewer bytes, so that the texts of plain jobs fit into the next
	// smaller classes of the allocator.
	formTight
)

// formOf is the form of a keyspace of this schema.
func formOf(schema int) form {
	switch {
	case schema < 2:
		return formPlain
	case schema == 2:
		return formSpare
	default:
		return formTight
	}
}

// ofStates is the form of the states of a job that keeps so many ended runs. Tight states
// leave gaps in the allocator's class of 48 bytes when their jobs run, into which the names
// of ended runs would go one by one: settling would take Redis a tenth longer.
func (f form) ofStates(history int) form {
	if f == formTight && history > 0 {
		return formSpare
	}
	return f
}

// Groups of a definition's fields, as bits of the stored fields usual and told. In
// usual the bit of a group that is left out is set, in told that of one that is not.
const (
	usualLane    uint32 = 1 << iota // queue, priority
	usualRetry                      // retry policy
	usualBackoff                    // backoff policy
	usualTimes                      // timeout and grace, retention, life of dead letters
	usualFirst                      // generation and revision 1, not edited since its anchor
	usualAll     = 1<<iota - 1
)

// usual is what a field that is left out stands for. It is part of what is stored:
// the defaults of jobs may change, this never does.
var usual = job.Definition{
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

// usualState is what the fields of a state stand for that its tail leaves out.
var usualState = job.State{Lane: job.Lane{Queue: "default", Priority: 5}, Generation: 1}

// usualRetryOf is the usual retry policy of such a job: one attempt if it recurs.
func usualRetryOf(d *job.Definition) backoff.Retry {
	retry := usual.Retry
	if d.Recurring() {
		retry.MaxAttempts = 1
	}
	return retry
}

// leaveOut takes the groups that are as usual out of a definition's message, which has
// no policies yet, and packs what can be told in fewer bytes.
func leaveOut(m *storagev1.Definition, d *job.Definition) {
	m.CreateRequestId, m.CreateRequestUuid = packUUID(m.CreateRequestId)
	m.UpdateRequestId, m.UpdateRequestUuid = packUUID(m.UpdateRequestId)
	if d.Queue == usual.Queue && d.Priority == usual.Priority {
		m.Usual |= usualLane
		m.Queue, m.Priority = "", 0
	}
	if d.Retry == usualRetryOf(d) {
		m.Usual |= usualRetry
	}
	if d.Backoff == usual.Backoff {
		m.Usual |= usualBackoff
	}
	if d.Timeout == usual.Timeout && d.TimeoutGrace == usual.TimeoutGrace && d.Retention == usual.Retention &&
		d.DeadLetterTTL == usual.DeadLetterTTL {
		m.Usual |= usualTimes
		m.TimeoutMs, m.TimeoutGraceMs, m.RetentionMs, m.DeadLetterTtlMs = 0, 0, 0, 0
	}
	if d.Generation == usual.Generation && d.Revision == usual.Revision && d.CreatedMS == d.AnchorMS && d.UpdatedMS == d.AnchorMS {
		m.Usual |= usualFirst
		m.Generation, m.Revision, m.CreatedMs, m.UpdatedMs = 0, 0, 0, 0
	}
}

// pack puts an interval of whole seconds, after leaveOut, into one field, which also
// turns the groups that are left out into those that are told: of most jobs none are.
func pack(m *storagev1.Definition, s schedule.Spec) {
	if s.Kind != schedule.KindInterval || s.Every == 0 || s.Every%time.Second != 0 {
		return
	}
	m.IntervalS = int64(s.Every / time.Second)
	m.Usual, m.Told = 0, usualAll&^m.Usual
	m.Schedule.Kind, m.Schedule.EveryMs = 0, 0
	if proto.Size(m.Schedule) == 0 {
		m.Schedule = nil
	}
}

// spared is what a definition's message says of what it leaves out.
type spared struct {
	usual, told uint32
	intervalS   int64
}

// groups are those that are left out. It is false for groups that are not known.
func (l *spared) groups() (uint32, bool) {
	groups := l.usual
	if l.intervalS != 0 {
		groups = usualAll &^ l.told
	}
	return groups, (l.usual|l.told)&^usualAll == 0
}

// unpack undoes pack, before putBack: what is usual depends on the schedule.
func (l *spared) unpack(s *schedule.Spec) {
	if l.intervalS != 0 {
		s.Kind, s.Every = schedule.KindInterval, seconds(l.intervalS)
	}
}

// putBack undoes leaveOut. A group that is left out may still hold fields that this
// version does not know: those are kept apart.
func putBack(d *job.Definition, groups uint32) {
	if groups&usualLane != 0 {
		d.Queue, d.Priority = usual.Queue, usual.Priority
	}
	if groups&usualRetry != 0 {
		d.Retry = usualRetryOf(d)
	}
	if groups&usualBackoff != 0 {
		d.Backoff = usual.Backoff
	}
	if groups&usualTimes != 0 {
		d.Timeout, d.TimeoutGrace, d.Retention, d.DeadLetterTTL = usual.Timeout, usual.TimeoutGrace, usual.Retention, usual.DeadLetterTTL
	}
	if groups&usualFirst != 0 {
		d.Generation, d.Revision, d.CreatedMS, d.UpdatedMS = usual.Generation, usual.Revision, d.AnchorMS, d.AnchorMS
	}
}
