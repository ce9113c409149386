package peer

import (
	"context"
	"maps"
	"slices"
	"sync"

	"google.golang.org/grpc"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/sharding"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// Peer keeps the links of one node. Call SetView when the membership changes, and Stop at the end.
type Peer struct {
	o          Options
	metrics    *metrics
	ctx        context.Context
	cancel     context.CancelFunc
	goroutines sync.WaitGroup

	mu             sync.Mutex
	stopped        bool
	view           sharding.View          // the latest
	latestOffer    offer                  // the latest
	starvedPeers   []int                  // for each queue of the offer, see PeersWithoutSlots
	notifiedAtOnce int                    // peers that are notified at once in the current round of offers
	links          map[string]*link       // that this node dialled, by peer
	servedLinks    map[string]*servedLink // that peers dialled
	foreignMembers map[string]bool        // members that use another keyspace
	processes      map[string]nodeProcess // by node, which may be no member any more
}

// New makes a Peer without links.
func New(o Options) (*Peer, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	p := &Peer{o: o, links: make(map[string]*link), servedLinks: make(map[string]*servedLink),
		foreignMembers: make(map[string]bool), processes: make(map[string]nodeProcess)}
	p.metrics, err = newMetrics(o.Registerer, p.countForeignMembers)
	if err != nil {
		return nil, err
	}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	return p, nil
}

// Register adds the service to the node's server for peers.
func (p *Peer) Register(r grpc.ServiceRegistrar) {
	fermatav1.RegisterPeerServiceServer(r, &peerService{p: p})
}

// SetView opens links to new members and closes those to removed members: at once if the link is down or the
// member has moved, otherwise when its stream ends. A node that leaves still has to send which shards it
// released. A node that only gossip has lost keeps its shards and still permits other nodes to lease from them.
// SetView does not block.
func (p *Peer) SetView(v sharding.View) {
	for _, l := range p.applyView(v) {
		p.admitMember(l)
	}
}

// applyView returns the links of nodes that have become members.
func (p *Peer) applyView(v sharding.View) (admitted []*servedLink) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stopped {
		return nil
	}
	p.view = v
	maps.DeleteFunc(p.foreignMembers, func(name string, _ bool) bool {
		_, ok := v.Member(name)
		return !ok
	})
	p.closeLinks()
	p.openLinks()
	for name, l := range p.servedLinks {
		_, inView := v.Member(name)
		if inView && !l.isMember.Load() {
			admitted = append(admitted, l)
		}
	}
	return admitted
}

// closeLinks closes the links to members that have departed or moved. A link stays when gossip names another process: the
// address for clients that it has learned is still valid if gossip is wrong. The caller holds mu.
func (p *Peer) closeLinks() {
	for name, l := range p.links {
		m, ok := p.view.Member(name)
		l.departed.Store(!ok)
		if ok && m.PeerAddr != l.member.PeerAddr || !ok && !l.isUp() {
			l.cancel()
			delete(p.links, name)
		}
	}
}

// openLinks opens links to the members that have none. The caller holds mu.
func (p *Peer) openLinks() {
	for _, m := range p.view.Members {
		if m.Name == p.o.Self || p.links[m.Name] != nil {
			continue
		}
		l, err := p.newLink(m)
		if err != nil {
			p.o.Logger.Error("failed to create peer link", "node", m.Name, "address", m.PeerAddr, "error", err)
			continue
		}
		p.links[m.Name] = l
		p.goroutines.Go(l.run)
	}
}

// checkDialled refuses a dialled node that this one cannot work with.
func (p *Peer) checkDialled(l *link, other handshake) error {
	self := p.localHandshake()
	p.mu.Lock()
	defer p.mu.Unlock()
	l.provenKeyspace = other.keyspace
	p.noteKeyspace(l.member.Name, self, other)
	err := self.checkCompatible(other)
	if err == nil && other.process != "" {
		p.noteProcess(l.member.Name, nodeProcess{other.process, other.features})
	}
	return err
}

// checkHello refuses a node that dialled and that this one cannot work with. Nodes may send any name in a hello: while
// the link that this node dialled to the member of that name proves its keyspace, the hello's counts for nothing else.
func (p *Peer) checkHello(node string, other handshake) error {
	self := p.localHandshake()
	p.mu.Lock()
	defer p.mu.Unlock()
	l := p.links[node]
	proven := l != nil && l.provenKeyspace != "" && l.provenKeyspace == self.keyspace
	switch {
	case l != nil && !proven:
		p.noteKeyspace(node, self, other)
	case self.usesOtherKeyspace(other):
		p.o.Logger.Warn("refusing link: its hello has another keyspace", "node", job.Clip(node, job.MaxID),
			"its_keyspace", other.keyspace, "keyspace", self.keyspace)
	}
	return self.checkCompatible(other)
}

// noteKeyspace notes whether a member uses another keyspace. That it does is logged once, and counted until that has
// changed. The caller holds mu.
func (p *Peer) noteKeyspace(node string, self, other handshake) {
	foreign, known := self.usesOtherKeyspace(other), p.foreignMembers[node]
	switch {
	case !foreign:
		delete(p.foreignMembers, node)
	case !known && p.links[node] != nil:
		p.foreignMembers[node] = true
		p.o.Logger.Warn("node uses another keyspace, refusing links and ownership of shards",
			"node", node, "its_keyspace", other.keyspace, "keyspace", self.keyspace)
	}
}

