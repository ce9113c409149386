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
	"github.com/fermata-io/fermata/internal/lib/secretfile"
)

// firstJoin bounds how long Start waits for the first attempt to join.
const firstJoin = 5 * time.Second

// Cluster is this node's part in the gossip cluster. Its methods may be called
// from any goroutine.
type Cluster struct {
	o      Options
	nodes  *delegate
	view   atomic.Pointer[sharding.View]
	gossip gossip
	addr   atomic.Value  // string, gossip address
	events chan struct{} // something about the nodes has changed
	back   chan struct{} // this node stands with the others again
	left   atomic.Bool
	aside  bool     // as it was told last; under life
	keys   [][]byte // of the ring; followKeys owns them once started
	// keysFault is what followKeys found last; nil: nothing.
	keysFault atomic.Pointer[error]

	// life serialises Start, Leave and Stop.
	life struct {
		sync.Mutex
		stopped bool
	}
	running    context.Context // ended by Stop
	end        context.CancelFunc
	background sync.WaitGroup

	subs struct {
		sync.Mutex
		list []*subscriber
	}
}

type subscriber struct {
	call func(sharding.View)
	seen uint64 // version that it was called with last
}

// New checks the options and reads the keys. It opens no port: the view has this
// node alone.
func New(o Options) (*Cluster, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	c := &Cluster{events: make(chan struct{}, 1), back: make(chan struct{}, 1)}
	if o.KeyFile != "" {
		if c.keys, err = ReadKeys(o.KeyFile); err != nil {
			return nil, fmt.Errorf("membership: keys: %w", err)
		}
		secretfile.WarnIfExposed(o.Logger, o.KeyFile)
		if o.ring, err = memberlist.NewKeyring(c.keys, c.keys[0]); err != nil {
			return nil, fmt.Errorf("membership: keys: %w", err)
		}
	}
	c.o = o
	c.running, c.end = context.WithCancel(context.Background())
	c.nodes = newDelegate(o, c.signal)
	c.addr.Store("")
	self := sharding.Member{Name: o.Name, GRPCAddr: o.GRPCAddr, PeerAddr: o.PeerAddr, Process: o.Process, Blind: -1}
	c.setView(1, []sharding.Member{self})
	c.register(o.Registerer)
	return c, nil
}

func (c *Cluster) register(reg prometheus.Registerer) {
	f := promauto.With(reg)
	f.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "fermata_members",
		Help: "Live nodes of the cluster as this node sees it, itself included.",
	}, func() float64 { return float64(len(c.View().Members)) })
	f.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "fermata_gossip_keys",
		Help: "Keys that decrypt gossip: 1, more while keys are being replaced, 0 when it is in the clear.",
	}, func() float64 {
		if c.o.ring == nil {
			return 0
		}
		return float64(len(c.o.ring.GetKeys()))
	})
	f.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "fermata_gossip_health_score",
		Help: "How badly this node keeps up with gossip: 0 is healthy, 7 the worst.",
	}, func() float64 {
		if list := c.gossip.list.Load(); list != nil {
			return float64(list.GetHealthScore())
		}
		return 0
	})
}

// Start listens and makes a first attempt to join, for which it waits until it
// has succeeded or failed, ctx ends, or 5 s have passed. Not meeting anybody is
// no error; not being able to listen is. The cluster runs until Stop, whatever
// becomes of ctx. A Cluster starts once.
func (c *Cluster) Start(ctx context.Context) error {
	c.life.Lock()
	defer c.life.Unlock()
	if c.life.stopped || c.gossip.config != nil {
		return errors.New("membership: already started")
	}
	if err := c.open(); err != nil {
		return fmt.Errorf("membership: %w", err)
	}
	c.nodes.NotifyJoin(c.alone())

	joined := make(chan struct{})
	c.background.Go(c.receive)
	c.background.Go(c.publish)
	c.background.Go(func() { c.keepJoining(c.running, joined) })
	if c.o.ring != nil {
		c.background.Go(func() { c.followKeys(c.running) })
	}
	c.signal()
	patience := time.NewTimer(firstJoin)
	defer patience.Stop()
	select {
	case <-joined:
	case <-ctx.Done():
	case <-patience.C:
	}
	return nil
}

