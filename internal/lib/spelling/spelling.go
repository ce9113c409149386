// Package spelling finds the known name that is closest to an unknown one.
//
// Invariants: the work is bounded for names of any length; the result is deterministic.
package spelling

import "strings"

// maxName is the longest name that is compared, in bytes.
const maxName = 64

// Nearest is the known name with the fewest typos; "" if there is none. A typo is a wrong, missing or additional
// letter, or two swapped neighbours. Names of up to four letters may have one typo, longer ones two. Letter case
// is ignored.
func Nearest(name string, known []string) string {
	slips := 2
	switch {
	case len(name) < 2:
		return ""
	case len(name) <= 4:
		slips = 1
	}
	best, near := "", slips+1
	for _, k := range known {
		if d := countTypos(strings.ToLower(name), strings.ToLower(k), near); d < near {
			best, near = k, d
		}
	}
	return best
}

// IsNear reports whether a name is a known one with at most so many typos.
func IsNear(name, known string, typos int) bool {
	return countTypos(strings.ToLower(name), strings.ToLower(known), typos+1) <= typos
}

// countTypos counts typos, up to a bound.
func countTypos(a, b string, most int) int {
	if len(a)-len(b) >= most || len(b)-len(a) >= most || len(a) > maxName {
		return most
	}
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := range len(a) {
		row[0] = i + 1
		for j := range len(b) {
			cost := last[j]
			if a[i] != b[j] {
				cost++
			}
			row[j+1] = min(cost, last[j+1]+1, row[j]+1)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}