// forgetKeyspace notes that the link proves nothing any more: its stream has ended.
func (p *Peer) forgetKeyspace(l *link) {
	p.mu.Lock()
	defer p.mu.Unlock()
	l.provenKeyspace = ""
}

// isForeign is true of a member that uses another keyspace, as far as links have shown.
func (p *Peer) isForeign(node string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.foreignMembers[node]
}

func (p *Peer) countForeignMembers() float64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return float64(len(p.foreignMembers))
}

// nodeProcess is what the process of a node has sent about itself on a link that this node has opened.
type nodeProcess struct {
	name     string
	features uint32
}

// maxProcesses is more nodes than a cluster has.
const maxProcesses = 2048

// noteProcess notes what a node has sent about its process. It stays when the node leaves the view, because gossip may
// show that though the process runs. The caller holds mu.
func (p *Peer) noteProcess(node string, sent nodeProcess) {
	if len(p.processes) >= maxProcesses {
		maps.DeleteFunc(p.processes, func(name string, _ nodeProcess) bool {
			_, ok := p.view.Member(name)
			return !ok
		})
	}
	p.processes[node] = sent
}

// Features returns the features that a process of a node has sent on a link, also if that is closed by now; ok is false if
// no link to it was open, or if it does not send them.
func (p *Peer) Features(node, process string) (features uint32, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	sent := p.processes[node]
	return sent.features, process != "" && sent.name == process
}

// HasPeers reports whether there are peers to notify of free slots.
func (p *Peer) HasPeers() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.links) > 0
}

// removeIfDeparted removes a link whose stream has ended, if its member has departed.
func (p *Peer) removeIfDeparted(l *link) bool {
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

// Stop closes all links and waits for their goroutines. Messages that are queued on served links are sent first,
// for at most a second. Stop may be called more than once.
func (p *Peer) Stop() {
	p.mu.Lock()
	p.stopped = true
	p.mu.Unlock()
	p.cancel()
	p.goroutines.Wait()
}

// SendPermits lets a peer lease. It returns how many of the permits, from the first on, are on their way; the others
// are free at once. A peer of an earlier build gets a message for each, and a node that has not been a member none.
func (p *Peer) SendPermits(node string, permits []job.Permit) (sent int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.servedLinks[node]
	maySend, each := s != nil && s.isMember.Load(), 1
	if maySend && s.permitLists {
		each = job.MaxPermitsPerMessage
	}
	for list := range slices.Chunk(permits, each) {
		if !p.countDropped("permit", maySend && s.enqueue(permitsToPB(list))) {
			break
		}
		sent += len(list)
	}
	return sent
}

// SendPermitResults sends a peer the results of permits that it sent in one message. There must be at least one.
func (p *Peer) SendPermitResults(node string, results []job.LanePermitResult) {
	p.mu.Lock()
	defer p.mu.Unlock()
	l := p.links[node]
	if l != nil {
		l.queue.clearFreeSlots(results)
	}
	p.countDropped("permit_result", l != nil && l.isUp() && l.queue.addMessage(permitResultsToPB(results)))
}

// SendNudge notifies the holder of a shard that a lane became due earlier.
func (p *Peer) SendNudge(node string, shard int, head job.LaneHead) {
	p.mu.Lock()
	defer p.mu.Unlock()
	l := p.links[node]
	p.countDropped("nudge", l != nil && l.isUp() && l.queue.addNudge(shard, head))
}

// BroadcastCancel asks all peers to cancel an attempt.
func (p *Peer) BroadcastCancel(record job.RecordID, token uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, l := range p.links {
		p.countDropped("cancel", l.isUp() && l.queue.addMessage(cancelToPB(record, token)))
	}
}

// BroadcastHandOver notifies all peers that this node released shards.
func (p *Peer) BroadcastHandOver(shards []int) {
	if len(shards) > 0 {
		p.broadcast("hand_over", handOverToPB(shards, false))
	}
}

// BroadcastLeave notifies all peers that this node leaves the cluster and has released these shards.
func (p *Peer) BroadcastLeave(shards []int) { p.broadcast("hand_over", handOverToPB(shards, true)) }

// broadcast sends a message to all peers that have dialled this node.
func (p *Peer) broadcast(kind string, m *fermatav1.LinkResponse) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.servedLinks {
		p.countDropped(kind, s.enqueue(m))
	}
}

// HasEnded reports whether the process of a member has ended, as far as this node's link to it has shown.
func (p *Peer) HasEnded(node string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	l := p.links[node]
	return l != nil && l.processEnded.Load()
}

// ClientAddress returns the address at which clients and workers reach a member, as the member itself sent it
// over the link that this node dialled; empty: none yet. Addresses from gossip are not used. The link may be
// down by now.
func (p *Peer) ClientAddress(node string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if l := p.links[node]; l != nil {
		return l.clientAddress()
	}
	return ""
}

// countDropped counts a message that was not queued. Sent messages are counted when they are written.
func (p *Peer) countDropped(kind string, queued bool) bool {
	if !queued {
		p.metrics.dropped.WithLabelValues(kind).Inc()
	}
	return queued
}
