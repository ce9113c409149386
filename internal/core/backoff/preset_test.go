package backoff_test

import (
	"strings"
	"testing"
	"time"

	"github.com/fermata-io/fermata/internal/core/backoff"
)

func TestPresetsAreValid(t *testing.T) {
	seen := map[string]bool{}
	for _, p := range backoff.Presets() {
		if p.Name == "" || p.Source == "" || p.Description == "" || seen[p.Name] {
			t.Errorf("%+v", p)
		}
		seen[p.Name] = true
		if (p.Retry == nil) == (p.Recurring == nil) {
			t.Errorf("%s: want one policy", p.Name)
		}
		if p.Retry != nil {
			if errs := p.Retry.Validate(); len(errs) > 0 {
				t.Errorf("%s: %v", p.Name, errs)
			}
		}
		if p.Recurring != nil {
			if errs := p.Recurring.Validate(); len(errs) > 0 {
				t.Errorf("%s: %v", p.Name, errs)
			}
		}
	}
	for _, name := range []string{"endpoint", "monitor", "webhook", "module-fixed", "module-linear", "module-exponential", "workflow"} {
		if !seen[name] {
			t.Errorf("no preset %s", name)
		}
	}
	if _, ok := backoff.PresetByName("none such"); ok {
		t.Error("an unknown preset was found")
	}
}

func TestPresetsAreCopies(t *testing.T) {
	preset(t, "webhook").Retry.MaxAttempts = 99
	preset(t, "monitor").Recurring.MaxExponent = 1
	if preset(t, "webhook").Retry.MaxAttempts == 99 || preset(t, "monitor").Recurring.MaxExponent == 1 {
		t.Error("a caller changed a preset")
	}
}

func TestForeignPresets(t *testing.T) {
	all := func(name string) []time.Duration { return preset(t, name).Retry.Ladder(2000) }
	equalDurations(t, all("cloud-scheduler"), seconds(5, 10, 20, 40, 80))
	equalDurations(t, all("kubernetes-job"), seconds(10, 20, 40, 80, 160, 320))
	equalDurations(t, all("aws-full-jitter"), seconds(1, 2))
	equalDurations(t, all("celery"), seconds(1, 2, 4))
	equalDurations(t, all("jobrunr"), seconds(3, 9, 27, 81, 243, 729, 2187, 6561, 19683, 59049))
	equalDurations(t, all("dapr-job"), seconds(1, 1, 1))
	tasks := all("cloud-tasks")
	if len(tasks) != 99 || tasks[0] != 100*time.Millisecond || tasks[15] != 3276800*time.Millisecond || tasks[16] != time.Hour || tasks[98] != time.Hour {
		t.Errorf("cloud-tasks: %v", tasks)
	}
	temporal := all("temporal-activity")
	if len(temporal) != 999 || temporal[998] != 100*time.Second {
		t.Errorf("temporal-activity: %v", temporal)
	}
	equalDurations(t, temporal[:9], seconds(1, 2, 4, 8, 16, 32, 64, 100, 100))
}

// The curves beyond the presets' own attempts, for users who raise the attempts.
func TestForeignPresetsWithMoreAttempts(t *testing.T) {
	longer := func(name string, waits int) []time.Duration {
		r := *preset(t, name).Retry
		r.MaxAttempts = 0
		return r.Ladder(waits)
	}
	equalDurations(t, longer("cloud-scheduler", 9), seconds(5, 10, 20, 40, 80, 160, 320, 480, 640))
	equalDurations(t, longer("kubernetes-job", 8), seconds(10, 20, 40, 80, 160, 320, 360, 360))
	equalDurations(t, longer("aws-full-jitter", 7), seconds(1, 2, 4, 8, 16, 20, 20))
	equalDurations(t, longer("celery", 11), seconds(1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 600))
}

// Full jitter is drawn from nothing to the whole of the wait.
func TestFullJitterPresets(t *testing.T) {
	for _, name := range []string{"aws-full-jitter", "celery"} {
		r := preset(t, name).Retry
		low, high := time.Hour, time.Duration(0)
		for i := range int64(5000) {
			d := r.Delay(2, backoff.Seed("job", i, 2))
			low, high = min(low, d), max(high, d)
		}
		if low < 0 || low > 4*time.Millisecond || high > 2*time.Second || high < 1996*time.Millisecond {
			t.Errorf("%s: %v to %v, want 0 to 2 s", name, low, high)
		}
	}
}

// A preset has to arrive whole wherever it is stored and shown: the interface
// takes zero for unset in these fields, and counts in milliseconds.
func TestPresetsCanBeStored(t *testing.T) {
	for _, p := range backoff.Presets() {
		if p.MinInterval%time.Millisecond != 0 {
			t.Errorf("%s: %v", p.Name, p.MinInterval)
		}
		if p.Recurring != nil && (p.Recurring.Multiplier == 0 || p.Recurring.MaxDelay%time.Millisecond != 0) {
			t.Errorf("%s: %+v", p.Name, p.Recurring)
		}
		r := p.Retry
		if r == nil {
			continue
		}
		if r.MaxAttempts == 0 || r.Multiplier == 0 || r.MaxDelay == 0 || r.Base == 0 ||
			r.Base%time.Millisecond != 0 || r.MaxDelay%time.Millisecond != 0 || r.MaxElapsed%time.Millisecond != 0 {
			t.Errorf("%s: %+v", p.Name, r)
		}
	}
}

// The table of presets names the systems that users come from.
func TestKnownAs(t *testing.T) {
	known := map[string]int{}
	for _, p := range backoff.Presets() {
		for _, who := range p.KnownAs {
			system, what, ok := strings.Cut(who, ": ")
			if !ok || system == "" || what == "" {
				t.Errorf("%s: %q", p.Name, who)
			}
			known[system]++
		}
	}
	for _, system := range []string{"Google Cloud Tasks", "Google Cloud Scheduler", "Kubernetes Job", "Temporal", "BullMQ", "Celery", "JobRunr", "Dapr", "Polly"} {
		if known[system] == 0 {
			t.Errorf("no preset is known as %s's", system)
		}
	}
}
