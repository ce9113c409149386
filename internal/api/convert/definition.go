package convert

import (
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/fermata-io/fermata/internal/core/backoff"
	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/schedule"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// Reader translates a message and gathers what cannot be translated. What can,
// but is out of bounds, is left to [job.Validate].
type Reader struct {
	violations []job.Violation
	// Defaults are those of the operator; nil: there are none.
	Defaults *backoff.Defaults
	// DoubtfulFields are the policy fields whose values differ from those of the claimed sources: a default has
	// changed since the message was read, or the value was edited.
	DoubtfulFields backoff.FieldSet
	// RefreshDefaults: values that are claimed not to be a job's own do not count.
	RefreshDefaults bool
}

func (r *Reader) Err() error {
	if len(r.violations) == 0 {
		return nil
	}
	return &job.InvalidError{Violations: r.violations}
}

func (r *Reader) Reject(field, description string) {
	if len(r.violations) < job.MaxViolations {
		r.violations = append(r.violations, job.Violation{Field: field, Description: description})
	}
}

// readDuration reads a duration; an unset one is byDefault.
func (r *Reader) readDuration(message, field string, d *durationpb.Duration, byDefault time.Duration) time.Duration {
	if d == nil {
		return byDefault
	}
	if err := d.CheckValid(); err != nil {
		r.Reject(message+field, "is not a valid duration")
	}
	return d.AsDuration()
}

// Begin reads a time at which something may begin, rounded up to the precision that is
// stored; unset is zero.
func (r *Reader) Begin(message, field string, t *timestamppb.Timestamp) time.Time {
	return schedule.RoundUp(r.readTimestamp(message, field, t))
}

// End reads a time at which something ends, rounded down to the precision that is stored;
// unset is zero.
func (r *Reader) End(message, field string, t *timestamppb.Timestamp) time.Time {
	return schedule.RoundDown(r.readTimestamp(message, field, t))
}

// readTimestamp reads a timestamp as it is given; unset is zero.
func (r *Reader) readTimestamp(message, field string, t *timestamppb.Timestamp) time.Time {
	if t == nil {
		return time.Time{}
	}
	if err := t.CheckValid(); err != nil {
		r.Reject(message+field, "is not a valid timestamp")
	}
	return t.AsTime()
}

// Definition reads a job. Unset fields get the defaults that job.proto names, or those of the
// operator in their place.
func (r *Reader) Definition(key job.Key, j *fermatav1.Job) job.Definition {
	d := job.WithDefaults(job.Definition{Schedule: r.Schedule("job.schedule", j.GetSchedule())})
	d.Key = key
	if j.GetQueue() != "" {
		d.Queue = j.GetQueue()
	}
	d.Handler, d.Payload, d.Labels = j.GetHandler(), r.payload(j), j.GetLabels()
	d.Priority, d.HistoryLimit = job.DefaultPriority, job.DefaultHistoryLimit
	if j != nil && j.Priority != nil {
		d.Priority = r.clampPriority(*j.Priority)
	}
	if j != nil && j.HistoryLimit != nil {
		d.HistoryLimit = int(*j.HistoryLimit)
	}
	r.Policies("job.", &d, j.GetRetryPolicy(), j.GetBackoffPolicy())
	r.runPolicies(&d, j)
	d.Timeout = r.readDuration("job.timeout", "", j.GetTimeout(), d.Timeout)
	d.TimeoutGrace = r.readDuration("job.timeout_grace", "", j.GetTimeoutGrace(), d.TimeoutGrace)
	d.Retention = r.readDuration("job.retention", "", j.GetRetention(), d.Retention)
	d.DeadLetterTTL = r.readDuration("job.dead_letter_ttl", "", j.GetDeadLetterTtl(), d.DeadLetterTTL)
	return d
}

func (r *Reader) clampPriority(p int32) uint8 {
	if p < 0 || p > 255 {
		return 255 // out of bounds all the same
	}
	return uint8(p)
}

// RejectSealed refuses to register a job as it was read while its payload was sealed:
// what it would be given is not its payload.
func (r *Reader) RejectSealed(j *fermatav1.Job) {
	if j.GetPayloadSealed() || j.GetPayloadKeyId() != "" {
		r.Reject("job.payload_sealed",
			"a sealed payload is taken by RestoreJobs only (fermata import --states); "+
				"give the payload itself, and leave payload_sealed and payload_key_id unset")
	}
}

// DefinitionToPB writes the part of a job that clients set. A payload that is sealed
// is written as it is stored, for backups.
func DefinitionToPB(d *job.Definition) *fermatav1.Job {
	p := ownFieldsToPB(d)
	addSharedFields(p, d)
	return p
}

// ownFieldsToPB writes the fields in which the jobs of a program usually differ.
func ownFieldsToPB(d *job.Definition) *fermatav1.Job {
	p := &fermatav1.Job{
		Name:     JobName(d.Key),
		Handler:  d.Handler,
		Payload:  d.Payload,
		Labels:   d.Labels,
		Schedule: definitionScheduleToPB(d),
		Locks:    Map(d.Locks, lockToPB),
		Target:   d.Target,
	}
	if d.PayloadKey != "" {
		p.PayloadSealed, p.PayloadKeyId, p.PayloadSize = true, d.PayloadKey, int64(d.PayloadSize())
	}
	return p
}

// addSharedFields writes the other fields, which are usually the same in many jobs: see [CompactWriter].
func addSharedFields(p *fermatav1.Job, d *job.Definition) {
	p.Queue, p.Priority = d.Queue, new(int32(d.Priority))
	p.RetryPolicy, p.BackoffPolicy = policiesToPB(d)
	p.Timeout, p.TimeoutGrace = durationpb.New(d.Timeout), durationpb.New(d.TimeoutGrace)
	p.HistoryLimit = new(int32(d.HistoryLimit))
	p.Retention, p.DeadLetterTtl = durationpb.New(d.Retention), durationpb.New(d.DeadLetterTTL)
	p.OverlapPolicy, p.OverlapLimit = OverlapPolicies.ToPB(d.Overlap), int32(d.OverlapLimit)
	p.MisfirePolicy = misfireToPB(d.Misfire)
	p.PauseAfterFailures = int32(d.PauseAfter)
	p.MaxLag = nonZeroDurationToPB(d.MaxLag)
}
