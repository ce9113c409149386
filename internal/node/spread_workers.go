package node

import (
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/sharding"
)

const (
	// spreadAfter is how long a node must be without workers before others give it one, and as long again at random, so
	// that they do not all do so at once. Workers of a node that has just started may still be on their way.
	spreadAfter = 15 * time.Second
	// minSpreadPause is the pause after a worker was asked to move. It doubles with each worker, up to maxSpreadPause,
	// while there are nodes without workers: workers that cannot reach these nodes are asked rarely.
	minSpreadPause = 10 * time.Second
	maxSpreadPause = 10 * time.Minute
)

// workerSpread decides when this node asks a worker to move to a node that has none. Such a node leases by permits of
// others, or has to send permits for all of its shards, which costs more than leases for own workers. Its zero value
// knows no peers.
type workerSpread struct {
	mu    sync.Mutex
	empty map[string]time.Time // linked peers without workers, and since when
	next  time.Time            // no worker is asked before
	pause time.Duration        // after the next one
}

// setDemand takes a peer's demand, which has all queues of its workers.
func (w *workerSpread) setDemand(peer string, demand []job.QueueDemand, now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(demand) > 0 {
		delete(w.empty, peer)
		return
	}
	if w.empty == nil {
		w.empty = make(map[string]time.Time)
	}
	if _, known := w.empty[peer]; !known {
		w.empty[peer] = now
	}
}

// removePeer forgets a peer, of whose workers nothing is known any more.
func (w *workerSpread) removePeer(peer string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.empty, peer)
}

// targets returns the peers that a worker may be asked to move to now.
func (w *workerSpread) targets(now time.Time) (peers []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for peer, since := range w.empty {
		if now.Sub(since) >= spreadAfter {
			peers = append(peers, peer)
		}
	}
	switch {
	case len(peers) == 0:
		w.next, w.pause = time.Time{}, 0
	case w.next.IsZero():
		w.next = now.Add(rand.N(spreadAfter))
	}
	if len(peers) == 0 || now.Before(w.next) {
		return nil
	}
	slices.Sort(peers)
	return peers
}

// noteAsked notes that a worker was asked to move.
func (w *workerSpread) noteAsked(now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pause = min(max(2*w.pause, minSpreadPause), maxSpreadPause)
	w.next = now.Add(w.pause)
}

// spreadWorkers asks a worker to move if another node has none.
func (n *Node) spreadWorkers(now time.Time) {
	peers := n.spread.targets(now)
	if len(peers) == 0 || n.draining.Load() {
		return
	}
	isTarget := func(m sharding.Member) bool { return !m.Withdrawn && slices.Contains(peers, m.Name) }
	// An address of several nodes, such as that of a load balancer, may lead back to a node with workers.
	others := n.nodesWhere(func(m sharding.Member) bool { return !isTarget(m) })
	addresses := slices.DeleteFunc(n.nodesWhere(isTarget), func(a string) bool { return slices.Contains(others, a) })
	if n.dispatcher.SpreadWorker(addresses) {
		n.spread.noteAsked(now)
	}
}
