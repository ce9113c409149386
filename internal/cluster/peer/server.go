package peer

import (
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/unixtime"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

type peerService struct {
	fermatav1.UnimplementedPeerServiceServer
	p *Peer
}

func (s *peerService) DescribeNode(context.Context, *fermatav1.DescribeNodeRequest) (*fermatav1.DescribeNodeResponse,
	error) {
	return infoToPB(s.p.o.Handler.Describe()), nil
}

type servedStream = grpc.BidiStreamingServer[fermatav1.LinkRequest, fermatav1.LinkResponse]

// servedLink is a link that a peer dialled.
type servedLink struct {
	node string
	// permitLists: the node understands several permits in one message.
	permitLists bool
	outgoing    chan *fermatav1.LinkResponse
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
	late := time.NewTimer(helloTimeout)
	defer late.Stop()
	var opened *fermatav1.LinkHello
	select {
	case opened = <-hello:
	case err := <-ended:
		_ = stream.SetHeader(p.localHandshake().responseHeader()) // it may be refused for what this node is
		return err
	case <-late.C:
		return status.Error(codes.DeadlineExceeded, "no hello received")
	case <-p.ctx.Done():
		return errStopping
	}
	l := &servedLink{node: opened.GetNode(), permitLists: opened.GetPermitLists(),
		outgoing: make(chan *fermatav1.LinkResponse, queueLimit)}
	p.addServedLink(l)
	defer p.removeServedLink(l)
	entered <- l
	if err := stream.SendHeader(p.localHandshake().responseHeader()); err != nil {
		return err
	}
	if !p.startGoroutine(func() { ended <- p.sendServed(stream, l) }) {
		return errStopping
	}
	select {
	case err := <-ended:
		return err
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

var errStopping = status.Error(codes.Unavailable, "node is stopping")

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

// addServedLink makes the link the one of its node, in place of an earlier one.
func (p *Peer) addServedLink(l *servedLink) {
	p.mu.Lock()
	p.servedLinks[l.node] = l
	p.mu.Unlock()
	p.metrics.links.WithLabelValues("served").Inc()
}

// removeServedLink removes the link. Its demand is void, unless another link of the node has replaced it.
func (p *Peer) removeServedLink(l *servedLink) {
	p.metrics.links.WithLabelValues("served").Dec()
	p.mu.Lock()
	current := p.servedLinks[l.node] == l
	if current {
		delete(p.servedLinks, l.node)
	}
	p.mu.Unlock()
	if current {
		p.o.Handler.OnLinkDown(l.node)
	}
}

// isCurrent reports whether messages of the link still count.
func (p *Peer) isCurrent(l *servedLink) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.servedLinks[l.node] == l
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
	if err := p.checkPeer(node, other); err != nil {
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
		if p.isCurrent(l) {
			p.handleRequest(l.node, m)
		}
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
