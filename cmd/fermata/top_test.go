package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/fermata-io/fermata/internal/cli/tui"
	"github.com/fermata-io/fermata/internal/core/job"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// crowd is a picture of a cluster with one of everything that is shown.
func crowd() clusterSnapshot {
	recent := func(started, failed, breaches int64, lag time.Duration) *fermatav1.RecentRuns {
		return &fermatav1.RecentRuns{
			Started: started, Failed: failed, Breaches: breaches, MaxLag: durationpb.New(lag), Span: durationpb.New(time.Minute),
		}
	}
	failing := func(id string, failures int64, attempt int32, text string) *fermatav1.TopJob {
		return &fermatav1.TopJob{Job: &fermatav1.Job{Name: "namespaces/shop/jobs/" + id, Status: &fermatav1.JobStatus{
			State: fermatav1.JobStatus_STATE_SCHEDULED, NextDueTime: timestamppb.New(epoch.Add(95 * time.Second)),
			ConsecutiveFailures: failures, CurrentAttempt: attempt, LastError: text,
		}}}
	}
	p := clusterSnapshot{
		at: epoch,
		queues: []*fermatav1.Queue{
			{Namespace: "shop", Queue: "mail", Backlog: 1234567, Running: 40, OldestOverdue: durationpb.New(3 * time.Minute), Dead: 7, Paused: 2, RecentRuns: recent(9600, 32, 12, 2*time.Minute)},
			{Namespace: "default", Queue: "default", FreeSlots: 12, Running: 3, RecentRuns: recent(90, 0, 0, 12*time.Millisecond)},
			{Namespace: "shop", Queue: "quiet", FreeSlots: 12, QueuePaused: true},
		},
		failing: []*fermatav1.TopJob{
			failing("import", 12, 1, "GET https://api.example.com/v1: unexpected status 503 Service Unavailable"),
			failing("retried", 0, 5, "exit code 1: \x1b[31mred"),
		},
		late: []*fermatav1.TopJob{
			{Job: &fermatav1.Job{Name: "namespaces/shop/jobs/report", MaxLag: durationpb.New(30 * time.Second), Status: &fermatav1.JobStatus{
				Hold: &fermatav1.Hold{Reason: fermatav1.Hold_REASON_LOCK, Key: "db", BlockedBy: "import"},
			}}, Lag: durationpb.New(3 * time.Minute), Waiting: true},
			{Job: &fermatav1.Job{Name: "namespaces/shop/jobs/nightly", MaxLag: durationpb.New(time.Second)}, Lag: durationpb.New(4 * time.Second)},
		},
		nodes: []*fermatav1.Node{
			{Name: "n0", ShardsHeld: 32, Workers: 2, Version: "1.2.0", StartTime: timestamppb.New(epoch.Add(-26 * time.Hour))},
			{Name: "n1", ShardsHeld: 31, Draining: true, Version: "1.2.0", StartTime: timestamppb.New(epoch.Add(-time.Minute))},
			{Name: "n2", Unreachable: true},
		},
		lost:    []*fermatav1.LostNode{{Name: "n3", Version: "1.2.0", LostTime: timestamppb.New(epoch.Add(-time.Minute))}},
		workers: []*fermatav1.Worker{{Node: "n0", Slots: 40, Running: 40}, {Node: "n0", Slots: 16, Running: 3}},
	}
	for i := range 64 {
		s := &fermatav1.Shard{Shard: int32(i), Holder: "n0"}
		if i == 5 {
			s.Holder = ""
		}
		p.shards = append(p.shards, s)
	}
	return p
}

func topOf(p clusterSnapshot) *topView {
	v := &topView{app: &app{now: func() time.Time { return epoch }}, order: queueOrders["backlog"], interval: 2 * time.Second}
	v.applySnapshot(p)
	return v
}

func textOf(lines []tui.Line, colours bool) string {
	var b strings.Builder
	for _, l := range lines {
		b.WriteString(l.Text(colours) + "\n")
	}
	return b.String()
}

// Frames have local times; before anything runs, so that nobody reads it meanwhile.
func init() { time.Local = time.UTC }

