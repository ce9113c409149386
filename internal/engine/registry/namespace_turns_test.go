package registry

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/schedule"
	"github.com/fermata-io/fermata/internal/lib/callturn"
	"github.com/fermata-io/fermata/internal/lib/fairturn"
)

// TestNamespacesTakeTurnsAtExpensiveSchedules: calls of one namespace wait for each other, and those of another one
// for the one that has its turn at most.
func TestNamespacesTakeTurnsAtExpensiveSchedules(t *testing.T) {
	const checks, length = 20, 100 * time.Millisecond
	synctest.Test(t, func(t *testing.T) {
		turns := newScheduleTurns()
		check := func(namespace string) (waited time.Duration) {
			began := time.Now()
			end, err := turns.begin(t.Context(), namespace, takeTurnsAside(t.Context()))
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
		if held, waiting := turns.InUse(); held+waiting > 0 {
			t.Errorf("%d turns and %d waiting calls are left", held, waiting)
		}
	})
}

// callBy returns a context of a call with a turn of a node, which has some.
func callBy(ctx context.Context, caller string, node chan struct{}) (context.Context, *callturn.Turn) {
	take := func(context.Context) error { node <- struct{}{}; return nil }
	_ = take(ctx)
	turn := callturn.New(caller, take, func() { <-node }, nil)
	return callturn.NewContext(ctx, turn), turn
}

// workInTurn makes a call that works in a turn of a namespace, and returns how long it waited for that.
func workInTurn(t *testing.T, turns *namespaceTurns, node chan struct{}, caller, namespace string,
	length time.Duration) (waited time.Duration) {
	ctx, call := callBy(t.Context(), caller, node)
	defer call.End()
	began, part := time.Now(), takeTurnsAside(ctx)
	end, err := turns.begin(ctx, namespace, part)
	if err != nil {
		t.Error(err)
		return 0
	}
	waited = time.Since(began)
	time.Sleep(length)
	end()
	_ = part.rejoin(ctx)
	return waited
}

// TestCallersShareTheTurnOfTheirNamespace: callers who make many calls keep nobody else of the namespace waiting for more
// than one turn of each, and one with short turns has many in the time of a long one.
func TestCallersShareTheTurnOfTheirNamespace(t *testing.T) {
	const long, short = 10 * time.Millisecond, time.Millisecond
	synctest.Test(t, func(t *testing.T) {
		turns, node := newLookupTurns(), make(chan struct{}, 1000)
		look := func(caller string, length time.Duration) (waited time.Duration) {
			return workInTurn(t, turns, node, caller, "ns", length)
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
		if took := time.Since(began); took > 7*long {
			t.Errorf("ten short turns at once took %v", took)
		}
		time.Sleep(500 * long)
		synctest.Wait()
		if held, waiting := turns.InUse(); held+waiting+len(node) > 0 {
			t.Errorf("%d turns, %d waiting calls and %d calls are left", held, waiting, len(node))
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
		end, err := r.lookups.begin(t.Context(), "greedy", takeTurnsAside(t.Context()))
		if err != nil {
			t.Fatal(err)
		}
		answered := make(chan []job.CreateAnswer, calls)
		for range calls {
			go func() { answered <- batch("greedy") }()
		}
		time.Sleep(time.Second / 2)
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

// TestBatchesGoOnBesideOthers: a batch whose parts make many short checks, beside calls of others that use all turns of the
// node and of checks, waits for the turn of its node once for each part at most, and not after each check.
func TestBatchesGoOnBesideOthers(t *testing.T) {
	const parts, checks, check, batch = 8, 50, time.Millisecond, time.Second
	synctest.Test(t, func(t *testing.T) {
		node, turns, ended := fairturn.New(4, 3), newNamespaceTurns("schedules", 1), make(chan struct{})
		for i := range 6 {
			other := fairturn.Holder{Namespace: fmt.Sprint("batches", i), Identity: fmt.Sprint("batches", i)}
			for range 2 {
				go useAgainAndAgain(node, other, batch, ended)
			}
		}
		for i := range 8 {
			other := fairturn.Holder{Namespace: fmt.Sprint("checks", i), Identity: fmt.Sprint("checks", i)}
			for range 4 {
				go useAgainAndAgain(turns.Turns, other, 30*check, ended)
			}
		}
		time.Sleep(3 * batch)
		h, began := fairturn.Holder{Namespace: "ns", Identity: "caller"}, time.Now()
		take := func(ctx context.Context) error { return node.Take(ctx, h) }
		_ = take(t.Context())
		call := callturn.New(h.Identity, take, func() { node.Release(h, check) }, nil)
		ctx := callturn.NewContext(t.Context(), call)
		callturn.RunParts(ctx, parts, func(int) {
			part := takeTurnsAside(ctx)
			for range checks {
				end, err := turns.begin(ctx, h.Namespace, part)
				if err != nil {
					t.Error(err)
					break
				}
				time.Sleep(check)
				end()
			}
			if err := part.rejoin(ctx); err != nil {
				t.Error(err)
			}
		})
		call.End()
		if took, most := time.Since(began), 3*batch+9*parts*checks*check+time.Second; took > most {
			t.Errorf("the batch took %v, want %v at most", took, most)
		}
		close(ended)
		time.Sleep(time.Minute)
	})
}

// useAgainAndAgain takes turns of some length until others have ended.
func useAgainAndAgain(turns *fairturn.Turns, h fairturn.Holder, length time.Duration, ended chan struct{}) {
	for {
		_ = turns.Take(context.Background(), h)
		time.Sleep(length)
		turns.Release(h, length)
		select {
		case <-ended:
			return
		case <-time.After(time.Millisecond):
		}
	}
}

// TestNobodyWaitsForACallWithoutItsTurn: a call that gave its turn back has the turn of its namespace for its work only,
// and not while it waits for its own turn.
func TestNobodyWaitsForACallWithoutItsTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns, node := newLookupTurns(), make(chan struct{}, 1)
		end, err := turns.begin(t.Context(), "ns", takeTurnsAside(t.Context()))
		if err != nil {
			t.Fatal(err)
		}
		ctx, call := callBy(t.Context(), "late", node)
		ended := make(chan time.Time, 1)
		go func() {
			part := takeTurnsAside(ctx)
			end, err := turns.begin(ctx, "ns", part)
			if err != nil {
				t.Error(err)
				return
			}
			time.Sleep(time.Second)
			end()
			_ = part.rejoin(ctx)
			ended <- time.Now()
		}()
		time.Sleep(time.Second)
		node <- struct{}{} // another call's
		began := time.Now()
		time.AfterFunc(time.Minute, func() { <-node })
		end()
		end, err = turns.begin(t.Context(), "ns", takeTurnsAside(t.Context()))
		if waited := time.Since(began); err != nil || waited != time.Second {
			t.Fatalf("another caller of the namespace waited %v: %v", waited, err)
		}
		end()
		if waited := (<-ended).Sub(began); waited != time.Minute {
			t.Errorf("the call went on after %v", waited)
		}
		call.End()
	})
}

// TestTurnsOfManyNamespacesAreOfTheirCaller: a caller gains nothing by work in many namespaces.
func TestTurnsOfManyNamespacesAreOfTheirCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const length = 10 * time.Millisecond
		turns, node := newNamespaceTurns("schedules", 1), make(chan struct{}, 1000)
		check := func(caller, namespace string) (waited time.Duration) {
			return workInTurn(t, turns, node, caller, namespace, length)
		}
		for i := range 200 {
			go check("greedy", fmt.Sprint("x-", i))
		}
		synctest.Wait()
		for range 5 {
			if waited := check("other", "other"); waited > 2*length {
				t.Errorf("another caller waited %v", waited)
			}
		}
		time.Sleep(maxTurnWait)
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
			var mu sync.Mutex
			for _, c := range calls {
				time.AfterFunc(time.Duration(c.after)*time.Second, func() {
					ctx, own := callBy(t.Context(), c.caller, node)
					defer own.End()
					part := takeTurnsAside(ctx)
					part.left = time.Duration(c.patience) * time.Second
					defer part.finish()
					end, err := turns.begin(ctx, c.namespace, part)
					if err != nil {
						return
					}
					mu.Lock()
					having[c.namespace]++
					if held, _ := turns.InUse(); having[c.namespace] > 1 || held > 2 {
						t.Error("two calls of a namespace have the turn")
					}
					mu.Unlock()
					time.Sleep(time.Duration(c.length) * time.Second)
					mu.Lock()
					having[c.namespace]--
					mu.Unlock()
					end()
				})
			}
			time.Sleep(time.Hour)
			synctest.Wait()
			if held, waiting := turns.InUse(); held+waiting+len(node) > 0 {
				t.Errorf("%d turns, %d waiting calls and %d calls are left", held, waiting, len(node))
			}
		})
	})
}

