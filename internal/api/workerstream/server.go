package workerstream

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/fermata-io/fermata/internal/api/apierror"
	"github.com/fermata-io/fermata/internal/api/guard"
	"github.com/fermata-io/fermata/internal/core/authz"
	"github.com/fermata-io/fermata/internal/core/job"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// Sessions opens the sessions of workers.
type Sessions interface {
	Connect(hello job.Hello, out job.WorkerStream) (job.WorkerSession, error)
}

const (
	// helloTimeout is how long a stream may take to send its Hello.
	helloTimeout = 10 * time.Second
	// flushTimeout is how long a node that stops waits for one that takes nothing.
	flushTimeout = time.Second
	// reconnectBeforeExpiry is how long before its credential expires a worker is asked to
	// connect anew.
	reconnectBeforeExpiry = time.Minute
)

// Server carries the streams of workers. Each has one goroutine that reads and,
// while there is something to say, one that writes; the handler itself only waits, so
// that it can end the stream while both are stuck. Most workers of most nodes have
// nothing to do, and what one takes then is mostly stacks: what needs a large one is done
// by goroutines that end with it.
type Server struct {
	fermatav1.UnimplementedWorkerServiceServer
	sessions Sessions
	logger   *slog.Logger
	trace    LeaseTracer
	loops    sync.WaitGroup
}

// LeaseTracer gives the trace context of a record's live attempt, as the headers of
// the W3C recommendation; empty if the run is not traced.
type LeaseTracer func(*job.Record) (traceparent, tracestate string)

// Trace has leases carry trace contexts. Call it before serving.
func (w *Server) Trace(t LeaseTracer) { w.trace = t }

// NewServer serves sessions. A nil logger discards.
func NewServer(sessions Sessions, logger *slog.Logger) *Server {
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	return &Server{sessions: sessions, logger: logger}
}

// Wait returns when no goroutine of a stream is left. Call it after the gRPC
// server has stopped.
func (w *Server) Wait() { w.loops.Wait() }

// Work serves one stream until the worker, the session or the connection ends it.
func (w *Server) Work(stream grpc.BidiStreamingServer[fermatav1.WorkRequest, fermatav1.WorkResponse]) error {
	s := &workerStream{
		stream: stream, sessions: w.sessions, trace: w.trace,
		hello: make(chan struct{}), stopped: make(chan struct{}),
	}
	s.caller = guard.CallerFrom(stream.Context())
	ended := make(chan error, 2)
	run := func(part func() error) {
		w.loops.Go(func() {
			if err := s.recoverPanic(part); err != nil {
				ended <- err
			}
		})
	}
	s.out = newOutbox(func() { run(s.writeMessages) })
	if share := guard.UnreadShareFrom(stream.Context()); share != nil {
		s.out.memory = share
	}
	run(func() error {
		err := s.receiveHello()
		if err == nil {
			run(s.readMessages)
		}
		return err
	})
	late, old := time.NewTimer(helloTimeout), time.NewTimer(s.maxAge())
	defer late.Stop()
	defer old.Stop()
	recheck := time.NewTicker(guard.RecheckInterval)
	defer recheck.Stop()
	hello := s.hello
	for {
		select {
		case <-hello:
			hello = nil
			late.Stop()
		case <-late.C:
			return s.endStream(status.Error(codes.DeadlineExceeded, "no Hello arrived in time"))
		case <-old.C:
			s.askToReconnect()
		case <-recheck.C:
			if err := s.reauthorize(); err != nil {
				return s.endStream(err)
			}
		case err := <-ended:
			return s.endStream(err)
		case <-stream.Context().Done(): // which reader and writer may not come to see
			return s.endStream(stream.Context().Err())
		case <-s.stopped:
			if errors.Is(s.reason, job.ErrDraining) {
				s.flushOutbox()
			}
			return s.endStream(stopStatus(s.reason))
		}
	}
}

