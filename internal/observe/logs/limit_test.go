package logs

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// lines counts what was written, by message.
func linesOf(t *testing.T, out *bytes.Buffer) (count map[string]int, left map[string]float64) {
	t.Helper()
	count, left = map[string]int{}, map[string]float64{}
	for line := range strings.Lines(out.String()) {
		var l map[string]any
		if err := json.Unmarshal([]byte(line), &l); err != nil {
			t.Fatal(err)
		}
		count[l["msg"].(string)]++
		if l["msg"] == "log lines left out" {
			left[l["message"].(string)] += l["count"].(float64)
		}
	}
	return count, left
}

// TestLoopThatFailsDoesNotDrownTheRest is a job that fails a thousand times a second
// beside others that fail now and then.
func TestLoopThatFailsDoesNotDrownTheRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		logger := slog.New(LimitRepeats(slog.NewJSONHandler(&out, nil), 5))
		for i := range 3000 {
			logger.Info("run_dead", "job", "ns/loop", "error", fmt.Sprint(i))
			if i%1000 == 0 {
				logger.Info("run_dead", "job", "ns/other")
				logger.With("record", "ns/third").Info("run_dead")
			}
			time.Sleep(time.Millisecond)
		}
		time.Sleep(Window)
		synctest.Wait()
		count, left := linesOf(t, &out)
		if count["run_dead"] != 5+3+3 || left["run_dead"] != 2995 {
			t.Errorf("%d lines written, %v left out", count["run_dead"], left)
		}
		logger.Info("run_dead", "job", "ns/loop")
		time.Sleep(2 * Window)
		synctest.Wait()
		if again, left := linesOf(t, &out); again["run_dead"] != 12 || left["run_dead"] != 2995 {
			t.Errorf("after the window: %v, %v", again, left)
		}
	})
}

// TestMessageIsBoundedOverAllJobs: many jobs that fail at once are one event.
func TestMessageIsBoundedOverAllJobs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		w := LimitRepeats(slog.NewJSONHandler(&out, nil), 2)
		logger := slog.New(w)
		for i := range 2 * maxSubjects {
			logger.Warn("run_dead", "job", fmt.Sprintf("ns/%d", i))
		}
		for range 300 {
			logger.Info("audit", "resource", "r")
		}
		logger.Info("calm")
		counted := w.(*limited).window
		counted.mu.Lock()
		n := len(counted.counts)
		counted.mu.Unlock()
		if n > maxSubjects+10 {
			t.Errorf("%d counts are kept", n)
		}
		time.Sleep(Window)
		synctest.Wait()
		count, left := linesOf(t, &out)
		if count["run_dead"] != 20 || left["run_dead"] != 2*maxSubjects-20 || count["audit"] != 300 ||
			count["calm"] != 1 {
			t.Errorf("%v, left out %v", count, left)
		}
	})
}

// TestManyMessagesAreBounded: a peer that chooses what is in a message gets neither any number of lines nor any memory,
// also if nothing else is logged later.
func TestManyMessagesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		w := LimitRepeats(slog.NewJSONHandler(&out, nil), 1)
		logger, counted := slog.New(w), w.(*limited).window
		long := strings.Repeat("x", 4000)
		for i := range 3 * maxMessages {
			logger.Warn(fmt.Sprint(i, " ", long), "job", fmt.Sprint("ns/", i, long))
		}
		for range 20 {
			logger.Warn("run_dead")
		}
		counted.mu.Lock()
		if len(counted.totals) > maxMessages+1 || len(counted.counts) > maxSubjects+maxMessages+1 {
			t.Errorf("%d messages and %d subjects are counted", len(counted.totals), len(counted.counts))
		}
		for l := range counted.totals {
			if len(l.message) > maxKeptText {
				t.Errorf("%d bytes of a message are kept", len(l.message))
			}
		}
		counted.mu.Unlock()
		time.Sleep(Window)
		synctest.Wait()
		counted.mu.Lock()
		if counted.counts != nil || counted.totals != nil || counted.omitted != nil {
			t.Error("counts are kept after their window")
		}
		counted.mu.Unlock()
		written := strings.Count(out.String(), "\n")
		if want := maxMessages + 2*messageFactor; written > want {
			t.Errorf("%d lines, want %d at most", written, want)
		}
		if _, left := linesOf(t, &out); left[otherMessages] != 2*maxMessages+20-messageFactor {
			t.Errorf("left out %v", left)
		}
	})
}

// TestGroupsMeanSomethingElse: an attribute inside of a group is not the line's job.
func TestGroupsMeanSomethingElse(t *testing.T) {
	var out bytes.Buffer
	logger := slog.New(LimitRepeats(slog.NewJSONHandler(&out, nil), 1)).WithGroup("g")
	for i := range 3 {
		logger.Info("m", "job", i)
	}
	if count, _ := linesOf(t, &out); count["m"] != 3 || !strings.Contains(out.String(), `"g":{"job":2}`) {
		t.Errorf("%v: %s", count, out.String())
	}
}
