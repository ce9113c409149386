package rpc

import (
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/fermata-io/fermata/internal/core/backoff"
	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/schedule"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// reader translates a message and gathers what cannot be translated. What can,
// but is out of bounds, is left to [job.Validate].
type reader struct {
	violations []job.Violation
	// defaults are those of the operator; nil: there are none.
	defaults *backoff.Defaults
	// doubtful are the fields of the policies whose values are not those that the sources give which
	// the message claims: a default has changed since the message was read, or somebody has edited
	// the value.
	doubtful backoff.FieldSet
	// refresh: values that are claimed not to be a job's own do not count.
	refresh bool
}

func (r *reader) err() error {
	if len(r.violations) == 0 {
		return nil
	}
	return &job.InvalidError{Violations: r.violations}
}

func (r *reader) refuse(field, description string) {
	if len(r.violations) < job.MaxViolations {
		r.violations = append(r.violations, job.Violation{Field: field, Description: description})
	}
}

// duration reads a duration; an unset one is byDefault.
func (r *reader) duration(message, field string, d *durationpb.Duration, byDefault time.Duration) time.Duration {
	if d == nil {
		return byDefault
	}
	if err := d.CheckValid(); err != nil {
		r.refuse(message+field, "is not a valid duration")
	}
	return d.AsDuration()
}

// begin reads a time at which something may begin, rounded up to the precision that is
// stored; unset is zero.
func (r *reader) begin(message, field string, t *timestamppb.Timestamp) time.Time {
	return schedule.RoundUp(r.exact(message, field, t))
}

// end reads a time at which something ends, rounded down to the precision that is stored;
// unset is zero.
func (r *reader) end(message, field string, t *timestamppb.Timestamp) time.Time {
	return schedule.RoundDown(r.exact(message, field, t))
}

// exact reads a timestamp as it is given; unset is zero.
func (r *reader) exact(message, field string, t *timestamppb.Timestamp) time.Time {
	if t == nil {
		return time.Time{}
	}
	if err := t.CheckValid(); err != nil {
		r.refuse(message+field, "is not a valid timestamp")
	}
	return t.AsTime()
}

// definition reads a job. Unset fields get the defaults that job.proto names, or those of the
// operator in their place.
func (r *reader) definition(key job.Key, j *fermatav1.Job) job.Definition {
	d := job.WithDefaults(job.Definition{Schedule: r.schedule("job.schedule", j.GetSchedule())})
	d.Key = key
	if j.GetQueue() != "" {
		d.Queue = j.GetQueue()
	}
	d.Handler, d.Payload, d.Labels = j.GetHandler(), j.GetPayload(), j.GetLabels()
	d.Priority, d.HistoryLimit = job.DefaultPriority, job.DefaultHistoryLimit
	if j != nil && j.Priority != nil {
		d.Priority = r.priority(*j.Priority)
	}
	if j != nil && j.HistoryLimit != nil {
		d.HistoryLimit = int(*j.HistoryLimit)
	}
	r.policies("job.", &d, j.GetRetryPolicy(), j.GetBackoffPolicy())
	r.runPolicies(&d, j)
	d.Timeout = r.duration("job.timeout", "", j.GetTimeout(), d.Timeout)
	d.TimeoutGrace = r.duration("job.timeout_grace", "", j.GetTimeoutGrace(), d.TimeoutGrace)
	d.Retention = r.duration("job.retention", "", j.GetRetention(), d.Retention)
	d.DeadLetterTTL = r.duration("job.dead_letter_ttl", "", j.GetDeadLetterTtl(), d.DeadLetterTTL)
	return d
}

func (r *reader) priority(p int32) uint8 {
	if p < 0 || p > 255 {
		return 255 // out of bounds all the same
	}
	return uint8(p)
}

// refuseSealed refuses to register a job as it was read while its payload was sealed:
// what it would be given is not its payload.
func (r *reader) refuseSealed(j *fermatav1.Job) {
	if j.GetPayloadSealed() || j.GetPayloadKeyId() != "" {
		r.refuse("job.payload_sealed", "a sealed payload is taken by RestoreJobs only (fermata import --states); give the payload itself, and leave payload_sealed and payload_key_id unset")
	}
}

// definitionToPB writes the part of a job that clients set. A payload that is sealed
// is written as it is stored, for backups.
func definitionToPB(d *job.Definition) *fermatav1.Job {
	p := unsealedToPB(d)
	if d.PayloadKey != "" {
		p.PayloadSealed, p.PayloadKeyId, p.PayloadSize = true, d.PayloadKey, int64(d.PayloadSize())
	}
	return p
}

func unsealedToPB(d *job.Definition) *fermatav1.Job {
	retry, recurring := policiesToPB(d)
	return &fermatav1.Job{
		Name:          jobName(d.Key),
		Queue:         d.Queue,
		Priority:      new(int32(d.Priority)),
		Handler:       d.Handler,
		Payload:       d.Payload,
		Labels:        d.Labels,
		Schedule:      definitionScheduleToPB(d),
		RetryPolicy:   retry,
		BackoffPolicy: recurring,
		Timeout:       durationpb.New(d.Timeout),
		TimeoutGrace:  durationpb.New(d.TimeoutGrace),
		HistoryLimit:  new(int32(d.HistoryLimit)),
		Retention:     durationpb.New(d.Retention),
		DeadLetterTtl: durationpb.New(d.DeadLetterTTL),

		OverlapPolicy:      overlaps.pb(d.Overlap),
		OverlapLimit:       int32(d.OverlapLimit),
		MisfirePolicy:      misfireToPB(d.Misfire),
		Locks:              each(d.Locks, lockToPB),
		Target:             d.Target,
		PauseAfterFailures: int32(d.PauseAfter),
		MaxLag:             positive(d.MaxLag),
	}
}

// timeToPB writes an instant, zero as unset.
func timeToPB(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}

// msToPB writes Unix milliseconds, zero and never as unset.
func msToPB(ms int64) *timestamppb.Timestamp {
	if ms == 0 || ms >= job.NeverMS {
		return nil
	}
	return timestamppb.New(time.UnixMilli(ms))
}

// positive writes a duration, zero as unset.
func positive(d time.Duration) *durationpb.Duration {
	if d == 0 {
		return nil
	}
	return durationpb.New(d)
}
