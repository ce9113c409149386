package redistest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if os.Getenv(orphanEnv) != "" {
		startOrphan()
	}
	goleak.VerifyTestMain(m)
}

func TestStart(t *testing.T) {
	s := Start(t)
	ctx := t.Context()
	if err := s.Client().Set(ctx, "a:{k}", "v", 0).Err(); err != nil {
		t.Fatal(err)
	}
	o, err := redis.ParseURL(s.URL())
	if err != nil {
		t.Fatal(err)
	}
	c := redis.NewClient(o)
	defer c.Close()
	if got := c.Get(ctx, "a:{k}").Val(); got != "v" {
		t.Fatalf("over the URL %s: %q", s.URL(), got)
	}
	if o.Addr != s.Addr() {
		t.Fatalf("URL has %s, Addr is %s", o.Addr, s.Addr())
	}
}

func TestRestartKeepsAOFContent(t *testing.T) {
	tests := []struct {
		name string
		opts []Option
		end  func(*Server)
		kept bool
	}{
		{"killed with AOF always", []Option{WithAOF("always")}, (*Server).Kill, true},
		{"stopped with AOF everysec", []Option{WithAOF("everysec")}, (*Server).Stop, true},
		{"running with AOF", []Option{WithAOF("always")}, func(*Server) {}, true},
		{"stopped without AOF", nil, (*Server).Stop, false},
		{"killed while paused", []Option{WithAOF("always")}, func(s *Server) { s.Pause(); s.Kill() }, true},
		{"stopped while paused", []Option{WithAOF("always")}, func(s *Server) { s.Pause(); s.Stop() }, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := Start(t, tt.opts...)
			ctx := t.Context()
			if err := s.Client().Set(ctx, "k", "v", 0).Err(); err != nil {
				t.Fatal(err)
			}
			before := s.Addr()
			tt.end(s)
			s.Restart()
			if s.Addr() != before {
				t.Fatalf("address moved from %s to %s", before, s.Addr())
			}
			n, err := s.Client().Exists(ctx, "k").Result()
			if err != nil {
				t.Fatal(err)
			}
			if kept := n == 1; kept != tt.kept {
				t.Fatalf("kept = %v, want %v", kept, tt.kept)
			}
		})
	}
}

func TestStopAndKillEndTheProcess(t *testing.T) {
	for name, end := range map[string]func(*Server){"Stop": (*Server).Stop, "Kill": (*Server).Kill} {
		t.Run(name, func(t *testing.T) {
			s := Start(t)
			pid := s.proc.processID()
			end(s)
			end(s) // again: does nothing
			if s.Running() {
				t.Error("still reported as running")
			}
			if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
				t.Errorf("process %d: %v, want it gone", pid, err)
			}
		})
	}
}

func TestPauseHoldsRepliesUntilResume(t *testing.T) {
	s := Start(t)
	s.Pause()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := s.Client().Ping(ctx).Err(); err == nil {
		t.Fatal("a paused server answered")
	}
	s.Resume()
	if err := s.Client().Ping(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
}

func TestPasswordAndACL(t *testing.T) {
	s := Start(t, WithPassword("pw"), WithACL("app on >secret ~app:* +@all"), WithConfig("maxmemory", "64mb"))
	ctx := t.Context()
	if err := s.Client().Set(ctx, "elsewhere", 1, 0).Err(); err != nil {
		t.Fatalf("full access: %v", err)
	}
	if got := s.Client().ConfigGet(ctx, "maxmemory").Val()["maxmemory"]; got != fmt.Sprint(64<<20) {
		t.Errorf("maxmemory = %s", got)
	}
	o, err := redis.ParseURL(s.URL())
	if err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name, user, password, key, want string
	}{
		{"url", o.Username, o.Password, "a:{k}", ""},
		{"url outside", o.Username, o.Password, "elsewhere", "NOPERM"},
		{"no password", "", "", "a:{k}", "NOAUTH"},
		{"app inside", "app", "secret", "app:1", ""},
		{"app outside", "app", "secret", "elsewhere", "NOPERM"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := redis.NewClient(&redis.Options{Addr: s.Addr(), Username: tt.user, Password: tt.password})
			defer c.Close()
			err := c.Set(ctx, tt.key, 1, 0).Err()
			if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.HasPrefix(err.Error(), tt.want)) {
				t.Fatalf("err = %v, want %q", err, tt.want)
			}
		})
	}
}

