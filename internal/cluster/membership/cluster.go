package membership

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/memberlist"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/fermata-io/fermata/internal/core/sharding"
	"github.com/fermata-io/fermata/internal/lib/filewatch"
	"github.com/fermata-io/fermata/internal/lib/secretfile"
)

// joinTimeout bounds how long Start waits for the first attempt to join.
const joinTimeout = 5 * time.Second

// Cluster is this node's membership in the gossip cluster. Its methods are safe for concurrent use.
type Cluster struct {
	o              Options
	nodes          *delegate
	view           atomic.Pointer[sharding.View]
	gossip         gossip
	addr           atomic.Value  // string, gossip address
	membersChanged chan struct{} // signals that a node was added, changed or removed
	returned       chan struct{} // signals that this node is no longer withdrawn
	left           atomic.Bool
	withdrawn      bool     // the last published value; guarded by life
	keys           [][]byte // of the key ring; owned by reloadKeys after Start
	keysStatus     filewatch.Status

	// life serialises Start, Leave and Stop.
	life struct {
		sync.Mutex
		stopped bool
	}
	running       context.Context // cancelled by Stop
	cancelRunning context.CancelFunc
	background    sync.WaitGroup

	subs struct {
		sync.Mutex
		list []*subscriber
	}
}

type subscriber struct {
	callback    func(sharding.View)
	seenVersion uint64 // the last version that callback received
}

// New validates the options and reads the keys. It opens no port: the view contains this node alone.
func New(o Options) (*Cluster, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	c := &Cluster{membersChanged: make(chan struct{}, 1), returned: make(chan struct{}, 1)}
	if o.KeyFile != "" {
		c.keys, err = ReadKeys(o.KeyFile)
		if err != nil {
			return nil, fmt.Errorf("membership: keys: %w", err)
		}
		secretfile.WarnIfExposed(o.Logger, o.KeyFile)
		o.ring, err = memberlist.NewKeyring(c.keys, c.keys[0])
		if err != nil {
			return nil, fmt.Errorf("membership: keys: %w", err)
		}
	}
	c.o = o
	c.running, c.cancelRunning = context.WithCancel(context.Background())
	c.nodes = newDelegate(o, c.signalChange)
	c.addr.Store("")
	self := sharding.Member{
		Name: o.Name, GRPCAddr: o.GRPCAddr, PeerAddr: o.PeerAddr, Process: o.Process,
		UnreachablePrimaries: -1,
	}
	c.setView(1, []sharding.Member{self})
	c.registerMetrics(o.Registerer)
	return c, nil
}

func (c *Cluster) registerMetrics(reg prometheus.Registerer) {
	f := promauto.With(reg)
	f.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "fermata_members",
		Help: "Live nodes of the cluster as this node sees it, itself included.",
	}, func() float64 { return float64(len(c.View().Members)) })
	f.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "fermata_gossip_keys",
		Help: "Keys that decrypt gossip: 1, more during a rotation, 0 if gossip is not encrypted.",
	}, func() float64 {
		if c.o.ring == nil {
			return 0
		}
		return float64(len(c.o.ring.GetKeys()))
	})
	f.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "fermata_gossip_health_score",
		Help: "Health score of this node in gossip: 0 is healthy, 7 the worst.",
	}, func() float64 {
		if list := c.gossip.list.Load(); list != nil {
			return float64(list.GetHealthScore())
		}
		return 0
	})
}

// Start listens and makes a first attempt to join. It waits until that attempt has succeeded or failed, ctx
// ends, or 5 s have passed. It returns an error if it cannot listen. Reaching no other node is not an error. The
// cluster runs until Stop, also after ctx has ended. A Cluster starts once.
func (c *Cluster) Start(ctx context.Context) error {
	c.life.Lock()
	defer c.life.Unlock()
	if c.life.stopped || c.gossip.config != nil {
		return errors.New("membership: already started")
	}
	if err := c.openTransport(); err != nil {
		return fmt.Errorf("membership: %w", err)
	}
	c.nodes.NotifyJoin(c.selfNode())

	joined := make(chan struct{})
	c.background.Go(c.awaitFirstContact)
	c.background.Go(c.publishViews)
	c.background.Go(func() { c.keepJoining(c.running, joined) })
	if c.o.ring != nil {
		c.background.Go(func() { c.reloadKeys(c.running) })
	}
	c.signalChange()
	timeout := time.NewTimer(joinTimeout)
	defer timeout.Stop()
	select {
	case <-joined:
	case <-ctx.Done():
	case <-timeout.C:
	}
	return nil
}

// View returns the live members, sorted by name, and this node's own name. The slice is shared: do not write to
// it.
func (c *Cluster) View() sharding.View { return *c.view.Load() }

