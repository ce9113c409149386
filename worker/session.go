package worker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/fermata-io/fermata/internal/lib/eventrate"
	"github.com/fermata-io/fermata/internal/lib/grpccodec"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

const (
	// openTimeout bounds connecting, and again the wait for a Welcome.
	openTimeout = 5 * time.Second
	// closeTimeout bounds the wait for a node to end a stream that the worker has closed.
	closeTimeout = 2 * time.Second
	// defaultLeaseTTL is used if a Welcome has no lease_ttl.
	defaultLeaseTTL = 30 * time.Second
)

var (
	errNoWelcome     = errors.New("no Welcome in time")
	errSessionClosed = errors.New("closed by this worker")
)

// session is one welcomed stream to one node.
type session struct {
	w       *Worker
	address string
	welcome *fermatav1.Welcome
	epoch   int32
	conn    *grpc.ClientConn
	stream  fermatav1.WorkerService_WorkClient
	ctx     context.Context
	cancel  context.CancelCauseFunc
	contact *contactTime
	began   time.Time
	helloAt time.Time // no later than Hello was sent

	wake           chan struct{}
	closing        chan struct{} // closed by close
	closeOnce      sync.Once
	drainAddresses chan []string // the addresses of a Drain
	// relocateAddresses has those of a Relocate: the session goes on until there is another one.
	relocateAddresses chan []string
	unresponsive      chan struct{} // closed when the acknowledgement of a heartbeat is overdue
	done              chan struct{} // closed at the end, after err is set
	err               error

	// Guarded by the worker's mutex.
	out            outbox
	resultRate     eventrate.Meter
	heartbeats     heartbeatState
	sending        bool
	drainReceived  bool // the node asked this worker to connect to another one
	closedToLeases bool // takes no further leases
	superseded     bool // another node was asked to take the leases over
	stopAnnounced  bool // the node was sent, or will be before the end of the stream, that this worker stops
	recentReturns  []returnedLease
}

// openSession exchanges Hello and Welcome on a ready connection, with all live leases, unless ctx ends first.
// The caller attaches and runs the session, which ends with life.
func (w *Worker) openSession(ctx, life context.Context, d dialResult) (*session, error) {
	s := &session{
		w: w, address: d.route.address, conn: d.conn, contact: d.contact,
		wake: make(chan struct{}, 1), closing: make(chan struct{}), drainAddresses: make(chan []string, 1),
		relocateAddresses: make(chan []string, 1),
		unresponsive:      make(chan struct{}), done: make(chan struct{}),
	}
	s.ctx, s.cancel = context.WithCancelCause(life)
	defer context.AfterFunc(ctx, func() { s.cancel(context.Cause(ctx)) })()
	if err := s.exchangeHello(d.limit); err != nil {
		if cause := context.Cause(s.ctx); cause != nil {
			err = cause
		}
		s.cancel(err)
		s.conn.Close()
		return nil, err
	}
	return s, nil
}

// exchangeHello sends Hello, after cancelled handlers have ended, and waits up to limit for the Welcome.
func (s *session) exchangeHello(limit time.Duration) error {
	hello := s.w.buildHello(s)
	s.helloAt = time.Now()
	late := time.AfterFunc(limit, func() { s.cancel(errNoWelcome) })
	defer late.Stop()
	err := s.sendHello(hello)
	if err != nil {
		s.w.undoHello(s)
	}
	return err
}

func (s *session) sendHello(hello *fermatav1.Hello) error {
	var err error
	s.stream, err = fermatav1.NewWorkerServiceClient(s.conn).Work(s.ctx, grpc.ForceCodecV2(grpccodec.Codec()))
	if err != nil {
		return err
	}
	err = s.stream.Send(&fermatav1.WorkRequest{Message: &fermatav1.WorkRequest_Hello{Hello: hello}})
	if err == nil {
		err = s.receiveWelcome()
	} else if errors.Is(err, io.EOF) {
		// The stream has ended; Recv returns the reason.
		_, err = s.stream.Recv()
	}
	return err
}

