// Package roundrobin picks numbered items, such as shards, in turn where a round has a budget.
package roundrobin

import "slices"

// Turns remembers whose turn is next. The zero value begins with the least number.
type Turns struct {
	next int // the turn is that of the first from here on
}

// Take splits ascending ids into those whose turn it is now and the others. It takes them one after the other,
// from where the last call ended and around, until the next one would exceed the budget, but at least one. Taken
// ids have had their turn, whatever the caller does with them. The ids may differ between calls.
func (t *Turns) Take(ids []int, budget int, weight func(id int) int) (now, later []int) {
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
