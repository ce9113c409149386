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

func identity(name string) Holder { return Holder{Namespace: name, Identity: name} }

// use takes a turn and uses it for some time.
func use(t *testing.T, turns *Turns, h Holder, length time.Duration) (waited time.Duration) {
	began := time.Now()
	err := turns.Take(t.Context(), h)
	if err != nil {
		t.Error(err)
		return 0
	}
	waited = time.Since(began)
	time.Sleep(length)
	turns.Release(h, length)
	return waited
}

// TestHoldersHaveEqualTimes: holders with many calls keep a newcomer waiting for one turn of each at most, and one with
// short turns has many in the time of a long one. Who always comes back waits for no more than others.
func TestHoldersHaveEqualTimes(t *testing.T) {
	const long, short = 10 * time.Millisecond, time.Millisecond
	synctest.Test(t, func(t *testing.T) {
		turns := New(1, 1)
		for i := range 300 {
			go use(t, turns, identity(fmt.Sprint("greedy", i%3)), long)
		}
		synctest.Wait()
		for range 20 {
			if waited := use(t, turns, identity("other"), long); waited > 4*long {
				t.Errorf("a holder waited %v", waited)
			}
		}
		began, ended := time.Now(), make(chan bool, 10)
		for range 10 {
			go func() {
				use(t, turns, identity("brief"), short)
				ended <- true
			}()
		}
		for range 10 {
			<-ended
		}
		if took := time.Since(began); took > 7*long {
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
	if err := turns.Take(ended, identity("a")); err != nil {
		t.Fatal(err)
	}
	if err := turns.Take(ended, identity("a")); err == nil || turns.TryTake(identity("a")) {
		t.Error("a holder has more turns than it may have")
	}
	if !turns.TryTake(identity("b")) || turns.TryTake(identity("c")) {
		t.Error("the second turn is not taken by the second holder alone")
	}
	turns.Release(identity("a"), 0)
	turns.Release(identity("b"), 0)
	if held, waiting := turns.InUse(); held+waiting+len(turns.namespaces.byName)+len(turns.identities.byName) > 0 || turns.free != 2 {
		t.Errorf("%d turns are held, %d are free, %d calls wait, %d names are left", held, turns.free, waiting,
			len(turns.namespaces.byName)+len(turns.identities.byName))
	}
}

// TestRememberedHoldersAreBounded: names that come once each are forgotten.
func TestRememberedHoldersAreBounded(t *testing.T) {
	turns := New(2, 1)
	turns.TryTake(identity("kept"))
	for i := range 3 * maxIdle {
		name := strconv.Itoa(i)
		if !turns.TryTake(identity(name)) {
			t.Fatal("no turn is free")
		}
		turns.Release(identity(name), time.Second)
	}
	if n := len(turns.identities.byName); n > maxIdle+2 || turns.identities.byName["kept"] == nil || len(turns.namespaces.byName) != n {
		t.Errorf("%d identities and %d namespaces are remembered", n, len(turns.namespaces.byName))
	}
}

// TestNewNamesDoNotStarveOthers: callers who name another namespace in each call, or who have another identity in each,
// do not come before one that comes back.
func TestNewNamesDoNotStarveOthers(t *testing.T) {
	for name, holderOf := range map[string]func(caller, call int) Holder{
		"namespaces": func(caller, call int) Holder {
			return Holder{Namespace: fmt.Sprint(caller, "-", call), Identity: fmt.Sprint(caller)}
		},
		"identities": func(caller, call int) Holder {
			return Holder{Namespace: "one", Identity: fmt.Sprint(caller, "-", call)}
		},
		"both": func(caller, call int) Holder { return identity(fmt.Sprint(caller, "-", call)) },
	} {
		for _, n := range []int{1, 4} {
			t.Run(fmt.Sprint(name, " ", n), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					const length, calls = 300 * time.Millisecond, 200
					turns := New(n, max(1, n-1))
					use(t, turns, identity("victim"), length) // so that it is not new
					for caller := range 2 * n {
						go func() {
							for i := range calls {
								use(t, turns, holderOf(caller, i), length+time.Duration((caller*37+i*11)%100)*time.Millisecond)
								time.Sleep(time.Millisecond)
							}
						}()
					}
					time.Sleep(time.Second)
					for range 10 {
						waited := use(t, turns, identity("victim"), length)
						if waited > 5*length {
							t.Errorf("a call waited %v", waited)
						}
					}
					time.Sleep(time.Hour)
				})
			})
		}
	}
}

// TestCallsOfSeveralNamespacesShareByIdentity: calls without a namespace have a limit in common, and no time.
func TestCallsOfSeveralNamespacesShareByIdentity(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns := New(4, 3)
		for i := range 300 {
			go use(t, turns, Holder{Identity: fmt.Sprint("viewer", i%3)}, time.Second)
		}
		synctest.Wait()
		if waited := use(t, turns, identity("other"), time.Second); waited != 0 {
			t.Errorf("a call about one namespace waited %v", waited)
		}
		for range 5 {
			if waited := use(t, turns, Holder{Identity: "admin"}, time.Second); waited > 2*time.Second {
				t.Errorf("a call about all namespaces waited %v", waited)
			}
		}
		time.Sleep(time.Hour)
	})
}

