package guard

import (
	"context"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/fermata-io/fermata/internal/core/authz"
	"github.com/fermata-io/fermata/internal/lib/grpccodec"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// TestChangesAreRefusedWhileAnswersAreUnread: who leaves answers unread is refused before a call changes anything, so
// that answers of changes, which are never refused, have a bound.
func TestChangesAreRefusedWhileAnswersAreUnread(t *testing.T) {
	r, ctx := newReader(t)
	g := r.gate
	g.unread = newUnreadBudget(0)
	large := wrapperspb.Bytes(make([]byte, 1<<20))
	changed := 0
	call := func(method string) error {
		_, err := g.BoundUnread(ctx, nil, &grpc.UnaryServerInfo{FullMethod: method}, func(context.Context, any) (any, error) {
			changed++
			return large, nil
		})
		return err
	}
	for changed < 100 && call(fermatav1.JobService_UpdateJob_FullMethodName) == nil {
	}
	if most := g.unread.Largest()>>20 + 1; changed > most {
		t.Errorf("%d answers of a MiB are unread, want %d at most", changed, most)
	}
	before := changed
	if err := call(fermatav1.JobService_CreateJob_FullMethodName); status.Code(err) != codes.ResourceExhausted || changed != before {
		t.Errorf("a change beyond that: %v", err)
	}
	connectionFrom(ctx).freeUnread()
	if err := call(fermatav1.JobService_CreateJob_FullMethodName); err != nil {
		t.Errorf("after the answers were read: %v", err)
	}
}

// TestClientsThatDoNotReadAnswersOfChanges lose their connection once their identity has more unread than it may have.
func TestClientsThatDoNotReadAnswersOfChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, ctx := newReader(t)
		g, conn := r.gate, connectionFrom(ctx)
		g.unread = newUnreadBudget(0)
		client, server := net.Pipe()
		conn.rawConn = server
		answer := func(bytes int) {
			t.Helper()
			_, err := g.BoundUnread(ctx, nil, &grpc.UnaryServerInfo{FullMethod: fermatav1.JobService_UpdateJob_FullMethodName},
				func(context.Context, any) (any, error) { return wrapperspb.Bytes(make([]byte, bytes)), nil })
			if err != nil {
				t.Fatal(err)
			}
		}
		closed := make(chan time.Duration, 1)
		began := time.Now()
		go func() {
			_, _ = client.Read(make([]byte, 1))
			closed <- time.Since(began)
		}()
		answer(g.unread.Largest() - 2*unreadOverhead)
		time.Sleep(2 * StuckTimeout)
		conn.freeUnread()
		answer(g.unread.Largest() + 1)
		conn.freeUnread() // read in time
		time.Sleep(2 * StuckTimeout)
		answer(g.unread.Largest() + 1)
		if after := <-closed; after != 5*StuckTimeout {
			t.Errorf("the connection was closed after %v, want %v", after, 5*StuckTimeout)
		}
	})
}

// TestSmallAnswersAreCounted: those of an identity that were not read, until they are, or their connection is closed.
func TestSmallAnswersAreCounted(t *testing.T) {
	r, ctx := newReader(t)
	g, conn := r.gate, connectionFrom(ctx)
	g.unread = newUnreadBudget(0)
	conn.quota = g.quotas.quotaFor("a", authz.Limits{})
	var answers []any
	call := func() error {
		answer, err := g.BoundUnread(ctx, nil, &grpc.UnaryServerInfo{FullMethod: fermatav1.JobService_GetJob_FullMethodName},
			func(context.Context, any) (any, error) { return wrapperspb.Bytes(make([]byte, 100)), nil })
		answers = append(answers, answer)
		return err
	}
	for err := error(nil); err == nil; {
		err = call()
	}
	most := (maxSmallUnread + g.unread.Largest()) / (100 + unreadOverhead)
	if n := len(answers) - 1; n < most*99/100 || n > most {
		t.Errorf("%d answers are unread, want %d at most", n, most)
	}
	codec := UnreadCodec(grpccodec.Codec())
	for _, answer := range answers[:100] {
		data, err := codec.Marshal(answer)
		if err != nil {
			t.Fatal(err)
		}
		data.Free() // it was read
	}
	if err := call(); err != nil {
		t.Errorf("after some answers were read: %v", err)
	}
	conn.freeUnread()
	if n := conn.quota.smallUnread.Load(); n != 0 || g.unread.InUse() != 0 {
		t.Errorf("%d and %d bytes are left", n, g.unread.InUse())
	}
}
