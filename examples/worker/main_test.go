package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/fermata-io/fermata/internal/test/redistest"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

const patience = redistest.Patience

// asWorker makes the test binary the example.
const asWorker = "EXAMPLE_WORKER"

func TestMain(m *testing.M) {
	if os.Getenv(asWorker) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// TestReadmeHasThisProgram: what people copy is what is compiled and tried here.
func TestReadmeHasThisProgram(t *testing.T) {
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	file, err := os.ReadFile("main.go")
	if err != nil {
		t.Fatal(err)
	}
	_, program, _ := strings.Cut(string(file), "\npackage main\n")
	if !strings.Contains(string(readme), "```go\npackage main\n"+program+"```\n") {
		t.Error("the worker in README.md is not examples/worker/main.go without its first comment")
	}
}

// output is what a process writes.
type output struct {
	mu   sync.Mutex
	text strings.Builder
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(b)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

func start(t *testing.T, address string) (*exec.Cmd, *output) {
	t.Helper()
	cmd, errs := exec.Command(os.Args[0]), &output{}
	cmd.Env = append(os.Environ(), asWorker+"=1", "FERMATA_ADDRESS="+address)
	cmd.Stderr = errs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	return cmd, errs
}

func stop(t *testing.T, cmd *exec.Cmd, errs *output) {
	t.Helper()
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("after SIGTERM: %v\n%s", err, errs)
	}
}

// TestUnreachableNodesAreLogged: a wrong address does not leave the worker silent.
func TestUnreachableNodesAreLogged(t *testing.T) {
	cmd, errs := start(t, "127.0.0.1:1")
	redistest.Eventually(t, patience, "a line about the node", func(context.Context) error {
		if text := errs.String(); !strings.Contains(text, "failed to connect to a node") || !strings.Contains(text, "127.0.0.1:1") {
			return fmt.Errorf("it has written %q", text)
		}
		return nil
	})
	stop(t, cmd, errs)
}

// node leases one attempt and takes its result.
type node struct {
	fermatav1.UnimplementedWorkerServiceServer
	hello   chan *fermatav1.Hello
	results chan *fermatav1.Result
}

func (n *node) Work(s fermatav1.WorkerService_WorkServer) error {
	m, err := s.Recv()
	if err != nil {
		return err
	}
	n.hello <- m.GetHello()
	_ = s.Send(&fermatav1.WorkResponse{Message: &fermatav1.WorkResponse_Welcome{Welcome: &fermatav1.Welcome{
		Node: "n", LeaseTtl: durationpb.New(30 * time.Second),
	}}})
	_ = s.Send(&fermatav1.WorkResponse{Message: &fermatav1.WorkResponse_Leases{Leases: &fermatav1.Leases{Leases: []*fermatav1.Lease{{
		LeaseId: "l", Run: "namespaces/default/jobs/digest/runs/1", Handler: "send-digest", Payload: []byte("ada@example.com"),
	}}}}})
	for {
		m, err := s.Recv()
		if err != nil {
			return nil
		}
		for _, r := range m.GetResults().GetResults() {
			_ = s.Send(&fermatav1.WorkResponse{Message: &fermatav1.WorkResponse_ResultAcks{ResultAcks: &fermatav1.ResultAcks{
				Acks: []*fermatav1.ResultAck{{LeaseId: r.GetLeaseId(), Status: fermatav1.ResultAck_STATUS_ACCEPTED}},
			}}})
			n.results <- r
		}
	}
}

func TestRunsAJobAndStops(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	n := &node{hello: make(chan *fermatav1.Hello, 9), results: make(chan *fermatav1.Result, 9)}
	server := grpc.NewServer()
	fermatav1.RegisterWorkerServiceServer(server, n)
	go server.Serve(listener)
	t.Cleanup(server.Stop)
	cmd, errs := start(t, listener.Addr().String())
	if hello := receive(t, n.hello); strings.Join(hello.GetQueues(), ",") != "mail" || hello.GetSlots() != 20 {
		t.Errorf("hello is %v", hello)
	}
	if r := receive(t, n.results); r.GetOutcome() != fermatav1.Result_OUTCOME_SUCCEEDED || string(r.GetOutput()) != "sent to ada@example.com" {
		t.Errorf("result is %v", r)
	}
	stop(t, cmd, errs)
}

func receive[T any](t *testing.T, from <-chan T) T {
	t.Helper()
	select {
	case v := <-from:
		return v
	case <-time.After(patience):
		t.Fatalf("nothing within %v", patience)
	}
	panic("unreachable")
}
