package main

import (
	"bytes"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/fermata-io/fermata/internal/test/flagtest"
	"github.com/fermata-io/fermata/internal/test/redistest"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

const patience = redistest.Patience

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestUnusedFlagsAreLogged(t *testing.T) {
	for args, want := range map[string]string{
		"--exec-user 1:1":                                      "--exec-user",
		"--exec-max-cpu 1s --exec-allow-root":                  "--exec-allow-root --exec-max-cpu",
		"--http=false --http-ports 80 --http-allow 10.0.0.0/8": "--http-allow --http-ports",
		"--exec-user 1:1 --exec-allow /bin/echo":               "",
		"--http-ports 80":                                      "",
	} {
		var f handlerFlags
		flags := pflag.NewFlagSet("worker", pflag.ContinueOnError)
		f.registerFlags(flags)
		if err := flags.Parse(strings.Fields(args)); err != nil {
			t.Fatal(err)
		}
		var lines bytes.Buffer
		f.warnOfUnread(flags, slog.New(slog.NewJSONHandler(&lines, nil)))
		var named []string
		for decoder := json.NewDecoder(&lines); decoder.More(); {
			var line struct{ Flag, Needs string }
			if err := decoder.Decode(&line); err != nil || line.Needs == "" {
				t.Fatal(line, err)
			}
			named = append(named, line.Flag)
		}
		if got := strings.Join(named, " "); got != want {
			t.Errorf("%s: %q, want %q", args, got, want)
		}
	}
}

func TestWrongUsage(t *testing.T) {
	empty := filepath.Join(t.TempDir(), "empty")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		args []string
		want string
	}{
		"unknown flag":     {[]string{"--nonsense"}, "--nonsense"},
		"argument":         {[]string{"argument"}, "argument"},
		"version's":        {[]string{"version", "argument"}, "argument"},
		"slots":            {[]string{"--slots", "-1"}, "slots is -1"},
		"no slots":         {[]string{"--slots", "0"}, "--slots 0: want more than 0"},
		"prefetch":         {[]string{"--prefetch", "-1"}, "--prefetch -1: want 0 or more"},
		"bare host":        {[]string{"--scheduler", "localhost"}, `"localhost" is not host:port`},
		"one bare host":    {[]string{"--scheduler", "127.0.0.1:7070,foo"}, `"foo" is not host:port`},
		"no address":       {[]string{"--scheduler", ""}, "no Addresses"},
		"no queue":         {[]string{"--queues", ""}, "--queues is empty"},
		"misspelt flag":    {[]string{"--schduler", "x"}, "did you mean --scheduler?"},
		"misspelt command": {[]string{"verison"}, "did you mean worker version?"},
		"no handler":       {[]string{"--http=false"}, "no handler is enabled"},
		"http network":     {[]string{"--http-allow", "10.0.0.1"}, `--http-allow "10.0.0.1"`},
		"exec by name":     {[]string{"--exec-allow", "sh"}, `"sh" is not a clean absolute path`},
		"http port":        {[]string{"--http-ports", "443,65536"}, "--http-ports 65536"},
		"secrets":          {[]string{"--secrets-dir", "/nonexistent"}, "--secrets-dir: "},
		"exec user":        {[]string{"--exec-allow", "/bin/echo", "--exec-user", "nobody"}, `--exec-user "nobody": want numbers`},
		"exec as root":     {[]string{"--exec-allow", "/bin/echo", "--exec-user", "0:0"}, "would run as root: --exec-user names another user, --exec-allow-root allows it"},
		"exec limit":       {[]string{"--exec-allow", "/bin/echo", "--exec-max-files", "-1"}, "a limit is negative"},
		"exec dir":         {[]string{"--exec-allow", "/bin/echo", "--exec-dir", "tmp"}, "is not an absolute path"},
		"exec home":        {[]string{"--exec-allow", "/bin/echo", "--exec-allow-root", "--exec-home", "home"}, "is not an absolute path"},
		"exec variable":    {[]string{"--exec-allow", "/bin/echo", "--exec-allow-root", "--exec-env", "LD_PRELOAD"}, "LD_PRELOAD cannot be allowed"},
		"exec containment": {[]string{"--exec-allow", "/bin/echo", "--exec-allow-root", "--exec-containment", "none"}, `containment "none"`},
		"log level":        {[]string{"--log-level", "loud"}, `"loud"`},
		"log format":       {[]string{"--log-format", "xml"}, `"xml"`},
		"drain timeout":    {[]string{"--drain-timeout", "0s"}, "--drain-timeout"},
		"no authority":     {[]string{"--tls-ca", empty}, "holds no certificate"},
		"key without cert": {[]string{"--tls-ca", empty, "--tls-key", empty}, "--tls-cert and --tls-key go together"},
		"missing ca":       {[]string{"--tls-ca", "/nonexistent"}, "--tls-ca"},
		"missing file":     {[]string{"--config", "/nonexistent"}, "/nonexistent"},
	} {
		var stderr bytes.Buffer
		if code := runCommand(test.args, nil, io.Discard, &stderr); code != 2 {
			t.Errorf("%s: exit code %d", name, code)
		}
		if !strings.Contains(stderr.String(), test.want) {
			t.Errorf("%s: said %q, want %q", name, &stderr, test.want)
		}
	}
}