// TestCallsThatEndLeaveNoTurn: a call that ends while it waits leaves nothing behind.
func TestCallsThatEndLeaveNoTurn(t *testing.T) {
	turns, atOnce := newScheduleTurns(), max(1, runtime.GOMAXPROCS(0)/2)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for i := range atOnce {
		end, err := turns.begin(t.Context(), fmt.Sprint(i), takeTurnsAside(t.Context()))
		if err != nil {
			t.Fatal(err)
		}
		defer end()
	}
	for _, namespace := range []string{"0", "another"} {
		if _, err := turns.begin(ended, namespace, takeTurnsAside(ended)); !errors.Is(err, context.Canceled) {
			t.Errorf("a turn of namespace %s: %v", namespace, err)
		}
	}
	if held, waiting := turns.InUse(); held != atOnce || waiting != 0 {
		t.Errorf("%d turns, want %d, and %d waiting calls", held, atOnce, waiting)
	}
}

// TestCheapSchedulesTakeNoTurns: schedules of few expressions without exclusions are checked at once.
func TestCheapSchedulesTakeNoTurns(t *testing.T) {
	many := plainSchedule()
	many.Cron = slices.Repeat(many.Cron, cheapExpressions+1)
	for _, c := range []struct {
		s    schedule.Spec
		want int
	}{{plainSchedule(), 0}, {excludingSchedule(), 1}, {many, 1}} {
		taken, ended := 0, 0
		w := &scheduleWorkInTurns{begin: func() (func(), error) { taken++; return func() { ended++ }, nil }}
		_, err := w.Begin(c.s)
		w.endTurn()
		w.endTurn()
		if err != nil || taken != c.want || ended != taken {
			t.Errorf("%+v: %v, %d turns, want %d, %d ended", c.s, err, taken, c.want, ended)
		}
	}
}

