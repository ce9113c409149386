package registry

import (
	"context"
	"errors"
	"testing"

	"github.com/fermata-io/fermata/internal/core/job"
)

func (f *fake) Snapshots(_ context.Context, _ int, jobs []job.Record) ([]*job.Snapshot, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := make([]*job.Snapshot, len(jobs))
	for i := range jobs {
		r, ok := f.records[jobs[i].Definition.Key]
		if !ok {
			continue
		}
		out[i] = &job.Snapshot{Record: r}
		for _, slot := range r.State.ChildSlots() {
			out[i].Children = append(out[i].Children, job.Child{Slot: slot, State: f.children[r.Definition.Record().Run(slot)]})
		}
	}
	return out, f.err
}

func (f *fake) Restore(_ context.Context, _ int, jobs []job.Restoration) job.CreateReply {
	f.mu.Lock()
	defer f.mu.Unlock()
	var reply job.CreateReply
	for i := range jobs {
		if f.err != nil {
			return job.CreateReply{Err: f.err}
		}
		if m := f.meddle; m != nil {
			f.meddle = nil
			f.mu.Unlock()
			m()
			f.mu.Lock()
		}
		r := &jobs[i]
		old, there := f.records[r.Record.Definition.Key]
		fits := r.Replaces == nil && !there || r.Replaces != nil && there && old.State.Revision == r.Replaces.Revision
		if !fits {
			result := job.CreateResult{Code: job.Exists}
			if there {
				result.Existing = &old
			}
			reply.Results = append(reply.Results, result)
			continue
		}
		f.records[r.Record.Definition.Key] = r.Record
		for _, p := range r.Children {
			f.children[p.Record] = p.State
		}
		reply.Results = append(reply.Results, job.CreateResult{Code: job.Created})
	}
	return reply
}

func (f *fake) backup(t *testing.T, r *Registry) []job.Backup {
	t.Helper()
	page, err := r.ExportJobs(t.Context(), job.Filter{Namespace: "default"}, 0, "")
	if err != nil || page.Next != "" {
		t.Fatal(page, err)
	}
	return page.Backups
}

func TestRestoreByWhatIsThere(t *testing.T) {
	f, r := newFake(t)
	d := definition("ping")
	if _, err := r.Create(t.Context(), d, ""); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Pause(t.Context(), d.Key, "because"); err != nil {
		t.Fatal(err)
	}
	kept := f.backup(t, r)
	one := func(e job.Existing) job.RestoreAnswer { return r.Restore(t.Context(), kept, e)[0] }
	for _, e := range []job.Existing{job.ExistingFail, job.ExistingSkip, job.ExistingReplace} {
		if a := one(e); a.Err != nil || a.Outcome != job.RestoreUnchanged {
			t.Errorf("the same job, %d: %+v", e, a)
		}
	}
	if _, err := r.Resume(t.Context(), d.Key, false); err != nil {
		t.Fatal(err)
	}
	if a := one(job.ExistingFail); a.Err != nil || a.Outcome != job.RestoreUnchanged || f.records[d.Key].State.Paused {
		t.Errorf("what has gone on is left alone: %+v", a)
	}
	// Somebody changes it while it is replaced.
	f.meddle = func() {
		f.meddle = func() {
			if _, err := r.Pause(t.Context(), d.Key, "by the way"); err != nil {
				t.Error(err)
			}
		}
	}
	revision := f.records[d.Key].State.Revision
	if a := one(job.ExistingReplace); a.Err != nil || a.Outcome != job.RestoreReplaced {
		t.Errorf("replace: %+v", a)
	}
	if s := f.records[d.Key].State; s.PauseNote != "because" || s.Revision != revision+2 {
		t.Errorf("replaced: %+v", s)
	}
	delete(f.records, d.Key)
	if a := one(job.ExistingFail); a.Err != nil || a.Outcome != job.RestoreCreated || f.records[d.Key].State.PauseNote != "because" {
		t.Errorf("new: %+v", a)
	}
	edited := definition("ping")
	edited.Handler = "other"
	if _, err := r.Update(t.Context(), job.UpdateRequest{Key: d.Key, Merge: func(job.Definition) (job.Definition, error) { return edited, nil }}); err != nil {
		t.Fatal(err)
	}
	exists := &job.ExistsError{}
	if a := one(job.ExistingFail); !errors.As(a.Err, &exists) {
		t.Errorf("another definition: %+v", a)
	}
	if a := one(job.ExistingSkip); a.Err != nil || a.Outcome != job.RestoreSkipped || f.records[d.Key].Definition.Handler != "other" {
		t.Errorf("skip: %+v", a)
	}
	etag := f.records[d.Key].Definition.Etag()
	if a := one(job.ExistingReplace); a.Err != nil || f.records[d.Key].Definition.Handler != "http" || f.records[d.Key].Definition.Etag() == etag {
		t.Errorf("replace the definition: %+v", a)
	}
	if _, err := r.Resume(t.Context(), d.Key, false); err != nil {
		t.Fatal(err)
	}
	f.lease(d.Key, 7)
	unfit := &job.PreconditionError{}
	if a := one(job.ExistingReplace); !errors.As(a.Err, &unfit) || unfit.Reason != job.ReasonJobRuns {
		t.Errorf("live: %+v", a)
	}
	live := f.backup(t, r)
	if s := live[0].Checkpoint.State; s.Live() || s.Token != 0 || s.Due == 0 {
		t.Errorf("a live run is due in a checkpoint: %+v", s)
	}
	if err := r.Delete(t.Context(), d.Key, ""); err != nil {
		t.Fatal(err)
	}
	busy := &job.BusyError{}
	if a := one(job.ExistingReplace); !errors.As(a.Err, &busy) {
		t.Errorf("deleted and live: %+v", a)
	}
	if got := f.backup(t, r); len(got) != 0 {
		t.Errorf("a deleted job is exported: %+v", got)
	}
}

func TestRestoreRefusals(t *testing.T) {
	f, r := newFake(t)
	bad := definition("x")
	bad.ID = ""
	good := definition("good")
	answers := r.Restore(t.Context(), []job.Backup{{Definition: bad}, {Definition: good}}, job.ExistingFail)
	invalid := &job.InvalidError{}
	if !errors.As(answers[0].Err, &invalid) || answers[1].Err != nil || answers[1].Outcome != job.RestoreCreated {
		t.Errorf("%+v", answers)
	}
	if a := r.Restore(t.Context(), make([]job.Backup, MaxBatch+1), job.ExistingFail); !errors.As(a[0].Err, &invalid) {
		t.Errorf("%+v", a[0])
	}
	f.err = job.ErrUnavailable
	if a := r.Restore(t.Context(), []job.Backup{{Definition: good}}, job.ExistingFail)[0]; !errors.Is(a.Err, job.ErrUnavailable) {
		t.Errorf("%+v", a)
	}
	if _, err := r.ExportJobs(t.Context(), job.Filter{Namespace: "default"}, 0, ""); !errors.Is(err, job.ErrUnavailable) {
		t.Error(err)
	}
	if _, err := r.ExportJobs(t.Context(), job.Filter{Namespace: "?"}, 0, ""); !errors.As(err, &invalid) {
		t.Error(err)
	}
}
