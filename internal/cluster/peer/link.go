package peer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"sync/atomic"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/sharding"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// link is the stream that this node dials to one other node.
type link struct {
	p            *Peer
	member       sharding.Member
	conn         *grpc.ClientConn
	client       fermatav1.PeerServiceClient
	queue        *sendQueue
	streamOpen   atomic.Bool
	wasOpen      atomic.Bool // it was open once
	processEnded atomic.Bool // the process has ended
	// reportedAddress is the address for clients that the peer sent over this link; nil: none yet.
	reportedAddress atomic.Pointer[string]
	// departed: the member has left the view. The link stays for as long as its
	// stream does, and is not opened again.
	departed   atomic.Bool
	wasRefused bool // the last attempt was; of run
	// provenKeyspace is the id that the peer has sent on the stream that is open; empty: none. Peer.mu guards it.
	provenKeyspace string
	ctx            context.Context
	cancel         context.CancelFunc
}

func (p *Peer) newLink(m sharding.Member) (*link, error) {
	l := &link{p: p, member: m, queue: newSendQueue(p.latestOffer)}
	options := append(connectionOptions(p.o.Credentials), grpc.WithContextDialer(l.openConnection))
	if p.o.DialOptions != nil {
		options = append(options, p.o.DialOptions(l.latestMember)...)
	}
	conn, err := grpc.NewClient("passthrough:///"+m.PeerAddr, options...)
	if err != nil {
		return nil, err
	}
	l.conn, l.client = conn, fermatav1.NewPeerServiceClient(conn)
	l.ctx, l.cancel = context.WithCancel(p.ctx)
	return l, nil
}

// latestMember returns the member as the view has it now, at the address that the link dials.
func (l *link) latestMember() sharding.Member {
	l.p.mu.Lock()
	defer l.p.mu.Unlock()
	m, ok := l.p.view.Member(l.member.Name)
	if !ok {
		return l.member
	}
	m.PeerAddr = l.member.PeerAddr
	return m
}

// openConnection dials the peer. If this link was up before, a refused connection proves that the peer's process
// has ended: no process listens at the address. A slow or frozen process still accepts connections, and a
// network that loses packets does not answer.
func (l *link) openConnection(ctx context.Context, address string) (net.Conn, error) {
	conn, err := l.p.o.Dial(ctx, address)
	if errors.Is(err, syscall.ECONNREFUSED) && l.wasOpen.Load() && !l.processEnded.Swap(true) {
		l.p.o.Logger.Warn("node process has ended", "node", l.member.Name, "address", l.member.PeerAddr)
		l.p.o.Handler.OnProcessEnded(l.member.Name)
	}
	return conn, err
}

// isUp reports whether a stream is open. Without one, messages are not worth queueing.
func (l *link) isUp() bool { return l.streamOpen.Load() }

// run keeps a stream open until the link is cancelled.
func (l *link) run() {
	defer l.conn.Close()
	defer l.cancel()
	for pause := retryMin; l.ctx.Err() == nil; pause = min(2*pause, retryMax) {
		begun := time.Now()
		opened, err := l.serveStream()
		if l.ctx.Err() != nil || l.p.removeIfDeparted(l) {
			return
		}
		if opened && !wasReplacedEarly(err, time.Since(begun)) {
			pause = retryMin
		}
		pause = l.logEnd(err, pause)
		select {
		case <-l.ctx.Done():
		case <-time.After(pause/2 + rand.N(pause/2)):
		}
	}
}

// wasReplacedEarly reports whether a stream ended because another link of this node's name replaced it, soon after it
// was opened. Two processes that use one name replace each other's links: each must wait longer every time.
func wasReplacedEarly(err error, open time.Duration) bool {
	return status.Code(err) == codes.Aborted && open < 10*retryMax
}

// logEnd logs why there is no stream, and returns the pause before the next one: at least this one.
func (l *link) logEnd(err error, pause time.Duration) time.Duration {
	logger, code := l.p.o.Logger.With("node", l.member.Name, "address", l.member.PeerAddr), status.Code(err)
	switch {
	case l.p.isForeign(l.member.Name):
		return retryMax // which is logged once
	case code == codes.PermissionDenied || code == codes.Unauthenticated:
		if !l.wasRefused { // gossip may not have named the peer's new process yet: try again soon
			l.wasRefused = true
			break
		}
		logger.Warn("peer refused this node", "error", err)
		return retryMax // until the access file or the certificate is changed
	default:
		l.wasRefused = false
	}
	logger.Info("peer link down", "error", err)
	return pause
}

