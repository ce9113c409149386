package node

import (
	"sync"
	"time"

	"github.com/fermata-io/fermata/internal/engine/dispatch"
)

// share has this node's own shards and those of its peers take turns at slots of a fleet that
// come free while there are too few. Own shards know of a slot at once and peers only by word,
// so that without turns the peers would get none until nothing of the own is due.
//
// A turn of peers begins when a slot comes free, and lasts for twice the time after which
// one of them came for it in the last one; own shards do not hear of slots in it. Then
// own shards have a turn of at least that time, and of one slot. Each peer that wants slots
// counts as much as this node: there are as many turns of peers one after the other. Of
// peers that leave most of the slots in their turn, own shards have the longer ones.
//
// A turn in which no peer comes was in vain, and has own shards have twice the time
// next. It may have been too short for peers, or for a machine that is busy: so the next one
// is twice as long, a few times over, and a peer that comes too late for it counts as well.
type share struct {
	fleet *dispatch.Fleet

	mu     sync.Mutex
	peers  bool          // it is the peers' turn
	asked  bool          // in which one of them has come
	freed  int           // slots that came free in it
	leased int           // those that peers took
	row    int           // turns of peers in a row
	vain   int           // those in a row that were in vain
	plenty int           // how many times longer the own turn is, as peers left so much
	since  time.Time     // when a slot came free first in this node's turn; zero: none has
	began  time.Time     // the last turn of peers
	takes  time.Duration // from the beginning of a turn of peers until one came, as seen last
	last   time.Time     // when a slot came free last
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
	// maxPlenty bounds how much longer own turns are than those of peers that come, and so
	// how long one waits that has little to do.
	maxPlenty = 8
)

// length is that of a turn of peers.
func (s *share) length() time.Duration {
	grows := s.vain
	if s.vain > longer {
		grows = 0
	}
	return min(max(2*s.takes, peersTurn)<<grows, peersMost)
}

// own is the least time of a turn of this node.
func (s *share) own() time.Duration {
	return min(s.length()*time.Duration(max(1, s.plenty))<<s.vain, peersTurn<<maxVain)
}

// came tells whose n slots are that came free now, where so many peers want some. After
// peersBegin the turn has to be ended by over, after the time that is returned with it.
func (s *share) came(now time.Time, wanting, n int) (turn, time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last = now
	switch {
	case s.peers:
		s.freed += n
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
	s.peers, s.asked, s.freed, s.leased, s.began = true, false, n, 0, now
	return peersBegin, s.length()
}

// ask notes that a peer has come for slots, in its turn or too late for it.
func (s *share) ask(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if took := now.Sub(s.began); !s.asked && took <= peersMost {
		s.asked, s.takes, s.vain = true, took, 0
	}
}

// took notes how many slots one has taken that has come.
func (s *share) took(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.leased += n
}

// over ends the peers' turn.
func (s *share) over() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.peers, s.since = false, time.Time{}
	if !s.asked {
		s.row, s.vain = 0, min(s.vain+1, maxVain)
		return
	}
	// What comes free in the second half of a turn is taken after it.
	s.row, s.plenty = s.row+1, min(s.freed/(2*max(1, s.leased)), maxPlenty)
}

// unused tells whether no slot has come free for so long.
func (s *share) unused(now time.Time, d time.Duration) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.peers && now.Sub(s.last) > d
}

// shares are those of all fleets of which peers have wanted slots. The zero value has none.
type shares struct {
	mu  sync.Mutex
	all map[*dispatch.Fleet]*share
}

// shareLife is how long one is kept of whose fleet no slot comes free: the fleet may have gone.
const shareLife = time.Minute

// of returns the share of a fleet, nil if it has none and is not to get one.
func (s *shares) of(f *dispatch.Fleet, wanted bool) *share {
	s.mu.Lock()
	defer s.mu.Unlock()
	x := s.all[f]
	if x == nil && wanted {
		if s.all == nil {
			s.all = make(map[*dispatch.Fleet]*share)
		}
		x = &share{fleet: f}
		s.all[f] = x
	}
	return x
}

// serving are those whose fleets serve a queue.
func (s *shares) serving(namespace, queue string) (all []*share) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for f, x := range s.all {
		if f.Serves(namespace, queue) {
			all = append(all, x)
		}
	}
	return all
}

// prune forgets those that are not used.
func (s *shares) prune(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for f, x := range s.all {
		if x.unused(now, shareLife) {
			delete(s.all, f)
		}
	}
}
