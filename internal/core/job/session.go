package job

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Messages between workers and nodes over a session: one stream of one worker. The engine that owns sessions and
// the adapter that carries them share only these types.

// Errors of sessions.
var (
	// ErrDraining: this node stops; another one takes the worker.
	ErrDraining = errors.New("node is draining")
	// ErrSuperseded: a session of this worker with the same or a higher epoch is
	// open.
	ErrSuperseded = errors.New("a later session of this worker is open")
	// ErrTooManySessions: the sessions of the node, or of the worker's identity, take too much memory.
	ErrTooManySessions = errors.New("too many sessions of workers")
	// ErrTooManyServedQueues: the workers of the node, or of the worker's namespace or identity, serve too many queues.
	ErrTooManyServedQueues = errors.New("too many queues of workers")
	// ErrWorkerTooSlow: the worker does not read its messages, or sends results faster than they can be stored.
	ErrWorkerTooSlow = errors.New("worker does not keep up with its stream")
	// ErrHeartbeatTimeout: no heartbeat came for as long as a session lives.
	ErrHeartbeatTimeout = errors.New("worker sent no heartbeat in time")
)

// Limits of a worker's session.
const (
	MaxQueues = 64
	MaxSlots  = 100_000
	// MaxEpoch is the greatest epoch that fits in a record.
	MaxEpoch        = 999_999
	MaxVersion      = 128
	MaxWorkerLabels = 32
)

// LeaseID names an attempt to the worker that has it.
func LeaseID(record RecordID, token uint64) string {
	id := strconv.AppendUint(make([]byte, 0, 128), token, 10)
	return string(append(append(id, '@'), record...))
}

// ParseLeaseID undoes LeaseID, at any node.
func ParseLeaseID(id string) (record RecordID, token uint64, ok bool) {
	digits, text, ok := strings.Cut(id, "@")
	if !ok {
		return "", 0, false
	}
	record, ok = ParseRecordID(text)
	token, err := strconv.ParseUint(digits, 10, 64)
	if err != nil || !ok || token == 0 {
		return "", 0, false
	}
	return record, token, true
}

// Hello is the first message of a worker on its stream.
type Hello struct {
	WorkerID  string
	Namespace string
	Queues    []string // 1 to MaxQueues, each once
	Slots     int      // attempts at once, 1 to MaxSlots
	Epoch     uint32   // grows with each stream of the process, 1 to MaxEpoch
	Live      []string // lease ids that run, or whose result is not acknowledged
	Version   string
	Labels    map[string]string
	Prefetch  int // attempts that may wait for a slot at the worker
	// StartsAfter: the worker starts no handler before [Assignment.StartAt].
	StartsAfter bool
	// Heartbeats: the worker proves by heartbeats that it lives, and trusts its leases no
	// longer than its session.
	Heartbeats bool
	// Identity is the authenticated identity of the worker; empty if the node authenticates no callers. The
	// worker does not set it.
	Identity string
}

// MaxLive bounds Hello.Live: the running attempts, and as many again that have ended and are not acknowledged.
func (h Hello) MaxLive() int { return 2*h.Slots + 1024 }

// Validate lists invalid fields of a Hello; paths are those of the API.
func (h Hello) Validate() []Violation {
	v := violations{prefix: "hello."}
	v.add("worker_id", validateID(h.WorkerID, MaxID))
	v.add("namespace", validateName(h.Namespace))
	v.addUnless(len(h.Queues) >= 1 && len(h.Queues) <= MaxQueues, "queues", "has %d entries, want 1 to %d",
		len(h.Queues), MaxQueues)
	seen := make(map[string]bool, min(len(h.Queues), MaxQueues))
	for i, q := range h.Queues[:min(len(h.Queues), MaxQueues)] {
		path := fmt.Sprintf("queues[%d]", i)
		v.add(path, validateName(q))
		v.addUnless(!seen[q], path, "%q is named twice", Clip(q, 40))
		seen[q] = true
	}
	v.addUnless(h.Slots >= 1 && h.Slots <= MaxSlots, "slots", "is %d, want 1 to %d", h.Slots, MaxSlots)
	v.addUnless(h.Epoch >= 1 && h.Epoch <= MaxEpoch, "session_epoch", "is %d, want 1 to %d", h.Epoch, MaxEpoch)
	v.addUnless(len(h.Live) <= h.MaxLive(), "live_lease_ids",
		"has %d entries, at most %d are allowed", len(h.Live), h.MaxLive())
	v.checkText("version", h.Version, 0, MaxVersion)
	v.checkLabels(h.Labels, MaxWorkerLabels)
	return v.list
}

