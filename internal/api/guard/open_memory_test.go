package guard

import (
	"bytes"
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/fermata-io/fermata/internal/core/authz"
	"github.com/fermata-io/fermata/internal/test/redistest"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// dialOpen returns a connection that calls nothing yet, and the context of calls with a token.
func dialOpen(t *testing.T, address, token string) (*grpc.ClientConn, context.Context) {
	t.Helper()
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn, metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer "+token)
}

// isRefusedFor reports whether an error is the refusal of a limit.
func isRefusedFor(err error, reason string) bool {
	for _, d := range status.Convert(err).Details() {
		if info, ok := d.(*errdetails.ErrorInfo); ok {
			return status.Code(err) == codes.ResourceExhausted && info.GetReason() == reason
		}
	}
	return false
}

// silentWorkers are streams of workers that send nothing.
type silentWorkers struct {
	refused atomic.Int64 // for the memory of open connections and streams
	failed  atomic.Int64 // for anything else
}

// open opens a stream.
func (s *silentWorkers) open(t *testing.T, ctx context.Context, conn *grpc.ClientConn) {
	t.Helper()
	stream, err := fermatav1.NewWorkerServiceClient(conn).Work(ctx)
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		switch _, err := stream.Recv(); {
		case isRefusedFor(err, "LIMIT_OPEN_BYTES"):
			s.refused.Add(1)
		case status.Code(err) != codes.Canceled && status.Code(err) != codes.Unavailable:
			s.failed.Add(1)
		}
	}()
}

// wantDecided waits until so many streams are open or refused.
func (s *silentWorkers) wantDecided(t *testing.T, k *talker, streams int) {
	t.Helper()
	redistest.Eventually(t, testPatience, "all streams are open or refused", func(context.Context) error {
		if n := k.began.Load() + s.refused.Load(); n < int64(streams) || s.failed.Load() > 0 {
			return fmt.Errorf("%d of %d, %d failed", n, streams, s.failed.Load())
		}
		return nil
	})
}

// TestStreamsTakeMemoryBeforeTheirFirstMessage: streams of one identity that send nothing take no more than its part of
// the memory, another identity opens its stream meanwhile, and the end of the streams gives everything back.
func TestStreamsTakeMemoryBeforeTheirFirstMessage(t *testing.T) {
	const connections = 3
	k := &talker{drain: make(chan struct{})}
	g, address := serveTalkerOf(t, k, 1<<30, 0)
	var silent silentWorkers
	for range connections {
		conn, ctx := dialOpen(t, address, "worker")
		for range MaxStreamsPerConnection {
			silent.open(t, ctx, conn)
		}
	}
	silent.wantDecided(t, k, connections*MaxStreamsPerConnection)
	want := (g.open.Largest() - connections*connectionBytes) / streamBytes
	if n := k.began.Load(); n != int64(want) {
		t.Errorf("%d streams are open, want %d", n, want)
	}
	conn, ctx := dialOpen(t, address, "other")
	silent.open(t, ctx, conn)
	redistest.Eventually(t, testPatience, "another identity opens a stream", func(context.Context) error {
		if n := k.began.Load(); n != int64(want)+1 {
			return fmt.Errorf("%d are open", n)
		}
		return nil
	})
	close(k.drain)
	wantUnread(t, g.open, "only connections are left", func(n int) bool { return n == (connections+1)*connectionBytes })
}

// TestStreamsGiveTheirMemoryToSessions: a stream whose handler has its memory counted elsewhere takes none of that of
// open streams.
func TestStreamsGiveTheirMemoryToSessions(t *testing.T) {
	k := &talker{drain: make(chan struct{}), counted: true}
	g, address := serveTalkerOf(t, k, 1<<30, 0)
	var silent silentWorkers
	conn, ctx := dialOpen(t, address, "worker")
	for range 10 {
		silent.open(t, ctx, conn)
	}
	silent.wantDecided(t, k, 10)
	wantUnread(t, g.open, "only the connection counts", func(n int) bool { return n == connectionBytes })
	close(k.drain)
	redistest.Eventually(t, testPatience, "the streams end", func(context.Context) error {
		if n := k.ended.Load(); n < 10 {
			return fmt.Errorf("%d have", n)
		}
		return nil
	})
	wantUnread(t, g.open, "the connection still counts once", func(n int) bool { return n == connectionBytes })
}

