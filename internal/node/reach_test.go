package node

import (
	"testing"
	"time"
)

// TestReach asks once a second, with a patience of 6 s.
func TestReach(t *testing.T) {
	begin := time.Now()
	at := func(s int) time.Time { return begin.Add(time.Duration(s) * time.Second) }
	type span [2]int // of seconds, the last one exclusive
	in := func(s int, all []span) bool {
		for _, x := range all {
			if s >= x[0] && s < x[1] {
				return true
			}
		}
		return false
	}
	tests := []struct {
		name  string
		lost  []span // no answers
		aside []span
		dark  []span
	}{
		{name: "always answered"},
		{name: "shortly away", lost: []span{{3, 8}}},
		{name: "every other answer", lost: []span{{3, 4}, {5, 6}, {7, 8}, {9, 10}, {11, 12}, {13, 14}}},
		{name: "away", lost: []span{{3, 20}}, aside: []span{{8, 26}}, dark: []span{{8, 20}}},
		{name: "away and back, with answers lost", lost: []span{{3, 20}, {22, 24}}, aside: []span{{8, 26}}, dark: []span{{8, 20}}},
		{name: "away and back and away", lost: []span{{3, 20}, {23, 28}}, aside: []span{{8, 34}}, dark: []span{{8, 20}, {27, 28}}},
		{name: "four in five are lost", lost: []span{{3, 7}, {8, 12}, {13, 17}, {18, 22}, {23, 27}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := reach{patience: 6 * time.Second, answered: begin}
			for s := range 40 {
				if !in(s, tt.lost) {
					r.heard(at(s))
				}
				aside, dark := r.look(at(s))
				if aside != in(s, tt.aside) || dark != in(s, tt.dark) {
					t.Errorf("after %d s: aside %v, dark %v, want the opposite of one", s, aside, dark)
				}
			}
		})
	}
}