func TestManyServersStartAtOnce(t *testing.T) {
	const n = 12
	var mu sync.Mutex
	seen := map[string]bool{}
	t.Run("group", func(t *testing.T) {
		for i := range n {
			t.Run(fmt.Sprint(i), func(t *testing.T) {
				t.Parallel()
				s := Start(t)
				mu.Lock()
				defer mu.Unlock()
				seen[s.Addr()] = true
			})
		}
	})
	if len(seen) == 0 {
		t.Fatal("nothing ran")
	}
}

func TestPortLeaseIsExclusiveAndAvoidsTakenPorts(t *testing.T) {
	held := map[int]bool{}
	for range 50 {
		l, err := leasePort()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(l.releasePort)
		if held[l.port] {
			t.Fatalf("port %d leased twice", l.port)
		}
		held[l.port] = true
		again, err := lockFile(l.lock.Name())
		if err != nil || again != nil {
			t.Fatalf("second lock of port %d: %v, %v", l.port, again, err)
		}
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	if isBindable(ln.Addr().(*net.TCPAddr).Port) {
		t.Error("a port in use counts as free")
	}
}

// A stranger takes the port between the check and the bind: the server that
// answers is not ours, and the launch must report that.
func TestLaunchDetectsTakenPort(t *testing.T) {
	first := Start(t)
	second := &Server{t: t, opts: newOptions(nil), path: first.path, dir: t.TempDir(), lease: first.lease}
	t.Cleanup(func() { second.Kill(); _ = second.client.Close() })
	if err := second.launchProcess(); err == nil {
		t.Fatal("two servers on one port")
	}
	if !second.portTaken() {
		t.Errorf("not recognised as a taken port:\n%s", second.logTail())
	}
}

func TestStartRefusals(t *testing.T) {
	tests := []struct {
		name, binary, want string
		opts               []Option
	}{
		{"missing binary", "no-such-redis-server", "make deps", nil},
		{"bad directive", "redis-server", "no-such-directive", []Option{WithConfig("no-such-directive", "1")}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Setenv(serverEnv, tt.binary)
			got := fatalOf(t, func(tb testing.TB) { Start(tb, tt.opts...) })
			if !strings.Contains(got, tt.want) {
				t.Fatalf("message %q lacks %q", got, tt.want)
			}
		})
	}
}

func TestEventuallyFailsWithTheLastError(t *testing.T) {
	got := fatalOf(t, func(tb testing.TB) {
		Eventually(tb, 20*time.Millisecond, "thing", func(context.Context) error { return errors.New("no thing") })
	})
	if !strings.Contains(got, "thing") || !strings.Contains(got, "no thing") {
		t.Fatalf("message %q", got)
	}
}

// fatalOf runs f with a test that records its Fatal message instead of failing.
func fatalOf(t *testing.T, f func(testing.TB)) string {
	t.Helper()
	r := &recorder{TB: t}
	done := make(chan struct{})
	go func() {
		defer close(done)
		f(r)
	}()
	<-done
	if r.message == "" {
		t.Fatal("it did not fail")
	}
	return r.message
}

type recorder struct {
	testing.TB
	message string
}

func (r *recorder) Helper() {}

func (r *recorder) Fatalf(format string, args ...any) {
	r.message = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

// orphanEnv is set for a binary that shall play the killed one: to the directory
// of its server.
const orphanEnv = "FERMATA_REDISTEST_ORPHAN"

// A test binary that dies without cleanup takes its servers with it.
func TestServersDieWithKilledTestBinary(t *testing.T) {
	if !tiesChildren {
		t.Log("this system cannot tie a child's life to its parent's")
		return
	}
	cmd := exec.Command(os.Args[0], "-test.run=^$")
	cmd.Env = append(os.Environ(), orphanEnv+"="+t.TempDir())
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var addr string
	_, scanErr := fmt.Fscanln(out, &addr)
	_ = cmd.Process.Kill()
	_ = cmd.Wait() // reports the kill
	if scanErr != nil {
		t.Fatalf("the child printed no address: %v", scanErr)
	}
	Eventually(t, startDeadline, "death of "+addr, func(ctx context.Context) error {
		var d net.Dialer
		conn, err := d.DialContext(ctx, "tcp", addr)
		if err != nil {
			return nil
		}
		return errors.Join(errors.New("still there"), conn.Close())
	})
}