// Result is how the handler of one lease ended.
type Result struct {
	LeaseID    string
	Outcome    Outcome // Succeeded, Failed, TimedOut or Cancelled
	Permanent  bool
	Error      string
	Output     []byte
	RetryAfter time.Duration
	Duration   time.Duration // of the handler
}

// WorkerMessage is a message of a node to a worker.
type WorkerMessage interface{ isWorkerMessage() }

// Welcome answers Hello. It is the first message.
type Welcome struct {
	Node      string
	LeaseTTL  time.Duration
	Addresses []string
	// SessionTTL is how long the session lives after a heartbeat; 0: the worker sends none.
	SessionTTL time.Duration
}

// HeartbeatAck answers a heartbeat.
type HeartbeatAck struct {
	Seq int64
	// Confirmed: each lease that Hello named has been renewed under this session, or
	// refused by a Cancellation before.
	Confirmed bool
}

// Assignment is one lease for its worker. The data that it points to is read-only.
type Assignment struct {
	LeaseID string
	*Record
	Opened []byte // the payload, if it is sealed or the run's own
	// StartAt is when the run is due, by the clock of this process; zero: at once.
	StartAt time.Time
}

// Payload returns what the worker gets: never what is sealed.
func (a *Assignment) Payload() []byte {
	if a.Definition.PayloadKey != "" || a.State.OwnPayload != nil {
		return a.Opened
	}
	return a.Definition.Payload
}

// Assignments hand out leases.
type Assignments []Assignment

// AckStatus is the outcome of a result, for its worker. Every status is final.
type AckStatus uint8

// Ack statuses.
const (
	AckAccepted AckStatus = iota
	AckDuplicate
	AckStale
	AckNotFound
)

func (s AckStatus) String() string {
	return [...]string{"accepted", "duplicate", "stale", "not_found"}[min(s, AckNotFound)]
}

// ResultAck acknowledges the result of a lease: the worker need not repeat it.
type ResultAck struct {
	LeaseID string
	Status  AckStatus
}

// ResultAcks end the repetition of results.
type ResultAcks []ResultAck

// CancelReason is why a handler should end.
type CancelReason uint8

// Cancel reasons.
const (
	CancelRequested CancelReason = iota
	CancelLeaseLost
	CancelTimedOut
)

// Cancellation asks that the handlers of these leases end.
type Cancellation struct {
	LeaseIDs []string
	Reason   CancelReason
}

// Redirect asks the worker to reconnect to one of these nodes.
type Redirect struct{ Addresses []string }

// Relocation asks the worker to move to one of these nodes, and to keep its session until then.
type Relocation struct{ Addresses []string }

func (Welcome) isWorkerMessage()      {}
func (Assignments) isWorkerMessage()  {}
func (ResultAcks) isWorkerMessage()   {}
func (Cancellation) isWorkerMessage() {}
func (Redirect) isWorkerMessage()     {}
func (Relocation) isWorkerMessage()   {}
func (Addresses) isWorkerMessage()    {}

// Addresses are those of the other nodes that there are now.
type Addresses []string

func (HeartbeatAck) isWorkerMessage() {}

// WorkerStream carries messages to one worker.
type WorkerStream interface {
	// Send queues a message and does not block. It returns an error if the queue is full or the stream has
	// ended; then the message will not be sent.
	Send(WorkerMessage) error
	// Stop ends the stream soon with this reason; it does not block. If the reason is [ErrDraining], queued
	// messages are sent first, unless the worker does not read them. The stream then calls Close of its session.
	Stop(reason error)
}

