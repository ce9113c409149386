// Package turns has numbered things, such as shards, take turns where a round has no room
// for all of them.
package turns

import "slices"

// Turns tells whose turn it is. The zero value begins with the least number.
type Turns struct {
	next int // the turn is that of the first from here on
}

// Take splits ids, which ascend, into those whose turn it is now and the others: it takes
// them one after the other, from where the last call ended and around, until the next one
// would exceed the budget; one at least. What is taken has had its turn, whatever becomes
// of it, and ids may be others in each call.
func (t *Turns) Take(ids []int, budget int, weight func(id int) int) (now, later []int) {
	first, _ := slices.BinarySearch(ids, t.next)
	ids = slices.Concat(ids[first:], ids[:first])
	n := 0
	for n < len(ids) {
		if budget -= weight(ids[n]); budget < 0 && n > 0 {
			break
		}
		n++
	}
	if n > 0 {
		t.next = ids[n-1] + 1
	}
	return ids[:n], ids[n:]
}
