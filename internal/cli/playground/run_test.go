package playground

import (
	"context"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/fermata-io/fermata/client"
	"github.com/fermata-io/fermata/internal/test/redistest"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// transcript is an output that can be read while it is written.
type transcript struct {
	mu  sync.Mutex
	all strings.Builder
}

func (t *transcript) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.all.Write(p)
}

func (t *transcript) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.all.String()
}

// playing is a run under test.
type playing struct {
	out    *transcript
	cancel context.CancelFunc
	abort  chan struct{}
	ended  chan error
	client *client.Client
	grpc   string // address
	target string // URL
}

// play starts a run, and waits until it says where it can be reached.
func play(t *testing.T, o Options) *playing {
	t.Helper()
	t.Setenv("TMPDIR", t.TempDir())
	ctx, cancel := context.WithCancel(t.Context())
	p := &playing{out: &transcript{}, cancel: cancel, abort: make(chan struct{}), ended: make(chan error, 1)}
	o.GRPCAddr, o.HTTPAddr, o.RESTAddr, o.Plain, o.Out, o.Abort = "127.0.0.1:0", "127.0.0.1:0", "127.0.0.1:0", true, p.out, p.abort
	go func() {
		defer close(p.ended)
		p.ended <- Run(ctx, o)
	}()
	t.Cleanup(func() {
		cancel()
		if p.client != nil {
			p.client.Close()
		}
		for range p.ended {
		}
	})
	where := regexp.MustCompile(`gRPC +(\S+)[^=]*?target +(\S+)`)
	redistest.Eventually(t, redistest.Patience, "addresses", func() bool { return where.MatchString(p.out.String()) || len(p.ended) > 0 })
	found := where.FindStringSubmatch(p.out.String())
	if found == nil {
		t.Fatalf("it ended at once: %v", <-p.ended)
	}
	p.grpc, p.target = found[1], found[2]
	var err error
	if p.client, err = client.Dial([]string{found[1]}, client.Options{}); err != nil {
		t.Fatal(err)
	}
	return p
}

// started tells whether any handler has begun. The sample jobs leave the first two
// seconds to what a test runs by hand.
func (p *playing) started(t *testing.T) bool {
	t.Helper()
	page := regexp.MustCompile(`http://\S+/metrics`).FindString(p.out.String())
	resp, err := http.Get(page)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return regexp.MustCompile(`(?m)^fermata_schedule_lag_seconds_count\S* [1-9]`).Match(body)
}

// wait returns how the run ended.
func (p *playing) wait(t *testing.T) error {
	t.Helper()
	select {
	case err := <-p.ended:
		return err
	case <-time.After(redistest.Patience):
		t.Fatal("the run does not end")
		return nil
	}
}

func (p *playing) status(t *testing.T, job string) *fermatav1.JobStatus {
	t.Helper()
	j, err := p.client.GetJob(t.Context(), job)
	if err != nil {
		t.Fatal(err)
	}
	return j.GetStatus()
}

