package backoff_test

import (
	"testing"
	"time"

	"github.com/fermata-io/fermata/internal/backoff"
)

func TestPresetsAreSound(t *testing.T) {
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
	equalDurations(t, preset(t, "cloud-scheduler").Retry.Ladder(100), seconds(5, 10, 20, 40, 80))
	equalDurations(t, preset(t, "kubernetes-job").Retry.Ladder(100), seconds(10, 20, 40, 80, 160, 320))
	tasks := preset(t, "cloud-tasks").Retry.Ladder(100)
	if len(tasks) != 99 || tasks[0] != 100*time.Millisecond || tasks[15] != 3276800*time.Millisecond || tasks[16] != time.Hour || tasks[98] != time.Hour {
		t.Errorf("cloud-tasks: %v", tasks)
	}
}