// workerStream is one stream. It is the [job.WorkerStream] of its session.
type workerStream struct {
	stream   grpc.BidiStreamingServer[fermatav1.WorkRequest, fermatav1.WorkResponse]
	sessions Sessions
	trace    LeaseTracer
	out      *outbox
	hello    chan struct{} // closed when the session has begun
	caller   *guard.Caller // nil where callers are not authenticated
	signer   *leaseSigner  // nil before the session, and where there are no callers; see write
	named    namedLeases   // the bounds of what a message may name; set with the session

	once    sync.Once
	stopped chan struct{}
	reason  error // set before stopped is closed

	drained atomic.Bool // the worker has sent Draining

	mu        sync.Mutex
	session   job.WorkerSession
	sentHello job.Hello
	ended     bool
	unsent    []job.WorkerMessage // of a stream that ended before its session began
}

// maxAge is when the worker is to connect anew.
func (s *workerStream) maxAge() time.Duration {
	age := guard.StreamAge - guard.StreamAge/10 + rand.N(guard.StreamAge/5)
	if s.caller != nil && !s.caller.Identity.Expires.IsZero() {
		age = min(age, max(guard.RecheckInterval, time.Until(s.caller.Identity.Expires)-reconnectBeforeExpiry))
	}
	return age
}

// askToReconnect asks the worker to connect anew. It takes its leases along.
func (s *workerStream) askToReconnect() {
	s.mu.Lock()
	session := s.session
	s.mu.Unlock()
	if session != nil {
		session.RequestReconnect()
	}
}

// reauthorize ends a stream whose caller has lost what it began with: a token that was
// taken back, a role, or time.
func (s *workerStream) reauthorize() error {
	if s.out.isStuck(guard.StuckTimeout) {
		return stopStatus(job.ErrWorkerTooSlow)
	}
	s.mu.Lock()
	begun, hello := s.session != nil, s.sentHello
	s.mu.Unlock()
	if s.caller == nil || !begun {
		return nil
	}
	now, err := s.caller.Reauthenticate(s.stream.Context())
	if err != nil {
		return err
	}
	return now.AuthorizeQueues(s.stream.Context(), authz.Work, hello.Namespace, hello.Queues)
}

// Send queues a message for the worker.
func (s *workerStream) Send(m job.WorkerMessage) error { return s.out.enqueue(m) }

// Stop ends the stream for this reason.
func (s *workerStream) Stop(reason error) {
	s.once.Do(func() {
		s.reason = reason
		close(s.stopped)
	})
}

// flushOutbox waits until what is queued has gone out, above all where the worker may go: it
// may know no other address that still leads anywhere.
func (s *workerStream) flushOutbox() {
	late := time.NewTimer(flushTimeout)
	defer late.Stop()
	select {
	case <-s.out.flushAll():
	case <-late.C:
	case <-s.stream.Context().Done():
	}
}

// endStream closes the session, with what was not sent, and returns the stream's
// status. Reader and writer end when the handler has returned.
func (s *workerStream) endStream(err error) error {
	left := errors.Is(err, io.EOF)
	if left {
		err = nil
	}
	s.mu.Lock()
	s.ended = true
	session := s.session
	unsent := s.out.closeAndDrain()
	if session == nil {
		s.unsent = unsent // for read, should a session be about to begin
	}
	s.mu.Unlock()
	if session != nil {
		if left && s.drained.Load() {
			session.MarkDrained()
		}
		session.Close(closeReason(err), unsent)
	}
	return err
}

// beginSession notes the session; false if the stream has ended meanwhile.
func (s *workerStream) beginSession(session job.WorkerSession, hello job.Hello) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return false
	}
	s.session, s.sentHello = session, hello
	close(s.hello)
	return true
}

