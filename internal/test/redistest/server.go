package redistest

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

const (
	adminUser = "redistest"
	serverEnv = "FERMATA_TEST_REDIS_SERVER"
	portTries = 10
)

// adminPassword is of adminUser, on every server of the process: replicas and
// sentinels use it for one another.
var adminPassword = rand.Text()

// Server is one Redis process, which may be stopped and started again at the
// same address.
type Server struct {
	t      testing.TB
	opts   *options
	path   string
	dir    string
	lease  *portLease
	client *redis.Client
	proc   *process
}

// Start runs a standalone server until the test ends.
func Start(t testing.TB, opts ...Option) *Server {
	t.Helper()
	return startServer(t, newOptions(opts))
}

func startServer(t testing.TB, o *options) *Server {
	t.Helper()
	path, err := serverPath()
	if err != nil {
		t.Fatalf("redistest: %v", err)
	}
	s := &Server{t: t, opts: o, path: path}
	s.dir = t.TempDir() // before Cleanup: files go after the process that writes them
	t.Cleanup(s.closeServer)
	for try := 1; ; try++ {
		s.lease, err = leasePort()
		if err != nil {
			t.Fatalf("redistest: %v", err)
		}
		err = s.launchProcess()
		if err == nil {
			return s
		}
		if !s.portTaken() || try == portTries {
			t.Fatalf("redistest: start: %v\n%s", err, s.logTail())
		}
		s.undoLaunch()
	}
}

// Addr is the server's host:port.
func (s *Server) Addr() string { return fmt.Sprintf("127.0.0.1:%d", s.lease.port) }

// URL is the server's redis:// or rediss:// address, with the product's user.
func (s *Server) URL() string {
	user := url.UserPassword(productUser, cmp.Or(s.opts.password, "any"))
	u := url.URL{Scheme: "redis", Host: s.Addr(), Path: "/0", User: user}
	if s.opts.tls != nil {
		u.Scheme = "rediss"
	}
	return u.String()
}

// Dir is where the server keeps its files.
func (s *Server) Dir() string { return s.dir }

// Client is the harness's own: a client with full access that never repeats a command
// by itself. It stays usable over Restart and is closed when the test ends.
func (s *Server) Client() *redis.Client { return s.client }

// Granted is a client as the product's: it may do what package redisacl grants and no
// more. It is closed when the test ends.
func (s *Server) Granted() *redis.Client {
	o := s.clientOptions()
	o.Username, o.Password = productUser, cmp.Or(s.opts.password, "any")
	c := redis.NewClient(o)
	s.t.Cleanup(func() { _ = c.Close() })
	return c
}

// Refused are the commands that the server's access rules have refused so far, as ACL
// LOG has them, newest first.
func (s *Server) Refused() []string {
	s.t.Helper()
	log, err := s.client.ACLLog(s.t.Context(), 100).Result()
	if err != nil {
		s.t.Fatalf("redistest: acl log: %v", err)
	}
	list := make([]string, len(log))
	for i, e := range log {
		list[i] = fmt.Sprintf("%s of user %s in context %s, %d times, for its %s",
			e.Object, e.Username, e.Context, e.Count, e.Reason)
	}
	return list
}

// Log is what the server has written since the test began.
func (s *Server) Log() string {
	text, _ := os.ReadFile(s.logPath()) // no file yet means no log yet
	return string(text)
}

// Running reports whether the process exists, paused or not.
func (s *Server) Running() bool { return s.proc != nil && !s.proc.hasExited() }

// Stop shuts the server down in good order. It does nothing if it is down.
func (s *Server) Stop() {
	s.t.Helper()
	if !s.Running() {
		return
	}
	_ = s.proc.sendSignal(syscall.SIGTERM) // fails only if it has just gone
	_ = s.proc.sendSignal(syscall.SIGCONT) // a paused process cannot act on it
	select {
	case <-s.proc.done:
	case <-time.After(startDeadline):
		s.proc.killProcess()
		s.t.Fatalf("redistest: %s did not stop within %v\n%s", s.Addr(), startDeadline, s.logTail())
	}
}

// Kill ends the process as a crash would: nothing is flushed.
func (s *Server) Kill() {
	if s.proc != nil {
		s.proc.killProcess()
	}
}

// Restart brings the server up again at its address, with its files; a server
// that runs is stopped first.
func (s *Server) Restart() {
	s.t.Helper()
	s.Stop()
	if err := s.launchProcess(); err != nil {
		s.t.Fatalf("redistest: restart: %v\n%s", err, s.logTail())
	}
}

// Pause freezes the process: connections stay open and nothing answers.
func (s *Server) Pause() {
	s.t.Helper()
	s.mustSignal(syscall.SIGSTOP)
	Eventually(s.t, startDeadline, "pause", func(context.Context) error {
		if !isStopped(s.proc.processID()) {
			return errors.New("still running")
		}
		return nil
	})
}

