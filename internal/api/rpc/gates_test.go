package rpc

import (
	"context"
	"errors"
	"slices"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/fermata-io/fermata/internal/core/authz"
	"github.com/fermata-io/fermata/internal/core/backoff"
	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/unixtime"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// The fakes of the tests share what they answer.

func (f *fakeJobs) ListTargets(_ context.Context, filter job.Filter, _ int, _ string) (job.TargetPage, error) {
	f.filter = filter
	circuit := backoff.Circuit{Failures: 2, SinceMS: 1000, OpenUntilMS: 9000, Probe: "p", ProbeUntilMS: 6000, FailedJob: "ping", Error: "503"}
	ping := job.Key{Namespace: "default", ID: "ping"}
	target := job.Target{Namespace: "default", Name: "api:443", Circuit: circuit, NowMS: 5000, FailedJob: ping, ProbeJob: ping, Jobs: 3, Held: 2}
	closed, open, half := target, target, target
	closed.Circuit, closed.FailedJob = backoff.Circuit{}, job.Key{}
	open.NowMS, open.Circuit.ProbeUntilMS = 7000, 0
	half.NowMS = 9000
	return job.TargetPage{Targets: []job.Target{target, closed, open, half}, Next: "more"}, f.err
}

func (f *fakeJobs) ProbeTarget(_ context.Context, namespace, target string) (job.ReleasedRuns, error) {
	f.note = namespace + " " + target
	return job.ReleasedRuns{Job: job.Key{Namespace: namespace, ID: "ping"}, Released: 1}, f.err
}

func (f *fakeJobs) ResetTarget(_ context.Context, namespace, target, token string) (job.ReleasedRuns, error) {
	f.note = namespace + " " + target + " " + token
	return job.ReleasedRuns{Released: 7, Next: "n"}, f.err
}

func (f *fakeJobs) ListLocks(_ context.Context, filter job.Filter, _ int, _ string) (job.LockPage, error) {
	f.filter = filter
	ping := job.Key{Namespace: "default", ID: "ping"}
	return job.LockPage{Locks: []job.LockStatus{{
		Namespace: "default", Key: "ledger", Capacity: 2, Held: 2, Waiting: 1, Jobs: 4,
		Holders: []job.LockHolder{{Job: ping, RunID: "1-5", Worker: "w-1", SinceMS: 1, EndMS: 2}, {SinceMS: 3, EndMS: 4}},
		Waiters: []job.LockWaiter{{ReservedMS: 9}},
	}}}, f.err
}

func (f *fakeJobs) FindVisibleJobs(context.Context, []job.Key) (map[job.Key]bool, error) {
	return nil, f.err
}

func (f *fakeJobs) DiscardDeadLetter(_ context.Context, record job.RecordID, runID string) error {
	f.note = string(record) + " " + runID
	return f.err
}

func (f *fakeJobs) PauseQueue(_ context.Context, q job.QueueKey, until unixtime.Milli) (job.QueueSettings, error) {
	return job.QueueSettings{Rate: 5, Paused: true, PauseUntilMS: until}, f.err
}

func (a anyJobs) PauseQueue(context.Context, job.QueueKey, unixtime.Milli) (job.QueueSettings, error) {
	return job.QueueSettings{Paused: true}, nil
}

func (f *twoQueues) PauseQueue(_ context.Context, q job.QueueKey, _ unixtime.Milli) (job.QueueSettings, error) {
	f.selects(job.Filter{Queue: q.Queue})
	return job.QueueSettings{}, nil
}

func (a anyJobs) ListTargets(context.Context, job.Filter, int, string) (job.TargetPage, error) {
	return job.TargetPage{Targets: []job.Target{{Namespace: "n", Name: "t"}}}, nil
}

func (a anyJobs) ProbeTarget(_ context.Context, namespace, target string) (job.ReleasedRuns, error) {
	return job.ReleasedRuns{Target: job.Target{Namespace: namespace, Name: target}}, nil
}

func (a anyJobs) ResetTarget(_ context.Context, namespace, target, _ string) (job.ReleasedRuns, error) {
	return job.ReleasedRuns{Target: job.Target{Namespace: namespace, Name: target}}, nil
}

func (a anyJobs) ListLocks(context.Context, job.Filter, int, string) (job.LockPage, error) {
	return job.LockPage{}, nil
}

func (a anyJobs) FindVisibleJobs(context.Context, []job.Key) (map[job.Key]bool, error) {
	return nil, nil
}

func (a anyJobs) DiscardDeadLetter(context.Context, job.RecordID, string) error { return nil }

func (f *twoQueues) ListTargets(_ context.Context, filter job.Filter, _ int, _ string) (job.TargetPage, error) {
	var page job.TargetPage
	for _, r := range []job.Record{theirs, mine} {
		if filter.CoversAll(r.Definition.Queue) {
			page.Targets = append(page.Targets, job.Target{Namespace: r.Definition.Namespace, Name: r.Definition.ID})
		}
	}
	return page, nil
}

func (f *twoQueues) ProbeTarget(context.Context, string, string) (job.ReleasedRuns, error) {
	f.t.Error("a target was probed without all queues")
	return job.ReleasedRuns{}, nil
}

func (f *twoQueues) ResetTarget(context.Context, string, string, string) (job.ReleasedRuns, error) {
	f.t.Error("a target was reset without all queues")
	return job.ReleasedRuns{}, nil
}

func (f *twoQueues) ListLocks(_ context.Context, filter job.Filter, _ int, _ string) (job.LockPage, error) {
	var page job.LockPage
	for _, r := range []job.Record{theirs, mine} {
		if filter.CoversAll(r.Definition.Queue) {
			page.Locks = append(page.Locks, job.LockStatus{Namespace: r.Definition.Namespace, Key: r.Definition.ID})
		}
	}
	return page, nil
}

func (f *twoQueues) DiscardDeadLetter(_ context.Context, record job.RecordID, _ string) error {
	_, err := f.reached(record.Key())
	return err
}

// TestTargetsAndLocksOverTheWire: states of circuits follow from their instants and their clock.
func TestTargetsAndLocksOverTheWire(t *testing.T) {
	b := serve(t)
	jobs := fermatav1.NewJobServiceClient(b.conn)
	r, err := jobs.ListTargets(t.Context(), &fermatav1.ListTargetsRequest{Parent: "namespaces/default"})
	if err != nil {
		t.Fatal(err)
	}
	var states []fermatav1.Target_State
	for _, g := range r.GetTargets() {
		states = append(states, g.GetState())
	}
	if want := []fermatav1.Target_State{fermatav1.Target_STATE_PROBING, fermatav1.Target_STATE_CLOSED, fermatav1.Target_STATE_OPEN,
		fermatav1.Target_STATE_HALF_OPEN}; !slices.Equal(states, want) || r.GetNextPageToken() != "more" {
		t.Errorf("states %v, want %v", states, want)
	}
	g := r.GetTargets()[0]
	if g.GetParent() != "namespaces/default" || g.GetTarget() != "api:443" || g.GetFailedJob() != "namespaces/default/jobs/ping" ||
		g.GetProbeJob() != g.GetFailedJob() || g.GetError() != "503" || g.GetJobs() != 3 || g.GetHeldJobs() != 2 ||
		g.GetOpenUntilTime().GetSeconds() != 9 || g.GetProbeUntilTime().GetSeconds() != 6 || g.GetSinceTime().GetSeconds() != 1 {
		t.Errorf("%v", g)
	}
	if p := r.GetTargets()[3]; p.GetProbeJob() != "" || p.GetProbeUntilTime() != nil {
		t.Errorf("a probe that is not awaited any more: %v", p)
	}
	probed, err := jobs.ProbeTarget(t.Context(), &fermatav1.ProbeTargetRequest{Parent: "namespaces/n", Target: "a/b"})
	if err != nil || probed.GetJob() != "namespaces/n/jobs/ping" || b.jobs.note != "n a/b" {
		t.Errorf("%v, %q: %v", probed, b.jobs.note, err)
	}
	reset, err := jobs.ResetTarget(t.Context(), &fermatav1.ResetTargetRequest{Parent: "namespaces/n", Target: "t", PageToken: "x"})
	if err != nil || reset.GetReleased() != 7 || reset.GetNextPageToken() != "n" || b.jobs.note != "n t x" {
		t.Errorf("%v, %q: %v", reset, b.jobs.note, err)
	}
	locks, err := jobs.ListLocks(t.Context(), &fermatav1.ListLocksRequest{Parent: "namespaces/-"})
	if err != nil || !b.jobs.filter.AllNamespaces {
		t.Fatal(err)
	}
	l := locks.GetLocks()[0]
	if l.GetHolders()[0].GetRun() != "namespaces/default/jobs/ping/runs/1-5" || l.GetHolders()[1].GetJob() != "" ||
		l.GetHolders()[1].GetRun() != "" || l.GetHolders()[0].GetWorker() != "w-1" || l.GetWaiters()[0].GetJob() != "" || l.GetWaiters()[0].GetSinceTime() != nil ||
		l.GetCapacity() != 2 || l.GetHeld() != 2 || l.GetWaiting() != 1 || l.GetJobs() != 4 {
		t.Errorf("%v", l)
	}
	_, err = jobs.DiscardDeadLetter(t.Context(), &fermatav1.DiscardDeadLetterRequest{Name: "namespaces/n/jobs/j/deadLetters/1", RunId: "1-7"})
	if err != nil || b.jobs.note != "n/j#d1 1-7" {
		t.Errorf("%q: %v", b.jobs.note, err)
	}
	b.jobs.err = &job.MissingPartError{Key: job.Key{Namespace: "n", ID: "j"}, Collection: "deadLetters", ID: "1"}
	_, err = jobs.DiscardDeadLetter(t.Context(), &fermatav1.DiscardDeadLetterRequest{Name: "namespaces/n/jobs/j/deadLetters/1"})
	if status.Code(err) != codes.NotFound || errors.Is(err, job.ErrNotFound) {
		t.Errorf("%v", err)
	}
}

// TestTargetsOfOneNamespace: a role in one namespace lists targets and locks of all namespaces within it, and changes
// no target of another one.
func TestTargetsOfOneNamespace(t *testing.T) {
	b := serveGated(t, Options{Authority: newAuthority(t, authz.Limits{}, allow(authz.Operator, "team-a", "ann"))})
	jobs := fermatav1.NewJobServiceClient(b.dial(t))
	for _, list := range []func() error{
		func() error {
			_, err := jobs.ListTargets(as(t.Context(), "ann"), &fermatav1.ListTargetsRequest{Parent: "namespaces/-"})
			return err
		},
		func() error {
			_, err := jobs.ListLocks(as(t.Context(), "ann"), &fermatav1.ListLocksRequest{Parent: "namespaces/-"})
			return err
		},
	} {
		b.jobs.filter = job.Filter{}
		if err := list(); err != nil {
			t.Fatal(err)
		}
		scope := b.jobs.filter.Scope
		if scope == nil || !scope(job.QueueKey{Namespace: "team-a", Queue: "q"}) || scope(job.QueueKey{Namespace: "team-b", Queue: "q"}) {
			t.Errorf("selected are %+v", b.jobs.filter)
		}
	}
	for _, parent := range []string{"namespaces/team-b", "namespaces/-"} {
		_, err := jobs.ResetTarget(as(t.Context(), "ann"), &fermatav1.ResetTargetRequest{Parent: parent, Target: "t"})
		if status.Code(err) != codes.PermissionDenied {
			t.Errorf("reset in %s: %v", parent, err)
		}
		_, err = jobs.ProbeTarget(as(t.Context(), "ann"), &fermatav1.ProbeTargetRequest{Parent: parent, Target: "t"})
		if status.Code(err) != codes.PermissionDenied {
			t.Errorf("probe in %s: %v", parent, err)
		}
	}
}

// TestPauseQueueUntil: the end of a pause goes to the engine and back, and only a valid time does.
func TestPauseQueueUntil(t *testing.T) {
	b := serve(t)
	jobs := fermatav1.NewJobServiceClient(b.conn)
	q := &fermatav1.PauseQueueRequest{Name: "namespaces/n/queues/q", UntilTime: &timestamppb.Timestamp{Seconds: 7, Nanos: 1_999_999}}
	s, err := jobs.PauseQueue(t.Context(), q)
	if err != nil || !s.GetPaused() || s.GetPauseUntilTime().AsTime().UnixMilli() != 7001 || s.GetRate() != 5 {
		t.Errorf("%v, %v", s, err)
	}
	q.UntilTime = nil
	if s, err = jobs.PauseQueue(t.Context(), q); err != nil || !s.GetPaused() || s.GetPauseUntilTime() != nil {
		t.Errorf("%v, %v", s, err)
	}
	q.UntilTime = &timestamppb.Timestamp{Nanos: -1}
	if _, err := jobs.PauseQueue(t.Context(), q); status.Code(err) != codes.InvalidArgument || !slices.Contains(fields(err), "until_time") {
		t.Errorf("%v", err)
	}
}