func TestTopFrames(t *testing.T) {
	for _, tt := range []struct {
		name          string
		width, height int
		colours       bool
		change        func(*topView)
	}{
		{name: "120x40", width: 120, height: 40},
		{name: "120x40-colours", width: 120, height: 40, colours: true},
		{name: "80x16", width: 80, height: 16, change: func(v *topView) { v.handleKey('n') }},
		{name: "once"},
		{name: "80x24", width: 80, height: 24},
		{name: "200x50", width: 200, height: 50},
		{name: "40x30", width: 40, height: 30},
		{name: "held", width: 100, height: 12, change: func(v *topView) { v.handleKey(' ') }},
		{name: "trouble", width: 100, height: 30, change: func(v *topView) { v.applySnapshot(clusterSnapshot{err: errors.New("no node could be reached\n")}) }},
		{name: "viewer", width: 100, height: 30, change: func(v *topView) {
			v.last.denied = []string{"nodes", "shards", "workers"}
			v.last.nodes, v.last.lost, v.last.workers, v.last.shards = nil, nil, nil, nil
		}},
		{name: "empty", width: 80, height: 24, change: func(v *topView) { v.last = clusterSnapshot{at: epoch} }},
		{name: "first", width: 80, height: 24, change: func(v *topView) { v.last = clusterSnapshot{} }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			v := topOf(crowd())
			if tt.change != nil {
				tt.change(v)
			}
			got := textOf(v.renderLines(tt.width, tt.height), tt.colours)
			if !tt.colours && strings.ContainsRune(got, '\x1b') {
				t.Errorf("control codes in %q", got)
			}
			file := filepath.Join("testdata", "top-"+tt.name+".golden")
			if *rewrite {
				if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if got != string(want) {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
		})
	}
}

// Whatever the terminal's size, a frame fits, and says how many rows it leaves out.
func TestTopFits(t *testing.T) {
	t.Parallel()
	p := crowd()
	for i := range 50 {
		p.queues = append(p.queues, &fermatav1.Queue{Namespace: "many", Queue: fmt.Sprint("q", i)})
	}
	v := topOf(p)
	for width := 1; width <= 220; width += 7 {
		for height := 1; height <= 80; height += 3 {
			lines := v.renderLines(width, height)
			if len(lines) > height {
				t.Fatalf("%dx%d: %d lines", width, height, len(lines))
			}
			for _, l := range lines {
				if n := utf8.RuneCountInString(l.Text(false)); n > width {
					t.Fatalf("%dx%d: %d columns: %q", width, height, n, l.Text(false))
				}
			}
		}
	}
	if text := textOf(v.renderLines(120, 40), false); !strings.Contains(text, "and 3") || !strings.Contains(text, "n2") {
		t.Errorf("rows that are left out:\n%s", text)
	}
}

// TestTopSaysWhatDoesNotFit of each table, also where one row of it is shown.
func TestTopSaysWhatDoesNotFit(t *testing.T) {
	v := topOf(crowd())
	for height := 1; height < 50; height++ {
		for _, width := range []int{40, 60, 80, 120} {
			text := textOf(v.renderLines(width, height), false)
			for title, rows := range map[string]int{
				"NODE": len(v.last.nodes) + len(v.last.lost), "QUEUE": len(v.last.queues),
				"FAILING JOB": len(v.last.failing), "LATE JOB": len(v.last.late),
			} {
				_, below, ok := strings.Cut(text, "\n"+title+" ")
				if !ok {
					continue
				}
				below, _, _ = strings.Cut(below, "\n\n")
				shown := strings.Split(strings.TrimRight(below, "\n"), "\n")[1:]
				if len(shown) == 0 {
					t.Fatalf("%dx%d: %s has no rows:\n%s", width, height, title, text)
				}
				hidden := rows - len(shown)
				if len(shown) > 1 && hidden > 0 {
					hidden++ // the last line is no row
				}
				if want := fmt.Sprintf("and %d more", hidden); hidden > 0 && !strings.HasSuffix(shown[len(shown)-1], want) {
					t.Errorf("%dx%d: %s does not say %q:\n%s", width, height, title, want, text)
				}
			}
		}
	}
}

func TestTopSorts(t *testing.T) {
	v := topOf(crowd())
	for key, want := range map[rune]string{
		'b': "mail default quiet", 'o': "mail default quiet", 'l': "mail default quiet", 's': "mail default quiet",
		'f': "mail default quiet", 'n': "default mail quiet", 0: "default mail quiet",
	} {
		v.order = queueOrders["name"]
		if v.handleKey(key) {
			t.Errorf("%q quits", key)
		}
		var got []string
		for _, q := range v.order.sortQueues(v.last.queues) {
			got = append(got, q.GetQueue())
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%q: %v, want %s", key, got, want)
		}
	}
	for _, key := range []rune{'q', 'Q', 3, 4} {
		if !v.handleKey(key) {
			t.Errorf("%q does not quit", key)
		}
	}
}

// TestTopRuns: pictures come until q, keys are heard while the cluster is asked, and a
// question under way is not left behind.
func TestTopRuns(t *testing.T) {
	v := &topView{app: &app{now: func() time.Time { return epoch }}, order: queueOrders["backlog"], interval: minInterval}
	keys, asked, resized := make(chan rune), make(chan struct{}, 1), make(chan os.Signal)
	var columns atomic.Int64
	columns.Store(80)
	var frames []string
	drawn := make(chan struct{}, 100)
	done := make(chan error, 1)
	go func() {
		done <- v.runLoop(t.Context(), func(ctx context.Context) clusterSnapshot {
			asked <- struct{}{}
			<-ctx.Done() // never answers by itself
			return clusterSnapshot{err: ctx.Err()}
		}, keys, resized, func(lines []tui.Line) {
			frames = append(frames, textOf(lines, false))
			drawn <- struct{}{}
		}, func() (int, int) { return int(columns.Load()), 24 })
	}()
	<-asked
	keys <- 'n'
	columns.Store(60)
	resized <- syscall.SIGWINCH
	keys <- 'q'
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	last := frames[len(frames)-1]
	if len(frames) < 3 || !strings.Contains(last, "sort: name") {
		t.Errorf("%d frames, the last one\n%s", len(frames), last)
	}
	if width := strings.Index(last, "\n"); width != 60 {
		t.Errorf("the title has %d columns after the terminal has got 60", width)
	}
}

func TestTopOfACluster(t *testing.T) {
	c := startCluster(t)
	c.must("jobs", "create", "flaky", "--every", "30s", "--handler", "h", "--max-lag", "1s")
	c.must("jobs", "create", "sound", "--every", "30s", "--handler", "h")
	c.must("jobs", "create", "never", "--in", "1s", "--handler", "h", "--max-lag", "5s")
	for range 3 {
		c.attempt("flaky", job.OutcomeFailed, "boom")
	}
	c.pass(time.Hour)
	c.attempt("flaky", job.OutcomeFailed, "boom") // an hour late
	golden(t, "top", c.script(
		"failing", "failing --limit 1 -o yaml", "late", "late --all", "jobs get flaky", "jobs list",
		"top", "top --once --all=false --sort name", "top -o json", "top --sort size", "top --interval 1ms", "late --limit 0",
	))
	if out := c.must("--namespace", "other", "late"); out != "no late jobs\n" {
		t.Errorf("of another namespace: %s", out)
	}
}
