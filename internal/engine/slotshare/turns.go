package slotshare

import (
	"sync"
	"time"
)

// groupTurns makes this node's own shards and its peers take turns at the slots of a group
// that become free while there are too few. Own shards learn of a slot at once, peers
// only by a message. Without turns the peers would get none until no job of the own shards
// is due.
//
// A peers' turn begins when a slot becomes free. It lasts for twice the time that the first
// peer took to come in the last one; own shards do not get slots in it. Then own shards have
// a turn of at least that time, and of one slot. Each peer that wants slots has the same
// weight as this node: there are as many peers' turns one after the other. If peers leave
// most of the slots in their turn, own shards get longer turns.
//
// A turn in which no peer comes is unused. It doubles the next turn of own shards. It may
// have been too short for peers, or for a busy machine: the next peers' turn is twice as long, a few
// times, and a peer that comes too late for it counts as well.
type groupTurns struct {
	group WorkerGroup

	mu          sync.Mutex
	isPeersTurn bool          // it is the peers' turn
	peerCame    bool          // a peer has come in this turn
	freedSlots  int           // slots that became free in it
	takenSlots  int           // slots that peers took
	peerTurns   int           // consecutive turns of peers
	unusedTurns int           // consecutive turns without a peer
	ownFactor   int           // factor of the own turn, because peers left slots
	ownSince    time.Time     // when the first slot became free in this node's turn; zero: none has
	peersSince  time.Time     // start of the last turn of peers
	peerDelay   time.Duration // from the start of a turn of peers until one came, as last observed
	freedAt     time.Time     // when a slot last became free
}

type turnChange int

const (
	ownTurn turnChange = iota
	peersBegin
	peersContinue
)

const (
	// minPeersTurn is the minimum length of a turn: enough for a message to a peer, which may wait for
	// minOfferInterval, and for the permit in reply. maxPeersTurn is the maximum.
	minPeersTurn = 5 * time.Millisecond
	maxPeersTurn = 8 * minPeersTurn
	// maxUnusedTurns bounds the growth of own turns: to 320 ms.
	maxUnusedTurns = 6
	// maxGrowingTurns is the number of consecutive unused turns that lengthen the next one. After that peers are
	// not expected to come.
	maxGrowingTurns = 3
	// maxOwnFactor bounds how much longer own turns are than those of peers that come, and so the wait of a peer
	// with little work.
	maxOwnFactor = 8
)

// peersTurnLength is the length of a turn of peers.
func (s *groupTurns) peersTurnLength() time.Duration {
	grows := s.unusedTurns
	if s.unusedTurns > maxGrowingTurns {
		grows = 0
	}
	return min(max(2*s.peerDelay, minPeersTurn)<<grows, maxPeersTurn)
}

// ownTurnLength is the minimum length of a turn of this node.
func (s *groupTurns) ownTurnLength() time.Duration {
	return min(s.peersTurnLength()*time.Duration(max(1, s.ownFactor))<<s.unusedTurns, minPeersTurn<<maxUnusedTurns)
}

// assignFreed returns who gets n slots that became free now, when wanting peers want some. After peersBegin the
// caller calls endPeersTurn after the returned time.
func (s *groupTurns) assignFreed(now time.Time, wanting, n int) (turnChange, time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.freedAt = now
	switch {
	case s.isPeersTurn:
		s.freedSlots += n
		return peersContinue, 0
	case wanting == 0:
		return ownTurn, 0
	case 0 < s.peerTurns && s.peerTurns < wanting:
		// another peer's turn
	case s.ownSince.IsZero():
		s.ownSince = now
		return ownTurn, 0
	case now.Sub(s.ownSince) < s.ownTurnLength():
		return ownTurn, 0
	default:
		s.peerTurns = 0
	}
	s.isPeersTurn, s.peerCame, s.freedSlots, s.takenSlots, s.peersSince = true, false, n, 0, now
	return peersBegin, s.peersTurnLength()
}

// recordPeerRequest notes that a peer has come for slots, in its turn or too late for it.
func (s *groupTurns) recordPeerRequest(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if took := now.Sub(s.peersSince); !s.peerCame && took <= maxPeersTurn {
		s.peerCame, s.peerDelay, s.unusedTurns = true, took, 0
	}
}

// recordTaken adds n slots that a peer has taken.
func (s *groupTurns) recordTaken(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.takenSlots += n
}

// endPeersTurn ends the peers' turn.
func (s *groupTurns) endPeersTurn() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.isPeersTurn, s.ownSince = false, time.Time{}
	if !s.peerCame {
		s.peerTurns, s.unusedTurns = 0, min(s.unusedTurns+1, maxUnusedTurns)
		return
	}
	// Slots that become free in the second half of a turn are taken after it.
	s.peerTurns, s.ownFactor = s.peerTurns+1, min(s.freedSlots/(2*max(1, s.takenSlots)), maxOwnFactor)
}

// isUnused reports whether no slot has become free for longer than d.
func (s *groupTurns) isUnused(now time.Time, d time.Duration) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.isPeersTurn && now.Sub(s.freedAt) > d
}

// turnTable has the turns of all groups whose slots peers have wanted. The zero value is empty.
type turnTable struct {
	mu      sync.Mutex
	byGroup map[WorkerGroup]*groupTurns
}

// turnRetention is how long turns are kept without a free slot of its group: the group may have ended.
const turnRetention = time.Minute

// turnsOf returns the turns of a group. If there are none, it creates them if wanted, else it returns nil.
func (s *turnTable) turnsOf(f WorkerGroup, wanted bool) *groupTurns {
	s.mu.Lock()
	defer s.mu.Unlock()
	x := s.byGroup[f]
	if x == nil && wanted {
		if s.byGroup == nil {
			s.byGroup = make(map[WorkerGroup]*groupTurns)
		}
		x = &groupTurns{group: f}
		s.byGroup[f] = x
	}
	return x
}

// turnsForQueue are the turns of the groups that serve a queue.
func (s *turnTable) turnsForQueue(namespace, queue string) (all []*groupTurns) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for f, x := range s.byGroup {
		if f.Serves(namespace, queue) {
			all = append(all, x)
		}
	}
	return all
}

// removeUnused removes the turns of groups without a free slot for long.
func (s *turnTable) removeUnused(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for f, x := range s.byGroup {
		if x.isUnused(now, turnRetention) {
			delete(s.byGroup, f)
		}
	}
}
