package roundrobin

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func TestThoseWithoutRoomComeNext(t *testing.T) {
	var turns Picker
	ids := []int{0, 1, 4, 6, 9}
	take := func(weight int, now, later []int) {
		t.Helper()
		gotNow, gotLater := turns.Pick(ids, 10, func(int) int { return weight })
		if !slices.Equal(gotNow, now) || !slices.Equal(gotLater, later) {
			t.Fatalf("took %v and left %v, want %v and %v", gotNow, gotLater, now, later)
		}
	}
	take(0, []int{0, 1, 4, 6, 9}, nil)
	take(2, []int{0, 1, 4, 6, 9}, nil)
	take(5, []int{0, 1}, []int{4, 6, 9})
	take(5, []int{4, 6}, []int{9, 0, 1})
	take(5, []int{9, 0}, []int{1, 4, 6})
	take(11, []int{1}, []int{4, 6, 9, 0}) // one at least
	take(11, []int{4}, []int{6, 9, 0, 1})
	ids = []int{1, 3, 5} // whose turn it was has gone
	take(5, []int{5, 1}, []int{3})
	ids = nil
	take(5, nil, nil)
	ids = []int{2, 7}
	take(11, []int{2}, []int{7})
}

// None is passed over: each has its turn before another has two.
func TestEachHasItsTurn(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		weights := rapid.SliceOfN(rapid.IntRange(0, 8), 1, 12).Draw(t, "weights")
		ids := make([]int, len(weights))
		for i := range ids {
			ids[i] = i
		}
		budget := rapid.IntRange(0, 20).Draw(t, "budget")
		var turns Picker
		had := make([]int, len(ids))
		for range 3 * len(ids) {
			now, later := turns.Pick(ids, budget, func(id int) int { return weights[id] })
			sum := 0
			for _, id := range now {
				sum += weights[id]
				had[id]++
			}
			if all := slices.Sorted(slices.Values(slices.Concat(now, later))); !slices.Equal(all, ids) {
				t.Fatalf("%v and %v are not %v", now, later, ids)
			}
			if len(now) == 0 || sum > budget && len(now) > 1 || len(later) > 0 && sum+weights[later[0]] <= budget {
				t.Fatalf("took %v and left %v of weights %v within %d", now, later, weights, budget)
			}
			if slices.Max(had) > slices.Min(had)+1 {
				t.Fatalf("turns: %v", had)
			}
		}
	})
}
