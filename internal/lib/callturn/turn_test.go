package callturn

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

// node has some turns, which have an element for each one that is taken.
type node chan struct{}

// begin begins a call that has a turn.
func (n node) begin(ctx context.Context) (context.Context, *Turn) {
	take := func(ctx context.Context) error {
		select {
		case n <- struct{}{}:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	n <- struct{}{}
	t := New("a", take, func() { <-n }, nil)
	return NewContext(ctx, t), t
}

func TestACallThatWaitsHasNoTurn(t *testing.T) {
	n, why := make(node, 1), errors.New("why")
	ctx, turn := n.begin(t.Context())
	err := Wait(ctx, func() error {
		if len(n) != 0 {
			t.Error("the call has its turn while it waits")
		}
		return why
	})
	if !errors.Is(err, why) || len(n) != 1 || Caller(ctx) != "a" {
		t.Errorf("%v, %d turns are taken by %q after the wait", err, len(n), Caller(ctx))
	}
	turn.End()
	if len(n) != 0 {
		t.Error("the turn is taken after the call")
	}
}

// TestACallWaitsForItsTurnAgain: while a call waited, another one took its turn.
func TestACallWaitsForItsTurnAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := make(node, 1)
		ctx, turn := n.begin(t.Context())
		began := time.Now()
		_ = Wait(ctx, func() error {
			_, other := n.begin(t.Context())
			time.AfterFunc(time.Second, other.End)
			return nil
		})
		if waited := time.Since(began); waited != time.Second {
			t.Errorf("the call waited %v for its turn, want 1s", waited)
		}
		turn.End()
	})
}

// TestShortWaitsKeepTheTurn: a part that waits aside for a short time in all keeps the turn of its call. After a long
// time it has none until it rejoins, also for work between its waits.
func TestShortWaitsKeepTheTurn(t *testing.T) {
	for wait, want := range map[time.Duration]int{patience / 4: 1, patience / 2: 0, 2 * patience: 0} {
		synctest.Test(t, func(t *testing.T) {
			n, why := make(node, 1), errors.New("why")
			ctx, turn := n.begin(t.Context())
			aside := StepAside(ctx)
			for range 3 {
				err := aside.Wait(func() error { time.Sleep(wait); return why })
				if !errors.Is(err, why) {
					t.Error(err)
				}
			}
			if len(n) != want {
				t.Errorf("after waits of %v, %d turns are taken, want %d", wait, len(n), want)
			}
			if err := aside.Rejoin(ctx); err != nil || len(n) != 1 {
				t.Errorf("after waits of %v, %d turns are taken in the end: %v", wait, len(n), err)
			}
			turn.End()
		})
	}
}

// TestPartsThatFinishWaitForNoTurn: a part has nothing left to do, and another one goes on in a turn.
func TestPartsThatFinishWaitForNoTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := make(node, 1)
		ctx, turn := n.begin(t.Context())
		RunParts(ctx, 2, func(part int) {
			aside := StepAside(ctx)
			_ = aside.Wait(func() error { time.Sleep(time.Duration(part+1) * time.Second); return nil })
			if part == 0 {
				n <- struct{}{} // another call's
				aside.Finish()
				return
			}
			time.AfterFunc(time.Second, func() { <-n })
			if err := aside.Rejoin(ctx); err != nil || len(n) != 1 {
				t.Errorf("%d turns are taken: %v", len(n), err)
			}
		})
		turn.End()
		if len(n) != 0 {
			t.Errorf("%d turns are taken after the call", len(n))
		}
	})
}