// TestFreeTurnsAreNoDisadvantage: who used turns that were free, while others waited for turns of their own namespace, does
// not wait for all of them in that namespace.
func TestFreeTurnsAreNoDisadvantage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const length = 10 * time.Millisecond
		turns := New(4, 1)
		for i := range 3000 {
			go use(t, turns, Holder{"one", fmt.Sprint("greedy", i%3)}, length)
		}
		for range 500 {
			if waited := use(t, turns, Holder{"another", "both"}, length); waited > 0 {
				t.Fatalf("a call waited %v for a free turn", waited)
			}
		}
		var sum time.Duration
		for range 20 {
			sum += use(t, turns, Holder{"one", "both"}, time.Millisecond)
		}
		if most := time.Second; sum > most { // 10 s behind all of them
			t.Errorf("20 calls waited %v, want %v at most", sum, most)
		}
		time.Sleep(time.Hour)
	})
}

// TestLongTurnsOfFewAmongMany: a caller with long turns, or one of the same namespace, does not wait until all others have
// used as much: it waits for two seconds at most.
func TestLongTurnsOfFewAmongMany(t *testing.T) {
	const long, short = 300 * time.Millisecond, 20 * time.Millisecond
	for name, others := range map[string]func(i int) Holder{
		"one namespace":   func(i int) Holder { return Holder{"many", fmt.Sprint(i)} },
		"many namespaces": func(i int) Holder { return identity(fmt.Sprint(i)) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				turns := New(1, 1)
				for i := range 20 {
					go func() {
						for range 100 {
							use(t, turns, others(i), short)
						}
					}()
				}
				go func() {
					for range 10 {
						use(t, turns, Holder{"few", "mate"}, long)
					}
				}()
				synctest.Wait()
				for range 10 {
					if waited := use(t, turns, Holder{"few", "victim"}, time.Millisecond); waited > 2*time.Second {
						t.Errorf("the call of the mate's namespace waited %v", waited)
					}
					if waited := use(t, turns, Holder{"equal", "equal"}, long); waited > 2*time.Second {
						t.Errorf("a call with long turns waited %v", waited)
					}
				}
				time.Sleep(time.Hour)
			})
		})
	}
}

// TestUnknownIdentitiesShareByNamespace: where callers are not distinguished, namespaces share the turns.
func TestUnknownIdentitiesShareByNamespace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns := New(1, 1)
		for range 100 {
			go use(t, turns, Holder{Namespace: "greedy"}, time.Second)
		}
		synctest.Wait()
		for range 5 {
			if waited := use(t, turns, Holder{Namespace: "other"}, time.Second); waited > 2*time.Second {
				t.Errorf("a call waited %v", waited)
			}
		}
		time.Sleep(time.Hour)
	})
}

// TestTurns: whatever calls come and give up, no holder has more turns than it may have, no turn is lost, and none is
// free while a holder waits that may have it.
func TestTurns(t *testing.T) {
	type call struct {
		h                       Holder
		after, patience, length int
	}
	rapid.Check(t, func(rt *rapid.T) {
		n := rapid.IntRange(1, 4).Draw(rt, "turns")
		each := rapid.IntRange(1, n).Draw(rt, "of a namespace")
		calls := rapid.SliceOfN(rapid.Custom(func(rt *rapid.T) call {
			return call{
				Holder{rapid.SampledFrom([]string{"", "v", "w"}).Draw(rt, "namespace"),
					rapid.SampledFrom([]string{"", "a", "b"}).Draw(rt, "identity")},
				rapid.IntRange(0, 20).Draw(rt, "after"),
				rapid.IntRange(0, 10).Draw(rt, "patience"), rapid.IntRange(0, 5).Draw(rt, "length"),
			}
		}), 1, 60).Draw(rt, "calls")
		synctest.Test(t, func(t *testing.T) {
			turns := New(n, each)
			for _, c := range calls {
				time.AfterFunc(time.Duration(c.after)*time.Second, func() {
					ctx, cancel := context.WithTimeout(t.Context(), time.Duration(c.patience)*time.Second)
					defer cancel()
					if turns.Take(ctx, c.h) != nil {
						return
					}
					turns.check(t, n)
					time.Sleep(time.Duration(c.length) * time.Second)
					turns.Release(c.h, time.Duration(c.length)*time.Second)
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
	queued := 0
	for _, queues := range t.queues {
		for h, q := range queues {
			queued += len(q.calls)
			if q.namespace.held > t.ofNamespace || t.free > 0 && q.namespace.held < t.ofNamespace {
				tb.Errorf("%v waits with %d of %d turns, %d turns are free", h, q.namespace.held, t.ofNamespace, t.free)
			}
		}
	}
	for list, names := range map[string]accounts{"namespaces": t.namespaces, "identities": t.identities,
		"members": t.members()} {
		held, waiting, active := 0, 0, 0
		for _, a := range names.byName {
			held, waiting = held+a.held, waiting+a.waiting
			if !a.isIdle() && !a.isUnnamed {
				active++
			}
		}
		if held+t.free != n || waiting != queued || active != names.active {
			tb.Errorf("%s: %d held and %d free turns are not %d; %d calls wait, not %d; %d active names, not %d", list, held,
				t.free, n, waiting, queued, active, names.active)
		}
	}
}

// members returns the members of all namespaces.
func (t *Turns) members() accounts {
	all := accounts{byName: map[string]*account{}}
	for namespace, n := range t.namespaces.byName {
		all.active += n.members.active
		for identity, m := range n.members.byName {
			all.byName[namespace+"/"+identity] = m
		}
	}
	return all
}

func BenchmarkFreeTurns(b *testing.B) {
	turns := New(1000, 1000)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if turns.TryTake(identity("a")) {
				turns.Release(identity("a"), time.Microsecond)
			}
		}
	})
}
