package peer

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync/atomic"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/fermata-io/fermata/internal/job"
	"github.com/fermata-io/fermata/internal/ring"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// link is the stream that this node dials to one other node.
type link struct {
	p      *Peer
	member ring.Member
	conn   *grpc.ClientConn
	client fermatav1.PeerServiceClient
	queue  *queue
	open   atomic.Bool
	met    atomic.Bool // it was open once
	gone   atomic.Bool // the process has ended
	// address is where clients reach the peer, as it has said over this link; nil: it has not.
	address atomic.Pointer[string]
	// departed: the member has left the view. The link stays for as long as its
	// stream does, and is not opened again.
	departed atomic.Bool
	ctx      context.Context
	cancel   context.CancelFunc
}

func (p *Peer) newLink(m ring.Member) (*link, error) {
	l := &link{p: p, member: m, queue: newQueue(p.offer)}
	options := append(connection(), p.o.DialOptions...)
	conn, err := grpc.NewClient("passthrough:///"+m.PeerAddr, append(options, grpc.WithContextDialer(l.dial))...)
	if err != nil {
		return nil, err
	}
	l.conn, l.client = conn, fermatav1.NewPeerServiceClient(conn)
	l.ctx, l.cancel = context.WithCancel(p.ctx)
	return l, nil
}

// dial opens a connection. A refusal by the address of a node that this link was up
// to is proof that its process has ended: nobody listens there any more. One that is
// slow or frozen still accepts, and a network that loses packets does not answer.
func (l *link) dial(ctx context.Context, address string) (net.Conn, error) {
	conn, err := l.p.o.Dial(ctx, address)
	if errors.Is(err, syscall.ECONNREFUSED) && l.met.Load() && !l.gone.Swap(true) {
		l.p.o.Logger.Warn("node's process has ended", "node", l.member.Name, "address", l.member.PeerAddr)
		l.p.o.Handler.OnGone(l.member.Name)
	}
	return conn, err
}

// up tells whether a stream is open; without one, messages are not worth queueing.
func (l *link) up() bool { return l.open.Load() }

// run keeps a stream open until the link is cancelled.
func (l *link) run() {
	defer l.conn.Close()
	defer l.cancel()
	logger := l.p.o.Logger.With("node", l.member.Name, "address", l.member.PeerAddr)
	for pause := retryMin; l.ctx.Err() == nil; {
		opened, err := l.session()
		if l.ctx.Err() != nil || l.p.retire(l) {
			return
		}
		if opened {
			pause = retryMin
		}
		if l.p.isForeign(l.member.Name) {
			pause = retryMax // which is logged once
		} else if code := status.Code(err); code == codes.PermissionDenied || code == codes.Unauthenticated {
			pause = retryMax // until somebody changes the access file or the certificate
			logger.Warn("the peer refuses this node", "error", err)
		} else {
			logger.Info("link is down", "error", err)
		}
		select {
		case <-l.ctx.Done():
		case <-time.After(pause/2 + rand.N(pause/2)):
		}
		pause = min(2*pause, retryMax)
	}
}

// session opens one stream and serves it until it ends. opened tells whether the
// peer answered.
func (l *link) session() (opened bool, err error) {
	ctx, cancel := context.WithCancel(l.ctx)
	defer cancel()
	stream, err := l.client.Link(ctx, grpc.WaitForReady(true))
	if err != nil {
		return false, err
	}
	if err := stream.Send(l.p.self().hello()); err != nil {
		return false, err
	}
	header, err := stream.Header()
	if err != nil {
		return false, err
	}
	if len(header.Get(versionHeader)) == 0 { // it has refused the stream, and says why in its status
		_, err := stream.Recv()
		return false, err
	}
	other := aboutFromHeader(l.member.Name, header)
	if other.node != l.member.Name {
		return false, fmt.Errorf("the node at this address is %q", job.Clip(other.node, job.MaxID))
	}
	if err := l.p.compare(l.member.Name, other); err != nil {
		return false, err
	}
	l.queue.reopened()
	l.open.Store(true)
	l.met.Store(true)
	l.gone.Store(false)
	l.p.o.Handler.OnBack(l.member.Name)
	l.p.metrics.links.WithLabelValues("dialled").Inc()
	l.p.o.Logger.Info("link is up", "node", l.member.Name, "address", l.member.PeerAddr, "version", other.version)
	ended := make(chan error, 1)
	go func() { ended <- l.read(stream) }()
	asked := make(chan struct{})
	go func() { defer close(asked); l.learnAddress(ctx, other) }()
	err = l.write(ctx, stream, ended)
	l.open.Store(false)
	l.p.metrics.links.WithLabelValues("dialled").Dec()
	cancel()
	<-asked
	if err == nil {
		return true, <-ended
	}
	<-ended
	return true, err
}

// learnAddress takes over where clients reach the peer. The previous build does not say so when
// a link is opened, but when it is asked.
func (l *link) learnAddress(ctx context.Context, other about) {
	address := other.address
	if address == "" {
		address = l.describe(ctx).GRPCAddress
	}
	if !job.IsAddress(address) {
		return
	}
	if old := l.address.Swap(&address); old == nil || *old != address {
		l.p.o.Handler.OnAddress(l.member.Name)
	}
}

// clientAddress is where clients reach the peer, as it has said over this link; empty: it has not.
func (l *link) clientAddress() string {
	if a := l.address.Load(); a != nil {
		return *a
	}
	return ""
}

type linkStream = grpc.BidiStreamingClient[fermatav1.LinkRequest, fermatav1.LinkResponse]

// write sends what is queued. It returns nil when the reader has ended, whose
// error is the better one.
func (l *link) write(ctx context.Context, stream linkStream, ended chan error) error {
	timer := time.NewTimer(demandPause)
	defer timer.Stop()
	for {
		m, kind, wait := l.queue.take(time.Now())
		if m != nil {
			if err := stream.Send(m); err != nil {
				return nil
			}
			l.p.metrics.sent.WithLabelValues(kind).Inc()
			continue
		}
		var again <-chan time.Time
		if wait > 0 {
			timer.Reset(wait)
			again = timer.C
		}
		select {
		case <-l.queue.wake:
		case <-again:
		case err := <-ended:
			ended <- err
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// read takes the peer's messages.
func (l *link) read(stream linkStream) error {
	for {
		m, err := stream.Recv()
		if err != nil {
			return err
		}
		switch m := m.GetMessage().(type) {
		case *fermatav1.LinkResponse_Permit:
			permit, ok := permitFromPB(m.Permit)
			if !ok {
				l.p.metrics.refused.Inc()
				continue
			}
			l.queue.permitted(permit)
			l.p.o.Handler.OnPermit(l.member.Name, permit)
		case *fermatav1.LinkResponse_HandOver:
			l.p.o.Handler.OnHandOver(handOverFromPB(m.HandOver))
		}
	}
}

// describe asks the peer about itself.
func (l *link) describe(ctx context.Context) job.NodeInfo {
	ctx, cancel := context.WithTimeout(ctx, describeTimeout)
	defer cancel()
	answer, err := l.client.DescribeNode(ctx, &fermatav1.DescribeNodeRequest{})
	if err != nil {
		return job.NodeInfo{
			Name: l.member.Name, GRPCAddress: l.clientAddress(), PeerAddress: l.member.PeerAddr, Unreachable: true,
		}
	}
	info := infoFromPB(answer)
	info.Name = l.member.Name
	return info
}
