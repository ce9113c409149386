package registry

import (
	"context"

	"github.com/fermata-io/fermata/internal/job"
)

// QueueSettings are the limits of a queue; zero where it has none.
func (r *Registry) QueueSettings(ctx context.Context, q job.QueueKey) (job.QueueSettings, error) {
	if v := job.ValidateQueue(q); len(v) > 0 {
		return job.QueueSettings{}, &job.InvalidError{Violations: v}
	}
	all, err := r.o.Store.QueueSettings(ctx)
	return all[q], err
}

// SetQueueSettings replaces the limits of a queue. Nodes follow within a second or
// two. Zero settings forget it. When expected is not nil, other settings are not
// replaced: job.ErrSettingsChanged.
func (r *Registry) SetQueueSettings(ctx context.Context, q job.QueueKey, s job.QueueSettings, expected *job.QueueSettings) error {
	if v := append(job.ValidateQueue(q), job.ValidateQueueSettings(s)...); len(v) > 0 {
		return &job.InvalidError{Violations: v}
	}
	var err error
	if expected != nil {
		err = r.o.Store.SwapQueueSettings(ctx, q, *expected, s)
	} else {
		err = r.o.Store.PutQueueSettings(ctx, q, s)
	}
	if err == nil && r.o.SettingsChanged != nil {
		r.o.SettingsChanged()
	}
	return err
}
