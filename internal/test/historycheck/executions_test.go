package historycheck

import (
	"maps"
	"testing"
	"time"
)

// A worker that was frozen with leases on their way to it starts handlers whose leases have ended. For a run
// that was due just then it cannot be known.
func TestLeaseOfLateStart(t *testing.T) {
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
				ExpectedSchedules: []ExpectedSchedule{{Job: "j"}}, Faults: tt.faults, Bounds: Bounds{Lag: time.Second, LeaseTTL: 3 * time.Second},
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

// Where workers send heartbeats no fault excuses a start on a lease that has ended, or after a
// later one of its job.
func TestStartsOnLeasesThatHaveEnded(t *testing.T) {
	const second = int64(time.Second)
	event := func(at int64, kind EventKind, worker string, token int64) Event {
		return Event{AtNS: at, Kind: kind, Worker: worker, Job: "j", Run: "r", Attempt: 1, Token: token, DueMS: token / 1000, NominalMS: token / 1000, Outcome: OK}
	}
	freeze := Fault{FromNS: 10 * second, ToNS: 20 * second, Workers: []string{"w"}, Hold: 10 * time.Second}
	early, late := 10*second/1000, 15*second/1000
	for _, tt := range []struct {
		name    string
		session time.Duration
		faults  []Fault
		events  []Event
		want    map[Kind]int
	}{
		{"a sound history", 2 * time.Second, []Fault{freeze}, []Event{
			event(10*second+1e6, Start, "v", early), event(11*second, End, "v", early),
		}, nil},
		{"after a later one began", 2 * time.Second, []Fault{freeze}, []Event{
			event(15*second+1e6, Start, "v", late), event(16*second, End, "v", late),
			event(20*second, Start, "w", early), event(21*second, End, "w", early),
		}, map[Kind]int{TokenOrder: 1, Expired: 1}},
		{"with nobody else", 2 * time.Second, []Fault{freeze}, []Event{
			event(20*second, Start, "w", early), event(21*second, End, "w", early),
		}, map[Kind]int{Expired: 1}},
		{"Redis's clock was set", 2 * time.Second, []Fault{freeze, {Clock: true}}, []Event{
			event(20*second, Start, "w", early), event(21*second, End, "w", early),
		}, nil},
		{"workers without heartbeats", 0, []Fault{freeze}, []Event{
			event(15*second+1e6, Start, "v", late), event(16*second, End, "v", late),
			event(20*second, Start, "w", early), event(21*second, End, "w", early),
		}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := Check(History{
				ExpectedSchedules: []ExpectedSchedule{{Job: "j"}}, Faults: tt.faults, Events: tt.events, EndNS: 30 * second,
				Bounds: Bounds{Lag: time.Second, LeaseTTL: 3 * time.Second, SessionTTL: tt.session},
			})
			got := map[Kind]int{}
			for _, f := range r.Findings {
				if f.Kind == TokenOrder || f.Kind == Expired || f.Kind == Overlap {
					got[f.Kind]++
				}
			}
			if !maps.Equal(got, tt.want) {
				t.Errorf("found %v, want %v: %v", got, tt.want, r.Findings)
			}
		})
	}
}