func plainSchedule() schedule.Spec {
	return schedule.Spec{Kind: schedule.KindCron, Cron: []string{"* * * * *"}}
}

func excludingSchedule() schedule.Spec {
	s := plainSchedule()
	s.Exclude.Cron = []string{"* 0-22 * * *"}
	return s
}

// TestShortChecksShareATurn: a part with many short checks, beside others with long ones, does not wait for them with each.
func TestShortChecksShareATurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const checks, short, long = 1000, 50 * time.Microsecond, 15 * time.Millisecond
		_, r := newFake(t)
		ended := make(chan struct{})
		r.schedules = newNamespaceTurns("schedules", 1)
		for i := range 2 {
			other := fairturn.Holder{Namespace: fmt.Sprint("other", i), Identity: fmt.Sprint("other", i)}
			go useAgainAndAgain(r.schedules.Turns, other, long, ended)
		}
		synctest.Wait()
		began := time.Now()
		limits, endTurn := r.limitsInTurns(t.Context(), "ns", new(scheduleWork), takeTurnsAside(t.Context()))
		for i := range checks {
			s := excludingSchedule()
			if i%2 == 0 {
				s = plainSchedule()
			}
			end, err := limits.Work.Begin(s)
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(short)
			end()
		}
		endTurn()
		if took, most := time.Since(began), 3*(checks*short+2*long); took > most {
			t.Errorf("the checks took %v, want %v at most", took, most)
		}
		close(ended)
		time.Sleep(time.Minute)
		if held, waiting := r.schedules.InUse(); held+waiting > 0 {
			t.Errorf("%d turns and %d waiting calls are left", held, waiting)
		}
	})
}

// TestClocksAreReadWithoutTurns: a batch has no turn for checks while it asks for the clock of a shard, which may not answer.
func TestClocksAreReadWithoutTurns(t *testing.T) {
	f, r := newFake(t)
	read := 0
	f.onNow = func() {
		read++
		if held, _ := r.schedules.InUse(); held > 0 {
			t.Error("a turn is held while a clock is read")
		}
	}
	var requests []job.CreateRequest
	for i := range 20 {
		d := definition(fmt.Sprint("j", i))
		d.Schedule = excludingSchedule()
		requests = append(requests, job.CreateRequest{Definition: d})
	}
	for _, a := range r.CreateBatch(t.Context(), requests) {
		if a.Err != nil {
			t.Fatal(a.Err)
		}
	}
	if read < 2 {
		t.Errorf("%d clocks were read", read)
	}
}

// TestWaitsForTurnsAreBounded: a call waits for all of its expensive schedules together no longer than for one, and is
// refused then. It holds a turn of its identity meanwhile.
func TestWaitsForTurnsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, r := newFake(t)
		var ends []func()
		for i := range max(1, runtime.GOMAXPROCS(0)/2) {
			end, err := r.schedules.begin(t.Context(), fmt.Sprint(i), takeTurnsAside(t.Context()))
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
		_, err := r.Create(t.Context(), d, "")
		if held, waiting := r.schedules.InUse(); err != nil || held+waiting > 0 {
			t.Errorf("with free turns: %v, %d turns and %d waiting calls are left", err, held, waiting)
		}
	})
}
