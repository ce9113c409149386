package peer

import (
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/fermata-io/fermata/internal/job"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

type server struct {
	fermatav1.UnimplementedPeerServiceServer
	p *Peer
}

func (s *server) DescribeNode(context.Context, *fermatav1.DescribeNodeRequest) (*fermatav1.DescribeNodeResponse, error) {
	return infoToPB(s.p.o.Handler.Describe()), nil
}

type servedStream = grpc.BidiStreamingServer[fermatav1.LinkRequest, fermatav1.LinkResponse]

// served is a link that a peer dialled.
type served struct {
	node string
	out  chan *fermatav1.LinkResponse
}

// put queues a message; false if it has to be dropped.
func (s *served) put(m *fermatav1.LinkResponse) bool {
	select {
	case s.out <- m:
		return true
	default:
		return false
	}
}

// Link serves the stream of a peer. The handler only waits, so that it can end
// while reader and writer are stuck.
func (s *server) Link(stream servedStream) error {
	p := s.p
	hello, entered, ended := make(chan string, 1), make(chan *served, 1), make(chan error, 2)
	if !p.start(func() { ended <- p.readServed(stream, hello, entered) }) {
		return errStopping
	}
	late := time.NewTimer(helloTimeout)
	defer late.Stop()
	var node string
	select {
	case node = <-hello:
	case err := <-ended:
		_ = stream.SetHeader(p.self().header()) // it may be refused for what this node is
		return err
	case <-late.C:
		return status.Error(codes.DeadlineExceeded, "no hello came")
	case <-p.ctx.Done():
		return errStopping
	}
	l := &served{node: node, out: make(chan *fermatav1.LinkResponse, queueLimit)}
	p.enter(l)
	defer p.leave(l)
	entered <- l
	if err := stream.SendHeader(p.self().header()); err != nil {
		return err
	}
	if !p.start(func() { ended <- p.writeServed(stream, l) }) {
		return errStopping
	}
	select {
	case err := <-ended:
		return err
	case <-p.ctx.Done():
	}
	stuck := time.NewTimer(lastWordsTimeout)
	defer stuck.Stop()
	select {
	case <-ended:
	case <-stuck.C:
	}
	return errStopping
}

// lastWordsTimeout is how long a node that stops waits for a peer that takes nothing.
const lastWordsTimeout = time.Second

var errStopping = status.Error(codes.Unavailable, "this node stops")

// start runs f in a goroutine that Stop waits for; false after Stop.
func (p *Peer) start(f func()) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stopped {
		return false
	}
	p.loops.Go(f)
	return true
}

// enter makes the link the one of its node, in place of an earlier one.
func (p *Peer) enter(l *served) {
	p.mu.Lock()
	p.served[l.node] = l
	p.mu.Unlock()
	p.metrics.links.WithLabelValues("served").Inc()
}

// leave forgets the link, and the demand that it brought unless another link of
// the node has taken over.
func (p *Peer) leave(l *served) {
	p.metrics.links.WithLabelValues("served").Dec()
	p.mu.Lock()
	current := p.served[l.node] == l
	if current {
		delete(p.served, l.node)
	}
	p.mu.Unlock()
	if current {
		p.o.Handler.OnLinkDown(l.node)
	}
}

// isCurrent tells whether what came on the link counts.
func (p *Peer) isCurrent(l *served) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.served[l.node] == l
}

// readServed takes what a peer says: who it is, and, when the link is entered,
// all else.
func (p *Peer) readServed(stream servedStream, hello chan<- string, entered <-chan *served) error {
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	node := first.GetHello().GetNode()
	if node == "" || node == p.o.Self {
		return status.Errorf(codes.InvalidArgument, "a link begins with the name of another node, not %q", job.Clip(node, job.MaxID))
	}
	other := aboutFromPB(first.GetHello())
	if err := p.compare(node, other); err != nil {
		return err
	}
	hello <- node
	var l *served
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
			p.handle(l.node, m)
		}
	}
}

func (p *Peer) handle(node string, m *fermatav1.LinkRequest) {
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
		h.OnNudge(int(m.Nudge.GetShard()), job.LaneHead{Lane: lane, DueMS: m.Nudge.GetDueMs()})
	case *fermatav1.LinkRequest_PermitResult:
		h.OnPermitResult(node, permitResultFromPB(m.PermitResult))
	case *fermatav1.LinkRequest_CancelAttempt:
		h.OnCancel(m.CancelAttempt.GetRecord(), uint64(m.CancelAttempt.GetToken()))
	}
}

// writeServed sends what is queued, until the stream ends, or this node stops and all is
// sent: shards that it has handed over are taken at once by those who hear of it.
func (p *Peer) writeServed(stream servedStream, l *served) error {
	for p.ctx.Err() == nil || len(l.out) > 0 {
		select {
		case m := <-l.out:
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
	if m.GetPermit() != nil {
		return "permit"
	}
	return "hand_over"
}