// Subscribe calls f with the current view and then with each later one, one at a time, from Start to Stop. f may
// block: see invariant 2.
func (c *Cluster) Subscribe(f func(sharding.View)) {
	c.subs.Lock()
	c.subs.list = append(c.subs.list, &subscriber{callback: f})
	c.subs.Unlock()
	c.signalChange()
}

// LocalAddr is the gossip address that other nodes use for this node, host:port; empty before Start.
func (c *Cluster) LocalAddr() string { return c.addr.Load().(string) }

// Members lists the live members and those that departed recently, by name.
func (c *Cluster) Members() []MemberState { return c.nodes.listNodes(time.Now()) }

// RecordLeaving records that a member has announced that it leaves: when it departs, it is not lost.
func (c *Cluster) RecordLeaving(name string) { c.nodes.recordLeaving(name) }

// RedisState is the state of a node's connection to Redis, as published to the other nodes.
type RedisState struct {
	Aside   bool          // it should own no shards
	Blind   int           // number of Redis primaries that it cannot reach; -1: unknown
	Latency time.Duration // of its calls to Redis; 0: unknown
}

// PublishRedisState sets the state that this node publishes to the other nodes and to its own view. It does not
// wait for them: gossip repeats the latest state, with full exchanges too, until each member has it. Memberlist drops
// an update that meets a refutation of this node, so the caller repeats the call at short intervals: a call changes
// nothing if memberlist has the state already. An error means that memberlist does not have it yet.
// When a node stops being withdrawn, it looks for lost nodes at once: the fault that separated it from Redis may
// have separated it from them.
func (c *Cluster) PublishRedisState(s RedisState) error {
	if c.left.Load() {
		return nil // Leave holds the lock until its message is sent
	}
	c.life.Lock()
	runs := c.gossip.config != nil && !c.life.stopped
	returned := c.withdrawn && !s.Aside
	c.withdrawn = s.Aside
	c.life.Unlock()
	if !runs || c.left.Load() {
		return nil
	}
	m := c.o.nodeMeta()
	m.Aside, m.Blind, m.Latency = s.Aside, s.Blind+1, int(s.Latency.Milliseconds())
	list := c.updateMetadata(m)
	if returned {
		select {
		case c.returned <- struct{}{}:
		default:
		}
	}
	if list == nil || c.nodes.hasAnnounced() {
		return nil
	}
	// The error is that the message has not been sent to several members yet, for which nobody waits.
	_ = list.UpdateNode(time.Nanosecond)
	if !c.nodes.hasAnnounced() {
		return errors.New("membership: gossip has dropped the new metadata")
	}
	return nil
}

// Leave announces that this node leaves, so that the others need not detect it. From then on the view does not
// contain this node; changes of the others are still published. It waits up to timeout until the message is
// sent, and returns an error if it is not. It does nothing if called twice, or before Start.
func (c *Cluster) Leave(timeout time.Duration) error {
	c.life.Lock()
	defer c.life.Unlock()
	if c.gossip.config == nil || c.life.stopped {
		return nil
	}
	c.left.Store(true)
	list := c.gossip.preventStart()
	if list == nil {
		c.nodes.NotifyLeave(c.selfNode())
		return nil
	}
	if err := list.Leave(timeout); err != nil {
		return fmt.Errorf("membership: leave: %w", err)
	}
	return nil
}

// Stop ends gossip and waits for the goroutines of this package. Without a prior Leave, the others detect the
// end like a crash. It may be repeated. Subscribers must not call it.
func (c *Cluster) Stop() error {
	c.life.Lock()
	defer c.life.Unlock()
	if c.life.stopped {
		return nil
	}
	c.life.stopped = true
	c.cancelRunning()
	err := c.gossip.shutDown()
	c.background.Wait()
	return err
}

func (c *Cluster) signalChange() {
	select {
	case c.membersChanged <- struct{}{}:
	default:
	}
}

// publishViews turns membership changes into views and calls the subscribers.
func (c *Cluster) publishViews() {
	for {
		select {
		case <-c.running.Done():
			return
		case <-c.membersChanged:
			c.refreshView()
			c.notifySubscribers()
		}
	}
}

func (c *Cluster) refreshView() {
	members, old := c.nodes.aliveMembers(time.Now()), c.View()
	if slices.Equal(members, old.Members) {
		return
	}
	c.setView(old.Version+1, members)
	c.o.Logger.Info("members changed", "members", len(members), "version", old.Version+1)
}

func (c *Cluster) setView(version uint64, members []sharding.Member) {
	view := sharding.NewView(version, c.o.Name, members)
	c.view.Store(&view)
}

func (c *Cluster) notifySubscribers() {
	c.subs.Lock()
	subs := slices.Clone(c.subs.list)
	c.subs.Unlock()
	view := c.View()
	for _, s := range subs {
		if s.seenVersion < view.Version {
			s.seenVersion = view.Version
			s.callback(view)
		}
	}
}
