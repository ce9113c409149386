package registry

import (
	"context"
	"errors"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/unixtime"
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

// queueOwner is the identity whose share new settings of a queue are part of; "": of none.
func (r *Registry) queueOwner(ctx context.Context) string {
	if r.o.QueueOwner == nil {
		return ""
	}
	return r.o.QueueOwner(ctx)
}

// keepTries is the maximum number of tries to replace settings that others change meanwhile.
const keepTries = 8

func (r *Registry) putQueueSettings(ctx context.Context, q job.QueueKey, c job.QueueChange) (job.QueueSettings, error) {
	s := c.Settings
	s.PauseUntilMS = 0
	keepPause := func(present job.QueueSettings) job.QueueSettings {
		kept := s
		if c.KeepPaused {
			kept.Paused = present.Paused
		}
		if kept.Paused && present.Paused {
			kept.PauseUntilMS = present.PauseUntilMS
		}
		return kept
	}
	switch {
	case c.Expected != nil:
		s = keepPause(*c.Expected)
		r.beginWrite(ctx) // the call waits for it
		return s, r.o.SharedLimits.SwapQueueSettings(ctx, q, *c.Expected, s, r.queueOwner(ctx))
	case !c.KeepPaused && !s.Paused:
		r.beginWrite(ctx)
		return s, r.o.SharedLimits.PutQueueSettings(ctx, q, s, r.queueOwner(ctx))
	}
	return r.editQueueSettings(ctx, q, keepPause)
}

// editQueueSettings replaces the settings of a queue by what edit makes of them. It fails if others keep changing them.
func (r *Registry) editQueueSettings(ctx context.Context, q job.QueueKey,
	edit func(job.QueueSettings) job.QueueSettings) (job.QueueSettings, error) {
	for try := 1; ; try++ {
		present, err := r.o.SharedLimits.ReadQueueSettings(ctx, q)
		if err != nil {
			return present, err
		}
		s := edit(present)
		r.beginWrite(ctx)
		err = r.o.SharedLimits.SwapQueueSettings(ctx, q, present, s, r.queueOwner(ctx))
		if !errors.Is(err, job.ErrSettingsChanged) || try == keepTries {
			return s, err
		}
	}
}

// PauseQueue pauses a queue: until an instant or, if that is 0, until it is resumed. Its limits stay as they are.
func (r *Registry) PauseQueue(ctx context.Context, q job.QueueKey, until unixtime.Milli) (job.QueueSettings, error) {
	if v := job.ValidateQueue(q); len(v) > 0 {
		return job.QueueSettings{}, &job.InvalidError{Violations: v}
	}
	if until != 0 {
		now, err := r.o.Store.Now(ctx, job.PauseClockShard)
		switch {
		case err != nil:
			return job.QueueSettings{}, err
		case until <= now:
			return job.QueueSettings{}, job.Invalid("until_time", "has passed")
		case until.Sub(now) > job.MaxQueuePause:
			return job.QueueSettings{}, job.Invalid("until_time", "is more than 366 days ahead")
		}
	}
	settings, err := r.editQueueSettings(ctx, q, func(present job.QueueSettings) job.QueueSettings {
		present.Paused, present.PauseUntilMS = true, until
		return present
	})
	if err == nil && r.o.SettingsChanged != nil {
		r.o.SettingsChanged()
	}
	return settings, err
}
