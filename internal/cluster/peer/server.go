package peer

import (
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	grpcpeer "google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/unixtime"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

type peerService struct {
	fermatav1.UnimplementedPeerServiceServer
	p *Peer
}

type servedStream = grpc.BidiStreamingServer[fermatav1.LinkRequest, fermatav1.LinkResponse]

// servedLink is a link that a peer dialled.
type servedLink struct {
	node    string
	address string // from which the peer dialled
	// permitLists: the node understands several permits in one message.
	permitLists bool
	outgoing    chan *fermatav1.LinkResponse
	// replaced is closed when a later link of the node has taken the place of this one.
	replaced chan struct{}
	// replacements that were not logged, and when the last one was logged; later links of the node continue both.
	replacements       int
	replacementsLogged time.Time
	// isMember: the view has had the node since this link or one that it replaced was opened. Only then is demand passed
	// on, and are permits sent.
	isMember atomic.Bool

	// handling is held while a message of the link or its end is passed to the Handler: nothing of this link may come
	// after what a later one passes on.
	handling   sync.Mutex
	heldDemand *fermatav1.Demand // the latest from a node that is not a member yet
}

func newServedLink(stream servedStream, hello *fermatav1.LinkHello) *servedLink {
	l := &servedLink{node: hello.GetNode(), permitLists: hello.GetPermitLists(),
		outgoing: make(chan *fermatav1.LinkResponse, queueLimit), replaced: make(chan struct{})}
	caller, known := grpcpeer.FromContext(stream.Context())
	if known {
		l.address = caller.Addr.String()
	}
	return l
}

// enqueue queues a message; false if it has to be dropped.
func (s *servedLink) enqueue(m *fermatav1.LinkResponse) bool {
	select {
	case s.outgoing <- m:
		return true
	default:
		return false
	}
}

// Link serves the stream of a peer. The handler only waits, so that it can end while reader and writer are
// blocked.
func (s *peerService) Link(stream servedStream) error {
	p := s.p
	hello, entered, ended := make(chan *fermatav1.LinkHello, 1), make(chan *servedLink, 1), make(chan error, 2)
	if !p.startGoroutine(func() { ended <- p.receiveServed(stream, hello, entered) }) {
		return errStopping
	}
	opened, err := p.awaitHello(stream, hello, ended)
	if err != nil {
		return err
	}
	l := newServedLink(stream, opened)
	p.addServedLink(l)
	defer p.removeServedLink(l)
	entered <- l
	if err := stream.SendHeader(p.localHandshake().responseHeader()); err != nil {
		return err
	}
	if !p.startGoroutine(func() { ended <- p.sendServed(stream, l) }) {
		return errStopping
	}
	return p.awaitEnd(l, ended)
}

// awaitHello returns the hello that opens a link.
func (p *Peer) awaitHello(stream servedStream, hello <-chan *fermatav1.LinkHello,
	ended <-chan error) (*fermatav1.LinkHello, error) {
	late := time.NewTimer(helloTimeout)
	defer late.Stop()
	select {
	case opened := <-hello:
		return opened, nil
	case err := <-ended:
		_ = stream.SetHeader(p.localHandshake().responseHeader()) // it may be refused for what this node is
		return nil, err
	case <-late.C:
		return nil, status.Error(codes.DeadlineExceeded, "no hello received")
	case <-p.ctx.Done():
		return nil, errStopping
	}
}

// awaitEnd returns why the link ends: its reader or writer has ended, a later link has replaced it, or this node stops.
func (p *Peer) awaitEnd(l *servedLink, ended <-chan error) error {
	select {
	case err := <-ended:
		return err
	case <-l.replaced:
		return errReplaced
	case <-p.ctx.Done():
	}
	stuck := time.NewTimer(stopFlushTimeout)
	defer stuck.Stop()
	select {
	case <-ended:
	case <-stuck.C:
	}
	return errStopping
}

// stopFlushTimeout is how long a node that stops waits for a peer that takes nothing.
const stopFlushTimeout = time.Second

var (
	errStopping = status.Error(codes.Unavailable, "node is stopping")
	// errReplaced has the dialer open its link again. If no other process uses the node's name, it stays open.
	errReplaced = status.Error(codes.Aborted, "a later link of this node is open")
)

// startGoroutine runs f in a goroutine that Stop waits for; false after Stop.
func (p *Peer) startGoroutine(f func()) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stopped {
		return false
	}
	p.goroutines.Go(f)
	return true
}

// addServedLink makes the link the one of its node. An earlier one ends.
func (p *Peer) addServedLink(l *servedLink) {
	p.metrics.links.WithLabelValues("served").Inc()
	p.mu.Lock()
	earlier := p.servedLinks[l.node]
	p.servedLinks[l.node] = l
	l.isMember.Store(p.isMember(l.node) || earlier != nil && earlier.isMember.Load())
	if earlier != nil {
		p.endReplaced(earlier, l)
	}
	p.mu.Unlock()
	if earlier != nil {
		earlier.handling.Lock() // what the earlier link is passing on comes before what this one does
		defer earlier.handling.Unlock()
	}
}

