package fairshare

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"
)

// fill takes places until there is none for this holder.
func fill(t *Table, h Holder) (n int) {
	for t.Acquire(h) {
		n++
	}
	return n
}

func TestOneHolderGetsItsShareOnly(t *testing.T) {
	table := New(Limits{Places: 100, Kept: 10, Namespace: 1, Identity: 3})
	viewer := Holder{Namespace: "a", Identity: "viewer"}
	if n := fill(table, viewer); n != 23 {
		t.Errorf("one identity got %d places of 90, want a quarter", n)
	}
	if n := fill(table, Holder{Namespace: "b", Identity: "viewer"}); n != 0 {
		t.Errorf("the same identity got %d more in another namespace", n)
	}
	for i := range 50 {
		fill(table, Holder{Namespace: "a", Identity: fmt.Sprint("viewer", i)})
	}
	if table.TakenSlots() != 45 {
		t.Errorf("one namespace got %d places of 90, want half of them", table.TakenSlots())
	}
	if !table.Acquire(Holder{Namespace: "b", Identity: "another"}) {
		t.Error("another namespace got none")
	}
	table.Release(viewer)
	table.Release(viewer)
	if !table.Acquire(Holder{Namespace: "a", Identity: "someone"}) {
		t.Error("what was given back cannot be taken")
	}
}

func TestPlacesOfAdministratorsAreKept(t *testing.T) {
	table := New(Limits{Places: 20, Kept: 2, Namespace: 1, Identity: 3})
	for i := range 100 {
		fill(table, Holder{Namespace: fmt.Sprint("n", i), Identity: fmt.Sprint("i", i)})
	}
	if table.TakenSlots() != 18 {
		t.Fatalf("%d places are taken, want all but 2", table.TakenSlots())
	}
	if !table.Acquire(Holder{Identity: "root", Admin: true}) {
		t.Error("an administrator got none of the places that are kept")
	}
}

func TestUnidentifiedHoldersShareAll(t *testing.T) {
	table := New(Limits{Places: 20, Namespace: 1, Identity: 3})
	if n := fill(table, Holder{}); n != 20 {
		t.Errorf("%d places, want all", n)
	}
}

// TestTables: whatever is taken and given back, no table is too full, counts are those of
// the places, and a newcomer gets one while any is free.
func TestTables(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limits := Limits{
			Places: rapid.IntRange(0, 50).Draw(t, "places"), Namespace: rapid.IntRange(0, 4).Draw(t, "namespace"),
			Identity: rapid.IntRange(0, 4).Draw(t, "identity"),
		}
		table := New(limits)
		var holders []Holder
		for range rapid.IntRange(0, 200).Draw(t, "steps") {
			if len(holders) > 0 && rapid.IntRange(0, 3).Draw(t, "step") == 0 {
				i := rapid.IntRange(0, len(holders)-1).Draw(t, "who")
				table.Release(holders[i])
				holders = append(holders[:i], holders[i+1:]...)
				continue
			}
			h := Holder{
				Namespace: fmt.Sprint(rapid.IntRange(0, 5).Draw(t, "n")),
				Identity:  fmt.Sprint(rapid.IntRange(0, 5).Draw(t, "i")),
			}
			if table.Acquire(h) {
				holders = append(holders, h)
			}
		}
		if table.TakenSlots() != len(holders) || table.TakenSlots() > limits.Places {
			t.Fatalf("%d places are used of %d, %d were taken", table.TakenSlots(), limits.Places, len(holders))
		}
		if got := table.Acquire(Holder{Namespace: "new", Identity: "new"}); got != (len(holders) < limits.Places) {
			t.Fatalf("a newcomer to %d of %d places: %v", len(holders), limits.Places, got)
		}
	})
}

func TestPickTakesAsManyOfEachGroup(t *testing.T) {
	first := func(s string) string { return s[:1] }
	all := []string{"a1", "a2", "a3", "a4", "b1", "c1", "c2"}
	for n, want := range map[int]string{2: "[a1 b1]", 4: "[a1 b1 c1 a2]", 6: "[a1 b1 c1 a2 c2 a3]",
		9: "[a1 a2 a3 a4 b1 c1 c2]"} {
		if got := fmt.Sprint(Pick(all, n, first)); got != want {
			t.Errorf("%d: %s, want %s", n, got, want)
		}
	}
}
