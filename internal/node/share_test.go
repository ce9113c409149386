package node

import (
	"testing"
	"time"
)

// TestTurns plays slots that come free every millisecond, or seldom, and counts whose they are.
func TestTurns(t *testing.T) {
	for name, x := range map[string]struct {
		gap     time.Duration // between slots
		wanting int
		lease   bool          // peers lease in their turns
		takes   time.Duration // from the beginning of a turn
		least   float64
		most    float64 // part of the slots that came in turns of peers
	}{
		"nobody else":            {time.Millisecond, 0, false, 0, 0, 0},
		"one peer":               {time.Millisecond, 1, true, 0, 0.4, 0.6},
		"three peers":            {time.Millisecond, 3, true, 0, 0.65, 0.85},
		"one peer, few slots":    {time.Minute, 1, true, 0, 0.5, 0.5},
		"three peers, few slots": {time.Minute, 3, true, 0, 0.75, 0.75},
		"a slow peer":            {time.Millisecond, 1, true, 12 * time.Millisecond, 0.4, 0.6},
		"a very slow peer":       {time.Millisecond, 1, true, 35 * time.Millisecond, 0.3, 0.6},
		"in vain":                {time.Millisecond, 1, false, 0, 0.005, 0.05},
		"in vain, few slots":     {time.Minute, 2, false, 0, 0.5, 0.5},
	} {
		t.Run(name, func(t *testing.T) {
			var s share
			now, theirs := time.Unix(0, 0), 0
			var began, ends time.Time
			const slots = 4000
			for range slots {
				now = now.Add(x.gap)
				if !ends.IsZero() && !now.Before(ends) {
					s.over()
					ends = time.Time{}
				}
				switch whose, length := s.came(now, x.wanting); whose {
				case peersBegin:
					if !ends.IsZero() {
						t.Fatal("a turn begins in a turn")
					}
					began, ends = now, now.Add(length)
					theirs++
				case peersGoOn:
					theirs++
				case ownTurn:
					continue
				}
				if x.lease && now.Sub(began) >= x.takes {
					s.leased(now)
				}
			}
			if part := float64(theirs) / slots; part < x.least || part > x.most {
				t.Errorf("%.3f of the slots are of peers, want %v to %v", part, x.least, x.most)
			}
		})
	}
}
