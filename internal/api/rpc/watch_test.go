package rpc

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/fermata-io/fermata/internal/api/guard"
	"github.com/fermata-io/fermata/internal/core/authz"
	"github.com/fermata-io/fermata/internal/core/job"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// quietEvents tells each watcher that there is nothing, and no more.
type quietEvents struct{ asked chan job.EventQuery }

func (e quietEvents) Watch(ctx context.Context, q job.EventQuery, send func(job.EventBatch) error) error {
	e.asked <- q
	if err := send(job.EventBatch{Token: "t"}); err != nil {
		return err
	}
	<-ctx.Done()
	return context.Cause(ctx)
}

// TestWatchEndsWithItsRole: who watches is looked at again, as long as the stream lives.
func TestWatchEndsWithItsRole(t *testing.T) {
	rules := []authz.Rule{allow(authz.Viewer, "team-a", "ann", "bob"), allow(authz.Viewer, "team-b", "eve")}
	for name, c := range map[string]struct {
		lose func(*testing.T, *fakeAuthority)
		want codes.Code
	}{
		"its token is taken back":         {func(_ *testing.T, a *fakeAuthority) { a.revoke("ann") }, codes.Unauthenticated},
		"its token becomes somebody's":    {func(_ *testing.T, a *fakeAuthority) { a.rename("ann", "bob") }, codes.Unauthenticated},
		"its role is for something else":  {func(t *testing.T, a *fakeAuthority) { a.decide(t, rules[1], allow(authz.Viewer, "team-b", "ann")) }, codes.PermissionDenied},
		"its role is not one that may so": {func(t *testing.T, a *fakeAuthority) { a.decide(t, allow(authz.Scaler, "*", "ann")) }, codes.PermissionDenied},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				authority := newAuthority(t, authz.Limits{}, rules...)
				events := quietEvents{make(chan job.EventQuery, 1)}
				b := serveGated(t, Options{Authority: authority, Events: events})
				s, err := fermatav1.NewEventServiceClient(b.dial(t)).WatchEvents(as(t.Context(), "ann"), &fermatav1.WatchEventsRequest{Parent: "namespaces/team-a"})
				if err != nil {
					t.Fatal(err)
				}
				if _, err := s.Recv(); err != nil {
					t.Fatal(err)
				}
				if q := <-events.asked; !slices.Equal(q.Filter.Namespaces, []string{"team-a"}) {
					t.Errorf("watches %v", q.Filter.Namespaces)
				}
				time.Sleep(3*guard.RecheckInterval + time.Second)
				c.lose(t, authority)
				began := time.Now()
				if m, err := s.Recv(); status.Code(err) != c.want || time.Since(began) > guard.RecheckInterval {
					t.Errorf("after %v: %v, %v", time.Since(began), m, err)
				}
			})
		})
	}
}

// TestAllNamespacesNeedARuleForAll: what names no namespace is about all of them, and
// is not cut down to those that the caller may see.
func TestAllNamespacesNeedARuleForAll(t *testing.T) {
	b := serveGated(t, Options{
		Authority: newAuthority(t, authz.Limits{}, allow(authz.Admin, "team-*", "ann"), allow(authz.Viewer, "*", "all")),
		Events:    quietEvents{make(chan job.EventQuery, 1)},
	})
	conn := b.dial(t)
	jobs, cluster, events := fermatav1.NewJobServiceClient(conn), fermatav1.NewClusterServiceClient(conn), fermatav1.NewEventServiceClient(conn)
	for name, call := range map[string]func(context.Context) error{
		"queues": func(ctx context.Context) error {
			_, err := cluster.ListQueues(ctx, &fermatav1.ListQueuesRequest{})
			return err
		},
		"worst jobs": func(ctx context.Context) error {
			_, err := jobs.TopJobs(ctx, &fermatav1.TopJobsRequest{})
			return err
		},
		"events": func(ctx context.Context) error {
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			s, err := events.WatchEvents(ctx, &fermatav1.WatchEventsRequest{})
			if err == nil {
				_, err = s.Recv()
			}
			return err
		},
	} {
		if err := call(as(t.Context(), "ann")); status.Code(err) != codes.PermissionDenied {
			t.Errorf("%s of all namespaces for somebody with some: %v", name, err)
		}
		if err := call(as(t.Context(), "all")); status.Code(err) == codes.PermissionDenied {
			t.Errorf("%s for somebody with all: %v", name, err)
		}
	}
}
