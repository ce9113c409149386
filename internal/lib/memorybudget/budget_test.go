package memorybudget

import (
	"fmt"
	"strconv"
	"testing"
	"testing/synctest"
	"time"
)

// TestFewIdentitiesLeaveMemoryForOthers: they take all that they may have, and others get something.
func TestFewIdentitiesLeaveMemoryForOthers(t *testing.T) {
	b := New(1 << 20)
	if b.TryTake("0", b.Largest()+1) {
		t.Error("one identity has more than its share")
	}
	const greedy = 30
	for i := range greedy {
		for b.TryTake(strconv.Itoa(i), 1000) {
		}
	}
	for i := range 5 {
		if !b.TryTake(fmt.Sprint("modest ", i), 1000) {
			t.Fatalf("modest identity %d gets nothing after %d bytes", i, b.InUse())
		}
	}
}

// TestIdentitiesHalveWhatIsLeft: each one that takes all that it may leaves half of that to the next one. Six leave a
// 128th of the budget, and some forty nothing.
func TestIdentitiesHalveWhatIsLeft(t *testing.T) {
	const most = 128 << 10
	b := New(most)
	for i, want := range []int{48, 24, 12, 6, 3, 1, 1} { // 128ths for the one that comes, rounded down
		n := most / 128 * want
		if !b.Allows("next", n) || b.Allows("next", n+most/128) {
			t.Errorf("after %d identities the next one may not have %d of 128 parts, or more", i, want)
		}
		takeAll(b, strconv.Itoa(i))
	}
	for i := 7; i < 36; i++ {
		if !b.Allows("next", most/128) {
			t.Errorf("%d identities leave nothing", i)
		}
		takeAll(b, strconv.Itoa(i))
	}
	for i := 36; i < 42; i++ {
		takeAll(b, strconv.Itoa(i))
	}
	if b.Allows("next", 1) {
		t.Errorf("42 identities have %d of %d", b.InUse(), most)
	}
}

func takeAll(b *Budget, identity string) {
	for b.TryTake(identity, 1) {
	}
}

// TestBudgetIsEmptyAgain: nothing is remembered of identities that have given all back.
func TestBudgetIsEmptyAgain(t *testing.T) {
	b := New(1 << 20)
	for i := range 100 {
		if !b.TryTake(strconv.Itoa(i), 100) {
			t.Fatal("a small part is not given")
		}
		b.Give(strconv.Itoa(i), 100)
	}
	if b.InUse() != 0 || len(b.by) != 0 {
		t.Errorf("%d bytes of %d identities", b.InUse(), len(b.by))
	}
}

// TestTakeWaits: for what others give back, not for what nobody may have, and not for ever.
func TestTakeWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New(1000)
		if !b.TryTake("a", 350) || !b.TryTake("b", 180) {
			t.Fatal("a part of a free budget is not given")
		}
		began := time.Now()
		if b.Take(t.Context(), "c", 376, time.Second) || time.Since(began) != 0 {
			t.Error("what nobody may have is waited for")
		}
		if b.Take(t.Context(), "c", 200, time.Second) || time.Since(began) != time.Second {
			t.Errorf("the wait ended after %v", time.Since(began))
		}
		time.AfterFunc(time.Second, func() { b.Give("a", 350) })
		if !b.Take(t.Context(), "c", 200, time.Minute) || time.Since(began) != 2*time.Second {
			t.Error("memory that was given back is not taken")
		}
		if n := b.InUse(); n != 380 {
			t.Errorf("%d are in use, want 380", n)
		}
	})
}

// TestWhatIsTakenAnywayLeavesTheLastQuarter: an identity that has taken more than all there is keeps nobody else from
// having little.
func TestWhatIsTakenAnywayLeavesTheLastQuarter(t *testing.T) {
	b := New(1 << 20)
	b.TakeAnyway("greedy", 2<<20)
	if b.TryTake("greedy", 1) || b.TryTake("other", b.little+1) {
		t.Error("there is more than the last quarter")
	}
	n := 0
	for b.TryTake(fmt.Sprint("modest ", n), 1000) {
		n++
	}
	if want := 1 << 18 / 1000; n != want {
		t.Errorf("%d modest identities get something, want %d", n, want)
	}
	b.Give("greedy", 2<<20)
	for i := range n {
		b.Give(fmt.Sprint("modest ", i), 1000)
	}
	if b.used != 0 || b.usedLittle != 0 || len(b.by) != 0 {
		t.Errorf("%d and %d bytes of %d identities are left", b.used, b.usedLittle, len(b.by))
	}
}
