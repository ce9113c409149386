package registry

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
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
			end, err := turns.begin(t.Context(), namespace, began.Add(time.Hour))
			if err != nil {
				t.Error(err)
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
	turns, until := newScheduleTurns(), time.Now().Add(time.Hour)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for i := range cap(turns.all) {
		end, err := turns.begin(t.Context(), fmt.Sprint(i), until)
		if err != nil {
			t.Fatal(err)
		}
		defer end()
	}
	for _, namespace := range []string{"0", "another"} {
		if _, err := turns.begin(ended, namespace, until); !errors.Is(err, context.Canceled) {
			t.Errorf("a turn of namespace %s: %v", namespace, err)
		}
	}
	if n := len(turns.byNamespace); n != cap(turns.all) {
		t.Errorf("%d namespaces, want %d", n, cap(turns.all))
	}
}

// TestCheapSchedulesTakeNoTurns: schedules of few expressions without exclusions are checked at once.
func TestCheapSchedulesTakeNoTurns(t *testing.T) {
	taken := 0
	w := &scheduleWork{begin: func() (func(), error) { taken++; return func() {}, nil }}
	plain := schedule.Spec{Kind: schedule.KindCron, Cron: []string{"* * * * *"}}
	excluding := plain
	excluding.Exclude.Cron = []string{"* 0-22 * * *"}
	many := plain
	many.Cron = slices.Repeat(plain.Cron, cheapExpressions+1)
	for _, c := range []struct {
		s    schedule.Spec
		want int
	}{{plain, 0}, {excluding, 1}, {many, 2}} {
		if _, err := w.Begin(c.s); err != nil || taken != c.want {
			t.Errorf("%+v: %v, %d turns, want %d", c.s, err, taken, c.want)
		}
	}
}

// TestWaitsForTurnsAreBounded: a call waits for all of its expensive schedules together no longer than for one, and is
// refused then. It holds a turn of its identity meanwhile.
func TestWaitsForTurnsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, r := newFake(t)
		var ends []func()
		for i := range cap(r.schedules.all) {
			end, err := r.schedules.begin(t.Context(), fmt.Sprint(i), time.Now())
			if err != nil {
				t.Fatal(err)
			}
			ends = append(ends, end)
		}
		dear := schedule.Spec{Kind: schedule.KindCron, Cron: []string{"*/5 * * * *"}}
		dear.Exclude.Windows = []string{"sat,sun"}
		for namespace, of := range map[string]string{"0": "0", "default": ""} {
			began, requests := time.Now(), []job.CreateRequest{}
			for i := range 10 {
				d := definition(fmt.Sprint("j", i))
				d.Namespace, d.Schedule = namespace, dear
				requests = append(requests, job.CreateRequest{Definition: d})
			}
			for _, a := range r.CreateBatch(t.Context(), requests) {
				var refused *job.TurnError
				if !errors.As(a.Err, &refused) || *refused != (job.TurnError{Work: "schedules", Namespace: of}) {
					t.Fatalf("%s: %v", namespace, a.Err)
				}
			}
			if waited := time.Since(began); waited != maxTurnWait {
				t.Errorf("%s: the call waited %v, want %v", namespace, waited, maxTurnWait)
			}
		}
		for _, end := range ends {
			end()
		}
		d := definition("j")
		d.Schedule = dear
		if _, err := r.Create(t.Context(), d, ""); err != nil || len(r.schedules.all)+len(r.schedules.byNamespace) > 0 {
			t.Errorf("with free turns: %v, %d are left", err, len(r.schedules.all))
		}
	})
}
