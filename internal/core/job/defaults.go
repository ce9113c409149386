package job

import (
	"bytes"
	"maps"
	"slices"
	"time"

	"github.com/fermata-io/fermata/internal/core/backoff"
)

// Defaults of a definition.
const (
	DefaultNamespace    = "default"
	DefaultQueue        = "default"
	DefaultPriority     = 5
	DefaultHistoryLimit = 10

	DefaultTimeout       = 30 * time.Second
	DefaultTimeoutGrace  = 5 * time.Second
	DefaultRetention     = time.Hour
	DefaultDeadLetterTTL = 7 * 24 * time.Hour
)

// MaxPriority is the highest lane of a queue.
const MaxPriority = 9

// WithDefaults replaces zero fields by their defaults. Priority and HistoryLimit stay as they are, because zero
// is valid there. A caller for whom an explicit zero of another field differs from an unset one calls
// WithDefaults first and then sets the zero.
func WithDefaults(d Definition) Definition {
	if d.Namespace == "" {
		d.Namespace = DefaultNamespace
	}
	if d.Queue == "" {
		d.Queue = DefaultQueue
	}
	if d.Retry == (backoff.Retry{}) {
		d.Retry = DefaultRetry(d)
	}
	if d.Backoff == (backoff.Recurring{}) {
		d.Backoff = backoff.DefaultRecurring()
	}
	d.Locks = slices.Clone(d.Locks)
	for i := range d.Locks {
		if d.Locks[i].Limit == 0 {
			d.Locks[i].Limit = 1
		}
	}
	d.Timeout = orDefault(d.Timeout, DefaultTimeout)
	d.TimeoutGrace = orDefault(d.TimeoutGrace, DefaultTimeoutGrace)
	d.Retention = orDefault(d.Retention, DefaultRetention)
	d.DeadLetterTTL = orDefault(d.DeadLetterTTL, DefaultDeadLetterTTL)
	return d
}

// DefaultRetry returns the retry policy of a job that names none: recurring jobs are
// paced by their backoff policy and have one attempt a run, others have three.
func DefaultRetry(d Definition) backoff.Retry {
	retry := backoff.DefaultRetry()
	if d.Recurring() {
		retry.MaxAttempts = 1
	}
	return retry
}

func orDefault(d, byDefault time.Duration) time.Duration {
	if d == 0 {
		return byDefault
	}
	return d
}

// FirstDay returns the local day that the periods of a calendar schedule are counted from, "" for other kinds.
func (d *Definition) FirstDay() string { return d.Schedule.FirstDay(d.AnchorMS.Time()) }

// WithFirstDay returns the definition with the first day of a calendar schedule, which otherwise changes with the
// anchor of the schedule.
func (d *Definition) WithFirstDay() Definition {
	out := *d
	if day := d.FirstDay(); day != "" {
		out.Schedule.Calendar.From = day
	}
	return out
}

// KeepFirstDay removes the first day of a calendar from a definition that differs from the stored one only by
// naming its default day: responses include that day, and a client that sends one back has changed nothing.
func (d *Definition) KeepFirstDay(stored *Definition) {
	if stored.Schedule.Calendar.From != "" || d.Schedule.Calendar.From == "" ||
		d.Schedule.Calendar.From != stored.FirstDay() {
		return
	}
	same := d.Schedule
	same.Calendar.From = ""
	if same.EqualButJitter(stored.Schedule) {
		d.Schedule = same
	}
}

// Equal reports whether two definitions are equal in everything that a user can set. Fields that Fermata keeps
// are ignored.
func (d *Definition) Equal(o *Definition) bool {
	return d.Key == o.Key &&
		d.Queue == o.Queue && d.Priority == o.Priority && d.Handler == o.Handler &&
		bytes.Equal(d.Payload, o.Payload) && d.PayloadKey == o.PayloadKey && maps.Equal(d.Labels, o.Labels) &&
		d.Schedule.Equal(o.Schedule) && d.Retry == o.Retry && d.Backoff == o.Backoff &&
		d.MinInterval == o.MinInterval && d.MaxInterval == o.MaxInterval &&
		d.Overlap == o.Overlap && d.OverlapLimit == o.OverlapLimit && d.Misfire == o.Misfire &&
		slices.Equal(d.Locks, o.Locks) && d.Target == o.Target && d.PauseAfter == o.PauseAfter &&
		d.MaxLag == o.MaxLag &&
		d.Timeout == o.Timeout && d.TimeoutGrace == o.TimeoutGrace &&
		d.HistoryLimit == o.HistoryLimit && d.Retention == o.Retention && d.DeadLetterTTL == o.DeadLetterTTL
}
