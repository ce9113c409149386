package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// process is the command as a process of its own.
func process(t *testing.T, address string, args ...string) (*exec.Cmd, *bytes.Buffer) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, os.Args[0], append([]string{"--address", address}, args...)...)
	cmd.Env = append(os.Environ(), asCommand+"=1")
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	return cmd, &out
}

// denies refuses every call with one code.
func denies(t *testing.T, code codes.Code) (address string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(grpc.UnaryInterceptor(func(context.Context, any, *grpc.UnaryServerInfo, grpc.UnaryHandler) (any, error) {
		return nil, status.Error(code, "refused")
	}))
	fermatav1.RegisterJobServiceServer(server, fermatav1.UnimplementedJobServiceServer{})
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Stop()
		<-served
	})
	return listener.Addr().String()
}

// TestExitCodesOfProcesses: one process for each class of the documented table.
func TestExitCodesOfProcesses(t *testing.T) {
	t.Parallel()
	c := startCluster(t)
	c.must("jobs", "create", "ping", "--every", "1m", "--handler", "h")
	file := filepath.Join(t.TempDir(), "jobs.yaml")
	if err := os.WriteFile(file, []byte("id: new\nhandler: h\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		code    int
		address string
		args    string
	}{
		{exitOK, c.address, "jobs list"},
		{exitOK, c.address, "diff -f " + file},
		{exitFailed, denies(t, codes.PermissionDenied), "jobs list"},
		{exitUsage, c.address, "jobs list --quue x"},
		{exitUsage, c.address, "jobs lst"},
		{exitUsage, c.address, "jobs create x --every 99999999h --handler h"},
		{exitUsage, c.address, "jobs create x --every 2562047h --handler h"},
		{exitUsage, c.address, "jobs update ping --timeout 48h"},
		{exitUsage, c.address, "preview --every 2562047h"},
		{exitUsage, c.address, "jobs hint ping --in 2562047h"},
		{exitNotFound, c.address, "jobs get nothing"},
		{exitConflict, c.address, "jobs create ping --every 2m --handler h"},
		{exitUnavailable, "127.0.0.1:1", "jobs list --request-timeout 300ms"},
		{exitPending, c.address, "diff --exit-code -f " + file},
		{exitSignedOut, denies(t, codes.Unauthenticated), "jobs list"},
	} {
		cmd, out := process(t, tt.address, strings.Fields(tt.args)...)
		err := cmd.Run()
		var ended *exec.ExitError
		if err != nil && !errors.As(err, &ended) {
			t.Fatal(err)
		}
		if got := cmd.ProcessState.ExitCode(); got != tt.code {
			t.Errorf("fermata %s: exit code %d, want %d\n%s", tt.args, got, tt.code, out)
		}
	}
}

// runsForever starts runs that do not end, and says when somebody looks at one.
type runsForever struct {
	fermatav1.UnimplementedJobServiceServer
	looked chan struct{}
}

func (*runsForever) RunJob(_ context.Context, q *fermatav1.RunJobRequest) (*fermatav1.RunJobResponse, error) {
	return &fermatav1.RunJobResponse{Run: &fermatav1.Run{Name: q.GetName() + "/runs/m-1"}}, nil
}

func (r *runsForever) GetRun(ctx context.Context, q *fermatav1.GetRunRequest) (*fermatav1.Run, error) {
	r.looked <- struct{}{}
	return &fermatav1.Run{Name: q.GetName()}, nil
}

// serveRunsForever serves runs that do not end. looked receives a value when a caller looks for the end of a run: only
// then it has the answer to its request.
func serveRunsForever(t *testing.T) (address string, looked <-chan struct{}) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server, forever := grpc.NewServer(), &runsForever{looked: make(chan struct{}, 1000)}
	fermatav1.RegisterJobServiceServer(server, forever)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Stop()
		<-served
	})
	return listener.Addr().String(), forever.looked
}

// TestAnInterruptedWaitHasItsCode, and names the run that goes on.
func TestAnInterruptedWaitHasItsCode(t *testing.T) {
	address, looked := serveRunsForever(t)
	cmd, out := process(t, address, "jobs", "run", "ping", "--wait")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	<-looked
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); cmd.ProcessState.ExitCode() != exitRunContinues || !strings.Contains(out.String(), "run m-1 of ping continues") {
		t.Errorf("%v, want exit code %d\n%s", err, exitRunContinues, out)
	}
}

// TestExitCodesAreDocumented: the table of the documentation is what --help says.
func TestExitCodesAreDocumented(t *testing.T) {
	text, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	codes := regexp.MustCompile(`(?m)^  (\d)  (.*)$`).FindAllStringSubmatch(rootHelp, -1)
	if len(codes) != exitRunContinues+1 {
		t.Fatalf("--help has %d codes", len(codes))
	}
	for _, code := range codes {
		if row := fmt.Sprintf("| %s | %s |", code[1], code[2]); !strings.Contains(string(text), row) {
			t.Errorf("docs/operations.md has no row %q", row)
		}
	}
}

// TestHintsOfLimits: a limit whose error says what to do has no hint about Redis.
func TestHintsOfLimits(t *testing.T) {
	for reason, want := range map[string]string{
		"":                    "running jobs continue",
		"REDIS_OUT_OF_MEMORY": "maxmemory",
		"NAMESPACE_JOBS":      "",
		"TOO_MANY_QUEUES":     "",
	} {
		refused := status.New(codes.ResourceExhausted, "refused")
		if reason != "" {
			detailed, err := refused.WithDetails(&errdetails.ErrorInfo{Reason: reason})
			if err != nil {
				t.Fatal(err)
			}
			refused = detailed
		}
		code, hint := classifyError(refused.Err())
		if code != exitFailed || !strings.Contains(hint, want) || want == "" && hint != "" {
			t.Errorf("%q: exit code %d, hint %q", reason, code, hint)
		}
	}
}

// TestConnectionErrorsAreBrief: the text of gRPC around the reason is left out.
func TestConnectionErrorsAreBrief(t *testing.T) {
	a := &app{addresses: []string{"127.0.0.1:1"}}
	const reason = "dial tcp 127.0.0.1:1: connect: connection refused"
	for _, text := range []string{
		reason,
		`connection error: desc = "` + reason + `"`,
		`connection error: desc = "transport: Error while dialing: ` + reason + `"`,
	} {
		if got := a.errorMessage(status.Error(codes.Unavailable, text)); got != reason {
			t.Errorf("%q became %q", text, got)
		}
	}
}