// receiveHello takes the worker's first message and begins the session.
func (s *workerStream) receiveHello() error {
	first, err := s.stream.Recv()
	if err != nil {
		return err
	}
	if first.GetHello() == nil {
		return apierror.WithDetails(codes.InvalidArgument, "the first message of a stream must be Hello",
			apierror.BadRequest([]job.Violation{{Field: "hello", Description: "is missing"}})).Err()
	}
	hello, violations := helloFromPB(first.GetHello())
	if len(violations) > 0 {
		text := "hello: " + violations[0].Field + " " + violations[0].Description
		return apierror.WithDetails(codes.InvalidArgument, text, apierror.BadRequest(violations)).Err()
	}
	s.named = namedLeasesOf(hello)
	if err := checkNamed(s.named, hello.Live, func(id string) string { return id }); err != nil {
		return err
	}
	s.out.setLimit(hello)
	var foreign []string
	if s.caller != nil {
		if err := s.caller.AuthorizeQueues(s.stream.Context(), authz.Work, hello.Namespace, hello.Queues); err != nil {
			return err
		}
		hello.Identity = s.caller.Identity.Subject
		// The first message, which write waits for, is put after this.
		s.signer = newLeaseSigner(s.caller.LeaseKey(), hello.Identity, hello)
		hello.Live, foreign = s.signer.splitBySignature(hello.Live)
	}
	session, err := s.sessions.Connect(hello, s)
	if err != nil {
		return stopStatus(err)
	}
	hello.Live = nil // they are the session's now, and may be many

	// The memory of sessions counts the stream now.
	guard.StreamMemoryFrom(s.stream.Context()).Release()
	if !s.beginSession(session, hello) {
		session.Close("stream ended", s.unsent)
		return errOutboxClosed
	}
	return s.answerForeign(foreignLeases{ids: foreign, live: true})
}

// readMessages takes the worker's other messages until the stream ends.
func (s *workerStream) readMessages() error {
	s.mu.Lock()
	session := s.session
	s.mu.Unlock()
	for {
		m, err := s.stream.Recv()
		if err != nil {
			return err
		}
		if err := s.handleMessage(session, m); err != nil {
			return err
		}
	}
}

// reportForeign counts leases that the worker names but was not given.
func (s *workerStream) reportForeign(ids []string) {
	if len(ids) > 0 {
		s.caller.ReportForeignLeases(s.stream.Context(), ids)
	}
}

// answerForeign answers a worker that names leases which it was not given.
func (s *workerStream) answerForeign(m foreignLeases) error {
	s.reportForeign(m.ids)
	if len(m.ids) == 0 {
		return nil
	}
	if err := s.out.enqueue(m); err != nil {
		return stopStatus(errors.Join(job.ErrWorkerTooSlow, err))
	}
	return nil
}

// verifyLeases keeps the leases that the worker was given.
func (s *workerStream) verifyLeases(ids []string) []string {
	if s.signer == nil {
		return ids
	}
	own, foreign := s.signer.splitBySignature(ids)
	s.reportForeign(foreign)
	return own
}

// verifyResults reads the results of leases that the worker was given, and answers the others as stale.
func (s *workerStream) verifyResults(list []*fermatav1.Result) ([]job.Result, error) {
	results := make([]job.Result, 0, len(list))
	var foreign []string
	for _, p := range list {
		r := resultFromPB(p)
		if s.signer != nil {
			id, ok := s.signer.Verify(r.LeaseID)
			if !ok {
				foreign = append(foreign, r.LeaseID)
				continue
			}
			r.LeaseID = id
		}
		results = append(results, r)
	}
	return results, s.answerForeign(foreignLeases{ids: foreign})
}

// handleResults passes the results of a message on, in parts.
func (s *workerStream) handleResults(session job.WorkerSession, list []*fermatav1.Result) error {
	if err := checkNamed(s.named, list, (*fermatav1.Result).GetLeaseId); err != nil {
		return err
	}
	for len(list) > 0 {
		n := min(len(list), maxPartLeases)
		results, err := s.verifyResults(list[:n])
		if err != nil {
			return err
		}
		session.HandleResults(results)
		list = list[n:]
	}
	return nil
}

// handleLeases passes the leases that a message names on, in parts.
func (s *workerStream) handleLeases(ids []string, handle func([]string)) error {
	if err := checkNamed(s.named, ids, func(id string) string { return id }); err != nil {
		return err
	}
	for {
		n := min(len(ids), maxPartLeases)
		handle(s.verifyLeases(ids[:n]))
		ids = ids[n:]
		if len(ids) == 0 {
			return nil
		}
	}
}