func (s *session) receiveWelcome() error {
	m, err := s.stream.Recv()
	if err != nil {
		return err
	}
	s.welcome = m.GetWelcome()
	if s.welcome == nil {
		return fmt.Errorf("first message is %T, not a Welcome", m.GetMessage())
	}
	s.began = time.Now()
	return nil
}

// leaseTTL is how long leases are valid without a renewal.
func (s *session) leaseTTL() time.Duration {
	if d := s.welcome.GetLeaseTtl().AsDuration(); d > 0 {
		return d
	}
	return defaultLeaseTTL
}

// run sends and receives until the stream ends.
func (s *session) run() {
	var sender sync.WaitGroup
	sender.Go(s.sendLoop)
	err := s.receiveLoop()
	s.cancel(errSessionClosed)
	sender.Wait()
	s.conn.Close()
	s.err = err
	s.w.detachSession(s)
	close(s.done)
}

// close sends the outbox, then ends the stream. It does not wait for the end, which comes within closeTimeout.
func (s *session) close() {
	s.closeOnce.Do(func() {
		limit := time.AfterFunc(closeTimeout, func() { s.cancel(errSessionClosed) })
		context.AfterFunc(s.ctx, func() { limit.Stop() })
		close(s.closing)
	})
}

// hasEnded reports whether the stream has ended.
func (s *session) hasEnded() bool {
	select {
	case <-s.done:
		return true
	default:
		return false
	}
}

// announceStop notifies the node that this worker stops. When the stream ends, the node returns what has not started.
// So it is called only while no other node has been asked to take over the leases of the session.
func (s *session) announceStop() {
	if !s.stopAnnounced {
		s.out.draining, s.stopAnnounced = true, true
	}
	s.wakeUp()
}

func (s *session) wakeUp() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

func (s *session) sendLoop() {
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-s.wake:
			// Yield, so that the results of handlers that return at once go into the same message.
			runtime.Gosched()
			if s.flushOutbox() != nil {
				return
			}
		case <-s.closing:
			if s.flushOutbox() == nil {
				// Its error is the stream's error, which receiveLoop returns.
				_ = s.stream.CloseSend()
			}
			return
		}
	}
}

// flushOutbox sends until the outbox is empty. An error means that the stream has ended.
func (s *session) flushOutbox() error {
	for {
		messages := s.w.takeMessages(s)
		if len(messages) == 0 {
			return nil
		}
		for _, m := range messages {
			if err := s.stream.SendMsg(m); err != nil {
				return err
			}
		}
	}
}

func (s *session) receiveLoop() error {
	for {
		var f responseFrame
		if err := s.stream.RecvMsg(&f); err != nil {
			if cause := context.Cause(s.ctx); cause != nil {
				return cause
			}
			return err
		}
		if len(f.leases) > 0 {
			s.w.acceptLeases(s, f.leases)
		}
		if len(f.acks) > 0 {
			s.w.handleAcks(s, f.acks)
		}
		switch m := f.other.GetMessage().(type) {
		case *fermatav1.WorkResponse_Cancel:
			s.w.cancelLeases(s, m.Cancel)
		case *fermatav1.WorkResponse_HeartbeatAck:
			s.w.handleHeartbeatAck(s, m.HeartbeatAck)
		case *fermatav1.WorkResponse_Addresses:
			s.w.routes.replaceAdvertised(plainAddresses(m.Addresses.GetAddresses()))
		case *fermatav1.WorkResponse_Relocate:
			select {
			case s.relocateAddresses <- m.Relocate.GetAddresses():
			default:
			}
		case *fermatav1.WorkResponse_Drain:
			s.w.leaveNode(s)
			select {
			case s.drainAddresses <- m.Drain.GetAddresses():
			default:
			}
		}
	}
}
