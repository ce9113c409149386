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

	"github.com/fermata-io/fermata/internal/lib/grpccodec"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

const (
	// openTimeout bounds connecting, and as long again the wait for a Welcome.
	openTimeout = 5 * time.Second
	// closeTimeout is what a node has to end a stream that the worker has closed.
	closeTimeout = 2 * time.Second
	// defaultTTL stands in for a Welcome without lease_ttl.
	defaultTTL = 30 * time.Second
)

var (
	errNoWelcome = errors.New("no Welcome in time")
	errClosed    = errors.New("closed by this worker")
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
	contact *contact
	began   time.Time
	helloAt time.Time // no later than Hello was sent

	wake      chan struct{}
	finish    chan struct{} // closed by close
	closeOnce sync.Once
	drained   chan []string // the addresses of a Drain, once
	silent    chan struct{} // closed when an acknowledgement of a heartbeat has taken too long
	done      chan struct{} // closed at the end, after err is set
	err       error

	// Guarded by the worker's mutex.
	out        outbox
	pulse      pulse
	sending    bool
	sentAway   bool // the node asked this worker to go elsewhere
	leaving    bool // takes no further leases
	superseded bool // another node was asked to take the leases over
	sentBack   []returned
}

// open is welcomed by the node that a connection leads to, with all live leases, unless ctx
// ends first. The session, to be attached and run, lasts until life ends.
func (w *Worker) open(ctx, life context.Context, d dialed) (*session, error) {
	s := &session{
		w: w, address: d.route.address, conn: d.conn, contact: d.contact,
		wake: make(chan struct{}, 1), finish: make(chan struct{}), drained: make(chan []string, 1),
		silent: make(chan struct{}), done: make(chan struct{}),
	}
	s.ctx, s.cancel = context.WithCancelCause(life)
	defer context.AfterFunc(ctx, func() { s.cancel(context.Cause(ctx)) })()
	if err := s.greet(d.limit); err != nil {
		if cause := context.Cause(s.ctx); cause != nil {
			err = cause
		}
		s.cancel(err)
		s.conn.Close()
		return nil, err
	}
	return s, nil
}

// greet says Hello, which waits for handlers that are ending, and has the node answer
// within a limit.
func (s *session) greet(limit time.Duration) error {
	hello := s.w.hello(s)
	s.helloAt = time.Now()
	late := time.AfterFunc(limit, func() { s.cancel(errNoWelcome) })
	defer late.Stop()
	err := s.greetWith(hello)
	if err != nil {
		s.w.refused(s)
	}
	return err
}

func (s *session) greetWith(hello *fermatav1.Hello) error {
	var err error
	if s.stream, err = fermatav1.NewWorkerServiceClient(s.conn).Work(s.ctx, grpc.ForceCodecV2(grpccodec.Codec())); err != nil {
		return err
	}
	err = s.stream.Send(&fermatav1.WorkRequest{Message: &fermatav1.WorkRequest_Hello{Hello: hello}})
	if err == nil {
		err = s.welcomed()
	} else if errors.Is(err, io.EOF) {
		// The stream has ended; only receiving tells why.
		_, err = s.stream.Recv()
	}
	return err
}

func (s *session) welcomed() error {
	m, err := s.stream.Recv()
	if err != nil {
		return err
	}
	if s.welcome = m.GetWelcome(); s.welcome == nil {
		return fmt.Errorf("first message is %T, not a Welcome", m.GetMessage())
	}
	s.began = time.Now()
	return nil
}

// ttl is how long leases live without contact.
func (s *session) ttl() time.Duration {
	if d := s.welcome.GetLeaseTtl().AsDuration(); d > 0 {
		return d
	}
	return defaultTTL
}

// run sends and receives until the stream ends.
func (s *session) run() {
	var sender sync.WaitGroup
	sender.Go(s.send)
	err := s.receive()
	s.cancel(errClosed)
	sender.Wait()
	s.conn.Close()
	s.err = err
	s.w.detach(s)
	close(s.done)
}

// close sends what waits, then ends the stream. It does not wait for the end,
// which comes within closeTimeout.
func (s *session) close() {
	s.closeOnce.Do(func() {
		limit := time.AfterFunc(closeTimeout, func() { s.cancel(errClosed) })
		context.AfterFunc(s.ctx, func() { limit.Stop() })
		close(s.finish)
	})
}

func (s *session) wakeUp() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

func (s *session) send() {
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-s.wake:
			// Handlers that return at once get the chance to, so that their
			// results go out in one message.
			runtime.Gosched()
			if s.flush() != nil {
				return
			}
		case <-s.finish:
			if s.flush() == nil {
				// Its error is the stream's, which receive sees.
				_ = s.stream.CloseSend()
			}
			return
		}
	}
}

// flush sends until nothing waits. An error says that the stream has ended.
func (s *session) flush() error {
	for {
		messages := s.w.take(s)
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

func (s *session) receive() error {
	for {
		var f responseFrame
		if err := s.stream.RecvMsg(&f); err != nil {
			if cause := context.Cause(s.ctx); cause != nil {
				return cause
			}
			return err
		}
		if len(f.leases) > 0 {
			s.w.accept(s, f.leases)
		}
		if len(f.acks) > 0 {
			s.w.acknowledge(s, f.acks)
		}
		switch m := f.other.GetMessage().(type) {
		case *fermatav1.WorkResponse_Cancel:
			s.w.cancelLeases(s, m.Cancel)
		case *fermatav1.WorkResponse_HeartbeatAck:
			s.w.prolong(s, m.HeartbeatAck)
		case *fermatav1.WorkResponse_Addresses:
			s.w.routes.replaceAdvertised(usable(m.Addresses.GetAddresses()))
		case *fermatav1.WorkResponse_Drain:
			s.w.leave(s)
			select {
			case s.drained <- m.Drain.GetAddresses():
			default:
			}
		}
	}
}
