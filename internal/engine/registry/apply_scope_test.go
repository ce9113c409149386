package registry

import (
	"errors"
	"testing"

	"github.com/fermata-io/fermata/internal/core/job"
)

var errOtherQueue = errors.New("the job is of another queue")

// refuseOutside allows desired states for jobs of one queue, and for those that are not there.
func refuseOutside(queue string) func(*job.Definition) error {
	return func(present *job.Definition) error {
		if present != nil && present.Queue != queue {
			return errOtherQueue
		}
		return nil
	}
}

// victim stores a job of queue web, and makes the desired jobs of a caller of queue mail for it: to
// take it with its payload, and to delete it.
func victim(t *testing.T) (f *fake, r *Registry, take, remove job.DesiredJob) {
	t.Helper()
	f, r = newFake(t)
	mustCreate(t, r, "ping", "")
	mustUpdate(t, r, func(d *job.Definition) { d.Queue = "web" })
	stored, err := r.Get(t.Context(), ping)
	if err != nil {
		t.Fatal(err)
	}
	d := *stored.Definition
	d.Queue, d.Payload = "mail", nil
	etag := stored.Definition.Etag()
	take = job.DesiredJob{Definition: d, AsRead: true, Etag: etag, Check: refuseOutside("mail")}
	remove = job.DesiredJob{Definition: job.Definition{Key: ping}, Delete: true, Etag: etag, Check: refuseOutside("mail")}
	return f, r, take, remove
}

// TestDesiredJobsOutsideTheirQueueChangeNothing, whatever else is wrong with the call, and however
// often a job is named.
func TestDesiredJobsOutsideTheirQueueChangeNothing(t *testing.T) {
	f, r, take, remove := victim(t)
	wrong := take
	wrong.Etag = "x"
	fresh := take
	fresh.Etag = ""
	before := f.records[ping]
	for name, desiredJobs := range map[string][]job.DesiredJob{
		"take": {take}, "take twice": {take, take}, "take, wrong etag": {wrong, wrong}, "create twice": {fresh, fresh},
		"delete": {remove}, "delete twice": {remove, remove}, "take and delete": {take, remove}, "delete and take": {remove, take},
	} {
		planned := r.PlanJobs(t.Context(), desiredJobs, true)
		applied := r.ApplyJobs(t.Context(), desiredJobs, true)
		for i := range desiredJobs {
			if a := planned[i]; a.Err == nil || a.Before != nil || a.After != nil {
				t.Errorf("%s: desired job %d is planned as %+v", name, i, a)
			}
			a := applied[i]
			if a.Err == nil || a.Before != nil || a.After != nil || i == 0 && !errors.Is(a.Err, errOtherQueue) {
				t.Errorf("%s: desired job %d is answered by %+v", name, i, a)
			}
			if i > 0 && violated(a.Err) != "job_id" {
				t.Errorf("%s: the second desired state for a job: %v", name, a.Err)
			}
		}
	}
	if now, ok := f.records[ping]; !ok || now.Definition != before.Definition || now.State.Deleting {
		t.Errorf("the job is %+v", now)
	}
}

// TestDesiredJobsThatCannotBeCheckedAreRefused: a call that reads too much, or cannot read, does
// nothing, and its errors are answered as they are.
func TestDesiredJobsThatCannotBeCheckedAreRefused(t *testing.T) {
	f, r, take, remove := victim(t)
	large := storeCopy(f, ping, "large", maxRead+1)
	for _, desiredJob := range []job.DesiredJob{take, remove} {
		answers := r.ApplyJobs(t.Context(), []job.DesiredJob{desiredJob, {Definition: large, Check: refuseOutside("mail")}}, true)
		for i, a := range answers {
			if !errors.Is(a.Err, job.ErrTooLarge) || a.Before != nil {
				t.Errorf("too large: desired job %d is answered by %+v", i, a)
			}
		}
		f.err = job.ErrUnavailable
		if a := r.ApplyJobs(t.Context(), []job.DesiredJob{desiredJob}, true)[0]; !errors.Is(a.Err, job.ErrUnavailable) || a.Before != nil {
			t.Errorf("without a store: %+v", a)
		}
		f.err = nil
	}
	if now := f.records[ping]; now.Definition == nil || now.Definition.Queue != "web" || now.State.Deleting {
		t.Errorf("the job is %+v", now)
	}
}