// Resume lets a paused process go on.
func (s *Server) Resume() {
	s.t.Helper()
	s.mustSignal(syscall.SIGCONT)
}

func (s *Server) mustSignal(sig syscall.Signal) {
	s.t.Helper()
	if !s.Running() {
		s.t.Fatalf("redistest: %s is not running", s.Addr())
	}
	if err := s.proc.sendSignal(sig); err != nil {
		s.t.Fatalf("redistest: signal %v: %v", sig, err)
	}
}

// launchProcess starts a process on the leased port and waits until it serves.
func (s *Server) launchProcess() error {
	conf := filepath.Join(s.dir, "redis.conf")
	if _, err := os.Stat(conf); err != nil || !s.opts.sentinel { // a sentinel keeps its state there
		text := s.opts.renderConfig(s.lease.port, s.dir, adminPassword)
		if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
			return err
		}
	}
	args := []string{conf}
	if s.opts.sentinel {
		args = append(args, "--sentinel")
	}
	before := len(s.Log())
	proc, err := startProcess(s.logPath(), s.path, args...)
	if err != nil {
		return err
	}
	s.proc = proc
	if s.client == nil {
		o := s.clientOptions()
		// What a test looks at may take as long as a busy machine takes.
		o.DialTimeout, o.ReadTimeout, o.WriteTimeout = checkDeadline, checkDeadline, checkDeadline
		s.client = redis.NewClient(o)
	}
	if err := s.waitReady(); err != nil {
		proc.killProcess()
		return err
	}
	if loaded := s.Log()[before:]; strings.Contains(loaded, "AOF-loading-client") {
		proc.killProcess()
		return errors.New("it left out something of its append-only file")
	}
	return nil
}

func (s *Server) clientOptions() *redis.Options {
	o := &redis.Options{
		Addr:                     s.Addr(),
		MaxRetries:               -1,
		DialerRetries:            1,
		DisableIdentity:          true,
		ContextTimeoutEnabled:    true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}
	o.Username, o.Password = adminUser, adminPassword
	if s.opts.tls != nil {
		o.TLSConfig = s.opts.tls.Client
	}
	return o
}

// waitReady returns once our own process has loaded its data and answers; the
// process id distinguishes it from a process that took the port first.
func (s *Server) waitReady() error {
	want := fmt.Sprintf("process_id:%d\r\n", s.proc.processID())
	exited := false
	err := pollUntil(startDeadline, func(ctx context.Context) error {
		exited = s.proc.hasExited()
		if exited {
			return nil
		}
		if err := s.checkReady(ctx); err != nil {
			return err
		}
		if err := s.client.Ping(ctx).Err(); err != nil {
			return err
		}
		info, err := s.client.Info(ctx, "server").Result()
		if err != nil {
			return err
		}
		if !strings.Contains(info, want) {
			return fmt.Errorf("another server answers at %s", s.Addr())
		}
		return nil
	})
	if err == nil && exited {
		return fmt.Errorf("the server at %s exited at once", s.Addr())
	}
	return err
}

// checkReady is nil when something listens. Asking before the client does spares the
// log a line of its complaints for every poll.
func (s *Server) checkReady(ctx context.Context) error {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", s.Addr())
	if err != nil {
		return err
	}
	return conn.Close()
}

// portTaken reports whether the last launch failed because the port, or the
// bus port, was in use by another process.
func (s *Server) portTaken() bool {
	return strings.Contains(s.logTail(), "Address already in use") || !isBindable(s.lease.port)
}

// undoLaunch undoes a launch that failed, so that another port can be tried.
func (s *Server) undoLaunch() {
	if s.client != nil {
		_ = s.client.Close()
		s.client = nil
	}
	s.lease.releasePort()
	_ = os.Remove(filepath.Join(s.dir, "redis.conf"))
	_ = os.Remove(s.logPath())
}

func (s *Server) closeServer() {
	s.Kill()
	if s.client != nil {
		_ = s.client.Close()
	}
	if s.lease != nil {
		s.lease.releasePort()
	}
	if s.t.Failed() {
		s.t.Logf("redistest: log of the server in %s:\n%s", s.dir, s.logTail())
	}
}

func (s *Server) logPath() string { return filepath.Join(s.dir, "redis.log") }

func (s *Server) logTail() string {
	const size = 4 << 10
	text := s.Log()
	return text[max(0, len(text)-size):]
}

func serverPath() (string, error) {
	name := os.Getenv(serverEnv)
	if name == "" {
		name = "redis-server"
	}
	path, err := exec.LookPath(name)
	if err != nil {
		return "", fmt.Errorf("the tests need a real Redis: run `make deps` (%w)", err)
	}
	return path, nil
}
