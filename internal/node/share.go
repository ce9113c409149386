package node

import (
	"sync"
	"time"
)

// share has this node's own shards and those of its peers take turns at slots that come
// free while there are too few. Own shards know of a slot at once and peers only by word,
// so that without turns the peers would get none until nothing of the own is due.
//
// A turn of peers lasts for peersTurn from when a slot comes free, in which own shards do
// not hear of it. Then own shards have a turn of at least that time, and of one slot. Each
// peer that wants slots counts as much as this node: there are as many turns of peers one
// after the other. A turn in which no peer leases anything was in vain, and has own shards
// have twice the time next. The zero value is ready.
type share struct {
	mu    sync.Mutex
	peers bool      // it is the peers' turn
	used  bool      // in which one of them has leased
	row   int       // turns of peers in a row
	vain  int       // those in a row that were in vain
	since time.Time // when a slot came free first in this node's turn; zero: none has
}

type turn int

const (
	ownTurn turn = iota
	peersBegin
	peersGoOn
)

const (
	// peersTurn is enough for a word to a peer, which may wait for demandGap, and for a
	// permit to come back.
	peersTurn = 5 * time.Millisecond
	// maxVain bounds how long own turns grow: to 320 ms.
	maxVain = 6
)

// came tells whose slots are that came free now, where so many peers want some. After
// peersBegin the turn has to be ended by over.
func (s *share) came(now time.Time, wanting int) turn {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.peers:
		return peersGoOn
	case wanting == 0:
		return ownTurn
	case 0 < s.row && s.row < wanting:
		// another peer's turn
	case s.since.IsZero():
		s.since = now
		return ownTurn
	case now.Sub(s.since) < peersTurn<<s.vain:
		return ownTurn
	default:
		s.row = 0
	}
	s.peers, s.used = true, false
	return peersBegin
}

// leased notes that a peer has leased something for a worker of this node.
func (s *share) leased() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.used = true
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
