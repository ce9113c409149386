package registry

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/schedule"
	"github.com/fermata-io/fermata/internal/lib/callturn"
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

// callBy returns a context of a call with a turn of a node, which has some.
func callBy(ctx context.Context, caller string, node chan struct{}) (context.Context, *callturn.Turn) {
	take := func(context.Context) error { node <- struct{}{}; return nil }
	_ = take(ctx)
	turn := callturn.New(caller, take, func() { <-node })
	return callturn.NewContext(ctx, turn), turn
}

// TestCallersShareTheTurnOfTheirNamespace: callers who make many calls keep nobody else of the namespace waiting for more
// than one turn of each, and one with short turns has many in the time of a long one.
func TestCallersShareTheTurnOfTheirNamespace(t *testing.T) {
	const long, short = time.Second, 100 * time.Millisecond
	synctest.Test(t, func(t *testing.T) {
		turns, node := newLookupTurns(), make(chan struct{}, 1000)
		look := func(caller string, length time.Duration) (waited time.Duration) {
			ctx, call := callBy(t.Context(), caller, node)
			defer call.End()
			began := time.Now()
			end, err := turns.begin(ctx, "ns", began.Add(time.Hour))
			if err != nil {
				t.Error(err)
				return 0
			}
			waited = time.Since(began)
			time.Sleep(length)
			end()
			return waited
		}
		for i := range 300 {
			go look(fmt.Sprint("greedy", i%3), long)
		}
		synctest.Wait()
		for range 5 {
			if waited := look("other", long); waited > 4*long {
				t.Errorf("another caller waited %v", waited)
			}
		}
		began, ended := time.Now(), make(chan bool, 10)
		for range 10 {
			go func() {
				look("brief", short)
				ended <- true
			}()
		}
		for range 10 {
			<-ended
		}
		if took := time.Since(began); took > 5*long {
			t.Errorf("ten short turns at once took %v", took)
		}
		time.Sleep(400 * long)
		synctest.Wait()
		if len(turns.byNamespace)+len(turns.all)+len(node) > 0 {
			t.Errorf("%d namespaces, %d turns, %d calls are left", len(turns.byNamespace), len(turns.all), len(node))
		}
	})
}

// TestWaitingCallsReturnTheirTurns: calls that wait for the turn of their namespace leave the turns of the node to others.
func TestWaitingCallsReturnTheirTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const calls = 4
		_, r := newFake(t)
		node := make(chan struct{}, calls)
		batch := func(namespace string) []job.CreateAnswer {
			ctx, call := callBy(t.Context(), namespace, node)
			defer call.End()
			var requests []job.CreateRequest
			for i := range 2 * jobsPerPart { // several parts
				d := definition(fmt.Sprint("j", i))
				d.Namespace = namespace
				requests = append(requests, job.CreateRequest{Definition: d})
			}
			return r.CreateBatch(ctx, requests)
		}
		batch("greedy")
		end, err := r.lookups.begin(t.Context(), "greedy", time.Now())
		if err != nil {
			t.Fatal(err)
		}
		answered := make(chan []job.CreateAnswer, calls)
		for range calls {
			go func() { answered <- batch("greedy") }()
		}
		synctest.Wait()
		if len(node) > 0 {
			t.Errorf("%d waiting calls have turns of the node", len(node))
		}
		time.AfterFunc(time.Second, end)
		began := time.Now()
		for _, a := range batch("other") {
			if a.Err != nil {
				t.Fatal(a.Err)
			}
		}
		if waited := time.Since(began); waited > 0 {
			t.Errorf("another namespace waited %v", waited)
		}
		for range calls {
			for _, a := range <-answered {
				if a.Err != nil {
					t.Fatal(a.Err)
				}
			}
		}
		if len(node) > 0 {
			t.Errorf("%d calls have turns of the node after their end", len(node))
		}
	})
}

// TestCallsWithoutATurnOfTheNodeLeaveTheirNamespace: a call that gets no turn on the node in time does not keep the
// turn of its namespace from others.
func TestCallsWithoutATurnOfTheNodeLeaveTheirNamespace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns, node := newLookupTurns(), make(chan struct{}, 1)
		end, err := turns.begin(t.Context(), "ns", time.Now())
		if err != nil {
			t.Fatal(err)
		}
		take := func(ctx context.Context) error {
			select {
			case node <- struct{}{}:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		node <- struct{}{}
		call := callturn.New("late", take, func() { <-node })
		refused := make(chan error, 1)
		go func() {
			_, err := turns.begin(callturn.NewContext(t.Context(), call), "ns", time.Now().Add(maxTurnWait))
			refused <- err
		}()
		synctest.Wait()
		node <- struct{}{} // another call's, for longer than calls wait
		end()
		time.AfterFunc(time.Minute, func() { <-node })
		began := time.Now()
		end, err = turns.begin(t.Context(), "ns", began.Add(time.Hour))
		if err != nil || time.Since(began) > maxTurnWait {
			t.Fatalf("another caller of the namespace waited %v: %v", time.Since(began), err)
		}
		end()
		var turn *job.TurnError
		if err := <-refused; !errors.As(err, &turn) || *turn != (job.TurnError{Work: "lookups"}) {
			t.Errorf("%v, want the limit of the node", err)
		}
		call.End()
		if len(turns.byNamespace)+len(turns.all)+len(node) > 0 {
			t.Errorf("%d namespaces, %d turns, %d calls are left", len(turns.byNamespace), len(turns.all), len(node))
		}
	})
}

// TestTurnsGoToCallsThatWait: whatever calls come and give up, a turn goes to one that waits, and none is lost.
func TestTurnsGoToCallsThatWait(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		type call struct {
			caller, namespace       string
			after, patience, length int
		}
		calls := rapid.SliceOfN(rapid.Custom(func(rt *rapid.T) call {
			return call{
				rapid.SampledFrom([]string{"a", "b", "c"}).Draw(rt, "caller"),
				rapid.SampledFrom([]string{"v", "w", "x"}).Draw(rt, "namespace"),
				rapid.IntRange(0, 20).Draw(rt, "after"), rapid.IntRange(0, 10).Draw(rt, "patience"),
				rapid.IntRange(0, 5).Draw(rt, "length"),
			}
		}), 1, 60).Draw(rt, "calls")
		synctest.Test(t, func(t *testing.T) {
			turns, node, having := newNamespaceTurns("work", 2), make(chan struct{}, 100), map[string]int{}
			for _, c := range calls {
				time.AfterFunc(time.Duration(c.after)*time.Second, func() {
					ctx, own := callBy(t.Context(), c.caller, node)
					defer own.End()
					end, err := turns.begin(ctx, c.namespace, time.Now().Add(time.Duration(c.patience)*time.Second))
					if err != nil {
						return
					}
					turns.mu.Lock()
					having[c.namespace]++
					if having[c.namespace] > 1 || len(turns.all) > 2 {
						t.Error("two calls of a namespace have the turn")
					}
					turns.mu.Unlock()
					time.Sleep(time.Duration(c.length) * time.Second)
					turns.mu.Lock()
					having[c.namespace]--
					turns.mu.Unlock()
					end()
				})
			}
			time.Sleep(time.Hour)
			synctest.Wait()
			if len(turns.byNamespace)+len(turns.all)+len(node) > 0 {
				t.Errorf("%d namespaces, %d turns, %d calls are left", len(turns.byNamespace), len(turns.all), len(node))
			}
		})
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
