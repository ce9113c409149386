package node

import (
	"testing"
	"time"
)

func TestReach(t *testing.T) {
	begin := time.Now()
	at := func(s int) time.Time { return begin.Add(time.Duration(s) * time.Second) }
	tests := []struct {
		name string
		lost [2]int // no answer from the first second to the second, exclusive
		more [2]int
		want [2]int // aside
	}{
		{name: "always answered"},
		{name: "shortly away", lost: [2]int{3, 8}},
		{name: "away", lost: [2]int{3, 20}, want: [2]int{8, 26}},
		{name: "away and back and away", lost: [2]int{3, 20}, more: [2]int{23, 25}, want: [2]int{8, 31}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := reach{patience: 6 * time.Second, answered: begin}
			in := func(s int, span [2]int) bool { return s >= span[0] && s < span[1] }
			for s := range 40 {
				ok := !in(s, tt.lost) && !in(s, tt.more)
				if got := r.asked(ok, at(s)); got != in(s, tt.want) {
					t.Errorf("after %d s: aside %v, want %v", s, got, !got)
				}
			}
		})
	}
}
