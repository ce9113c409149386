package shardlock

import (
	"slices"
	"time"

	"github.com/fermata-io/fermata/internal/ring"
)

// goneFor is how long the word that a node's process has ended counts. By then
// gossip has said so itself; if it still shows the node, it is right.
const goneFor = 30 * time.Second

// fate is word of a node's process.
type fate struct {
	node string
	gone bool
}

// Gone says that the process of a node is known to have ended, which gossip takes
// seconds to find out: its shards go to the others at once, and its locks may be
// broken as soon as its signs of life have stopped. It counts for half a minute, or
// until Back. It never blocks.
func (m *Manager) Gone(node string) { m.tell(fate{node, true}) }

// Back takes Gone back: the node answers. It never blocks.
func (m *Manager) Back(node string) { m.tell(fate{node, false}) }

func (m *Manager) tell(f fate) {
	m.mu.Lock()
	m.mu.fates = append(slices.DeleteFunc(m.mu.fates, func(g fate) bool { return g.node == f.node }), f)
	m.mu.Unlock()
	m.signal()
}

// learn takes over word of a process.
func (l *loop) learn(f fate, now time.Time) {
	_, known := l.gone[f.node]
	switch {
	case f.gone && f.node != l.o.Node:
		l.gone[f.node] = now.Add(goneFor)
	case known:
		delete(l.gone, f.node)
	default:
		return
	}
	l.survey(now)
}

// forget ends the word of processes whose time is over, and returns when the next
// one's is; zero is never.
func (l *loop) forget(now time.Time) (next time.Time) {
	before := len(l.gone)
	for node, until := range l.gone {
		switch {
		case !now.Before(until):
			delete(l.gone, node)
		case next.IsZero() || until.Before(next):
			next = until
		}
	}
	if len(l.gone) < before {
		l.survey(now)
	}
	return next
}

// survivors is a view without those whose process has ended.
func (l *loop) survivors(v ring.View) ring.View {
	if len(l.gone) == 0 {
		return v
	}
	v.Members = slices.DeleteFunc(slices.Clone(v.Members), func(m ring.Member) bool {
		_, gone := l.gone[m.Name]
		return gone
	})
	return v
}

// proven is true of a lock whose holder's process has ended for certain, unless it
// still gives signs of life: one that is known to be gone, or a former one of this
// node or another.
func (l *loop) proven(value string) bool {
	h := parse(value)
	if h.process == "" || h.process == l.m.calls.process {
		return false
	}
	_, gone := l.gone[h.node]
	return gone || h.node == l.o.Node || l.former(h)
}