// View returns the live members, by name, and how this node is called among
// them. Its slice is shared: do not write to it.
func (c *Cluster) View() sharding.View { return *c.view.Load() }

// Subscribe has f called with the present view and then with each later one,
// one at a time, from Start to Stop. f may take its time: see invariant 2.
func (c *Cluster) Subscribe(f func(sharding.View)) {
	c.subs.Lock()
	c.subs.list = append(c.subs.list, &subscriber{call: f})
	c.subs.Unlock()
	c.signal()
}

// LocalAddr is the gossip address that others use for this node, host:port;
// empty before Start.
func (c *Cluster) LocalAddr() string { return c.addr.Load().(string) }

// Members lists the live members and those that departed lately, by name.
func (c *Cluster) Members() []MemberInfo { return c.nodes.list(time.Now()) }

// Stance is what a node tells the others about its way to Redis.
type Stance struct {
	Aside   bool          // it should hold no shards
	Blind   int           // how many primaries of Redis do not answer it; -1: not known
	Latency time.Duration // of its calls; 0: not known
}

// SetStance tells the others, and this node's own view, how this node stands to Redis.
// It waits up to timeout for the message to be on its way; what has not
// come through by then does with the next full exchange. A node that does not stand
// aside any more looks for nodes that it has lost sight of at once: what kept it from
// Redis may have kept it from them.
func (c *Cluster) SetStance(s Stance, timeout time.Duration) error {
	if c.left.Load() {
		return nil // Leave holds the lock until its message is out
	}
	c.life.Lock()
	runs := c.gossip.config != nil && !c.life.stopped
	back := c.aside && !s.Aside
	c.aside = s.Aside
	c.life.Unlock() // who leaves or stops need not wait for the word to be out
	if !runs || c.left.Load() {
		return nil
	}
	m := c.o.meta()
	m.Aside, m.Blind, m.Latency = s.Aside, s.Blind+1, int(s.Latency.Milliseconds())
	list := c.tell(m)
	if back {
		select {
		case c.back <- struct{}{}:
		default:
		}
	}
	if list == nil {
		return nil // nobody else is known
	}
	if err := list.UpdateNode(timeout); err != nil {
		return fmt.Errorf("membership: tell metadata: %w", err)
	}
	return nil
}

// Leave tells the others that this node goes, so that they need not find out.
// From then on the view is without it; what happens to the others still shows.
// It waits up to timeout for the message to be on its way, and returns an error
// if it is not. Leaving twice, or without having started, does nothing.
func (c *Cluster) Leave(timeout time.Duration) error {
	c.life.Lock()
	defer c.life.Unlock()
	if c.gossip.config == nil || c.life.stopped {
		return nil
	}
	c.left.Store(true)
	list := c.gossip.end()
	if list == nil {
		c.nodes.NotifyLeave(c.alone())
		return nil
	}
	if err := list.Leave(timeout); err != nil {
		return fmt.Errorf("membership: leave: %w", err)
	}
	return nil
}

// Stop ends gossip and waits for the goroutines of this package. Without a
// Leave before, the others notice as they notice a crash. It may be repeated.
// Subscribers must not call it.
func (c *Cluster) Stop() error {
	c.life.Lock()
	defer c.life.Unlock()
	if c.life.stopped {
		return nil
	}
	c.life.stopped = true
	c.end()
	err := c.gossip.shutdown()
	c.background.Wait()
	return err
}

func (c *Cluster) signal() {
	select {
	case c.events <- struct{}{}:
	default:
	}
}

// publish turns events into views and tells the subscribers.
func (c *Cluster) publish() {
	for {
		select {
		case <-c.running.Done():
			return
		case <-c.events:
			c.refresh()
			c.notify()
		}
	}
}

func (c *Cluster) refresh() {
	members, old := c.nodes.alive(time.Now()), c.View()
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

func (c *Cluster) notify() {
	c.subs.Lock()
	subs := slices.Clone(c.subs.list)
	c.subs.Unlock()
	view := c.View()
	for _, s := range subs {
		if s.seen < view.Version {
			s.seen = view.Version
			s.call(view)
		}
	}
}
