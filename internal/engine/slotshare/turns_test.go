package slotshare

import (
	"testing"
	"time"
)

// Slots become free every millisecond, or seldom. The test counts those of peers' turns.
func TestPeersGetTheirPartOfScarceSlots(t *testing.T) {
	for name, x := range map[string]struct {
		gap     time.Duration // between slots
		wanting int
		comes   bool          // peers come for slots in their turns
		takes   time.Duration // from the beginning of a turn
		only    int           // slots that they take in one; 0: all
		least   float64
		most    float64 // part of the slots that came in turns of peers
	}{
		"no peers":               {gap: time.Millisecond},
		"one peer":               {gap: time.Millisecond, wanting: 1, comes: true, least: 0.4, most: 0.6},
		"three peers":            {gap: time.Millisecond, wanting: 3, comes: true, least: 0.65, most: 0.85},
		"one peer, few slots":    {gap: time.Minute, wanting: 1, comes: true, least: 0.5, most: 0.5},
		"three peers, few slots": {gap: time.Minute, wanting: 3, comes: true, least: 0.75, most: 0.75},
		"a slow peer": {gap: time.Millisecond, wanting: 1, comes: true, takes: 12 * time.Millisecond,
			least: 0.4, most: 0.6},
		"a very slow peer": {gap: time.Millisecond, wanting: 1, comes: true, takes: 35 * time.Millisecond,
			least: 0.3, most: 0.6},
		"a peer with little": {gap: 100 * time.Microsecond, wanting: 1, comes: true, takes: 3 * time.Millisecond,
			only: 1, least: 0.1, most: 0.15},
		"unused turns":            {gap: time.Millisecond, wanting: 1, least: 0.005, most: 0.05},
		"unused turns, few slots": {gap: time.Minute, wanting: 2, least: 0.5, most: 0.5},
	} {
		t.Run(name, func(t *testing.T) {
			var s groupTurns
			now, theirs := time.Unix(0, 0), 0
			var began, ends time.Time
			const slots = 4000
			idle, taken := 0, 0 // of the current turn
			for range slots {
				now = now.Add(x.gap)
				if !ends.IsZero() && !now.Before(ends) {
					s.endPeersTurn()
					ends = time.Time{}
				}
				switch whose, length := s.assignFreed(now, x.wanting, 1); whose {
				case peersBegin:
					if !ends.IsZero() {
						t.Fatal("a turn began within a turn")
					}
					began, ends, idle, taken = now, now.Add(length), 1, 0
				case peersContinue:
					idle++
				case ownTurn:
					continue
				}
				theirs++
				if x.comes && now.Sub(began) >= x.takes && (x.only == 0 || taken < x.only) {
					s.recordPeerRequest(now)
					n := idle
					if x.only > 0 {
						n = x.only
					}
					s.recordTaken(n)
					idle, taken = 0, taken+n
				}
			}
			if part := float64(theirs) / slots; part < x.least || part > x.most {
				t.Errorf("%.3f of the slots belong to peers, want %v to %v", part, x.least, x.most)
			}
		})
	}
}

// A peer that comes when its turn is over finds the next turn long enough, however many were
// unused before.
func TestTurnAfterALatePeerIsLongEnough(t *testing.T) {
	const takes = 15 * time.Millisecond
	var s groupTurns
	now := time.Unix(0, 0)
	turnOf := func(comes bool) time.Duration {
		for {
			now = now.Add(time.Millisecond)
			whose, length := s.assignFreed(now, 1, 1)
			if whose != peersBegin {
				continue
			}
			if comes && length > takes {
				s.recordPeerRequest(now.Add(takes))
			}
			now = now.Add(length)
			s.endPeersTurn()
			if comes && length <= takes {
				s.recordPeerRequest(now.Add(takes - length))
			}
			return length
		}
	}
	for range 2 * maxUnusedTurns {
		turnOf(false)
	}
	before := now
	if length := turnOf(true); length >= takes {
		t.Fatalf("after many unused turns one lasts for %v", length)
	}
	if length := turnOf(true); length != 2*takes {
		t.Errorf("the next turn lasts for %v, want %v", length, 2*takes)
	}
	if waited := now.Sub(before); waited > time.Second/2 {
		t.Errorf("the peer has waited for %v", waited)
	}
}

// Turns are removed when their group has had no free slot for long.
func TestUnusedTurnsAreRemoved(t *testing.T) {
	var all turnTable
	f := &fakeFleet{namespace: "ns", queues: []string{"p", "q"}}
	if all.turnsOf(f, false) != nil || all.turnsForQueue("ns", "q") != nil {
		t.Error("turns exist that nobody wanted")
	}
	s := all.turnsOf(f, true)
	now := time.Now()
	s.assignFreed(now, 1, 1)
	all.removeUnused(now.Add(turnRetention))
	if all.turnsOf(f, false) != s {
		t.Error("turns were removed too early")
	}
	if got := all.turnsForQueue("ns", "q"); len(got) != 1 || got[0] != s || all.turnsForQueue("ns", "r") != nil ||
		all.turnsForQueue("other", "q") != nil {
		t.Errorf("turns of queues: %v", got)
	}
	all.removeUnused(now.Add(turnRetention + 1))
	if all.turnsOf(f, false) != nil {
		t.Error("unused turns were not removed")
	}
}