// endReplaced ends a link that a later one has replaced, and logs it at most once in replacementLogPause for each node:
// two processes that use one name replace each other's links again and again. The caller holds mu.
func (p *Peer) endReplaced(earlier, later *servedLink) {
	close(earlier.replaced)
	later.replacements, later.replacementsLogged = earlier.replacements+1, earlier.replacementsLogged
	now := time.Now()
	if now.Sub(later.replacementsLogged) >= replacementLogPause {
		p.o.Logger.Warn("node opened another link, ending its earlier one: does another process use its name?",
			"node", later.node, "address", later.address, "earlier_address", earlier.address, "count", later.replacements)
		later.replacements, later.replacementsLogged = 0, now
	}
}

// isMember reports whether the view has a node, or had it when the stream to it was opened that is still open. The
// caller holds mu.
func (p *Peer) isMember(node string) bool {
	_, inView := p.view.Member(node)
	return inView || p.links[node] != nil
}

// removeServedLink removes the link. Its demand is void, unless another link of the node has replaced it.
func (p *Peer) removeServedLink(l *servedLink) {
	p.metrics.links.WithLabelValues("served").Dec()
	l.handling.Lock()
	defer l.handling.Unlock()
	if !p.isCurrent(l) {
		return
	}
	p.o.Handler.OnLinkDown(l.node) // before a link that replaces this one passes on anything
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.servedLinks[l.node] == l {
		delete(p.servedLinks, l.node)
	}
}

// isCurrent reports whether messages of the link still count.
func (p *Peer) isCurrent(l *servedLink) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.servedLinks[l.node] == l
}

// receiveMessage passes on a message of the link. The latest demand of a node that is not a member yet is held until it
// is one: links may be opened before gossip has the node.
func (p *Peer) receiveMessage(l *servedLink, m *fermatav1.LinkRequest) {
	l.handling.Lock()
	defer l.handling.Unlock()
	switch {
	case !p.isCurrent(l):
	case m.GetDemand() != nil && !l.isMember.Load():
		l.heldDemand = m.GetDemand()
	default:
		p.handleRequest(l.node, m)
	}
}

// admitMember passes on the demand that was held until the link's node became a member.
func (p *Peer) admitMember(l *servedLink) {
	l.handling.Lock()
	defer l.handling.Unlock()
	l.isMember.Store(true)
	if l.heldDemand != nil && p.isCurrent(l) {
		p.o.Handler.OnDemand(l.node, demandFromPB(l.heldDemand))
	}
	l.heldDemand = nil
}

// receiveServed reads a peer's messages: first its hello, then, after the link was entered, all others.
func (p *Peer) receiveServed(stream servedStream, hello chan<- *fermatav1.LinkHello,
	entered <-chan *servedLink) error {
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	node := first.GetHello().GetNode()
	if node == "" || node == p.o.Self {
		return status.Errorf(codes.InvalidArgument, "invalid node name in hello: %q", job.Clip(node, job.MaxID))
	}
	other := handshakeFromHello(first.GetHello())
	if err := p.checkHello(node, other); err != nil {
		return err
	}
	hello <- first.GetHello()
	var l *servedLink
	select {
	case l = <-entered:
	case <-stream.Context().Done():
		return stream.Context().Err()
	}
	for {
		m, err := stream.Recv()
		if err != nil {
			return err
		}
		p.receiveMessage(l, m)
	}
}

func (p *Peer) handleRequest(node string, m *fermatav1.LinkRequest) {
	h := p.o.Handler
	switch m := m.GetMessage().(type) {
	case *fermatav1.LinkRequest_Demand:
		h.OnDemand(node, demandFromPB(m.Demand))
	case *fermatav1.LinkRequest_Nudge:
		lane, ok := job.ParseLane(m.Nudge.GetLane())
		if !ok || m.Nudge.GetShard() < 0 {
			p.metrics.refused.Inc()
			return
		}
		h.OnNudge(int(m.Nudge.GetShard()), job.LaneHead{Lane: lane, DueMS: unixtime.Milli(m.Nudge.GetDueMs())})
	case *fermatav1.LinkRequest_PermitResult:
		h.OnPermitResults(node, []job.PermitResult{permitResultFromPB(m.PermitResult)})
	case *fermatav1.LinkRequest_PermitResults:
		if results := m.PermitResults.GetResults(); len(results) > job.MaxPermitsPerMessage {
			p.metrics.refused.Inc()
		} else if len(results) > 0 {
			h.OnPermitResults(node, permitResultsFromPB(results))
		}
	case *fermatav1.LinkRequest_CancelAttempt:
		h.OnCancel(job.RecordID(m.CancelAttempt.GetRecord()), uint64(m.CancelAttempt.GetToken()))
	}
}

// sendServed sends queued messages until the stream ends, or until this node stops and the queue is empty: peers
// take over released shards as soon as they are notified.
func (p *Peer) sendServed(stream servedStream, l *servedLink) error {
	for p.ctx.Err() == nil || len(l.outgoing) > 0 {
		select {
		case m := <-l.outgoing:
			if err := stream.Send(m); err != nil {
				return err
			}
			p.metrics.sent.WithLabelValues(responseKind(m)).Inc()
		case <-p.ctx.Done(): // the condition looks at what is left
		case <-stream.Context().Done():
			return stream.Context().Err()
		}
	}
	return errStopping
}

func responseKind(m *fermatav1.LinkResponse) string {
	if m.GetPermit() != nil || m.GetPermits() != nil {
		return "permit"
	}
	return "hand_over"
}
