// Package spelling finds the name that was most likely meant by one that does not exist.
//
// Invariants: the work is bounded, whatever the length of the names; the same input has
// the same answer.
package spelling

import "strings"

// far is a distance at which two names have nothing to do with one another, and maxName the
// longest name that is compared, in bytes.
const (
	far     = 3
	maxName = 64
)

// Nearest is the known name that a name differs least from, in at most two letters; "" if
// there is none. Letter case does not count.
func Nearest(name string, known []string) string {
	best, near := "", far
	for _, k := range known {
		if d := distance(strings.ToLower(name), strings.ToLower(k), near); d < near {
			best, near = k, d
		}
	}
	return best
}

// distance is how many letters have to change, up to a bound.
func distance(a, b string, most int) int {
	if len(a)-len(b) >= most || len(b)-len(a) >= most || len(a) > maxName {
		return most
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		last := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := last
			if a[i] != b[j] {
				cost++
			}
			last = row[j+1]
			row[j+1] = min(cost, row[j]+1, last+1)
		}
	}
	return row[len(b)]
}
