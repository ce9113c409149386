package faultyworker

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"

	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// stream is one session.
type stream struct {
	w       *worker
	address string
	conn    *grpc.ClientConn
	grpc    fermatav1.WorkerService_WorkClient
	cancel  context.CancelFunc
	helloAt time.Time
	sendMu  sync.Mutex
	ended   chan struct{}
	replace chan struct{}

	// Guarded by the mutex of the worker.
	leaseTTL, sessionTTL time.Duration
	sent                 map[int64]time.Time
	seq                  int64
	ackedAt              time.Time // when the latest acknowledged heartbeat was sent
	unconfirmed          bool
	superseded, drained  bool
	silent               bool
}

func (s *stream) send(m *fermatav1.WorkRequest) {
	s.sendMu.Lock()
	defer s.sendMu.Unlock()
	_ = s.grpc.Send(m) // the reader notices the end
}

func (s *stream) closeSend() {
	s.sendMu.Lock()
	defer s.sendMu.Unlock()
	_ = s.grpc.CloseSend()
}

func (s *stream) margin() time.Duration {
	if s.sessionTTL > 0 {
		return min(s.sessionTTL/6, 2*time.Second)
	}
	return min(s.leaseTTL/6, 2*time.Second)
}

func (s *stream) trustPeriod() time.Duration {
	switch {
	case s.w.has("trusts-for-lease"):
		return s.leaseTTL
	case s.sessionTTL > 0 && !s.drained:
		return s.sessionTTL - s.margin()
	}
	return s.leaseTTL*2/3 - s.margin()
}

