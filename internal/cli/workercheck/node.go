package workercheck

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// scriptedNode is a gRPC server that answers as its case says. Its exported-looking fields are set before a worker
// connects, or by change.
type scriptedNode struct {
	fermatav1.UnimplementedWorkerServiceServer
	trial  *trial
	name   string
	server *grpc.Server
	addr   string
	at     net.Addr
	held   *heldListener

	// Guarded by the mutex of the trial.
	leaseTTL, sessionTTL time.Duration // sessionTTL 0: the node takes no heartbeats
	addresses            []string
	withholdWelcome      bool // streams stay without a Welcome
	refuseWith           error
	refused              []time.Time // when Hellos were refused
	acksResults          bool
	acksHeartbeats       bool
	confirms             bool // heartbeat acknowledgements have confirmed set
}

// session is one stream of the worker to a node, from its Hello on.
type session struct {
	trial *trial
	node  *scriptedNode
	hello *fermatav1.Hello
	meta  metadata.MD
	at    time.Time // when Hello was read

	sendMu sync.Mutex
	stream fermatav1.WorkerService_WorkServer
	cut    chan error

	// Guarded by the mutex of the trial.
	heartbeats []receivedHeartbeat
	lastSeq    int64
	ackedAt    time.Time // when the latest acknowledged heartbeat was read
	acked      map[string]bool
	cancelled  map[string]bool // leases that a Cancel said were lost
	drainingAt time.Time
	closedAt   time.Time // when the worker closed its side, or the stream broke
	closed     bool
	refused    bool // the node answered Hello with an error
	halfClosed bool // the worker ended its side without an error
}

type receivedHeartbeat struct {
	seq int64
	at  time.Time
}

// newNode starts a node with times that no case of this kind reaches.
func (t *trial) newNode(change ...func(*scriptedNode)) *scriptedNode {
	return t.newSecureNode(nil, change...)
}

func (t *trial) newSecureNode(secure *tls.Config, change ...func(*scriptedNode)) *scriptedNode {
	n := &scriptedNode{
		trial: t, leaseTTL: t.ms(60_000), sessionTTL: t.ms(20_000), acksResults: true, acksHeartbeats: true,
		confirms: true,
	}
	for _, c := range change {
		c(n)
	}
	n.held, n.at = t.hold()
	n.addr = n.at.String()
	n.serve(secure)
	t.mu.Lock()
	t.nodes = append(t.nodes, n)
	n.name = "node-" + string(rune('a'+len(t.nodes)-1))
	t.mu.Unlock()
	t.onEnd(n.kill)
	return n
}

// serve starts to serve at the node's address.
func (n *scriptedNode) serve(secure *tls.Config) {
	options := []grpc.ServerOption{
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: time.Second, PermitWithoutStream: true}),
		grpc.MaxRecvMsgSize(64 << 20),
		grpc.UnknownServiceHandler(n.refuseUnknownMethod),
	}
	if secure != nil {
		options = append(options, grpc.Creds(credentials.NewTLS(secure)))
	}
	server := grpc.NewServer(options...)
	fermatav1.RegisterWorkerServiceServer(server, n)
	n.trial.mu.Lock()
	n.server = server
	n.trial.mu.Unlock()
	at := n.held.open(n.at)
	// Serve returns when the server is stopped.
	go func() { _ = server.Serve(at) }()
}

// kill cuts all connections, and resets new ones.
func (n *scriptedNode) kill() {
	n.trial.mu.Lock()
	server := n.server
	n.trial.mu.Unlock()
	n.held.close()
	server.Stop()
}

// revive serves again at the address of a killed node.
func (n *scriptedNode) revive() { n.serve(nil) }

// change changes what the node does.
func (n *scriptedNode) change(do func(*scriptedNode)) {
	n.trial.mu.Lock()
	defer n.trial.mu.Unlock()
	do(n)
}

// refuseUnknownMethod answers calls of methods that the node does not serve. One that Fermata does not have is a
// fault: the worker has a wrong path of Work.
func (n *scriptedNode) refuseUnknownMethod(_ any, g grpc.ServerStream) error {
	method, _ := grpc.MethodFromServerStream(g)
	name := strings.ReplaceAll(strings.TrimPrefix(method, "/"), "/", ".")
	_, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(name))
	if err != nil && !strings.HasPrefix(name, "grpc.") {
		n.trial.mu.Lock()
		defer n.trial.mu.Unlock()
		n.trial.addFault(ruleProgram, "the worker called an unknown method, %q: want %q", method,
			fermatav1.WorkerService_Work_FullMethodName)
	}
	return status.Errorf(codes.Unimplemented, "unknown method %s", method)
}