// WorkerSession receives the messages of one worker. Calls are sequential.
type WorkerSession interface {
	HandleStarted(leaseIDs []string)
	HandleResults([]Result)
	HandleReturned(leaseIDs []string)
	// HandleLost: the worker has given these leases up, because it had no node or they had ended, and their handlers
	// have ended. Each is acknowledged like a result.
	HandleLost(leaseIDs []string)
	HandleDraining()
	// HandleHeartbeat takes the worker's proof that it lives; the latest is acknowledged.
	HandleHeartbeat(seq int64)
	// RequestReconnect asks the worker to reconnect. Until then it gets no leases.
	RequestReconnect()
	// MarkDrained: the worker has drained and ended the stream: it runs no attempt any more, and starts none that may
	// still be on its way to it. Close follows.
	MarkDrained()
	// Close ends the session: no call follows. Unsent are messages that were
	// queued and provably never left this process.
	Close(reason string, unsent []WorkerMessage)
}

// WorkerInfo describes a connected worker.
type WorkerInfo struct {
	ID, Node, Namespace string
	Queues              []string
	Slots, Running      int
	Draining            bool
	ConnectedAt         time.Time
	Version             string
	Labels              map[string]string
	// Identity: see [Hello]. Two workers of a namespace may have one id under two identities.
	Identity string
}

// NodeInfo describes a node and its workers.
type NodeInfo struct {
	Name, GRPCAddress, PeerAddress string
	ShardsHeld                     int
	Draining                       bool
	Version                        string
	StartedAt                      time.Time
	Durability                     string
	// Unreachable: the node did not answer; only name and addresses are known.
	Unreachable bool
	// WorkerCount counts all workers, and QueueWorkers sums them up by queue. Workers may have fewer, and some of them
	// without labels or queues.
	WorkerCount  int
	QueueWorkers []QueueWorkers
	Workers      []WorkerInfo
	Queues       []QueueRuns
}

// QueueWorkers sums up the workers of a queue. FreeSlots are those of workers that do not drain; a worker of several
// queues counts for each of them.
type QueueWorkers struct {
	Namespace, Queue string
	Workers          int
	FreeSlots        int64
}

// SumQueueWorkers sums up workers by queue, sorted by namespace and queue.
func SumQueueWorkers(workers []WorkerInfo) []QueueWorkers {
	byQueue := map[QueueKey]*QueueWorkers{}
	for _, w := range workers {
		for _, name := range w.Queues {
			k := QueueKey{Namespace: w.Namespace, Queue: name}
			if byQueue[k] == nil {
				byQueue[k] = &QueueWorkers{Namespace: k.Namespace, Queue: k.Queue}
			}
			byQueue[k].addWorker(w)
		}
	}
	sums := make([]QueueWorkers, 0, len(byQueue))
	for _, s := range byQueue {
		sums = append(sums, *s)
	}
	slices.SortFunc(sums, func(a, b QueueWorkers) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Queue, b.Queue))
	})
	return sums
}

func (s *QueueWorkers) addWorker(w WorkerInfo) {
	s.Workers++
	if !w.Draining {
		s.FreeSlots += int64(max(0, w.Slots-w.Running))
	}
}

// RecentRuns counts what the workers of a node, or of all nodes, did for a queue within the last minute.
type RecentRuns struct {
	// Started, Succeeded and Failed count attempts; the last includes those that timed
	// out.
	Started, Succeeded, Failed int64
	Breaches                   int64 // of lateness objectives
	MaxLag                     time.Duration
	// Span is the period of the counts: a minute, or less after a start.
	Span time.Duration
}

// Add puts another node's to these.
func (r *RecentRuns) Add(o RecentRuns) {
	r.Started += o.Started
	r.Succeeded += o.Succeeded
	r.Failed += o.Failed
	r.Breaches += o.Breaches
	r.MaxLag, r.Span = max(r.MaxLag, o.MaxLag), max(r.Span, o.Span)
}

// QueueRuns is the RecentRuns of a queue.
type QueueRuns struct {
	Namespace, Queue string
	RecentRuns
}

// QueueLoad is the load of one node's workers by a queue.
type QueueLoad struct {
	Namespace, Queue       string
	Running, Free, Workers int
}
