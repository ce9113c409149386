package node

import (
	"testing"
	"time"

	"github.com/fermata-io/fermata/internal/engine/dispatch"
)

// TestTurns plays slots that come free every millisecond, or seldom, and counts whose they are.
func TestTurns(t *testing.T) {
	for name, x := range map[string]struct {
		gap     time.Duration // between slots
		wanting int
		comes   bool          // peers come for slots in their turns
		takes   time.Duration // from the beginning of a turn
		only    int           // slots that they take in one; 0: all
		least   float64
		most    float64 // part of the slots that came in turns of peers
	}{
		"nobody else":            {gap: time.Millisecond},
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
		"in vain":            {gap: time.Millisecond, wanting: 1, least: 0.005, most: 0.05},
		"in vain, few slots": {gap: time.Minute, wanting: 2, least: 0.5, most: 0.5},
	} {
		t.Run(name, func(t *testing.T) {
			var s slotShare
			now, theirs := time.Unix(0, 0), 0
			var began, ends time.Time
			const slots = 4000
			idle, taken := 0, 0 // of the turn that is
			for range slots {
				now = now.Add(x.gap)
				if !ends.IsZero() && !now.Before(ends) {
					s.endPeersTurn()
					ends = time.Time{}
				}
				switch whose, length := s.assignFreed(now, x.wanting, 1); whose {
				case peersBegin:
					if !ends.IsZero() {
						t.Fatal("a turn begins in a turn")
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
				t.Errorf("%.3f of the slots are of peers, want %v to %v", part, x.least, x.most)
			}
		})
	}
}

// TestWhoComesTooLateIsWaitedFor: a peer that comes when its turn is over finds the next one
// long enough, however many were in vain before.
func TestWhoComesTooLateIsWaitedFor(t *testing.T) {
	const takes = 15 * time.Millisecond
	var s slotShare
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
		t.Fatalf("after many turns in vain one lasts for %v", length)
	}
	if length := turnOf(true); length != 2*takes {
		t.Errorf("the turn that follows lasts for %v, not %v", length, 2*takes)
	}
	if waited := now.Sub(before); waited > time.Second/2 {
		t.Errorf("it has waited %v", waited)
	}
}

// TestSharesAreForgotten whose fleets give nothing.
func TestSharesAreForgotten(t *testing.T) {
	var all slotShares
	f := &dispatch.Fleet{Namespace: "ns", Queues: []string{"p", "q"}}
	if all.fleetShare(f, false) != nil || all.servingQueue("ns", "q") != nil {
		t.Error("a share that nobody wanted")
	}
	s := all.fleetShare(f, true)
	now := time.Now()
	s.assignFreed(now, 1, 1)
	all.removeUnused(now.Add(shareRetention))
	if all.fleetShare(f, false) != s {
		t.Error("forgotten too early")
	}
	if got := all.servingQueue("ns", "q"); len(got) != 1 || got[0] != s || all.servingQueue("ns", "r") != nil ||
		all.servingQueue("other", "q") != nil {
		t.Errorf("%v serve the queue", got)
	}
	all.removeUnused(now.Add(shareRetention + 1))
	if all.fleetShare(f, false) != nil {
		t.Error("still there")
	}
}