// TestFirstMessagesOfStreamsAreBounded: streams whose first message has not arrived are as many as calls whose request
// has not.
func TestFirstMessagesOfStreamsAreBounded(t *testing.T) {
	k := &talker{drain: make(chan struct{})}
	g, address := serveTalker(t, k, 1<<30)
	conn, ctx := dialOpen(t, address, "worker")
	ctx, cancel := context.WithTimeout(ctx, testPatience)
	defer cancel()
	var silent silentWorkers
	silent.open(t, ctx, conn)
	silent.wantDecided(t, k, 1)
	quota := g.quotas.quotaFor("token:worker", authz.Limits{MaxOpenCalls: 20_000})
	quota.reading.Add(maxReading - 1)
	stream, err := fermatav1.NewWorkerServiceClient(conn).Work(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); !isRefusedFor(err, "LIMIT_CALLS") {
		t.Errorf("a stream too many: %v", err)
	}
	close(k.drain)
	redistest.Eventually(t, testPatience, "the stream is not counted any more", func(context.Context) error {
		if n := quota.reading.Load(); n != maxReading-1 {
			return fmt.Errorf("%d are counted", n)
		}
		return nil
	})
}

// TestConnectionsTakeMemoryOfTheirIdentity: an identity has fewer connections than its limit where the node has little
// memory. Another identity connects nevertheless, and closed connections give their memory back.
func TestConnectionsTakeMemoryOfTheirIdentity(t *testing.T) {
	g, address := serveTalkerOf(t, &talker{}, 1<<30, 0)
	call := func(token string) (*grpc.ClientConn, error) {
		conn, ctx := dialOpen(t, address, token)
		_, err := fermatav1.NewJobServiceClient(conn).GetJob(ctx, &fermatav1.GetJobRequest{Name: "namespaces/n/jobs/j"})
		return conn, err
	}
	want := g.open.Largest() / connectionBytes
	var all []*grpc.ClientConn
	for len(all) < want {
		conn, err := call("viewer")
		if err != nil {
			t.Fatalf("connection %d: %v", len(all), err)
		}
		all = append(all, conn)
	}
	refused, err := call("viewer")
	if !isRefusedFor(err, "LIMIT_OPEN_BYTES") {
		t.Errorf("connection %d: %v", want, err)
	}
	other, err := call("other")
	if status.Code(err) != codes.PermissionDenied { // a worker that reads a job
		t.Errorf("another identity: %v", err)
	}
	for _, conn := range append(all, refused, other) {
		_ = conn.Close()
	}
	wantUnread(t, g.open, "all connections are closed", isZero)
}

// TestMemoryOfAConnectionFollowsItsCaller: a connection counts for whoever called last on it, and identities without a
// role take nothing.
func TestMemoryOfAConnectionFollowsItsCaller(t *testing.T) {
	budget := newOpenBudget(0)
	m := connectionMemory{budget: budget}
	for _, step := range []struct{ owner, has string }{{"", ""}, {"a", "a"}, {"b", "b"}, {"", "b"}, {"b", "b"}} {
		if !m.moveTo(step.owner) || m.owner != step.has {
			t.Errorf("after a call of %q it counts for %q", step.owner, m.owner)
		}
	}
	if n := budget.InUse(); n != connectionBytes {
		t.Errorf("%d bytes are taken", n)
	}
	budget.TakeAnyway("c", budget.Largest())
	if m.moveTo("c") || m.owner != "b" {
		t.Errorf("an identity with its whole part gets a connection of %q", m.owner)
	}
	m.giveBack()
	m.giveBack()
	if n := budget.InUse(); n != budget.Largest() {
		t.Errorf("%d bytes are left", n)
	}
}

// TestSmallMessagesGetRoomAsTheyArrive: a small message takes no memory of the budget, and so no more room than a few
// times what has arrived of it.
func TestSmallMessagesGetRoomAsTheyArrive(t *testing.T) {
	for _, size := range []int{partBytes + 1, 3 * partBytes, 4*partBytes + 1, smallRequest} {
		sent := bytes.Repeat([]byte("0123456789"), size/10+1)[:size]
		var whole []byte
		for from := 0; from < size; from += partBytes {
			part := sent[from:min(from+partBytes, size)]
			whole = appendPart(whole, mem.BufferSlice{mem.SliceBuffer(part)}, size)
			if cap(whole) > size || cap(whole) > growthFactor*len(whole) {
				t.Errorf("%d of %d bytes have room for %d", len(whole), size, cap(whole))
			}
		}
		if !bytes.Equal(whole, sent) {
			t.Errorf("the message of %d bytes is another one", size)
		}
	}
}