func TestVersionAndHelp(t *testing.T) {
	var stdout bytes.Buffer
	if code := runCommand([]string{"version"}, nil, &stdout, io.Discard); code != 0 || stdout.String() != buildVersion+"\n" {
		t.Errorf("exit code %d, said %q", code, &stdout)
	}
	stdout.Reset()
	if code := runCommand([]string{"--help"}, nil, &stdout, io.Discard); code != 0 || !strings.Contains(stdout.String(), "--exec-allow") {
		t.Errorf("exit code %d, said %q", code, &stdout)
	}
}

// node leases one exec attempt, and passes on that it started and how it ended.
type node struct {
	fermatav1.UnimplementedWorkerServiceServer
	payload string
	hello   chan *fermatav1.Hello
	started chan *fermatav1.Started
	results chan *fermatav1.Result
}

// serve starts a node and returns its address.
func serve(t *testing.T, payload string) (*node, string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	n := &node{
		payload: payload, hello: make(chan *fermatav1.Hello, 9), started: make(chan *fermatav1.Started, 9),
		results: make(chan *fermatav1.Result, 9),
	}
	server := grpc.NewServer()
	fermatav1.RegisterWorkerServiceServer(server, n)
	go server.Serve(listener)
	t.Cleanup(server.Stop)
	return n, listener.Addr().String()
}

func (n *node) Work(s fermatav1.WorkerService_WorkServer) error {
	m, err := s.Recv()
	if err != nil {
		return err
	}
	n.hello <- m.GetHello()
	send := func(m *fermatav1.WorkResponse) { _ = s.Send(m) }
	send(&fermatav1.WorkResponse{Message: &fermatav1.WorkResponse_Welcome{Welcome: &fermatav1.Welcome{
		Node: "n", LeaseTtl: durationpb.New(30 * time.Second),
	}}})
	send(&fermatav1.WorkResponse{Message: &fermatav1.WorkResponse_Leases{Leases: &fermatav1.Leases{Leases: []*fermatav1.Lease{{
		LeaseId: "l", Run: "namespaces/shop/jobs/j/runs/r", Handler: "exec", Payload: []byte(n.payload),
	}}}}})
	for {
		m, err := s.Recv()
		if err != nil {
			return nil
		}
		if started := m.GetStarted(); started != nil {
			n.started <- started
		}
		for _, r := range m.GetResults().GetResults() {
			send(&fermatav1.WorkResponse{Message: &fermatav1.WorkResponse_ResultAcks{ResultAcks: &fermatav1.ResultAcks{
				Acks: []*fermatav1.ResultAck{{LeaseId: r.LeaseId, Status: fermatav1.ResultAck_STATUS_ACCEPTED}},
			}}})
			n.results <- r
		}
	}
}

// log is a writer that several goroutines share.
type log struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *log) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