func (s *workerStream) handleMessage(session job.WorkerSession, m *fermatav1.WorkRequest) error {
	switch m := m.GetMessage().(type) {
	case *fermatav1.WorkRequest_Results:
		return s.handleResults(session, m.Results.GetResults())
	case *fermatav1.WorkRequest_Started:
		return s.handleLeases(m.Started.GetLeaseIds(), session.HandleStarted)
	case *fermatav1.WorkRequest_Returned:
		return s.handleLeases(m.Returned.GetLeaseIds(), session.HandleReturned)
	case *fermatav1.WorkRequest_Lost:
		return s.handleLeases(m.Lost.GetLeaseIds(), session.HandleLost)
	case *fermatav1.WorkRequest_Draining:
		s.drained.Store(true)
		session.HandleDraining()
	case *fermatav1.WorkRequest_Heartbeat:
		session.HandleHeartbeat(m.Heartbeat.GetSeq())
	case *fermatav1.WorkRequest_Hello:
		return apierror.WithDetails(codes.InvalidArgument, "a stream must not send Hello twice",
			apierror.BadRequest([]job.Violation{{Field: "hello", Description: "was sent before"}})).Err()
	}
	// Messages that this version does not know are passed over.
	return nil
}

// writeMessages sends what is queued.
func (s *workerStream) writeMessages() error {
	for m := s.out.dequeue(); m != nil; m = s.out.dequeue() {
		err := s.stream.SendMsg(s.frameOf(m))
		s.out.markSent()
		if err != nil {
			return err
		}
	}
	return nil
}

// frameOf is a message as it goes out.
func (s *workerStream) frameOf(m job.WorkerMessage) any {
	switch m := m.(type) {
	case job.Assignments:
		return &leaseFrame{leases: m, signer: s.signer, trace: s.trace}
	case foreignLeases:
		return m.toPB()
	}
	pb := messageToPB(m)
	if s.signer != nil {
		s.signer.signMessage(pb)
	}
	return pb
}

// recoverPanic makes an error of a panic, so that it ends this stream only.
func (s *workerStream) recoverPanic(loop func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = &apierror.Panic{Value: p, Stack: debug.Stack()}
		}
	}()
	return loop()
}

// stopStatuses are the ends of a stream that the session decides.
var stopStatuses = []struct {
	err    error
	code   codes.Code
	reason string
	text   string
}{
	{errUnreadMemory, codes.ResourceExhausted, "LIMIT_UNREAD_BYTES", "the workers of this identity leave too many answers unread"},
	{job.ErrDraining, codes.Unavailable, "NODE_DRAINING", "this node stops; connect to another one"},
	{job.ErrSuperseded, codes.Aborted, "SESSION_SUPERSEDED", "a later session of this worker is open"},
	{job.ErrWorkerTooSlow, codes.ResourceExhausted, "WORKER_TOO_SLOW", "the worker does not keep up with its stream"},
	{job.ErrTooManySessions, codes.ResourceExhausted, "TOO_MANY_SESSIONS", "this node has too many sessions of workers, or of this identity; connect to another one"},
	{job.ErrTooManyServedQueues, codes.ResourceExhausted, "TOO_MANY_SERVED_QUEUES", "the workers of this node, or of this namespace or identity, serve too many different queues; connect to another one"},
	{job.ErrHeartbeatTimeout, codes.DeadlineExceeded, "WORKER_HEARTBEAT_TIMEOUT", "no heartbeat came in time"},
}

func stopStatus(err error) error {
	for _, row := range stopStatuses {
		if errors.Is(err, row.err) {
			info := &errdetails.ErrorInfo{Reason: row.reason, Domain: apierror.Domain}
			return apierror.WithDetails(row.code, row.text, info).Err()
		}
	}
	return err
}

// closeReason describes the end of a stream briefly, for the log.
func closeReason(err error) string {
	if err == nil {
		return "worker left"
	}
	s := status.Convert(err)
	return fmt.Sprintf("%s: %s", s.Code(), cmp.Or(s.Message(), "no text"))
}
