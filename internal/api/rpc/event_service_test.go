package rpc

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/fermata-io/fermata/internal/api/guard"
	"github.com/fermata-io/fermata/internal/core/authz"
	"github.com/fermata-io/fermata/internal/core/job"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// fakeEvents tells what it is given to whoever watches.
type fakeEvents struct {
	tell    chan job.EventBatch
	resumed chan string
}

func newFakeEvents() *fakeEvents {
	return &fakeEvents{tell: make(chan job.EventBatch), resumed: make(chan string, 10)}
}

func (f *fakeEvents) Watch(ctx context.Context, q job.EventQuery, send func(job.EventBatch) error) error {
	f.resumed <- q.Token
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case b := <-f.tell:
			if err := send(b); err != nil {
				return err
			}
		}
	}
}

type eventStream = grpc.ServerStreamingClient[fermatav1.WatchEventsResponse]

func (b *gated) watchAs(t *testing.T, token, resume string) eventStream {
	t.Helper()
	s, err := fermatav1.NewEventServiceClient(b.dial(t)).WatchEvents(as(t.Context(), token),
		&fermatav1.WatchEventsRequest{Parent: "namespaces/team-a", ResumeToken: resume})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestWatchGoesOnWhenItsRoleComesBack: who may not read jobs any more hears nothing more of them, and
// goes on after the last token when the role has come back.
func TestWatchGoesOnWhenItsRoleComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		authority := newAuthority(t, authz.Limits{}, allow(authz.Viewer, "team-a", "ann"))
		events := newFakeEvents()
		b := serveGated(t, Options{Authority: authority, Events: events})
		if _, err := b.watchAs(t, "bob", "").Recv(); status.Code(err) != codes.PermissionDenied {
			t.Fatalf("without a role: %v", err)
		}
		s := b.watchAs(t, "ann", "")
		if resumed := <-events.resumed; resumed != "" {
			t.Errorf("begins after %q", resumed)
		}
		for _, token := range []string{"one", "two"} {
			time.Sleep(guard.RecheckInterval)
			events.tell <- job.EventBatch{Token: token}
			if m, err := s.Recv(); err != nil || m.GetResumeToken() != token {
				t.Fatalf("%v, %v", m, err)
			}
		}
		authority.revoke("ann")
		began := time.Now()
		if m, err := s.Recv(); status.Code(err) != codes.Unauthenticated || time.Since(began) > guard.RecheckInterval {
			t.Errorf("after %v: %v, %v", time.Since(began), m, err)
		}
		authority.restore("ann")
		s = b.watchAs(t, "ann", "two")
		if resumed := <-events.resumed; resumed != "two" {
			t.Errorf("goes on after %q", resumed)
		}
		events.tell <- job.EventBatch{Token: "three"}
		if m, err := s.Recv(); err != nil || m.GetResumeToken() != "three" {
			t.Errorf("%v, %v", m, err)
		}
	})
}

// TestOldWatchesComeBack: in good order, which is neither logged as a failure nor counted
// as one.
func TestOldWatchesComeBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seen := make(chan codes.Code, 10)
		b := serveGated(t, Options{Events: newFakeEvents(), ObserveCall: func(_ string, c codes.Code, _ time.Duration) { seen <- c }})
		began := time.Now()
		_, err := b.watchAs(t, "ann", "").Recv()
		if status.Code(err) != codes.Unavailable || reasonOf(err) != "STREAM_EXPIRED" || time.Since(began) != guard.StreamAge {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
		if code := <-seen; code != codes.OK {
			t.Errorf("it is counted as %v", code)
		}
		if logs := b.logs.String(); strings.Contains(logs, "call failed") {
			t.Errorf("logged:\n%s", logs)
		}
	})
}

