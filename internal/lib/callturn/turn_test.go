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
	t := New("a", take, func() { <-n })
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

// TestShortWaitsKeepTheTurn: a call that waits aside for a short time keeps its turn. After a long wait it goes on
// without, and has its turn again after rejoin.
func TestShortWaitsKeepTheTurn(t *testing.T) {
	for wait, want := range map[time.Duration]int{patience / 2: 1, 2 * patience: 0} {
		synctest.Test(t, func(t *testing.T) {
			n, why := make(node, 1), errors.New("why")
			ctx, turn := n.begin(t.Context())
			rejoin, err := WaitAside(ctx, func() error { time.Sleep(wait); return why })
			if !errors.Is(err, why) || len(n) != want {
				t.Errorf("after %v: %v, %d turns are taken, want %d", wait, err, len(n), want)
			}
			rejoin()
			if len(n) != 1 {
				t.Errorf("after %v, %d turns are taken in the end", wait, len(n))
			}
			turn.End()
		})
	}
}

// TestACallThatEndsReturnsNoTurnOfOthers: the context of a call ends before it has its turn again.
func TestACallThatEndsReturnsNoTurnOfOthers(t *testing.T) {
	n := make(node, 1)
	ctx, cancel := context.WithCancel(t.Context())
	ctx, turn := n.begin(ctx)
	_ = Wait(ctx, func() error {
		n <- struct{}{} // another call's
		cancel()
		return nil
	})
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
// wait. After the calls no turn is taken.
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
							rejoin, _ := WaitAside(ctx, wait)
							rejoin()
						}
					})
					check(t, turn)
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
