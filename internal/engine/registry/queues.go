package registry

import (
	"context"
	"errors"

	"github.com/fermata-io/fermata/internal/core/job"
)

// QueueSettings are the settings of a queue; zero where it has none.
func (r *Registry) QueueSettings(ctx context.Context, q job.QueueKey) (job.QueueSettings, error) {
	if v := job.ValidateQueue(q); len(v) > 0 {
		return job.QueueSettings{}, &job.InvalidError{Violations: v}
	}
	return r.o.SharedLimits.ReadQueueSettings(ctx, q)
}

// SetQueueSettings replaces the settings of a queue, and returns the new ones. Nodes apply them within a
// second or two. Zero settings delete those of the queue. It returns job.ErrSettingsChanged if the present
// settings are not the expected ones, or if others keep changing them while KeepPaused is set.
func (r *Registry) SetQueueSettings(ctx context.Context, q job.QueueKey, c job.QueueChange) (job.QueueSettings, error) {
	if v := append(job.ValidateQueue(q), job.ValidateQueueSettings(c.Settings)...); len(v) > 0 {
		return job.QueueSettings{}, &job.InvalidError{Violations: v}
	}
	settings, err := r.putQueueSettings(ctx, q, c)
	if err == nil && r.o.SettingsChanged != nil {
		r.o.SettingsChanged()
	}
	return settings, err
}

// keepTries is the maximum number of tries to replace settings that others change meanwhile.
const keepTries = 8

func (r *Registry) putQueueSettings(ctx context.Context, q job.QueueKey, c job.QueueChange) (job.QueueSettings, error) {
	s := c.Settings
	switch {
	case c.Expected != nil:
		if c.KeepPaused {
			s.Paused = c.Expected.Paused
		}
		r.beginWrite(ctx) // the call waits for it
		return s, r.o.SharedLimits.SwapQueueSettings(ctx, q, *c.Expected, s)
	case !c.KeepPaused:
		r.beginWrite(ctx)
		return s, r.o.SharedLimits.PutQueueSettings(ctx, q, s)
	}
	for try := 1; ; try++ {
		present, err := r.o.SharedLimits.ReadQueueSettings(ctx, q)
		if err != nil {
			return s, err
		}
		s.Paused = present.Paused
		r.beginWrite(ctx)
		err = r.o.SharedLimits.SwapQueueSettings(ctx, q, present, s)
		if !errors.Is(err, job.ErrSettingsChanged) || try == keepTries {
			return s, err
		}
	}
}
