package playground

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/fermata-io/fermata/internal/cli/tui"
)

var rewrite = flag.Bool("rewrite", false, "write the golden files anew")

// at is the time of the fixed picture, on a boundary of all timelines' cells.
var at = time.Unix(1_800_000_000, 0)

func ago(d time.Duration) time.Time { return at.Add(-d) }

func marksAt(last runResult, secondsAgo ...int) []runMark {
	var marks []runMark
	for _, s := range secondsAgo {
		marks = append(marks, runMark{ago(time.Duration(s) * time.Second), last})
	}
	return marks
}

// picture has one job of each kind.
func picture() frame {
	flaky := append(marksAt(succeeded, 60, 57), append(marksAt(failed, 54, 48), marksAt(succeeded, 36, 33)...)...)
	rows := []jobRow{
		{name: "healthy", phase: waiting, every: 5 * time.Second, effective: 5 * time.Second, since: ago(1800 * time.Millisecond),
			due: at.Add(3200 * time.Millisecond), last: succeeded, runs: 25, marks: marksAt(succeeded, 22, 17, 12, 7, 2)},
		{name: "failing", phase: backoff, every: 2 * time.Second, effective: 32 * time.Second, failures: 4, since: ago(11 * time.Second),
			due: at.Add(21 * time.Second), last: failed, lastError: "GET http://127.0.0.1:40123/x: unexpected status 503 Service Unavailable", runs: 4, marks: marksAt(failed, 39, 35, 27, 11)},
		{name: "flaky", phase: backoff, every: 3 * time.Second, effective: 6 * time.Second, failures: 1, since: ago(6 * time.Second),
			due: at, last: failed, lastError: "GET http://127.0.0.1:40123/x: unexpected status 500 Internal Server Error", runs: 31, marks: flaky},
		{name: "rate-limited", phase: hinted, every: 3 * time.Second, effective: 6 * time.Second, failures: 1, since: ago(time.Second),
			due: at.Add(9 * time.Second), last: failed, lastError: "GET http://127.0.0.1:40123/x: unexpected status 429 Too Many Requests", runs: 7},
		{name: "slow", phase: running, every: 8 * time.Second, effective: 8 * time.Second, started: ago(1200 * time.Millisecond), last: timedOut, runs: 3},
		{name: "slow-twin", phase: held, every: 8 * time.Second, effective: 8 * time.Second, gate: "lock slow", since: ago(7 * time.Second),
			due: ago(time.Second), last: succeeded, runs: 3},
		{name: "every-minute", phase: waiting, rule: "cron", since: ago(42 * time.Second), due: at.Add(18 * time.Second), last: succeeded, runs: 1},
		{name: "once", phase: retrying, rule: "once", attempt: 2, attempts: 3, failures: 1, since: at, due: at.Add(2 * time.Second),
			last: failed, lastError: "GET http://127.0.0.1:40123/x: unexpected status 503 Service Unavailable", runs: 0},
		{name: "buried", phase: dead, rule: "once", last: died, lastError: "GET http://127.0.0.1:40123/x: unexpected status 503 Service Unavailable", runs: 1},
		{name: "on-demand", phase: onDemand, rule: "manual"},
		{name: "a-name-that-is-too-long", phase: paused, every: 90 * time.Minute, effective: 90 * time.Minute, last: cancelled, runs: 12345},
	}
	f := frame{
		now: at, up: 83 * time.Second, mode: scripted, rows: rows,
		facts: connectionFacts{
			grpc: "127.0.0.1:7070", rest: "http://127.0.0.1:7073", metrics: "http://127.0.0.1:7072/metrics", target: "http://127.0.0.1:40123",
			redis: "embedded, in memory", log: "/tmp/fermata-dev-1/fermata.log",
		},
	}
	for i := range 10 {
		f.events = append(f.events, jobEvent{ago(time.Duration(10-i) * time.Second), "healthy", succeeded, fmt.Sprintf("ok; next in %ds", i)})
	}
	f.events = append(f.events,
		jobEvent{ago(0), "failing", failed, "failed; 4 failures in a row; next in 32s instead of 2s (GET http://127.0.0.1:40123/down: unexpected status 503 Service Unavailable)"},
		jobEvent{ago(0), "(target)", noResult, "now every path answers 503"})
	return f
}

