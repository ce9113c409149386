package registry

import (
	"context"

	"github.com/fermata-io/fermata/internal/core/job"
)

// FindVisibleJobs returns which of these jobs exist and may be seen by the caller. It reads nothing for a caller who
// may see all jobs: then all of them count as visible.
func (r *Registry) FindVisibleJobs(ctx context.Context, keys []job.Key) (map[job.Key]bool, error) {
	v := r.newVisibility(ctx)
	for _, key := range keys {
		v.ask(key)
	}
	if err := v.read(ctx); err != nil {
		return nil, err
	}
	visible := make(map[job.Key]bool, len(keys))
	for _, key := range keys {
		visible[key] = v.sees(key)
	}
	return visible, nil
}

// hideHolders removes from an explanation's inputs the jobs of the namespace that the caller may not see: holders of
// what the job and its runs wait for, and the job whose failure the target's wait comes from, with its error.
func (r *Registry) hideHolders(ctx context.Context, record *job.Record, children []job.Child, f *job.Facts) error {
	holds := []*job.Hold{&record.State.Held}
	for i := range children {
		holds = append(holds, &children[i].State.Held)
	}
	v, namespace := r.newVisibility(ctx), record.Definition.Namespace
	for _, h := range holds {
		if h.By != "" {
			v.ask(job.Key{Namespace: namespace, ID: h.By})
		}
	}
	failed := job.Key{Namespace: namespace, ID: f.Target.FailedJob}
	if failed.ID != "" {
		v.ask(failed)
	}
	if err := v.read(ctx); err != nil {
		return err
	}
	for i, h := range holds {
		if h.By != "" && !v.sees(job.Key{Namespace: namespace, ID: h.By}) {
			h.By, f.HolderHidden = "", f.HolderHidden || i == 0
		}
	}
	if failed.ID != "" && !v.sees(failed) {
		f.Target.FailedJob, f.Target.Error = "", ""
	}
	return nil
}
