package worker

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/fermata-io/fermata/internal/lib/precisetimer"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// frozen is a worker with a session that nobody carries, whose process can stand still: its
// timers are late then, and its clock is not.
type frozen struct {
	*Worker
	t     *testing.T
	s     *session
	began []string
}

// newFrozen makes a worker of one slot, with a session of a node that takes heartbeats, or not.
func newFrozen(t *testing.T, sessionTTL time.Duration) *frozen {
	t.Helper()
	precisetimer.UseRuntime()
	w, err := New(Options{Addresses: []string{"127.0.0.1:1"}, Slots: 1})
	if err != nil {
		t.Fatal(err)
	}
	f := &frozen{Worker: w, t: t}
	w.Handle("note", func(_ context.Context, task *Task) error {
		f.began = append(f.began, task.Run)
		return nil
	})
	w.baseContext, w.maxSlotWait = context.Background(), time.Hour
	w.startTimer = precisetimer.New(w.startDue)
	f.s = f.welcomed(1, sessionTTL)
	t.Cleanup(func() {
		w.stopRunners()
		w.runners.Wait()
		w.startTimer.Close()
		w.heartbeatTimer.Stop()
		w.trustTimer.Stop()
		w.lateTimer.Stop()
	})
	return f
}

func (f *frozen) welcomed(epoch int32, sessionTTL time.Duration) *session {
	welcome := &fermatav1.Welcome{LeaseTtl: durationpb.New(30 * time.Second)}
	if sessionTTL > 0 {
		welcome.SessionTtl = durationpb.New(sessionTTL)
	}
	s := &session{
		w: f.Worker, welcome: welcome, contact: &contactTime{}, epoch: epoch, helloAt: time.Now(),
		wake: make(chan struct{}, 1), unresponsive: make(chan struct{}),
	}
	s.ctx, s.cancel = context.WithCancelCause(context.Background())
	f.attachSession(s)
	return s
}

// standStill lets time pass without the worker's timers.
func (f *frozen) standStill(d time.Duration) {
	f.heartbeatTimer.Stop()
	f.trustTimer.Stop()
	f.startTimer.Set(time.Now().Add(24 * time.Hour))
	time.Sleep(d)
}

func (f *frozen) lease(ids ...string) {
	var list []*attempt
	for _, id := range ids {
		list = append(list, &attempt{id: id, task: Task{Handler: "note", Run: id}})
	}
	f.acceptLeases(f.s, list)
}

func (f *frozen) wantBegun(want ...string) {
	f.t.Helper()
	synctest.Wait()
	if !slices.Equal(f.began, want) {
		f.t.Errorf("%q have begun, want %q", f.began, want)
	}
}

// A process that stood still begins nothing on leases that may have ended, in whatever order it
// wakes up, and gives back what it had not begun. That holds for nodes of the build before, too.
func TestNoStartOnLeasesThatMayHaveEnded(t *testing.T) {
	const life = 8 * time.Second
	for name, c := range map[string]struct {
		sessionTTL, trusted time.Duration
	}{
		"heartbeats":    {life, life - life/6},
		"no heartbeats": {0, 18 * time.Second},
	} {
		for what, wake := range map[string]func(*frozen){
			"read from the socket": func(f *frozen) { f.lease("x") },
			"due":                  func(f *frozen) { f.startDue() },
			"acknowledged after it": func(f *frozen) {
				f.handleHeartbeatAck(f.s, &fermatav1.HeartbeatAck{Seq: f.s.heartbeats.seq, Confirmed: true})
				f.lease("x")
				f.handleHeartbeatTimer()
			},
		} {
			t.Run(name+", "+what, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					f := newFrozen(t, c.sessionTTL)
					f.lease("before")
					f.wantBegun("before")
					if what == "due" {
						f.acceptLeases(f.s, []*attempt{{id: "x", task: Task{Handler: "note", Run: "x"},
							startAfter: time.Second}})
					}
					f.standStill(c.trusted)
					wake(f)
					f.wantBegun("before")
					f.checkTrust() // the timer, late
					f.wantBegun("before")
					if !errors.Is(context.Cause(f.s.ctx), errTrustEnded) || f.Ready() == nil {
						t.Errorf("the session goes on: %v, %v", context.Cause(f.s.ctx), f.Ready())
					}
					f.detachSession(f.s)
					hello := f.buildHello(&session{w: f.Worker, ctx: context.Background()})
					if slices.Contains(hello.GetLiveLeaseIds(), "x") || !slices.Contains(f.table.pendingReturns, "x") {
						t.Errorf("live are %q, to be returned %q; want x among these", hello.GetLiveLeaseIds(),
							f.table.pendingReturns)
					}
					f.s = f.welcomed(2, c.sessionTTL)
					f.lease("after")
					f.wantBegun("before", "after")
				})
			})
		}
	}
}

// What waits for a slot begins when its turn comes, or not at all.
func TestNoWaitingStartOnLeasesThatMayHaveEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFrozen(t, 8*time.Second)
		release := make(chan struct{})
		f.handlers["slow"] = f.metrics.newHandler("slow", func(context.Context, *Task) error { <-release; return nil })
		f.acceptLeases(f.s, []*attempt{{id: "slow", task: Task{Handler: "slow", Run: "slow"}}})
		f.lease("waits")
		f.wantBegun()
		f.standStill(10 * time.Second)
		close(release)
		f.wantBegun()
		f.checkTrust()
		f.wantBegun()
		if !slices.Contains(f.table.pendingReturns, "waits") {
			t.Errorf("to be returned are %q", f.table.pendingReturns)
		}
	})
}

// A shorter halt costs nothing.
func TestShortSuspensionKeepsLeases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFrozen(t, 8*time.Second)
		f.standStill(6 * time.Second)
		f.handleHeartbeatAck(f.s, &fermatav1.HeartbeatAck{Seq: 1, Confirmed: true}) // it lay in the socket
		f.handleHeartbeatTimer()
		f.checkTrust()
		f.lease("x")
		f.wantBegun("x")
		select {
		case <-f.s.unresponsive:
			t.Error("the node counts as silent")
		default:
		}
		// The heartbeat that the process sends as it wakes up keeps the session.
		f.handleHeartbeatAck(f.s, &fermatav1.HeartbeatAck{Seq: 2, Confirmed: true})
		time.Sleep(3 * time.Second)
		f.lease("y")
		f.wantBegun("x", "y")
	})
}

// A run that a node cancels, or says is lost, and that has no runner yet, never begins.
func TestReadyAttemptsCanBeReturned(t *testing.T) {
	for reason, returned := range map[fermatav1.Cancel_Reason]bool{
		fermatav1.Cancel_REASON_LEASE_LOST: true, fermatav1.Cancel_REASON_REQUESTED: true,
		fermatav1.Cancel_REASON_TIMED_OUT: false,
	} {
		t.Run(reason.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFrozen(t, 8*time.Second)
				f.mu.Lock()
				trusted := f.table.trustedUntil
				f.table.trustedUntil = time.Now() // no handler begins
				f.mu.Unlock()
				f.lease("x")
				synctest.Wait()
				f.cancelLeases(f.s, &fermatav1.Cancel{LeaseIds: []string{"x"}, Reason: reason})
				f.mu.Lock()
				f.table.trustedUntil = trusted
				f.mu.Unlock()
				f.lease("y")
				f.wantBegun("y")
				if got := slices.Contains(f.s.out.returned, "x"); got != returned {
					t.Errorf("returned are %q", f.s.out.returned)
				}
			})
		})
	}
}