// TestWatcherThatDoesNotRead: what waits for it must not stay for ever.
func TestWatcherThatDoesNotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		events := newFakeEvents()
		ended := make(chan time.Time, 1)
		b := serveGated(t, Options{Events: events, ObserveCall: func(string, codes.Code, time.Duration) { ended <- time.Now() }})
		s := b.watchAs(t, "ann", "")
		began := time.Now()
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			for {
				select {
				case events.tell <- job.EventBatch{Events: []job.Event{{Kind: job.KindRunDead, Error: strings.Repeat("x", 1<<20)}}}:
				case <-ctx.Done():
					return
				}
			}
		}()
		took := (<-ended).Sub(began)
		cancel()
		if took < guard.StuckTimeout || took > guard.StuckTimeout+guard.RecheckInterval+time.Second {
			t.Errorf("its stream ended after %v", took)
		}
		var err error
		for err == nil {
			_, err = s.Recv()
		}
		if reasonOf(err) != "WATCHER_TOO_SLOW" {
			t.Errorf("it is told %v", err)
		}
	})
}

// greedyEvents takes all the memory that its watcher may have.
type greedyEvents struct{ taken chan int }

func (g greedyEvents) Watch(_ context.Context, q job.EventQuery, _ func(job.EventBatch) error) error {
	taken := 0
	for q.Memory != nil && q.Memory.TryTake(64<<10) {
		taken += 64 << 10
	}
	g.taken <- taken
	if taken > 0 {
		q.Memory.Give(taken)
	}
	return job.ErrWatchersTooSlow
}

// TestWatchersHaveMemoryOfTheirIdentity checks that a watcher takes memory of its identity's share for unread responses,
// and ends with WATCHER_TOO_SLOW when none is left.
func TestWatchersHaveMemoryOfTheirIdentity(t *testing.T) {
	events := greedyEvents{make(chan int, 1)}
	f := serveFlooded(t, Options{Events: events}, &floodJobs{}, nil)
	s, err := fermatav1.NewEventServiceClient(f.dial(t)).WatchEvents(as(t.Context(), "flood"),
		&fermatav1.WatchEventsRequest{Parent: "namespaces/n"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Recv(); status.Code(err) != codes.Unavailable || reasonOf(err) != "WATCHER_TOO_SLOW" {
		t.Errorf("a watcher without memory ends with %v", err)
	}
	if taken := <-events.taken; taken == 0 || taken > 128<<20 {
		t.Errorf("a watcher may have %d bytes", taken)
	}
}

// TestNothingIsSentAfterTheEnd: whoever ends a stream waits for what is being sent, unless
// that hangs, and nothing begins to hang meanwhile.
func TestNothingIsSentAfterTheEnd(t *testing.T) {
	w := &watcher{} // a stream that is used would be missed
	if !w.stopSending() || w.send(job.EventBatch{}) == nil || w.isStuck() {
		t.Error("a stream that has ended sends")
	}
	w = &watcher{}
	w.sending.Store(time.Now().Add(-guard.StuckTimeout).UnixNano())
	if w.stopSending() || !w.isStuck() {
		t.Error("what is being sent would be waited for")
	}
}

// manyUndelivered has large undelivered events.
type manyUndelivered struct{ Webhooks }

func (manyUndelivered) UndeliveredEvents(_ context.Context, _ string, n int) (out []job.UndeliveredEvent, err error) {
	for range n {
		out = append(out, job.UndeliveredEvent{Webhook: "ops", Reason: strings.Repeat("x", 10_000)})
	}
	return out, nil
}

// TestUndeliveredEventsHaveFewBytes: a list of large events ends early, and says so.
func TestUndeliveredEventsHaveFewBytes(t *testing.T) {
	s := &eventService{hooks: manyUndelivered{}}
	for size, wantAll := range map[int32]bool{100: true, 1000: false} {
		r, err := s.ListUndeliveredEvents(t.Context(), &fermatav1.ListUndeliveredEventsRequest{PageSize: size})
		if err != nil {
			t.Fatal(err)
		}
		if all := len(r.GetEvents()) == int(size); all != wantAll || r.GetIncomplete() == all || len(r.GetEvents()) > 500 {
			t.Errorf("%d of %d events, incomplete %v", len(r.GetEvents()), size, r.GetIncomplete())
		}
	}
}
