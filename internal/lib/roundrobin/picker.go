// Package roundrobin picks numbered items, such as shards, in rounds with a budget.
package roundrobin

import "slices"

// Picker remembers where the next round starts. The zero value starts at the least number.
type Picker struct {
	next int // the next round starts with the first number from here
}

// Pick splits ascending ids into those of this round and the others. It continues after the last id of the
// previous call, wraps around, and stops before the weight exceeds the budget, but takes at least one id. The
// ids may differ between calls.
func (t *Picker) Pick(ids []int, budget int, weight func(id int) int) (now, later []int) {
	first, _ := slices.BinarySearch(ids, t.next)
	ids = slices.Concat(ids[first:], ids[:first])
	n := 0
	for n < len(ids) {
		budget -= weight(ids[n])
		if budget < 0 && n > 0 {
			break
		}
		n++
	}
	if n > 0 {
		t.next = ids[n-1] + 1
	}
	return ids[:n], ids[n:]
}