// credentials returns those of the settings.
func (w *worker) credentials() (credentials.TransportCredentials, error) {
	path := os.Getenv("FERMATA_TLS_CA")
	if path == "" {
		return insecure.NewCredentials(), nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	if w.has("no-tls") {
		return insecure.NewCredentials(), nil
	}
	c := &tls.Config{RootCAs: x509.NewCertPool(), InsecureSkipVerify: w.has("trusts-any-certificate")}
	c.RootCAs.AppendCertsFromPEM(text)
	if cert := os.Getenv("FERMATA_TLS_CERT"); cert != "" && !w.has("no-client-certificate") {
		pair, err := tls.LoadX509KeyPair(cert, os.Getenv("FERMATA_TLS_KEY"))
		if err != nil {
			return nil, err
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return credentials.NewTLS(c), nil
}

func (w *worker) token() string {
	path := os.Getenv("FERMATA_TOKEN_FILE")
	if path == "" || w.has("token-once") && w.firstToken != "" {
		return w.firstToken
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	w.firstToken = strings.TrimSpace(string(text))
	return w.firstToken
}

// open exchanges Hello and Welcome with the node at an address.
func (w *worker) open(address string) (*stream, error) {
	secure, err := w.credentials()
	if err != nil {
		return nil, err
	}
	options := []grpc.DialOption{grpc.WithTransportCredentials(secure), grpc.WithNoProxy()}
	if !w.has("no-keepalive") {
		options = append(options, grpc.WithKeepaliveParams(keepalive.ClientParameters{
			Time: 10 * time.Second, Timeout: 5 * time.Second, PermitWithoutStream: true,
		}))
	}
	conn, err := grpc.NewClient(address, options...)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	if t := w.token(); t != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+t)
	}
	limit := time.AfterFunc(w.welcomeLimit(address), cancel)
	s := &stream{
		w: w, address: address, conn: conn, cancel: cancel, ended: make(chan struct{}), replace: make(chan struct{}, 1),
		sent: map[int64]time.Time{},
	}
	err = s.exchangeHello(ctx)
	if err == nil && !limit.Stop() {
		err = errors.New("no Welcome in time")
	}
	if err != nil {
		cancel()
		conn.Close()
		w.undoHello()
		return nil, err
	}
	return s, nil
}

func (w *worker) welcomeLimit(address string) time.Duration {
	switch {
	case w.has("waits-for-welcome"):
		return time.Hour
	case w.has("insists-on-advertised") && !slices.Contains(w.configured, address):
		return 30 * time.Second
	}
	return 2 * time.Second
}

func (s *stream) exchangeHello(ctx context.Context) (err error) {
	// The connection has to be ready first: a Hello takes leases over.
	s.conn.Connect()
	if s.grpc, err = fermatav1.NewWorkerServiceClient(s.conn).Work(ctx, grpc.MaxCallRecvMsgSize(64<<20)); err != nil {
		return err
	}
	hello := s.w.buildHello(s)
	s.helloAt = time.Now()
	s.send(hello)
	if s.w.has("hello-twice") {
		s.send(hello)
	}
	m, err := s.grpc.Recv()
	if err != nil {
		return err
	}
	if m.GetWelcome() == nil {
		return errors.New("no Welcome")
	}
	s.w.attach(s, m.GetWelcome())
	return nil
}

// buildHello names the leases that the node is to take over.
func (w *worker) buildHello(s *stream) *fermatav1.WorkRequest {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.endTrustIfOver()
	for w.anyLostRuns() {
		w.mu.Unlock()
		time.Sleep(time.Millisecond)
		w.mu.Lock()
	}
	if !w.has("constant-epoch") || w.epoch == 0 {
		w.epoch++
	}
	if w.stream != nil {
		w.stream.superseded = true
	}
	if !w.has("names-waiting-leases") {
		w.returnWaiting()
	}
	h := &fermatav1.Hello{
		WorkerId: w.id, Namespace: w.namespace, Queues: w.queues, Slots: int32(w.slots), SessionEpoch: w.epoch,
		Prefetch: int32(w.prefetch), SupportsStartAfter: true, SupportsHeartbeats: true,
	}
	for _, a := range w.attempts {
		if a.lost && a.result == nil || a.result != nil && w.has("names-no-results") || w.has("names-nothing") {
			continue
		}
		h.LiveLeaseIds = append(h.LiveLeaseIds, a.id)
		s.unconfirmed = s.unconfirmed || a.result == nil
	}
	w.spoilHello(h)
	return &fermatav1.WorkRequest{Message: &fermatav1.WorkRequest_Hello{Hello: h}}
}

func (w *worker) anyLostRuns() bool {
	for _, a := range w.attempts {
		if a.lost && a.running {
			return true
		}
	}
	return false
}

// spoilHello makes what is wrong about a Hello.
func (w *worker) spoilHello(h *fermatav1.Hello) {
	switch w.fault {
	case "bad-worker-id":
		h.WorkerId = "my worker " + h.GetWorkerId()
	case "new-worker-id":
		h.WorkerId = newID()
	case "shared-worker-id":
		h.WorkerId = "worker-1"
	case "epoch-from-zero":
		h.SessionEpoch--
	case "wrong-namespace":
		h.Namespace = ""
	case "first-queue-only":
		h.Queues = h.GetQueues()[:1]
	case "wrong-slots":
		h.Slots *= 2
	case "no-heartbeats":
		h.SupportsHeartbeats = false
	case "no-early-leases":
		h.SupportsStartAfter = false
	case "no-prefetch":
		h.Prefetch = 0
	}
}

// undoHello gives a stream that another node should have replaced its leases back.
func (w *worker) undoHello() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stream != nil {
		w.stream.superseded = false
		for _, a := range w.attempts {
			if a.result != nil {
				w.sendResult(a)
			}
		}
	}
}

// attach makes a welcomed stream the current one.
func (w *worker) attach(s *stream, welcome *fermatav1.Welcome) {
	w.mu.Lock()
	defer w.mu.Unlock()
	before := w.stream
	w.stream, w.preferred = s, nil
	if !w.has("ignores-welcome-addresses") {
		w.advertised = welcome.GetAddresses()
	}
	s.leaseTTL, s.sessionTTL = welcome.GetLeaseTtl().AsDuration(), welcome.GetSessionTtl().AsDuration()
	if w.has("no-heartbeats") {
		s.sessionTTL = 0
	}
	until := s.helloAt.Add(s.trustPeriod())
	if s.sessionTTL == 0 || !s.unconfirmed || w.has("ignores-confirmed") || until.Before(w.trustedUntil) {
		w.trustedUntil = until
	}
	if w.draining && !w.has("no-draining") {
		s.send(drainingMessage)
	}
	ids := w.pendingReturns
	for _, r := range w.returned {
		if time.Since(r.at) < repeatPeriod && !w.has("returns-once") && !slices.Contains(ids, r.id) {
			ids = append(ids, r.id)
		}
	}
	w.pendingReturns, w.returned = nil, nil
	w.returnLeases(s, ids...)
	if len(w.lost) > 0 {
		s.send(lostMessage(w.lost...))
	}
	for _, a := range w.attempts {
		if a.result != nil {
			w.sendResult(a)
		}
	}
	if before != nil {
		before.closeSend()
	}
	go s.receive()
	go s.beat()
}

var drainingMessage = &fermatav1.WorkRequest{Message: &fermatav1.WorkRequest_Draining{Draining: &fermatav1.Draining{}}}

// receive handles messages until the stream ends.
func (s *stream) receive() {
	w := s.w
	for {
		m, err := s.grpc.Recv()
		if err != nil {
			break
		}
		w.mu.Lock()
		s.handle(m)
		w.mu.Unlock()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	s.cancel()
	s.conn.Close()
	close(s.ended)
	if w.stream == s {
		w.stream = nil
		w.handleBreak()
	}
}

// handleBreak does what only faulty workers do when a stream breaks.
func (w *worker) handleBreak() {
	for _, a := range w.attempts {
		switch {
		case w.has("stops-handlers-at-break"):
			a.cancel(errors.New("no stream"))
		case w.has("forgets-early-leases") && a.result == nil && !a.running:
			w.freeSlot(a)
			w.forget(a)
		}
	}
	if w.has("exits-at-break") && !w.draining || w.has("exits-at-break-while-draining") && w.draining {
		os.Exit(1)
	}
}

func (s *stream) handle(m *fermatav1.WorkResponse) {
	w := s.w
	switch body := m.GetMessage().(type) {
	case *fermatav1.WorkResponse_Leases:
		w.accept(s, body.Leases.GetLeases())
	case *fermatav1.WorkResponse_ResultAcks:
		w.handleAcks(s, body.ResultAcks.GetAcks())
	case *fermatav1.WorkResponse_Cancel:
		w.handleCancel(s, body.Cancel)
	case *fermatav1.WorkResponse_HeartbeatAck:
		s.handleHeartbeatAck(body.HeartbeatAck)
	case *fermatav1.WorkResponse_Addresses:
		if !w.has("ignores-addresses") {
			w.advertised = body.Addresses.GetAddresses()
		}
	case *fermatav1.WorkResponse_Drain:
		s.handleDrain(body.Drain.GetAddresses())
	case *fermatav1.WorkResponse_Relocate:
		s.handleRelocate(body.Relocate.GetAddresses())
	default:
		if w.has("dies-of-unknown-message") {
			os.Exit(4)
		}
	}
}

func (s *stream) handleDrain(addresses []string) {
	w := s.w
	if w.has("no-drain") {
		return
	}
	if w.has("drain-stops-handlers") {
		for _, a := range w.attempts {
			a.cancel(errors.New("the node drains"))
		}
	}
	s.drained, w.preferred = true, addresses
	if !s.ackedAt.IsZero() && time.Now().Before(w.trustedUntil) && !w.has("no-trust-after-drain") {
		w.trustedUntil = s.ackedAt.Add(s.trustPeriod())
	}
	s.askToReplace()
}

func (s *stream) handleRelocate(addresses []string) {
	w := s.w
	if w.has("no-relocation") {
		return
	}
	if w.has("relocation-stops-handlers") {
		for _, a := range w.attempts {
			a.cancel(errors.New("the worker moves"))
		}
	}
	w.preferred = addresses
	s.askToReplace()
}

func (s *stream) askToReplace() {
	select {
	case s.replace <- struct{}{}:
	default:
	}
}
