package node

import (
	"context"
	"sync"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
)

const (
	// servedForMost is how long a worker that was seen is assumed to be there.
	servedForMost = 30 * time.Second
	// servedForLeast bounds how often the nodes are asked for their workers: registering jobs must not cost more.
	servedForLeast = time.Second
	// servedWait bounds how long the registration of a job waits for the answers.
	servedWait = 300 * time.Millisecond
)

// servedQueues remembers which queues have workers.
type servedQueues struct {
	mu     sync.Mutex
	at     time.Time // zero: they were not asked yet
	queues map[job.QueueKey]bool
	whole  bool // all nodes have answered
}

// unservedQueues returns those of some queues that have no worker on any node. If a node does not answer, or while
// another call asks them, it returns
// none.
func (n *Node) unservedQueues(ctx context.Context, queues []job.QueueKey) (unserved []job.QueueKey) {
	served := &n.served
	if !served.mu.TryLock() { // another call asks the nodes; this one does not wait for it
		return nil
	}
	defer served.mu.Unlock()
	missing := func() (list []job.QueueKey) {
		for _, q := range queues {
			if !served.queues[q] {
				list = append(list, q)
			}
		}
		return list
	}
	age := time.Since(served.at)
	if age > servedForMost || age > servedForLeast && len(missing()) > 0 {
		ctx, cancel := context.WithTimeout(ctx, servedWait)
		defer cancel()
		served.read(clusterView{n}.describeAll(ctx))
	}
	if !served.whole {
		return nil
	}
	return missing()
}

// read takes the workers of all nodes.
func (s *servedQueues) read(nodes []job.NodeInfo) {
	s.at, s.queues, s.whole = time.Now(), map[job.QueueKey]bool{}, len(nodes) > 0
	for _, m := range nodes {
		s.whole = s.whole && !m.Unreachable
		for _, w := range m.QueueWorkers {
			s.queues[job.QueueKey{Namespace: w.Namespace, Queue: w.Queue}] = true
		}
	}
}