// Work serves one stream.
func (n *scriptedNode) Work(g fermatav1.WorkerService_WorkServer) error {
	t := n.trial
	meta, _ := metadata.FromIncomingContext(g.Context())
	first, err := g.Recv()
	if err != nil {
		return err
	}
	s := &session{
		trial: t, node: n, hello: first.GetHello(), meta: meta, at: time.Now(), stream: g, cut: make(chan error, 1),
		acked: map[string]bool{}, cancelled: map[string]bool{},
	}
	s.sendMu.Lock() // until the Welcome is sent, which comes first
	t.mu.Lock()
	refusal, withheld, welcome := n.refuseWith, n.withholdWelcome, n.welcome()
	t.observeHello(s, first)
	if refusal != nil || s.hello == nil {
		n.refused = append(n.refused, s.at)
		s.closed, s.closedAt, s.refused = true, s.at, true
		t.mu.Unlock()
		s.sendMu.Unlock()
		if refusal == nil {
			refusal = status.Error(codes.InvalidArgument, "want Hello")
		}
		return refusal
	}
	t.mu.Unlock()
	if !withheld {
		_ = g.Send(welcome) // a broken stream shows when it is read
	}
	s.sendMu.Unlock()
	return s.serve(g)
}

func (n *scriptedNode) welcome() *fermatav1.WorkResponse {
	w := &fermatav1.Welcome{Node: n.name, LeaseTtl: durationpb.New(n.leaseTTL), Addresses: n.addresses}
	if n.sessionTTL > 0 {
		w.SessionTtl = durationpb.New(n.sessionTTL)
	}
	return &fermatav1.WorkResponse{Message: &fermatav1.WorkResponse_Welcome{Welcome: w}}
}

// serve reads until the stream ends from either side.
func (s *session) serve(g fermatav1.WorkerService_WorkServer) error {
	ended := make(chan bool, 1)
	go func() {
		for {
			m, err := g.Recv()
			if err != nil {
				ended <- errors.Is(err, io.EOF)
				return
			}
			s.receive(m)
		}
	}()
	select {
	case err := <-s.cut:
		s.markClosed(false)
		return err
	case half := <-ended:
		s.markClosed(half)
		return nil
	case <-g.Context().Done():
		s.markClosed(false)
		return g.Context().Err()
	}
}

func (s *session) markClosed(half bool) {
	s.trial.mu.Lock()
	defer s.trial.mu.Unlock()
	s.closed, s.closedAt, s.halfClosed = true, time.Now(), half
	s.trial.noteChange()
}

// receive records a message and gives the answers that its node gives by itself.
func (s *session) receive(m *fermatav1.WorkRequest) {
	t := s.trial
	if m.GetHeartbeat() == nil {
		t.readJournal(t.journal) // what handlers wrote before the message
	}
	t.mu.Lock()
	t.observeRequest(s, m)
	var answers []*fermatav1.WorkResponse
	if h := m.GetHeartbeat(); h != nil && s.node.acksHeartbeats {
		answers = append(answers, s.heartbeatAck(h.GetSeq(), s.node.confirms))
	}
	var ids []string
	for _, r := range m.GetResults().GetResults() {
		ids = append(ids, r.GetLeaseId())
	}
	ids = append(ids, m.GetLost().GetLeaseIds()...)
	if len(ids) > 0 && s.node.acksResults {
		answers = append(answers, s.resultAcks(fermatav1.ResultAck_STATUS_ACCEPTED, ids...))
	}
	t.mu.Unlock()
	for _, a := range answers {
		s.send(a)
	}
}

// heartbeatAck makes an acknowledgement, under the mutex.
func (s *session) heartbeatAck(seq int64, confirmed bool) *fermatav1.WorkResponse {
	if i := slices.IndexFunc(s.heartbeats, func(h receivedHeartbeat) bool { return h.seq == seq }); i >= 0 {
		s.ackedAt = s.heartbeats[i].at
	}
	return &fermatav1.WorkResponse{Message: &fermatav1.WorkResponse_HeartbeatAck{
		HeartbeatAck: &fermatav1.HeartbeatAck{Seq: seq, Confirmed: confirmed},
	}}
}

// resultAcks makes acknowledgements, under the mutex.
func (s *session) resultAcks(state fermatav1.ResultAck_Status, ids ...string) *fermatav1.WorkResponse {
	acks := &fermatav1.ResultAcks{}
	for _, id := range ids {
		s.acked[id] = true
		acks.Acks = append(acks.Acks, &fermatav1.ResultAck{LeaseId: id, Status: state})
	}
	return &fermatav1.WorkResponse{Message: &fermatav1.WorkResponse_ResultAcks{ResultAcks: acks}}
}

// send sends a message. What a broken stream does not take is lost, as on a network.
func (s *session) send(m *fermatav1.WorkResponse) {
	s.sendMu.Lock()
	defer s.sendMu.Unlock()
	_ = s.stream.Send(m)
}

// ack acknowledges results.
func (s *session) ack(state fermatav1.ResultAck_Status, records ...*leaseRecord) {
	ids := make([]string, len(records))
	for i, r := range records {
		ids[i] = r.id
	}
	s.trial.mu.Lock()
	m := s.resultAcks(state, ids...)
	s.trial.mu.Unlock()
	s.send(m)
}

