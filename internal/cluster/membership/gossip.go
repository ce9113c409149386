package membership

import (
	"errors"
	"net"
	"sync"
	"sync/atomic"

	"github.com/hashicorp/memberlist"
)

// Transport carries packets and streams between members. It receives from its creation until it is shut down.
type Transport interface {
	memberlist.Transport
	// IngestStream makes StreamCh yield a connection that was received from it.
	IngestStream(net.Conn) error
}

// maxPortTries bounds the search for a port that is free for both TCP and UDP.
const maxPortTries = 10

// gossip starts memberlist when there is a first node to join or a first node connects: the timers would be a
// third of the cost of an idle node without peers.
type gossip struct {
	transport  Transport
	config     *memberlist.Config // nil before Start
	self       memberlist.Node
	list       atomic.Pointer[memberlist.Memberlist] // nil until started
	handedOver chan struct{}                         // closed when awaitFirstContact must stop reading

	sync.Mutex      // serialises the start with the end
	ended      bool // it does not start any more
}

// openTransport listens and determines the address that others use for this node.
func (c *Cluster) openTransport() error {
	g, config := &c.gossip, c.o.memberlistConfig(c.nodes)
	g.transport = c.o.Transport
	if g.transport == nil {
		t, err := listenForGossip(c.o)
		if err != nil {
			return err
		}
		g.transport = t
		if config.AdvertisePort == 0 {
			config.AdvertisePort = t.boundPort()
		}
	}
	ip, port, err := g.transport.FinalAdvertiseAddr(config.AdvertiseAddr, config.AdvertisePort)
	if err != nil {
		return errors.Join(err, g.transport.Shutdown())
	}
	config.Transport = g.transport
	g.config, g.handedOver = config, make(chan struct{})
	g.self = memberlist.Node{Name: c.o.Name, Addr: ip, Port: uint16(port)}
	c.addr.Store(g.self.Address())
	return nil
}

// awaitFirstContact receives until memberlist runs and receives itself.
func (c *Cluster) awaitFirstContact() {
	for {
		select {
		case <-c.gossip.handedOver:
			return
		case <-c.gossip.transport.PacketCh(): // the packet is dropped, as on a lossy network: the sender repeats it
			c.startGossip()
		case conn := <-c.gossip.transport.StreamCh():
			c.acceptFirstStream(conn)
		}
	}
}

// startGossip starts memberlist, unless it runs or the node has left or was stopped. It returns nil if
// memberlist does not run.
func (c *Cluster) startGossip() *memberlist.Memberlist {
	c.gossip.Lock()
	defer c.gossip.Unlock()
	return c.startGossipLocked()
}

func (c *Cluster) startGossipLocked() *memberlist.Memberlist {
	g := &c.gossip
	if g.ended {
		return nil
	}
	if list := g.list.Load(); list != nil {
		return list
	}
	list, err := memberlist.Create(g.config)
	if err != nil {
		c.o.Logger.Error("failed to start gossip", "error", err)
		return nil
	}
	c.addr.Store(list.LocalNode().Address())
	g.list.Store(list)
	close(g.handedOver)
	return list
}

// acceptFirstStream starts memberlist for a stream and passes the stream on. If memberlist does not run, it
// closes the stream before anything is sent.
func (c *Cluster) acceptFirstStream(conn net.Conn) {
	g := &c.gossip
	g.Lock() // also while the stream is passed on: memberlist receives it unless it is stopped
	defer g.Unlock()
	if c.startGossipLocked() == nil {
		_ = conn.Close()
	} else if err := g.transport.IngestStream(conn); err != nil {
		_ = conn.Close()
		c.o.Logger.Debug("failed to pass on gossip stream", "error", err)
	}
}

// updateMetadata sets the metadata of this node, also in its own view. It returns memberlist if that runs and
// has to be updated.
func (c *Cluster) updateMetadata(m nodeMeta) *memberlist.Memberlist {
	g := &c.gossip
	g.Lock()
	defer g.Unlock()
	c.nodes.setMetadata(m)
	list := g.list.Load()
	if list == nil && !g.ended && !c.nodes.hasAnnounced() {
		c.nodes.NotifyUpdate(c.selfNode())
	}
	return list
}

// selfNode describes this node as memberlist would.
func (c *Cluster) selfNode() *memberlist.Node {
	n := c.gossip.self
	n.Meta = c.nodes.NodeMeta(memberlist.MetaMaxSize)
	return &n
}

// preventStart prevents a later start of memberlist. It returns memberlist if it runs.
func (g *gossip) preventStart() *memberlist.Memberlist {
	g.Lock()
	defer g.Unlock()
	g.ended = true
	return g.list.Load()
}

// shutDown closes the transport, and memberlist if it runs. Streams are received until the transport has closed:
// it closes only after it has passed them on.
func (g *gossip) shutDown() error {
	if list := g.preventStart(); list != nil {
		return list.Shutdown()
	}
	if g.config == nil {
		return nil
	}
	defer close(g.handedOver)
	return g.transport.Shutdown()
}
