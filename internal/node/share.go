package node

import (
	"sync"
	"time"
)

// share has this node's own shards and those of its peers take turns at slots that come
// free while there are too few. Own shards know of a slot at once and peers only by word,
// so that without turns the peers would get none until nothing of the own is due.
//
// A turn of peers begins when a slot comes free, and lasts for twice the time after which
// one of them leased something in the last one; own shards do not hear of slots in it. Then
// own shards have a turn of at least that time, and of one slot. Each peer that wants slots
// counts as much as this node: there are as many turns of peers one after the other. A turn
// in which no peer leases anything was in vain, and has own shards have twice the time
// next. It may have been too short for peers, or for a machine that is busy: so the next one
// is twice as long, a few times over. The zero value is ready.
type share struct {
	mu    sync.Mutex
	peers bool          // it is the peers' turn
	used  bool          // in which one of them has leased
	row   int           // turns of peers in a row
	vain  int           // those in a row that were in vain
	since time.Time     // when a slot came free first in this node's turn; zero: none has
	began time.Time     // the last turn of peers
	takes time.Duration // from the beginning of a turn of peers to their first lease, as seen last
}

type turn int

const (
	ownTurn turn = iota
	peersBegin
	peersGoOn
)

const (
	// peersTurn is the least time of a turn: enough for a word to a peer, which may wait for
	// demandGap, and for a permit to come back. peersMost is the most.
	peersTurn = 5 * time.Millisecond
	peersMost = 8 * peersTurn
	// maxVain bounds how long own turns grow: to 320 ms.
	maxVain = 6
	// longer is how many turns in vain have the next one of peers grow; after that they are
	// thought not to come.
	longer = 3
)

// length is that of a turn of peers.
func (s *share) length() time.Duration {
	if s.vain > longer {
		return peersTurn
	}
	return min(max(2*s.takes, peersTurn)<<s.vain, peersMost)
}

// own is the least time of a turn of this node.
func (s *share) own() time.Duration { return min(s.length()<<s.vain, peersTurn<<maxVain) }

// came tells whose slots are that came free now, where so many peers want some. After
// peersBegin the turn has to be ended by over, after the time that is returned with it.
func (s *share) came(now time.Time, wanting int) (turn, time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.peers:
		return peersGoOn, 0
	case wanting == 0:
		return ownTurn, 0
	case 0 < s.row && s.row < wanting:
		// another peer's turn
	case s.since.IsZero():
		s.since = now
		return ownTurn, 0
	case now.Sub(s.since) < s.own():
		return ownTurn, 0
	default:
		s.row = 0
	}
	s.peers, s.used, s.began = true, false, now
	return peersBegin, s.length()
}

// leased notes that a peer has leased something for a worker of this node, in its turn or
// too late for it.
func (s *share) leased(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if took := now.Sub(s.began); !s.used && took <= peersMost {
		s.used, s.takes = true, took
	}
}

// over ends the peers' turn.
func (s *share) over() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.peers, s.since = false, time.Time{}
	if s.used {
		s.row, s.vain = s.row+1, 0
	} else {
		s.row, s.vain = 0, min(s.vain+1, maxVain)
	}
}