// serveStream opens one stream and serves it until it ends. opened reports whether the peer answered.
func (l *link) serveStream() (opened bool, err error) {
	ctx, cancel := context.WithCancel(l.ctx)
	defer cancel()
	stream, err := l.client.Link(ctx, grpc.WaitForReady(true))
	if err != nil {
		return false, err
	}
	err = stream.Send(l.p.localHandshake().helloRequest())
	if err != nil && !errors.Is(err, io.EOF) { // io.EOF: the stream has been refused; its status has the reason
		return false, err
	}
	header, err := stream.Header()
	if err != nil {
		return false, err
	}
	if len(header.Get(versionHeader)) == 0 { // it has refused the stream; its status has the reason
		_, err := stream.Recv()
		return false, err
	}
	other := handshakeFromHeader(l.member.Name, header)
	if other.node != l.member.Name {
		return false, fmt.Errorf("node at this address has another name: %q", job.Clip(other.node, job.MaxID))
	}
	defer l.p.forgetKeyspace(l)
	if err := l.p.checkDialled(l, other); err != nil {
		return false, err
	}
	l.queue.resetForNewStream()
	l.streamOpen.Store(true)
	l.wasOpen.Store(true)
	l.processEnded.Store(false)
	l.p.o.Handler.OnLinkUp(l.member.Name)
	l.p.metrics.links.WithLabelValues("dialled").Inc()
	l.p.o.Logger.Info("peer link up", "node", l.member.Name, "address", l.member.PeerAddr, "version", other.version)
	ended := make(chan error, 1)
	go func() { ended <- l.receiveMessages(stream) }()
	addressLearned := make(chan struct{})
	go func() { defer close(addressLearned); l.learnAddress(ctx, other) }()
	err = l.sendQueued(ctx, stream, ended)
	l.streamOpen.Store(false)
	l.p.metrics.links.WithLabelValues("dialled").Dec()
	cancel()
	<-addressLearned
	if err == nil {
		return true, <-ended
	}
	<-ended
	return true, err
}

// learnAddress stores the peer's address for clients. The previous build does not send it when a link is opened,
// so it is asked for.
func (l *link) learnAddress(ctx context.Context, other handshake) {
	address := other.address
	if address == "" {
		address = l.describePeer(ctx, &fermatav1.DescribeNodeRequest{OmitWorkers: true}).GRPCAddress
	}
	if !job.IsAddress(address) {
		return
	}
	if old := l.reportedAddress.Swap(&address); old == nil || *old != address {
		l.p.o.Handler.OnAddress(l.member.Name)
	}
}

// clientAddress returns the address for clients that the peer sent over this link; empty: none yet.
func (l *link) clientAddress() string {
	if a := l.reportedAddress.Load(); a != nil {
		return *a
	}
	return ""
}

type linkStream = grpc.BidiStreamingClient[fermatav1.LinkRequest, fermatav1.LinkResponse]

// sendQueued sends queued messages. It returns nil when the reader has ended, whose error explains more.
func (l *link) sendQueued(ctx context.Context, stream linkStream, ended chan error) error {
	timer := time.NewTimer(demandPause)
	defer timer.Stop()
	for {
		m, kind, wait := l.queue.nextMessage(time.Now())
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

// receiveMessages takes the peer's messages.
func (l *link) receiveMessages(stream linkStream) error {
	for {
		m, err := stream.Recv()
		if err != nil {
			return err
		}
		switch m := m.GetMessage().(type) {
		case *fermatav1.LinkResponse_Permit:
			l.receivePermits([]*fermatav1.Permit{m.Permit})
		case *fermatav1.LinkResponse_Permits:
			l.receivePermits(m.Permits.GetPermits())
		case *fermatav1.LinkResponse_HandOver:
			if m.HandOver.GetLeaving() {
				l.p.o.Handler.OnLeaving(l.member.Name)
			}
			if shards := handOverFromPB(m.HandOver); len(shards) > 0 {
				l.p.o.Handler.OnHandOver(shards)
			}
		}
	}
}

// receivePermits passes on the valid permits of a message.
func (l *link) receivePermits(list []*fermatav1.Permit) {
	permits := make([]job.Permit, 0, min(len(list), job.MaxPermitsPerMessage))
	for _, m := range list {
		permit, ok := permitFromPB(m)
		if !ok || len(permits) == job.MaxPermitsPerMessage {
			l.p.metrics.refused.Inc()
			continue
		}
		permits = append(permits, permit)
	}
	if len(permits) == 0 {
		return
	}
	l.queue.deductPermits(permits)
	l.p.o.Handler.OnPermits(l.member.Name, permits)
}
