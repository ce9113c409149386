package registry

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fermata-io/fermata/internal/core/schedule"
)

// TestNamespacesTakeTurnsAtExpensiveSchedules: calls of one namespace wait for each other, and those of another one
// for the one that has its turn at most.
func TestNamespacesTakeTurnsAtExpensiveSchedules(t *testing.T) {
	const checks, length = 20, time.Second
	synctest.Test(t, func(t *testing.T) {
		turns := newScheduleTurns()
		check := func(namespace string) (waited time.Duration) {
			began := time.Now()
			end, ok := turns.begin(t.Context(), namespace)
			if !ok {
				t.Error("no turn")
				return 0
			}
			waited = time.Since(began)
			time.Sleep(length)
			end()
			return waited
		}
		for range checks {
			go check("greedy")
		}
		synctest.Wait()
		if waited := check("other"); waited > length {
			t.Errorf("the check of another namespace waited %v, want %v at most", waited, length)
		}
		began := time.Now()
		if waited := check("greedy"); waited < (checks-3)*length {
			t.Errorf("the last check of the greedy namespace waited %v after %v", waited, time.Since(began))
		}
		if len(turns.byNamespace) > 0 || len(turns.all) > 0 {
			t.Errorf("%d namespaces and %d turns are left", len(turns.byNamespace), len(turns.all))
		}
	})
}

// TestCallsThatEndLeaveNoTurn: a call that ends while it waits leaves nothing behind.
func TestCallsThatEndLeaveNoTurn(t *testing.T) {
	turns := newScheduleTurns()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for i := range cap(turns.all) {
		end, ok := turns.begin(t.Context(), fmt.Sprint(i))
		if !ok {
			t.Fatal("no turn")
		}
		defer end()
	}
	for _, namespace := range []string{"0", "another"} {
		if _, ok := turns.begin(ended, namespace); ok {
			t.Errorf("a turn of namespace %s", namespace)
		}
	}
	if n := len(turns.byNamespace); n != cap(turns.all) {
		t.Errorf("%d namespaces, want %d", n, cap(turns.all))
	}
}

// TestOnlyExclusionsTakeTurns: schedules without exclusions are checked at once.
func TestOnlyExclusionsTakeTurns(t *testing.T) {
	taken := 0
	w := &scheduleWork{begin: func() (func(), bool) { taken++; return func() {}, true }}
	plain := schedule.Spec{Kind: schedule.KindCron, Cron: []string{"* * * * *"}}
	excluding := plain
	excluding.Exclude.Cron = []string{"* 0-22 * * *"}
	for _, c := range []struct {
		s    schedule.Spec
		want int
	}{{plain, 0}, {excluding, 1}} {
		if _, ok := w.Begin(c.s); !ok || taken != c.want {
			t.Errorf("%+v: %v, %d turns, want %d", c.s, ok, taken, c.want)
		}
	}
}
