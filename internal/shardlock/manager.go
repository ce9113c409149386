package shardlock

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bsm/redislock"
	"github.com/redis/go-redis/v9"

	"github.com/fermata-io/fermata/internal/ring"
)

// Manager holds the shard locks of one node. Its methods may be called from
// any goroutine, before, during and after Run.
type Manager struct {
	o       Options
	metrics *metrics
	calls   *redisCalls
	grips   []atomic.Pointer[Grip]

	company     atomic.Bool   // others are, or may be, in the cluster
	joined      chan struct{} // has a token when they have come
	told        atomic.Pointer[ring.View]
	eligibility *eligibility // of the goroutine that gives heartbeats
	// owners are the processes that may own shards, by member; nil until heartbeats have been read.
	owners atomic.Pointer[map[string]string]
	// addresses are where clients reach other members, as their heartbeats say.
	addresses atomic.Pointer[map[string]clientAddress]
	placed    atomic.Pointer[placement]
	started   atomic.Bool
	stopped   chan struct{} // closed when Run has returned
	poke      chan struct{} // the mailbox has something

	mu struct {
		sync.Mutex
		view     *ring.View
		woken    []int
		fates    []fate
		requests []*dropRequest
		draining bool
	}
}

// New checks the options and returns a Manager that holds nothing.
func New(o Options) (*Manager, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	g, scripter := gatherer{Scripter: o.Client}, redis.Scripter(o.Client)
	if o.Functions {
		_, g.bySHA = functions()
		scripter = functionCaller{Scripter: o.Client, client: o.Client, bySHA: g.bySHA}
		g.Scripter = scripter
	}
	calls := &redisCalls{o: o, scripts: scripter, locks: redislock.New(g), process: newToken()}
	return &Manager{
		o:           o,
		metrics:     newMetrics(o.Registerer),
		calls:       calls,
		eligibility: newEligibility(o, calls.process),
		grips:       make([]atomic.Pointer[Grip], o.Shards),
		joined:      make(chan struct{}, 1),
		stopped:     make(chan struct{}),
		poke:        make(chan struct{}, 1),
	}, nil
}

// Process is the name of this process in the values of its locks.
func (m *Manager) Process() string { return m.calls.process }

// Run keeps the locks until ctx ends, and returns when all of its goroutines
// have. It can be called once. What is still held then is given up without a
// word to Redis, as in a crash, and expires after TTL: to leave in good order,
// call [Manager.Drain] first. The error is not nil only for a second call.
func (m *Manager) Run(ctx context.Context) error {
	if !m.started.CompareAndSwap(false, true) {
		return errors.New("shardlock: Run called twice")
	}
	defer close(m.stopped)
	var beating sync.WaitGroup
	beating.Go(func() { m.keepAlive(ctx) })
	defer beating.Wait()
	newLoop(m).run(ctx)
	return nil
}

// SetView tells who is in the cluster. Shards belong to those members alone whose
// heartbeat is in this keyspace. The shards that the ring gives to this node are
// competed for; held ones that it gives to others are handed over once the view
// has not changed for the settle time. Safe to call from a membership callback:
// it never blocks.
func (m *Manager) SetView(v ring.View) {
	m.told.Store(&v)
	m.mu.Lock()
	m.mu.view = &v
	m.mu.Unlock()
	m.signal()
}

// Wake says that the locks of these shards were just released by a peer, so
// that the wanted ones among them are tried at once. It never blocks.
func (m *Manager) Wake(shards ...int) {
	m.mu.Lock()
	for _, s := range shards {
		if s >= 0 && s < m.o.Shards && len(m.mu.woken) < m.o.Shards {
			m.mu.woken = append(m.mu.woken, s)
		}
	}
	m.mu.Unlock()
	m.signal()
}

// Held returns the grip on a shard. It is false if the shard is not held, and
// from the instant at which its validity ends by the monotonic clock.
func (m *Manager) Held(shard int) (Grip, bool) {
	if shard < 0 || shard >= len(m.grips) {
		return Grip{}, false
	}
	g := m.grips[shard].Load()
	if g == nil || !time.Now().Before(g.ValidUntil) {
		return Grip{}, false
	}
	return *g, true
}

// placement is who should hold the shards, as the loop has decided last.
type placement struct {
	owners []string // by shard
	view   ring.View
}

// Owners are the members that should hold the shards, by shard; empty before there was a
// view.
func (m *Manager) Owners() []string {
	if p := m.placed.Load(); p != nil {
		return p.owners
	}
	return nil
}

// Eligible are the members that may own shards: this node, and those whose heartbeat is
// in this keyspace. Those that stand aside are among them.
func (m *Manager) Eligible() []ring.Member {
	if p := m.placed.Load(); p != nil {
		return p.view.Members
	}
	return nil
}

func (m *Manager) signal() {
	select {
	case m.poke <- struct{}{}:
	default:
	}
}