// ackHeartbeat acknowledges one heartbeat.
func (s *session) ackHeartbeat(seq int64, confirmed bool) {
	s.trial.mu.Lock()
	m := s.heartbeatAck(seq, confirmed)
	s.trial.mu.Unlock()
	s.send(m)
}

// lease sends leases.
func (s *session) lease(records ...*leaseRecord) {
	leases := &fermatav1.Leases{}
	s.trial.mu.Lock()
	for _, r := range records {
		if r.sentAt.IsZero() {
			r.sentAt = time.Now()
		}
		leases.Leases = append(leases.Leases, r.lease)
	}
	s.trial.mu.Unlock()
	s.send(&fermatav1.WorkResponse{Message: &fermatav1.WorkResponse_Leases{Leases: leases}})
}

// cancel sends a Cancel.
func (s *session) cancel(reason fermatav1.Cancel_Reason, ids ...string) {
	s.trial.mu.Lock()
	for _, id := range ids {
		s.cancelled[id] = reason == fermatav1.Cancel_REASON_LEASE_LOST
	}
	s.trial.mu.Unlock()
	s.send(&fermatav1.WorkResponse{Message: &fermatav1.WorkResponse_Cancel{
		Cancel: &fermatav1.Cancel{LeaseIds: ids, Reason: reason},
	}})
}

// drain sends a Drain.
func (s *session) drain(addresses ...string) {
	s.send(&fermatav1.WorkResponse{Message: &fermatav1.WorkResponse_Drain{Drain: &fermatav1.Drain{Addresses: addresses}}})
}

// relocate sends a Relocate.
func (s *session) relocate(addresses ...string) {
	s.send(&fermatav1.WorkResponse{Message: &fermatav1.WorkResponse_Relocate{
		Relocate: &fermatav1.Relocate{Addresses: addresses},
	}})
}

// advertise sends Addresses.
func (s *session) advertise(addresses ...string) {
	s.send(&fermatav1.WorkResponse{Message: &fermatav1.WorkResponse_Addresses{
		Addresses: &fermatav1.Addresses{Addresses: addresses},
	}})
}

// breakOff ends the stream with an error, as a node does whose process ends.
func (s *session) breakOff() { s.finish(status.Error(codes.Unavailable, "cut by the case")) }

// finish ends the stream.
func (s *session) finish(err error) {
	select {
	case s.cut <- err:
	default:
	}
}

// accept waits for a session after another one, at a node or, if that is nil, at any.
func (t *trial) accept(rule Rule, what string, at *scriptedNode, after *session) *session {
	var found *session
	limit := t.soon()
	if after == nil {
		limit = max(limit, t.ms(30_000)) // the program may be slow to start
	}
	t.expectWithin(limit, rule, what, func() bool {
		i := slices.Index(t.sessions, after)
		for _, s := range t.sessions[i+1:] {
			if s.hello != nil && (at == nil || s.node == at) && !s.refused {
				found = s
				return true
			}
		}
		return false
	})
	return found
}

// acceptFirst starts the worker with the addresses of nodes, and waits for its first session.
func (t *trial) acceptFirst(nodes ...*scriptedNode) *session {
	t.startWorker(addressesOf(nodes)...)
	return t.firstSession(nodes[0])
}

func (t *trial) firstSession(n *scriptedNode) *session {
	return t.accept(ruleProgram, "want a stream with Hello", n, nil)
}

// firstOfTwo starts the worker with two nodes. It returns its session at one of them, and the other node.
func (t *trial) firstOfTwo(a, b *scriptedNode) (*session, *scriptedNode) {
	t.startWorker(a.addr, b.addr)
	s := t.firstSession(nil)
	if s.node == a {
		return s, b
	}
	return s, a
}

// acceptNext waits for the session after one at the same node.
func (t *trial) acceptNext(rule Rule, after *session) *session {
	return t.accept(rule, "want a new stream with Hello after the end of the last one", after.node, after)
}

func addressesOf(nodes []*scriptedNode) (addresses []string) {
	for _, n := range nodes {
		addresses = append(addresses, n.addr)
	}
	return addresses
}

func (s *session) listsAsLive(r *leaseRecord) bool {
	return slices.Contains(s.hello.GetLiveLeaseIds(), r.id)
}

func defaultLease(name, handler string, payload []byte, token int64) *fermatav1.Lease {
	run := "namespaces/" + checkNamespace + "/jobs/" + name + "/runs/1"
	now := time.Now()
	return &fermatav1.Lease{
		LeaseId: run + "/1", Run: run, Queue: checkQueues[0], Handler: handler, Payload: payload, Attempt: 1,
		MaxAttempts: 3,
		NominalTime: timestamppb.New(now), DueTime: timestamppb.New(now), Timeout: durationpb.New(10 * time.Minute),
		Token:         token,
		CorrelationId: name, Labels: map[string]string{"check": "yes"},
	}
}

func describeRequest(m *fermatav1.WorkRequest) string {
	if m.GetMessage() == nil {
		return "empty"
	}
	return string(m.ProtoReflect().WhichOneof(m.ProtoReflect().Descriptor().Oneofs().Get(0)).Name())
}
