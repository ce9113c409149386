package fairturn

import (
	"context"
	"fmt"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

// use takes a turn and uses it for some time.
func use(t *testing.T, turns *Turns, name string, length time.Duration) (waited time.Duration) {
	began := time.Now()
	err := turns.Take(t.Context(), name)
	if err != nil {
		t.Error(err)
		return 0
	}
	waited = time.Since(began)
	time.Sleep(length)
	turns.Release(name, length)
	return waited
}

// TestHoldersHaveEqualTimes: holders with many calls keep a newcomer waiting for one turn of each at most, and one with
// short turns has many in the time of a long one. Who always comes back waits for no more than others.
func TestHoldersHaveEqualTimes(t *testing.T) {
	const long, short = time.Second, 100 * time.Millisecond
	synctest.Test(t, func(t *testing.T) {
		turns := New(1, 1)
		for i := range 300 {
			go use(t, turns, fmt.Sprint("greedy", i%3), long)
		}
		synctest.Wait()
		for range 20 {
			if waited := use(t, turns, "other", long); waited > 4*long {
				t.Errorf("a holder waited %v", waited)
			}
		}
		began, ended := time.Now(), make(chan bool, 10)
		for range 10 {
			go func() {
				use(t, turns, "brief", short)
				ended <- true
			}()
		}
		for range 10 {
			<-ended
		}
		if took := time.Since(began); took > 5*long {
			t.Errorf("ten short turns took %v", took)
		}
		time.Sleep(400 * long)
		synctest.Wait()
		if held, waiting := turns.InUse(); held+waiting > 0 {
			t.Errorf("%d turns are held, %d calls wait", held, waiting)
		}
	})
}

// TestFreeTurnsAreTakenAtAnyTime: a call whose context has ended gets a turn that is free, and leaves nothing behind
// otherwise.
func TestFreeTurnsAreTakenAtAnyTime(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	turns := New(2, 1)
	if err := turns.Take(ended, "a"); err != nil {
		t.Fatal(err)
	}
	if err := turns.Take(ended, "a"); err == nil || turns.TryTake("a") {
		t.Error("a holder has more turns than it may have")
	}
	if !turns.TryTake("b") || turns.TryTake("c") {
		t.Error("the second turn is not taken by the second holder alone")
	}
	turns.Release("a", 0)
	turns.Release("b", 0)
	if held, waiting := turns.InUse(); held+waiting+len(turns.holders) > 0 || turns.free != 2 {
		t.Errorf("%d turns are held, %d are free, %d calls wait, %d holders are left", held, turns.free, waiting,
			len(turns.holders))
	}
}

// TestRememberedHoldersAreBounded: names that come once each are forgotten.
func TestRememberedHoldersAreBounded(t *testing.T) {
	turns := New(2, 1)
	turns.TryTake("kept")
	for i := range 3 * maxIdle {
		name := strconv.Itoa(i)
		if !turns.TryTake(name) {
			t.Fatal("no turn is free")
		}
		turns.Release(name, time.Second)
	}
	if n := len(turns.holders); n > maxIdle+1 || turns.holders["kept"] == nil {
		t.Errorf("%d holders are remembered", n)
	}
}

// TestTurns: whatever calls come and give up, no holder has more turns than it may have, no turn is lost, and none is
// free while a holder waits that may have it.
func TestTurns(t *testing.T) {
	type call struct {
		name                    string
		after, patience, length int
	}
	rapid.Check(t, func(rt *rapid.T) {
		n := rapid.IntRange(1, 4).Draw(rt, "turns")
		each := rapid.IntRange(1, n).Draw(rt, "of a holder")
		calls := rapid.SliceOfN(rapid.Custom(func(rt *rapid.T) call {
			return call{
				rapid.SampledFrom([]string{"a", "b", "c"}).Draw(rt, "name"), rapid.IntRange(0, 20).Draw(rt, "after"),
				rapid.IntRange(0, 10).Draw(rt, "patience"), rapid.IntRange(0, 5).Draw(rt, "length"),
			}
		}), 1, 60).Draw(rt, "calls")
		synctest.Test(t, func(t *testing.T) {
			turns := New(n, each)
			for _, c := range calls {
				time.AfterFunc(time.Duration(c.after)*time.Second, func() {
					ctx, cancel := context.WithTimeout(t.Context(), time.Duration(c.patience)*time.Second)
					defer cancel()
					if turns.Take(ctx, c.name) != nil {
						return
					}
					turns.check(t, n)
					time.Sleep(time.Duration(c.length) * time.Second)
					turns.Release(c.name, time.Duration(c.length)*time.Second)
					turns.check(t, n)
				})
			}
			time.Sleep(time.Hour)
			synctest.Wait()
			if held, waiting := turns.InUse(); held+waiting > 0 || turns.free != n {
				t.Errorf("%d turns are held, %d are free, %d calls wait", held, turns.free, waiting)
			}
		})
	})
}

func (t *Turns) check(tb testing.TB, n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	held, waiting := 0, 0
	for name, h := range t.holders {
		held, waiting = held+h.held, waiting+len(h.waiting)
		if h.held > t.ofHolder || len(h.waiting) > 0 && t.free > 0 && h.held < t.ofHolder {
			tb.Errorf("%s has %d of %d turns, %d calls wait, %d turns are free", name, h.held, t.ofHolder,
				len(h.waiting), t.free)
		}
	}
	if held+t.free != n || waiting != t.waiting {
		tb.Errorf("%d held and %d free turns are not %d; %d calls wait, not %d", held, t.free, n, waiting, t.waiting)
	}
}

func BenchmarkFreeTurns(b *testing.B) {
	turns := New(1000, 1000)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if turns.TryTake("a") {
				turns.Release("a", time.Microsecond)
			}
		}
	})
}
