package peer

import (
	"cmp"
	"context"
	"slices"
	"sync"

	"google.golang.org/grpc"

	"github.com/fermata-io/fermata/internal/job"
	"github.com/fermata-io/fermata/internal/ring"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// Peer keeps the links of one node. Make one with New, tell it the view, end it
// with Stop.
type Peer struct {
	o       Options
	metrics *metrics
	ctx     context.Context
	cancel  context.CancelFunc
	loops   sync.WaitGroup

	mu      sync.Mutex
	stopped bool
	offer   offer              // the latest
	wanting []int              // by the offer's queues, see Wanting
	atOnce  int                // peers that hear of an offer at once, in the round that is under way
	links   map[string]*link   // that this node dialled, by peer
	served  map[string]*served // that peers dialled
	foreign map[string]bool    // members that use another keyspace
}

// New makes a Peer without links.
func New(o Options) (*Peer, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	p := &Peer{o: o, links: make(map[string]*link), served: make(map[string]*served), foreign: make(map[string]bool)}
	if p.metrics, err = newMetrics(o.Registerer, p.countForeign); err != nil {
		return nil, err
	}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	return p, nil
}

// Register adds the service to the node's server for peers.
func (p *Peer) Register(r grpc.ServiceRegistrar) {
	fermatav1.RegisterPeerServiceServer(r, &server{p: p})
}

// SetView opens links to new members and ends those to members that are gone:
// at once if they are down or the member has moved, otherwise when the stream
// ends. A node that leaves has still to say which shards it released, and one that
// only gossip has lost sight of keeps its shards and goes on permitting others to
// lease from them. SetView does not block.
func (p *Peer) SetView(v ring.View) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stopped {
		return
	}
	for name := range p.foreign {
		if _, ok := v.Member(name); !ok {
			delete(p.foreign, name)
		}
	}
	for name, l := range p.links {
		m, ok := v.Member(name)
		l.departed.Store(!ok)
		if ok && m.PeerAddr != l.member.PeerAddr || !ok && !l.up() {
			l.cancel()
			delete(p.links, name)
		}
	}
	for _, m := range v.Members {
		if m.Name == p.o.Self || p.links[m.Name] != nil {
			continue
		}
		l, err := p.newLink(m)
		if err != nil {
			p.o.Logger.Error("cannot link to node", "node", m.Name, "address", m.PeerAddr, "error", err)
			continue
		}
		p.links[m.Name] = l
		p.loops.Go(l.run)
	}
}

// compare refuses a node that this one cannot work with. That a member uses another keyspace
// is logged once, and counted until that has changed.
func (p *Peer) compare(node string, other about) error {
	self := p.self()
	p.mu.Lock()
	defer p.mu.Unlock()
	foreign, known := self.foreign(other), p.foreign[node]
	switch {
	case !foreign:
		delete(p.foreign, node)
	case !known && p.links[node] != nil:
		p.foreign[node] = true
		p.o.Logger.Warn("node uses another keyspace: links with it are refused, and it owns no shards here",
			"node", node, "its_keyspace", other.keyspace, "keyspace", self.keyspace)
	}
	return self.fits(other)
}

// isForeign is true of a member that uses another keyspace, as far as links have shown.
func (p *Peer) isForeign(node string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.foreign[node]
}

func (p *Peer) countForeign() float64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return float64(len(p.foreign))
}

// Linked tells whether there is anybody to tell of free slots.
func (p *Peer) Linked() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.links) > 0
}

// retire ends the link, whose stream has ended, if its member has departed.
func (p *Peer) retire(l *link) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !l.departed.Load() {
		return false
	}
	if p.links[l.member.Name] == l {
		delete(p.links, l.member.Name)
	}
	return true
}

// Stop ends all links, those that peers dialled when what was said there has gone out or
// after a second, and waits for their goroutines. It may be called more than once.
func (p *Peer) Stop() {
	p.mu.Lock()
	p.stopped = true
	p.mu.Unlock()
	p.cancel()
	p.loops.Wait()
}

// SendPermit lets a peer lease; false if it is not linked, so that the permit is
// free at once.
func (p *Peer) SendPermit(node string, permit job.Permit) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.served[node]
	return p.count("permit", s != nil && s.put(permitToPB(permit)))
}

// SendPermitResult tells a peer what became of its permit for a lane.
func (p *Peer) SendPermitResult(node string, lane job.Lane, r job.PermitResult) {
	p.mu.Lock()
	defer p.mu.Unlock()
	l := p.links[node]
	if l != nil && r.Leased == 0 && r.DueMS <= 0 {
		l.queue.disappointed(lane)
	}
	p.count("permit_result", l != nil && l.up() && l.queue.put(permitResultToPB(r)))
}

// Nudge tells the holder of a shard that a lane became due earlier.
func (p *Peer) Nudge(node string, shard int, head job.LaneHead) {
	p.mu.Lock()
	defer p.mu.Unlock()
	l := p.links[node]
	p.count("nudge", l != nil && l.up() && l.queue.nudge(shard, head))
}

// BroadcastCancel asks all peers to cancel an attempt.
func (p *Peer) BroadcastCancel(record string, token uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, l := range p.links {
		p.count("cancel", l.up() && l.queue.put(cancelToPB(record, token)))
	}
}

// HandOver tells all peers that this node released shards.
func (p *Peer) HandOver(shards []int) {
	if len(shards) == 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.served {
		p.count("hand_over", s.put(handOverToPB(shards)))
	}
}

// Gone tells whether the process of a member has ended, as far as this node's link
// to it has shown.
func (p *Peer) Gone(node string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	l := p.links[node]
	return l != nil && l.gone.Load()
}

// ClientAddress is where clients and workers reach a member, as it has said itself over the link
// that this node has dialled; empty: it has not. What gossip says of it is not looked at. The link
// may be down by now.
func (p *Peer) ClientAddress(node string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if l := p.links[node]; l != nil {
		return l.clientAddress()
	}
	return ""
}

// count counts what was not queued; sent messages are counted when they go out.
func (p *Peer) count(kind string, queued bool) bool {
	if !queued {
		p.metrics.dropped.WithLabelValues(kind).Inc()
	}
	return queued
}

// DescribeAll asks every other member what it knows of itself, all at once, each
// for at most two seconds. Members that do not answer come as unreachable. The
// answers are sorted by name.
func (p *Peer) DescribeAll(ctx context.Context) []job.NodeInfo {
	p.mu.Lock()
	links := make([]*link, 0, len(p.links))
	for _, l := range p.links {
		links = append(links, l)
	}
	p.mu.Unlock()
	infos := make([]job.NodeInfo, len(links))
	var asked sync.WaitGroup
	for i, l := range links {
		asked.Go(func() { infos[i] = l.describe(ctx) })
	}
	asked.Wait()
	known := 0
	for i, l := range links {
		if l.departed.Load() && infos[i].Unreachable {
			continue
		}
		infos[known] = infos[i]
		known++
	}
	infos = infos[:known]
	slices.SortFunc(infos, func(a, b job.NodeInfo) int { return cmp.Compare(a.Name, b.Name) })
	return infos
}