func (p *playing) command(t *testing.T, command string) {
	t.Helper()
	r, err := http.Post(p.target+command, "", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Body.Close()
	http.DefaultClient.CloseIdleConnections()
}

// The one thing that dev mode is for: a healthy job runs on time while a failing
// one backs off, and recovers when its target does.
func TestHealthyRunsOnTimeWhileFailingBacksOff(t *testing.T) {
	p := play(t, Options{})
	var s *fermatav1.JobStatus
	redistest.Eventually(t, redistest.Patience, "two failures in a row", func() bool {
		s = p.status(t, "failing")
		return s.GetConsecutiveFailures() >= 2
	})
	interval := 2 * time.Second << s.GetConsecutiveFailures() // a slow look may see more of them
	if s.GetEffectiveInterval().AsDuration() != interval ||
		s.GetDelaySource() != fermatav1.DelaySource_DELAY_SOURCE_BACKOFF ||
		s.GetNextDueTime().AsTime().Sub(s.GetLastFinishTime().AsTime()) < interval*3/8 {
		t.Errorf("after %d failures: %v", s.GetConsecutiveFailures(), s)
	}
	redistest.Eventually(t, redistest.Patience, "a typo that fails", func() bool { return p.status(t, "typo").GetConsecutiveFailures() >= 2 })
	redistest.Eventually(t, redistest.Patience, "a Retry-After that is heeded", func() bool {
		return p.status(t, "rate-limited").GetDelaySource() == fermatav1.DelaySource_DELAY_SOURCE_HINT
	})
	p.command(t, "/heal")
	if _, _, err := p.client.RunJob(t.Context(), "failing", client.RunOptions{}); err != nil {
		t.Fatal(err)
	}
	redistest.Eventually(t, redistest.Patience, "recovery", func() bool {
		s := p.status(t, "failing")
		return s.GetConsecutiveFailures() == 0 && s.GetSucceededTotal() > 0
	})
	if _, _, err := p.client.RunJob(t.Context(), "on-demand", client.RunOptions{}); err != nil {
		t.Fatal(err)
	}
	redistest.Eventually(t, redistest.Patience, "a manual run", func() bool { return p.status(t, "on-demand").GetSucceededTotal() == 1 })
	redistest.Eventually(t, redistest.Patience, "three healthy runs", func() bool { return p.status(t, "healthy").GetSucceededTotal() >= 3 })
	if s := p.status(t, "healthy"); s.GetConsecutiveFailures() != 0 || s.GetEffectiveInterval().AsDuration() != 2*time.Second {
		t.Errorf("of the healthy job: %v", s)
	}
	runs, err := p.client.Runs(t.Context(), "healthy")
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range runs {
		if late := r.GetStartTime().AsTime().Sub(r.GetDueTime().AsTime()); r.GetState() == fermatav1.Run_STATE_FINISHED && late < 0 {
			t.Errorf("a healthy run started %v before it was due", -late)
		}
	}
	p.cancel()
	if err := p.wait(t); err != nil {
		t.Error(err)
	}
	for _, want := range []string{
		"nothing is kept after exit", "healthy +ok; next in ", `\d failures in a row; next in \S+ instead of 2s`,
		"as it asked", `\(target\) +now every path answers 200`, "Drained in",
	} {
		if !regexp.MustCompile(want).MatchString(p.out.String()) {
			t.Errorf("%q is missing in\n%s", want, p.out.String())
		}
	}
	if left, err := os.ReadDir(os.TempDir()); err != nil || len(left) != 0 {
		t.Errorf("left behind: %v %v", left, err)
	}
}

// TestTheLogLevelCanBeChanged, as that of any node: by fermata log-level.
func TestTheLogLevelCanBeChanged(t *testing.T) {
	file := filepath.Join(t.TempDir(), "log")
	p := play(t, Options{LogFile: file})
	page := regexp.MustCompile(`http://\S+/metrics`).FindString(p.out.String())
	q, err := http.NewRequestWithContext(t.Context(), http.MethodPut, strings.Replace(page, "/metrics", "/loglevel", 1), strings.NewReader(`{"level": "debug"}`))
	if err != nil {
		t.Fatal(err)
	}
	answer, err := http.DefaultClient.Do(q)
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
	http.DefaultClient.CloseIdleConnections()
	if answer.StatusCode != http.StatusOK {
		t.Errorf("answered %s", answer.Status)
	}
	if text, err := os.ReadFile(file); err != nil || !strings.Contains(string(text), `msg="log level changed" from=info to=debug`) {
		t.Errorf("the log says %.500s, %v", text, err)
	}
}

func TestAddressesAreChecked(t *testing.T) {
	for addr, want := range map[string]string{
		"": "", "127.0.0.1:0": "", "[::1]:1": "", "localhost:7070": "", "foo": `--grpc-addr "foo": want host:port`,
		":7070": "of this host alone", "0.0.0.0:7070": "of this host alone", "10.0.0.1:7070": "of this host alone", "[::]:0": "of this host alone",
	} {
		switch err := (Options{GRPCAddr: addr}).Check(); {
		case want == "" && err != nil:
			t.Errorf("%q: %v", addr, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "tls")):
			t.Errorf("%q: %v, want %q", addr, err, want)
		}
	}
	if err := (Options{HTTPAddr: "0.0.0.0:7072"}).Check(); err != nil {
		t.Errorf("metrics for others: %v", err)
	}
}

func TestDrainAndAbort(t *testing.T) {
	for _, abort := range []bool{false, true} {
		logFile := filepath.Join(t.TempDir(), "log")
		p := play(t, Options{Redis: RedisAuto, LogFile: logFile})
		if _, _, err := p.client.RunJob(t.Context(), "slow", client.RunOptions{}); err != nil {
			t.Fatal(err)
		}
		// A leased run may not have reached its handler yet; such a one is given back.
		redistest.Eventually(t, redistest.Patience, "a slow run", func() bool {
			return p.status(t, "slow").GetState() == fermatav1.JobStatus_STATE_RUNNING && p.started(t)
		})
		p.cancel()
		redistest.Eventually(t, redistest.Patience, "word of the drain", func() bool { return strings.Contains(p.out.String(), "Draining: waiting for slow.") })
		want := "slow          ok"
		if abort {
			close(p.abort)
			want = "Stopped at once"
		}
		if err := p.wait(t); err != nil {
			t.Error(err)
		}
		if out := p.out.String(); !strings.Contains(out, want) || abort && strings.Contains(out, "slow          ok") {
			t.Errorf("abort %v: %q is missing in\n%s", abort, want, p.out.String())
		}
		if log, err := os.ReadFile(logFile); err != nil || !strings.Contains(string(log), "node is up") {
			t.Errorf("the log file: %v", err)
		}
	}
}

func TestStartFailures(t *testing.T) {
	p := play(t, Options{})
	for name, o := range map[string]Options{
		"taken":         {GRPCAddr: p.grpc},
		"no such redis": {Redis: filepath.Join(t.TempDir(), "none")},
		"no log":        {LogFile: filepath.Join(t.TempDir(), "none", "log")},
	} {
		if o.GRPCAddr == "" {
			o.GRPCAddr = "127.0.0.1:0"
		}
		o.HTTPAddr, o.RESTAddr, o.Out = "127.0.0.1:0", "127.0.0.1:0", &transcript{}
		if err := Run(t.Context(), o); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	stopped, cancel := context.WithCancel(t.Context())
	cancel()
	if err := Run(stopped, Options{GRPCAddr: "127.0.0.1:0", HTTPAddr: "127.0.0.1:0", RESTAddr: "127.0.0.1:0", Out: &transcript{}}); err != nil {
		t.Errorf("stopped before it began: %v", err)
	}
	if err := Run(t.Context(), Options{GRPCAddr: "127.0.0.1:0", HTTPAddr: "127.0.0.1:0", RESTAddr: "127.0.0.1:0", Out: &transcript{}, For: time.Millisecond}); err != nil {
		t.Errorf("a run that is short: %v", err)
	}
	p.cancel()
	if err := p.wait(t); err != nil {
		t.Error(err)
	}
	if _, err := p.client.GetJob(t.Context(), "healthy"); status.Code(err) != codes.Unavailable {
		t.Errorf("it still answers: %v", err)
	}
}