// storeCopy stores a copy of a job, with a payload of some size.
func storeCopy(f *fake, key job.Key, id string, size int) job.Definition {
	record := f.records[key]
	d := *record.Definition
	d.ID, d.Payload = id, make([]byte, size)
	record.Definition = &d
	f.records[d.Key] = record
	return d
}

// TestDesiredJobsMeetAMoveToAnotherQueue between reading the job and writing it: they neither
// change the job nor show it.
func TestDesiredJobsMeetAMoveToAnotherQueue(t *testing.T) {
	for name, choose := range map[string]func(take, remove job.DesiredJob) job.DesiredJob{
		"update":            func(take, _ job.DesiredJob) job.DesiredJob { return take },
		"pause":             func(take, _ job.DesiredJob) job.DesiredJob { take.Pause = true; return take },
		"update and resume": func(take, _ job.DesiredJob) job.DesiredJob { take.Resume = true; return take },
		"delete":            func(_, remove job.DesiredJob) job.DesiredJob { return remove },
	} {
		f, r, take, remove := victim(t)
		mustUpdate(t, r, func(d *job.Definition) { d.Queue = "mail" })
		desiredJob := choose(take, remove)
		desiredJob.Etag = f.records[ping].Definition.Etag()
		desiredJob.Definition.Handler = "other"
		f.meddle = func() { mustUpdate(t, r, func(d *job.Definition) { d.Queue = "web" }) }
		a := r.ApplyJobs(t.Context(), []job.DesiredJob{desiredJob}, true)[0]
		if !errors.Is(a.Err, errOtherQueue) || a.Before != nil || a.After != nil {
			t.Errorf("%s: answered by %+v", name, a)
		}
		if now := f.records[ping]; now.Definition == nil || now.Definition.Queue != "web" || now.Definition.Handler == "other" || now.State.Deleting {
			t.Errorf("%s: the job is %+v", name, now)
		}
	}
}

// TestUpdatesAreCheckedBeforeTheyAreAnswered: neither a wrong etag nor a repeated request
// shows a job of another queue, nor does a job that is moved before the write.
func TestUpdatesAreCheckedBeforeTheyAreAnswered(t *testing.T) {
	f, r, _, _ := victim(t)
	check := refuseOutside("mail")
	u := job.UpdateRequest{
		Key: ping, Merge: merge(func(d *job.Definition) { d.Handler = "other" }), RequestID: "u1",
		Check: func(d job.Definition) error { return check(&d) },
	}
	refused := func(name string) {
		t.Helper()
		if got, err := r.Update(t.Context(), u); !errors.Is(err, errOtherQueue) || got.Definition != nil {
			t.Errorf("%s: %+v, %v", name, got.Definition, err)
		}
	}
	u.Etag = "x"
	refused("a wrong etag")
	u.Etag = ""
	mustUpdate(t, r, func(d *job.Definition) { d.Queue = "mail" })
	f.meddle = func() { mustUpdate(t, r, func(d *job.Definition) { d.Queue = "web" }) }
	refused("moved before the write")
	if f.records[ping].Definition.Handler == "other" {
		t.Error("a job of another queue is changed")
	}
	mustUpdate(t, r, func(d *job.Definition) { d.Queue = "mail" })
	if _, err := r.Update(t.Context(), u); err != nil {
		t.Fatal(err)
	}
	mustUpdate(t, r, func(d *job.Definition) { d.Queue = "web" })
	refused("a repeated request")
}
