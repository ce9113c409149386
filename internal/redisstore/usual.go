package redisstore

import (
	"time"

	"github.com/fermata-io/fermata/internal/backoff"
	"github.com/fermata-io/fermata/internal/job"
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
)

// formOf is the form of a keyspace of this schema.
func formOf(schema int) form {
	if schema < 2 {
		return formPlain
	}
	return formSpare
}

// Groups of a definition's fields, as bits of the stored field usual. The bit of a
// group that is left out is set.
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
