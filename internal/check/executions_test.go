package check

import (
	"testing"
	"time"
)

// A worker that was frozen with leases on their way to it starts handlers whose
// leases have ended. Nobody can know it of a run that was due just then.
func TestLeaseOfALateStarter(t *testing.T) {
	const second = int64(time.Second)
	freeze := Fault{FromNS: 10 * second, ToNS: 20 * second, Workers: []string{"w"}}
	tests := []struct {
		name   string
		due    int64
		second int64 // when a second execution of the run starts
		faults []Fault
		want   int
	}{
		{"leased before the freeze", 9 * second, 20*second + 30e6, []Fault{freeze}, 0},
		{"due at the thaw", 20 * second, 20*second + 30e6, []Fault{freeze}, 1},
		{"no fault", 9 * second, 20*second + 30e6, nil, 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			event := func(at, token int64, kind EventKind) Event {
				return Event{AtNS: at, Kind: kind, Worker: "w", Job: "j", Run: "r", Attempt: 1, Token: token, DueMS: tt.due / 1e6, NominalMS: tt.due / 1e6, Outcome: OK}
			}
			r := Check(History{
				Promises: []Promise{{Job: "j"}}, Faults: tt.faults, Bounds: Bounds{Lag: time.Second, LeaseTTL: 3 * time.Second},
				Events: []Event{
					event(20*second, 1, Start), event(tt.second, 2, Start), event(21*second, 1, End), event(21*second, 2, End),
				},
			})
			overlaps := 0
			for _, f := range r.Findings {
				if f.Kind == Overlap {
					overlaps++
				}
			}
			if overlaps != tt.want {
				t.Errorf("%d overlaps, want %d: %v", overlaps, tt.want, r.Findings)
			}
		})
	}
}