// TestFewCallsAreAside: a call without a place keeps its turn while it waits. A place is given back with the turn, or at
// the end of the call.
func TestFewCallsAreAside(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, places := make(node, 3), NewPlaces(1)
		begin := func() (context.Context, *Turn) {
			ctx, turn := n.begin(t.Context())
			turn.aside = places
			return ctx, turn
		}
		wait := func() error { time.Sleep(2 * patience); return nil }
		ctx, turn := begin()
		first := StepAside(ctx)
		_ = first.Wait(wait)
		otherCtx, other := begin()
		second := StepAside(otherCtx)
		_ = second.Wait(wait)
		if len(n) != 1 {
			t.Errorf("%d turns are taken, want that of the second call", len(n))
		}
		_ = first.Rejoin(ctx)
		_ = second.Wait(wait)
		if len(n) != 1 {
			t.Errorf("%d turns are taken, want that of the first call", len(n))
		}
		second.Finish()
		other.End()
		_ = first.Wait(wait)
		first.Finish()
		turn.End()
		if taken := places.taken.Load(); len(n) != 0 || taken != 0 {
			t.Errorf("%d turns and %d places are taken in the end", len(n), taken)
		}
	})
}

// TestCallsWithoutAnotherTurnFail: a call that gets no turn after a wait has the error of that, in all of its parts.
func TestCallsWithoutAnotherTurnFail(t *testing.T) {
	why, takes := errors.New("why"), 0
	turn := New("a", func(context.Context) error { takes++; return why }, func() {}, nil)
	ctx := NewContext(t.Context(), turn)
	for range 3 {
		err := Wait(ctx, func() error { return nil })
		if !errors.Is(err, why) || takes != 1 {
			t.Errorf("%v after %d tries to take a turn", err, takes)
		}
	}
	turn.End()
}

// TestACallThatEndsReturnsNoTurnOfOthers: the context of a call ends before it has its turn again.
func TestACallThatEndsReturnsNoTurnOfOthers(t *testing.T) {
	n := make(node, 1)
	ctx, cancel := context.WithCancel(t.Context())
	ctx, turn := n.begin(ctx)
	err := Wait(ctx, func() error {
		n <- struct{}{} // another call's
		cancel()
		return nil
	})
	if !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	RunParts(ctx, 3, func(int) {})
	turn.End()
	if len(n) != 1 {
		t.Error("the call returned the turn of another one")
	}
}

func TestCallsWithoutTurns(t *testing.T) {
	parts := make(chan int, 2)
	err := Wait(t.Context(), func() error {
		RunParts(t.Context(), 2, func(part int) { parts <- part })
		return nil
	})
	if err != nil || Caller(t.Context()) != "" || len(parts) != 2 {
		t.Errorf("%v, %d parts of %q", err, len(parts), Caller(t.Context()))
	}
}

// TestTurnsOfParts: whatever the parts of calls do, a call has a turn while a part works, and none while all of them
// wait or have nothing left to do. After the calls no turn is taken.
func TestTurnsOfParts(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		turns := rapid.IntRange(1, 2).Draw(rt, "turns")
		pause := rapid.SliceOfN(rapid.IntRange(0, 3), 60, 60).Draw(rt, "pauses")
		synctest.Test(t, func(t *testing.T) {
			n := make(node, turns)
			for call := range 3 {
				go func() {
					ctx, turn := n.begin(t.Context())
					defer turn.End()
					RunParts(ctx, 4, func(part int) {
						for i := range 5 {
							check(t, turn)
							time.Sleep(time.Duration(pause[(call*20+part*5+i)%60]) * time.Second)
							check(t, turn)
							wait := func() error {
								time.Sleep(time.Duration(pause[(call*7+part*3+i)%60]) * time.Second)
								return nil
							}
							if i%2 == 0 {
								_ = Wait(ctx, wait)
								continue
							}
							aside := StepAside(ctx)
							_ = aside.Wait(wait)
							if i == 3 {
								aside.Finish()
								return
							}
							_ = aside.Rejoin(ctx)
						}
					})
				}()
			}
			synctest.Wait()
			time.Sleep(time.Hour)
			if len(n) != 0 {
				t.Errorf("%d turns are taken", len(n))
			}
		})
	})
}

// check checks the turn of a call from a part that works.
func check(t *testing.T, turn *Turn) {
	turn.lock <- struct{}{}
	defer func() { <-turn.lock }()
	if turn.working < 1 || !turn.held {
		t.Errorf("%d parts work, has a turn: %v", turn.working, turn.held)
	}
}
