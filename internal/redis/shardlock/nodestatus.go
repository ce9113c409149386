package shardlock

import (
	"slices"
	"time"

	"github.com/fermata-io/fermata/internal/core/sharding"
)

// goneRetention is how long a report counts that a node's process has ended. By then gossip has detected it as
// well; if it still shows the node, gossip is right.
const goneRetention = 30 * time.Second

// nodeStatus is a report that a node's process has ended, or that the node answers again.
type nodeStatus struct {
	node string
	gone bool
}

// ProcessEnded reports that the process of a node is known to have ended, which gossip takes seconds to detect. Its
// shards go to the others at once, and its locks may be broken as soon as its heartbeats have stopped. The
// report counts for half a minute, or until ProcessAnswers. It never blocks.
func (m *Manager) ProcessEnded(node string) { m.queueStatus(nodeStatus{node, true}) }

// ProcessAnswers withdraws ProcessEnded: the node answers. It never blocks.
func (m *Manager) ProcessAnswers(node string) { m.queueStatus(nodeStatus{node, false}) }

func (m *Manager) queueStatus(f nodeStatus) {
	m.mu.Lock()
	m.mu.statuses = append(slices.DeleteFunc(m.mu.statuses, func(g nodeStatus) bool { return g.node == f.node }), f)
	m.mu.Unlock()
	m.wakeLoop()
}

// applyStatus applies a report about a process.
func (l *managerLoop) applyStatus(f nodeStatus, now time.Time) {
	_, known := l.endedUntil[f.node]
	switch {
	case f.gone && f.node != l.o.Node:
		l.endedUntil[f.node] = now.Add(goneRetention)
	case known:
		delete(l.endedUntil, f.node)
	default:
		return
	}
	l.updateMembers(now)
}

// expireStatuses drops the reports whose time is over, and returns when the next one expires; zero is never.
func (l *managerLoop) expireStatuses(now time.Time) (next time.Time) {
	before := len(l.endedUntil)
	for node, until := range l.endedUntil {
		switch {
		case !now.Before(until):
			delete(l.endedUntil, node)
		case next.IsZero() || until.Before(next):
			next = until
		}
	}
	if len(l.endedUntil) < before {
		l.updateMembers(now)
	}
	return next
}

// withoutEnded returns a view without members whose process has ended.
func (l *managerLoop) withoutEnded(v sharding.View) sharding.View {
	if len(l.endedUntil) == 0 {
		return v
	}
	v.Members = slices.DeleteFunc(slices.Clone(v.Members), func(m sharding.Member) bool {
		_, gone := l.endedUntil[m.Name]
		return gone
	})
	return v
}

// holderHasEnded is true if the lock's process is known to have ended, unless it still writes heartbeats: its
// node is reported gone, or runs another process now, or is this node.
func (l *managerLoop) holderHasEnded(value string) bool {
	h := parseHolder(value)
	if h.process == "" || h.process == l.m.calls.process {
		return false
	}
	_, gone := l.endedUntil[h.node]
	return gone || h.node == l.o.Node || l.isReplacedProcess(h)
}
