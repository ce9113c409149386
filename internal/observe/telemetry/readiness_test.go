package telemetry

import (
	"sync"
	"testing"
	"time"
)

// TestReadinessIsShared: requests that come together cost one check, and a later one costs another.
func TestReadinessIsShared(t *testing.T) {
	now, checks := time.Unix(1000, 0), 0
	r := newReadiness(func() []string { checks++; return []string{"redis"} })
	r.now = func() time.Time { return now }
	var together sync.WaitGroup
	for range 100 {
		together.Go(func() {
			if missing := r.findMissing(); len(missing) != 1 {
				t.Errorf("missing are %q", missing)
			}
		})
	}
	together.Wait()
	if checks != 1 {
		t.Errorf("100 requests together cost %d checks, want 1", checks)
	}
	now = now.Add(readinessAge)
	r.findMissing()
	if checks != 2 {
		t.Errorf("a later request costs %d checks in all, want 2", checks)
	}
}
