package sim

import (
	"bufio"
	"bytes"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fermata-io/fermata/internal/core/unixtime"
	"github.com/fermata-io/fermata/internal/test/redistest"
)

func TestCommandsAreReadWhole(t *testing.T) {
	var b bytes.Buffer
	writeCommand(&b, toCommand("SET", "k", "a\r\nb")...)
	writeCommand(&b, toCommand("GET", "k")...)
	whole := b.Bytes()
	for cut := range len(whole) + 1 {
		list, rest, err := parseCommands(whole[:cut])
		if err != nil {
			t.Fatal(err)
		}
		again, left, err := parseCommands(append(bytes.Clone(rest), whole[cut:]...))
		if err != nil || len(left) > 0 {
			t.Fatalf("cut at %d: %q is left, %v", cut, left, err)
		}
		all := append(list, again...)
		if len(all) != 2 || string(all[0][2]) != "a\r\nb" || string(all[1][0]) != "GET" {
			t.Fatalf("cut at %d: %q", cut, all)
		}
	}
	if _, _, err := parseCommands([]byte("GET k\r\n")); err == nil {
		t.Error("a command that is no array was taken")
	}
}

func TestRepliesAreReadWhole(t *testing.T) {
	replies := []string{
		"+OK\r\n", "-ERR no\r\n", ":12\r\n", "$-1\r\n", "$4\r\na\r\nb\r\n", "*-1\r\n", "*0\r\n", "_\r\n",
		"*3\r\n:1\r\n*2\r\n$1\r\nx\r\n$0\r\n\r\n+y\r\n", "%1\r\n+k\r\n~2\r\n:1\r\n#t\r\n",
	}
	r := bufio.NewReader(strings.NewReader(strings.Join(replies, "")))
	for _, want := range replies {
		if got, err := readReply(r); err != nil || string(got) != want {
			t.Errorf("read %q, %v, want %q", got, err, want)
		}
	}
}

// inBubble runs a test against a real server, in bubble time.
func inBubble(t *testing.T, test func(t *testing.T, s *redisServer)) {
	t.Helper()
	s, err := dialServer(redistest.Start(t).Addr())
	if err != nil {
		t.Fatal(err)
	}
	s.now = func() unixtime.Milli { return unixtime.MilliOf(time.Now()) }
	synctest.Test(t, func(t *testing.T) { test(t, s) })
	if err := s.closeServer(); err != nil {
		t.Error(err)
	}
}

func (s *redisServer) callOrFail(t *testing.T, args ...string) string {
	t.Helper()
	out, err := s.executeAll([][][]byte{toCommand(args...)})
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}

func TestLocksExpireByBubbleClock(t *testing.T) {
	inBubble(t, func(t *testing.T, s *redisServer) {
		const lock = "p:{s}:lock"
		s.callOrFail(t, "SET", lock, "a", "PX", "3000")
		time.Sleep(time.Second)
		if ttl := s.callOrFail(t, "PTTL", lock); ttl != ":2000" && ttl != ":1999" {
			t.Errorf("PTTL after a second of three: %s", ttl)
		}
		// Looking at it twice at once changes nothing.
		out, err := s.executeAll([][][]byte{toCommand("GET", lock), toCommand("PTTL", lock)})
		if err != nil || !strings.HasPrefix(string(out), "$1\r\na\r\n:") {
			t.Errorf("GET and PTTL: %q, %v", out, err)
		}
		s.callOrFail(t, "PEXPIRE", lock, "5000")
		time.Sleep(4900 * time.Millisecond)
		if got := s.callOrFail(t, "PTTL", lock); got == ":-2" {
			t.Errorf("PTTL before the end: %s", got)
		}
		time.Sleep(200 * time.Millisecond)
		if got := s.callOrFail(t, "PTTL", lock); got != ":-2" {
			t.Errorf("PTTL after the end: %s", got)
		}
		s.callOrFail(t, "SET", lock, "b", "PX", "1000")
		s.callOrFail(t, "DEL", lock)
		s.callOrFail(t, "SET", lock, "c")
		time.Sleep(time.Hour)
		if got := s.callOrFail(t, "PTTL", lock); got != ":-1" {
			t.Errorf("PTTL of a lock without an end: %s", got)
		}
	})
}

func TestScriptsGetArrivalTime(t *testing.T) {
	inBubble(t, func(t *testing.T, s *redisServer) {
		time.Sleep(time.Hour)
		now := strconv.FormatInt(int64(s.now()), 10)
		for key, want := range map[string]string{"p:{s}:meta": now, "p:{s}:other": "stale"} {
			if got := s.callOrFail(t, "EVAL", "return ARGV[3]", "2", key, "p:{s}:x", "0", "0", "stale"); !strings.HasSuffix(got, want) {
				t.Errorf("the third argument of a script on %s is %q, want %q", key, got, want)
			}
		}
	})
}

func TestPlans(t *testing.T) {
	seen := map[faultKind]int{}
	for seed := range uint64(300) {
		p := drawPlan(seed)
		if again := drawPlan(seed); p.String() != again.String() {
			t.Fatalf("seed %d has two plans:\n%v%v", seed, p, again)
		}
		for _, f := range p.faults {
			seen[f.kind]++
			if f.at < troubleAt || f.at+f.last > calmAt {
				t.Errorf("seed %d: %v is not between %v and %v", seed, f, troubleAt, calmAt)
			}
			if f.kind == clockBack && (2*f.step.Abs() <= f.last || slices.Contains(p.faultKinds(), clockStep)) {
				t.Errorf("seed %d: after %v the clock is not just put right", seed, f)
			}
			if f.who == f.other && f.who != "" {
				t.Errorf("seed %d: %v cuts a machine from itself", seed, f)
			}
		}
	}
	for _, k := range allKinds() {
		if seen[k] == 0 {
			t.Errorf("no plan has a %s", k)
		}
	}
}

// The clock by which handlers date what they saw never goes back, whatever Redis's
// clock does.
func TestHandlerClockNeverGoesBack(t *testing.T) {
	inBubble(t, func(t *testing.T, s *redisServer) {
		w := newWorld(1, s, false)
		last := w.nowNS()
		for _, step := range []time.Duration{0, 3 * time.Second, -2 * time.Second, 0, -2 * time.Second, time.Second} {
			w.stepClock(step)
			for range 50 {
				time.Sleep(37 * time.Millisecond)
				now := w.nowNS()
				if now < last {
					t.Fatalf("%d after %d", now, last)
				}
				last = now
			}
		}
		close(w.ended)
		w.background.Wait()
	})
}
