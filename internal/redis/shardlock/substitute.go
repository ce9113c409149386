package shardlock

import (
	"maps"
	"time"
)

// substituteTime is how long a node keeps a shard in place of an owner that did not hold it. Afterwards the owner
// may try again: if it fails again, the shard has no holder until the others notice.
const substituteTime = 10 * time.Minute

// TakeAbandoned competes for shards that have had no holder for long although their owners are alive: something keeps
// those from holding a lock that neither their heartbeats nor their withdrawal show. The argument has the owner of
// each shard. A node that obtains such a shard keeps it for ten minutes, or until its owner changes. Nodes that compete
// for a shard need no agreement: one of them obtains the lock, and the others leave the shard to it. It never blocks.
//
// A node that has withdrawn, drains, or has another view of the owner ignores the call.
func (m *Manager) TakeAbandoned(owners map[int]string) {
	m.mu.Lock()
	if m.mu.abandoned == nil {
		m.mu.abandoned = map[int]string{}
	}
	maps.Copy(m.mu.abandoned, owners)
	maps.DeleteFunc(m.mu.abandoned, func(shard int, _ string) bool { return shard < 0 || shard >= m.o.Shards })
	m.mu.Unlock()
	m.wakeLoop()
}

// substituteFor begins to compete for a shard in place of its owner.
func (l *managerLoop) substituteFor(s *shardState, owner string, now time.Time) {
	if s.owner != owner || owner == l.o.Node || s.lock != nil || l.withdrawn[l.o.Node] {
		return
	}
	s.substituteUntil = now.Add(substituteTime)
	s.retryNow(now)
}
