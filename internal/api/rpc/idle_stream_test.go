//go:build unix

package rpc

import (
	"net"
	"runtime"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/fermata-io/fermata/internal/api/workerstream"
	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/test/sessiontest"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// idleSessions welcomes every worker.
type idleSessions struct{ job.WorkerSession }

func (s idleSessions) Connect(_ job.Hello, out job.WorkerStream) (job.WorkerSession, error) {
	return s, out.Send(job.Welcome{Node: "n1"})
}

func (idleSessions) Close(string, []job.WorkerMessage) {}

// TestIdleStreamsTakeLittle bounds what an idle stream keeps on the heap,
// both ends of its connection together: half of the bound and more is the client's, and a
// buffer that the server kept for each would be beyond it.
func TestIdleStreamsTakeLittle(t *testing.T) {
	const streams, most = 100, 52 << 10
	worker := workerstream.NewServer(idleSessions{}, nil)
	server, _, err := NewServer(Options{Jobs: &fakeJobs{}, Cluster: fakeCluster{}, Worker: worker})
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(listener) })
	defer serving.Wait()
	defer worker.Wait()
	defer server.Stop()
	open := func() {
		conn, err := grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		stream, err := fermatav1.NewWorkerServiceClient(conn).Work(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		sessiontest.SayHello(t, stream, sessiontest.GoodHello())
		if m, err := stream.Recv(); err != nil || m.GetWelcome() == nil {
			t.Fatalf("got %v, %v", m, err)
		}
	}
	open() // what is there once
	before := liveHeap()
	for range streams {
		open()
	}
	if took := (liveHeap() - before) / streams; took > most {
		t.Errorf("a stream takes %d bytes, want at most %d", took, most)
	}
}

// liveHeap is what is left without garbage and what pools keep.
func liveHeap() int64 {
	for range 3 {
		runtime.GC()
	}
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc)
}
