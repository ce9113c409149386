package shardlock

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bsm/redislock"
	"github.com/redis/go-redis/v9"

	"github.com/fermata-io/fermata/internal/core/sharding"
)

// Manager holds the shard locks of one node. Its methods may be called from
// any goroutine, before, during and after Run.
type Manager struct {
	o          Options
	metrics    *metrics
	calls      *redisCalls
	validLocks []atomic.Pointer[ValidLock]

	hasPeers    atomic.Bool   // there are, or may be, other members in the cluster
	peersJoined chan struct{} // has a token when other members have joined
	gossipView  atomic.Pointer[sharding.View]
	eligibility *eligibility // used by the heartbeat goroutine only
	// owners are the processes that may own shards, by member; nil until heartbeats have been read.
	owners atomic.Pointer[map[string]string]
	// seen are the processes of which this node has read a heartbeat, by member; nil until then.
	seen atomic.Pointer[map[string]string]
	// addresses has the addresses for clients in the heartbeats of other members.
	addresses atomic.Pointer[map[string]clientAddress]
	placement atomic.Pointer[shardPlacement]
	answered  atomic.Pointer[time.Time] // when Redis last answered a call of this Manager in time
	started   atomic.Bool
	stopped   chan struct{} // closed when Run has returned
	inboxWake chan struct{} // wakes the loop when its inbox is not empty

	mu struct {
		sync.Mutex
		view     *sharding.View
		woken    []int
		statuses []nodeStatus
		// abandoned has the owners of the shards that [Manager.TakeAbandoned] was called for.
		abandoned map[int]string
		requests  []*dropRequest
		draining  bool
	}
}

// New checks the options and returns a Manager that holds nothing.
func New(o Options) (*Manager, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	g, scripter := batchingClient{Scripter: o.Client}, redis.Scripter(o.Client)
	if o.Functions {
		_, g.bySHA = composeLibrary()
		scripter = functionCaller{Scripter: o.Client, client: o.Client, bySHA: g.bySHA}
		g.Scripter = scripter
	}
	calls := &redisCalls{o: o, scripts: scripter, locks: redislock.New(g), process: newToken()}
	return &Manager{
		o:           o,
		metrics:     newMetrics(o.Registerer),
		calls:       calls,
		eligibility: newEligibility(o, calls.process),
		validLocks:  make([]atomic.Pointer[ValidLock], o.Shards),
		peersJoined: make(chan struct{}, 1),
		stopped:     make(chan struct{}),
		inboxWake:   make(chan struct{}, 1),
	}, nil
}

// Process is the name of this process in the values of its locks.
func (m *Manager) Process() string { return m.calls.process }

// Run keeps the locks until ctx ends, and returns when all of its goroutines have. It can be called once. Locks
// that are still held then are not released, as in a crash, and expire after TTL: for an orderly stop, call
// [Manager.Drain] first. The error is not nil only for a second call.
func (m *Manager) Run(ctx context.Context) error {
	if !m.started.CompareAndSwap(false, true) {
		return errors.New("shardlock: Run called twice")
	}
	defer close(m.stopped)
	var beating sync.WaitGroup
	beating.Go(func() { m.heartbeatLoop(ctx) })
	defer beating.Wait()
	newManagerLoop(m).run(ctx)
	return nil
}

// SetView sets the members of the cluster. Shards belong only to members whose heartbeat is in this keyspace.
// The node competes for the shards that the ring gives to it, and hands held shards of others over once the view
// has not changed for the settle time. It is safe to call from a membership callback: it never blocks.
func (m *Manager) SetView(v sharding.View) {
	m.gossipView.Store(&v)
	m.mu.Lock()
	m.mu.view = &v
	m.mu.Unlock()
	m.wakeLoop()
}

// ShardsReleased reports that a peer has just released the locks of these shards: the wanted ones among them are tried
// at once. It never blocks.
func (m *Manager) ShardsReleased(shards ...int) {
	m.o.Logger.Debug("shards released by a peer", "shards", shards)
	m.mu.Lock()
	for _, s := range shards {
		if s >= 0 && s < m.o.Shards && len(m.mu.woken) < m.o.Shards {
			m.mu.woken = append(m.mu.woken, s)
		}
	}
	m.mu.Unlock()
	m.wakeLoop()
}

// ValidLock returns the lock of a shard that this node may rely on. It is false if the shard is not held, and
// from the instant at which its validity ends by the monotonic clock.
func (m *Manager) ValidLock(shard int) (ValidLock, bool) {
	if shard < 0 || shard >= len(m.validLocks) {
		return ValidLock{}, false
	}
	lock := m.validLocks[shard].Load()
	if lock == nil || !time.Now().Before(lock.ValidUntil) {
		return ValidLock{}, false
	}
	return *lock, true
}

// LastAnswer returns when Redis last answered one of the calls that keep locks: to obtain or to refresh a lock, or to
// write a heartbeat. It is zero before the first answer. Answers after the timeout of a call do not count: by them no
// lock can be kept.
func (m *Manager) LastAnswer() time.Time {
	if t := m.answered.Load(); t != nil {
		return *t
	}
	return time.Time{}
}

func (m *Manager) noteAnswer(now time.Time) { m.answered.Store(&now) }

// shardPlacement has the owners of the shards, as the loop has decided last.
type shardPlacement struct {
	owners  []string          // by shard
	members []sharding.Member // all whose process has not ended
}

// ShardOwners returns the members that should hold the shards, by shard; empty before there was a view.
func (m *Manager) ShardOwners() []string {
	if p := m.placement.Load(); p != nil {
		return p.owners
	}
	return nil
}

// KeyspaceMembers returns the live members of which this node has read a heartbeat in this keyspace, and this node.
// They include members that have withdrawn, and those whose heartbeats are missing now: a node whose Redis is slow
// may have read them last in a bad moment, and cannot read them again. Until heartbeats have been read for a while,
// that is all members.
func (m *Manager) KeyspaceMembers() []sharding.Member {
	p, seen := m.placement.Load(), m.seen.Load()
	switch {
	case p == nil:
		return nil
	case seen == nil:
		return p.members
	}
	return slices.DeleteFunc(slices.Clone(p.members), func(x sharding.Member) bool {
		return x.Name != m.o.Node && (x.Process == "" || (*seen)[x.Name] != x.Process)
	})
}

// EligibleOwners returns the processes that may own shards, by node: those whose heartbeats are in this keyspace, and this
// one; ok is false until heartbeats have been read for a while.
func (m *Manager) EligibleOwners() (processes map[string]string, ok bool) {
	owners := m.owners.Load()
	if owners == nil {
		return nil, false
	}
	return *owners, true
}

func (m *Manager) wakeLoop() {
	select {
	case m.inboxWake <- struct{}{}:
	default:
	}
}