func (l *log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func TestServesUntilSignalled(t *testing.T) {
	n, addr := serve(t, `{"argv":["/bin/echo","hi"],"env":{"GREETING":"hi"}}`)
	file := filepath.Join(t.TempDir(), "worker.yaml")
	if err := os.WriteFile(file, []byte("namespace: shop\nqueues: [a, b]\nslots: 99\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("FERMATA_SLOTS", "5")
	t.Setenv("FERMATA_PREFETCH", "0")
	signals, stderr, code := make(chan os.Signal, 3), &log{}, make(chan int, 1)
	go func() {
		code <- runCommand([]string{"--config", file, "--scheduler", addr, "--exec-allow", "/bin/echo", "--exec-allow-root",
			"--exec-env", "GREETING", "--exec-containment", "subreaper", "--metrics-addr", "127.0.0.1:0", "--log-format", "json", "--labels", "zone=a"}, signals, io.Discard, stderr)
	}()
	hello := receive(t, n.hello)
	if hello.Namespace != "shop" || len(hello.Queues) != 2 || hello.Slots != 5 || hello.Prefetch != 0 || hello.Version != buildVersion || hello.Labels["zone"] != "a" {
		t.Errorf("hello is %v", hello)
	}
	if r := receive(t, n.results); r.Outcome != fermatav1.Result_OUTCOME_SUCCEEDED || !strings.Contains(string(r.Output), `"output":"hi\n"`) {
		t.Errorf("result is %v", r)
	}
	if !strings.Contains(stderr.String(), "exec attempts are contained by a subreaper") {
		t.Errorf("the log does not say how attempts are contained: %s", stderr)
	}
	base := "http://" + metricsAddress(t, stderr)
	for path, want := range map[string]string{"/readyz": "ready", "/healthz": "ok", "/metrics": `fermata_worker_handled_total{handler="exec",outcome="succeeded"} 1`} {
		response, err := http.Get(base + path)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(response.Body)
		response.Body.Close()
		if response.StatusCode != http.StatusOK || !strings.Contains(string(body), want) {
			t.Errorf("%s: %d %s", path, response.StatusCode, body)
		}
	}
	http.DefaultClient.CloseIdleConnections()
	signals <- syscall.SIGTERM
	if c := receive(t, code); c != 0 {
		t.Errorf("exit code %d: %s", c, stderr)
	}
}

func TestSecondSignalCancelsAttempts(t *testing.T) {
	n, addr := serve(t, `{"argv":["/bin/sleep","600"]}`)
	signals, code := make(chan os.Signal, 3), make(chan int, 1)
	go func() {
		code <- runCommand([]string{"--scheduler", addr, "--exec-allow", "/bin/sleep", "--exec-allow-root", "--drain-timeout", "10m"}, signals, io.Discard, io.Discard)
	}()
	receive(t, n.started)
	signals <- syscall.SIGINT
	signals <- syscall.SIGINT
	if c := receive(t, code); c != 1 {
		t.Errorf("exit code %d", c)
	}
}

// metricsAddress finds where the metrics are served in the log.
func metricsAddress(t *testing.T, l *log) string {
	t.Helper()
	for line := range strings.Lines(l.String()) {
		var entry struct{ Msg, Address string }
		if json.Unmarshal([]byte(line), &entry) == nil && entry.Msg == "serving metrics" {
			return entry.Address
		}
	}
	t.Fatalf("the log tells no address: %s", l)
	return ""
}

func TestMetricsAddressTaken(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	var stderr bytes.Buffer
	if code := runCommand([]string{"--metrics-addr", taken.Addr().String()}, nil, io.Discard, &stderr); code != 1 {
		t.Errorf("exit code %d: %s", code, &stderr)
	}
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

func TestNoUsageHasBackquotes(t *testing.T) { flagtest.NoBackquotes(t, rootCommand(t.Context())) }

// TestFilesOfFlagsAreGuarded: see flagtest.
func TestFilesOfFlagsAreGuarded(t *testing.T) {
	flagtest.FilesAreGuarded(t, rootCommand(t.Context()), map[string]string{
		"worker --config":     "--config PATH",
		"worker --tls-ca":     "--tls-ca PATH",
		"worker --tls-cert":   "--tls-cert PATH --tls-key k",
		"worker --tls-key":    "--tls-cert c --tls-key PATH",
		"worker --token-file": "--token-file PATH",
	}, map[string]string{
		"worker --exec-allow":  "refused with its own words: worker/exechandler TestProgramsThatOthersCanReplace",
		"worker --exec-dir":    "no file of it is read: programs begin there",
		"worker --exec-home":   "no file of it is read: programs have its name",
		"worker --secrets-dir": "a directory, whose files are refused one by one (worker/secrets)",
	}, func(args ...string) string {
		var stderr bytes.Buffer
		runCommand(args, nil, io.Discard, &stderr)
		return stderr.String()
	})
}

func TestDurationsHaveDays(t *testing.T) { flagtest.DurationsHaveDays(t, rootCommand(t.Context())) }
