package membership

import (
	"errors"
	"net"
	"sync"
	"sync/atomic"

	"github.com/hashicorp/memberlist"
)

// Transport carries packets and streams between members. It reads them from the time
// that it is made until it is shut down.
type Transport interface {
	memberlist.Transport
	// IngestStream has StreamCh yield a connection that was taken from it.
	IngestStream(net.Conn) error
}

// maxPortTries bounds the search for a free port that is so for TCP and for UDP.
const maxPortTries = 10

// gossip is memberlist, which begins when somebody is to be met or calls: its timers
// would be a third of what a node costs that has nothing to do and knows nobody.
type gossip struct {
	transport Transport
	config    *memberlist.Config // nil before Start
	self      memberlist.Node
	list      atomic.Pointer[memberlist.Memberlist] // nil until begun
	taken     chan struct{}                         // closed when receive need not read the transport any more

	sync.Mutex      // serialises the beginning with the end
	over       bool // it does not begin any more
}

// open listens and finds out what address others are to use.
func (c *Cluster) open() error {
	g, config := &c.gossip, c.o.config(c.nodes)
	g.transport = c.o.Transport
	if g.transport == nil {
		t, err := listen(c.o)
		if err != nil {
			return err
		}
		g.transport = t
		if config.AdvertisePort == 0 {
			config.AdvertisePort = t.port()
		}
	}
	ip, port, err := g.transport.FinalAdvertiseAddr(config.AdvertiseAddr, config.AdvertisePort)
	if err != nil {
		return errors.Join(err, g.transport.Shutdown())
	}
	config.Transport = g.transport
	g.config, g.taken = config, make(chan struct{})
	g.self = memberlist.Node{Name: c.o.Name, Addr: ip, Port: uint16(port)}
	c.addr.Store(g.self.Address())
	return nil
}

// receive waits for the first who calls, until memberlist takes calls itself.
func (c *Cluster) receive() {
	for {
		select {
		case <-c.gossip.taken:
			return
		case <-c.gossip.transport.PacketCh(): // as good as lost on its way: who sent it, sends again
			c.begin()
		case conn := <-c.gossip.transport.StreamCh():
			c.answer(conn)
		}
	}
}

// begin has memberlist running, if it is not and the node has neither left nor been
// stopped. It returns nil if memberlist does not run.
func (c *Cluster) begin() *memberlist.Memberlist {
	c.gossip.Lock()
	defer c.gossip.Unlock()
	return c.beginLocked()
}

func (c *Cluster) beginLocked() *memberlist.Memberlist {
	g := &c.gossip
	if g.over {
		return nil
	}
	if list := g.list.Load(); list != nil {
		return list
	}
	list, err := memberlist.Create(g.config)
	if err != nil {
		c.o.Logger.Error("cannot gossip", "error", err)
		return nil
	}
	c.addr.Store(list.LocalNode().Address())
	g.list.Store(list)
	close(g.taken)
	return list
}

// answer begins for the sake of a stream, and hands it over. It hangs up, before anything
// was sent, if memberlist does not run.
func (c *Cluster) answer(conn net.Conn) {
	g := &c.gossip
	g.Lock() // also while the stream goes over, which somebody takes as long as nobody stops it
	defer g.Unlock()
	if c.beginLocked() == nil {
		_ = conn.Close()
	} else if err := g.transport.IngestStream(conn); err != nil {
		_ = conn.Close()
		c.o.Logger.Debug("lost a stream of gossip", "error", err)
	}
}

// tell has this node say m of itself from now on, also in its own view. It returns
// memberlist, if that runs and has to be told.
func (c *Cluster) tell(m meta) *memberlist.Memberlist {
	g := &c.gossip
	g.Lock()
	defer g.Unlock()
	c.nodes.tell(m)
	list := g.list.Load()
	if list == nil && !g.over {
		c.nodes.NotifyUpdate(c.alone())
	}
	return list
}

// alone is this node as memberlist would describe it.
func (c *Cluster) alone() *memberlist.Node {
	n := c.gossip.self
	n.Meta = c.nodes.NodeMeta(memberlist.MetaMaxSize)
	return &n
}

// end keeps gossip from beginning. It returns memberlist if it runs.
func (g *gossip) end() *memberlist.Memberlist {
	g.Lock()
	defer g.Unlock()
	g.over = true
	return g.list.Load()
}

// shutdown closes the transport, with memberlist if that runs. Calls are received as
// long as the transport hands them over, which it has to be rid of before it closes.
func (g *gossip) shutdown() error {
	if list := g.end(); list != nil {
		return list.Shutdown()
	}
	if g.config == nil {
		return nil
	}
	defer close(g.taken)
	return g.transport.Shutdown()
}