func text(ls []tui.Line, colours bool) string {
	var b strings.Builder
	for _, l := range ls {
		b.WriteString(l.Text(colours) + "\n")
	}
	return b.String()
}

// Frames have local times; before anything runs, so that nobody reads it meanwhile.
func init() { time.Local = time.UTC }

func TestGoldenFrames(t *testing.T) {
	for _, tt := range []struct {
		name          string
		width, height int
		colours       bool
		change        func(*frame)
	}{
		{name: "80x24", width: 80, height: 24},
		{name: "120x40", width: 120, height: 40},
		{name: "200x40", width: 200, height: 40},
		{name: "120x40-colours", width: 120, height: 40, colours: true},
		{name: "80x14-draining", width: 80, height: 14, change: func(f *frame) {
			f.mode, f.notice = broken, "Draining: waiting for slow. Ctrl-C again stops at once."
		}},
		{name: "30x10", width: 30, height: 10},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := picture()
			if tt.change != nil {
				tt.change(&f)
			}
			got := text(f.renderLines(tt.width, tt.height), tt.colours)
			file := filepath.Join("testdata", tt.name+".golden")
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

// Whatever the terminal's size, a frame fits, and colours change no text.
func TestFramesFit(t *testing.T) {
	for width := 1; width <= 220; width += 3 {
		for _, height := range []int{1, 2, 9, 17, 24, 60} {
			f := picture()
			f.notice = "something is wrong"
			ls := f.renderLines(width, height)
			if len(ls) > height {
				t.Fatalf("%dx%d: %d lines", width, height, len(ls))
			}
			for _, l := range ls {
				if n := utf8.RuneCountInString(l.Text(false)); n > width || l.Width() > width {
					t.Fatalf("%dx%d: %d columns: %q", width, height, n, l.Text(false))
				}
			}
		}
	}
}

func TestManyJobsLeaveRoomForEvents(t *testing.T) {
	f := picture()
	for i := range 100 {
		f.rows = append(f.rows, jobRow{name: fmt.Sprint("job", i), phase: waiting})
	}
	got := text(f.renderLines(100, 24), false)
	if !strings.Contains(got, "and 101 more") || !strings.Contains(got, "now every path") {
		t.Errorf("neither the rest is counted nor the last event shown:\n%s", got)
	}
}

// The bar doubles in a way one sees, and fills as the wait passes.
func TestBar(t *testing.T) {
	for _, tt := range []struct {
		wait, passed time.Duration
		want         string
	}{
		{2 * time.Second, 0, "░░░          "},
		{4 * time.Second, 2 * time.Second, "██░░░        "},
		{8 * time.Second, 8 * time.Second, "███████      "},
		{64 * time.Second, 32 * time.Second, "██████░░░░░░░"},
		{time.Hour, 0, "░░░░░░░░░░░░░"},
		{100 * time.Millisecond, 0, "░            "},
		{-time.Second, 0, "█            "},
		{5 * time.Second, -time.Second, "░░░░░░       "},
	} {
		l := progressBar(at.Add(tt.passed), at, at.Add(tt.wait), barWidth, tui.Yellow)
		if got := l.Text(true); strings.Contains(got, "\x1b") == false || l.Width() != barWidth {
			t.Errorf("%v: %q is %d wide", tt.wait, got, l.Width())
		}
		var got string
		for _, s := range l {
			got += s.Text
		}
		if got != tt.want {
			t.Errorf("%v after %v: %q, want %q", tt.wait, tt.passed, got, tt.want)
		}
	}
}

func TestTimeline(t *testing.T) {
	marks := slices.Concat(marksAt(succeeded, 300, 118, 30), marksAt(failed, 29), marksAt(succeeded, 28), marksAt(cancelled, 4), marksAt(succeeded, 0))
	if each := cellTime(60); each != 2*time.Second {
		t.Fatalf("cells of %v", each)
	}
	got := timelineLine(at, marks, 60).Text(false)
	want := "●" + strings.Repeat("·", 43) + "✗●" + strings.Repeat("·", 11) + "○·●"
	// 30 s and 29 s ago share a cell, where the failure shows.
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	// Marks keep their distances while time passes inside a cell.
	if later := timelineLine(at.Add(1900*time.Millisecond), marks, 60).Text(false); later != got {
		t.Errorf("moved inside of a cell to %s", later)
	}
}

func TestTidy(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-time.Second: "0s", 0: "0s", 40 * time.Millisecond: "0s", 2 * time.Second: "2s", 4800 * time.Millisecond: "4.8s",
		9960 * time.Millisecond: "10s", 64 * time.Second: "64s", 99600 * time.Millisecond: "1m40s", 128 * time.Second: "2m08s",
		62 * time.Minute: "1h02m", 76 * time.Hour: "3d04h",
	} {
		if got := tui.FormatDuration(d); got != want {
			t.Errorf("%v: %s, want %s", d, got, want)
		}
	}
	if got := tui.Countdown(2 * time.Second); got != "2.0s" {
		t.Errorf("countdown %s", got)
	}
}

func TestFirstLine(t *testing.T) {
	for in, want := range map[string]string{
		"GET http://x/y: unexpected status 503 Service Unavailable": "503 Service Unavailable",
		"payload: url: no scheme":                                   "no scheme",
		"plain":                                                     "plain", "": "", "ends so: ": "ends so: ",
	} {
		if got := firstLine(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

func TestScreenLeavesTheTerminalAsItWas(t *testing.T) {
	var out bytes.Buffer
	s := liveDisplay{tui.Screen{Out: &out, Size: func() (int, int) { return 80, 24 }}}
	f := picture()
	s.showFirst(f)
	s.showUpdate(f, nil)
	shown := out.String()
	if frames := strings.Count(shown, "\x1b[H"); frames != 2 || strings.Contains(shown, "\x1b[3") {
		t.Errorf("%d frames, or colours although there are none", frames)
	}
	f.notice = "Drained."
	s.showLast(f)
	const leave = "\x1b[?25h\x1b[?1049l"
	after := strings.TrimPrefix(out.String(), shown)
	if !strings.HasPrefix(after, leave) || strings.Contains(after[len(leave):], "\x1b") {
		t.Errorf("after the live view: %q", after)
	}
	if !strings.Contains(after, "failing      backoff") || !strings.HasSuffix(after, "Drained.\n") {
		t.Errorf("the last state is not kept:\n%s", after)
	}
}

func TestPlainOutputHasNoControlCodes(t *testing.T) {
	var out bytes.Buffer
	o := outputFor(Options{Out: &out})
	f := picture()
	o.showFirst(f)
	begun := out.Len()
	o.showUpdate(f, f.events[10:])
	f.notice = (&session{trouble: errors.New("gone\n")}).currentNotice()
	o.showUpdate(f, nil)
	o.showUpdate(f, nil)
	o.showLast(f)
	want := "08:00:00  failing       failed; 4 failures in a row; next in 32s instead of 2s (GET http://127.0.0.1:40123/down: unexpected status 503 Service Unavailable)\n" +
		"08:00:00  (target)      now every path answers 503\n" +
		"08:00:00                The node does not answer: gone\n"
	if got := out.String()[begun:]; got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if strings.Contains(out.String(), "\x1b") {
		t.Errorf("control codes in\n%s", out.String())
	}
}
