package job

import (
	"strings"
	"time"

	"github.com/fermata-io/fermata/internal/core/backoff"
	"github.com/fermata-io/fermata/internal/core/schedule"
	"github.com/fermata-io/fermata/internal/core/unixtime"
)

// Key names a job inside a cluster.
type Key struct {
	Namespace string
	ID        string
}

// Record returns the id of the job's parent record.
func (k Key) Record() RecordID { return RecordID(k.Namespace + "/" + k.ID) }

// jitterSeed returns what the jitter of a run and an attempt of the job is computed from.
func (k Key) jitterSeed(run, attempt int64) uint64 {
	return backoff.SeedOf(run, attempt, k.Namespace, "/", k.ID)
}

// Lane is one priority of one queue: the unit that has an index.
type Lane struct {
	Namespace string
	Queue     string
	Priority  uint8
}

// String returns "namespace/queue/priority".
func (l Lane) String() string {
	return l.Namespace + "/" + l.Queue + "/" + string('0'+rune(l.Priority))
}

// ParseLane parses the output of String.
func ParseLane(s string) (Lane, bool) {
	parts := strings.Split(s, "/")
	if len(parts) != 3 || parts[0] == "" || parts[1] == "" || len(parts[2]) != 1 {
		return Lane{}, false
	}
	priority := parts[2][0] - '0'
	if priority > MaxPriority {
		return Lane{}, false
	}
	return Lane{Namespace: parts[0], Queue: parts[1], Priority: priority}, true
}

// Definition is a durable definition of work. The fields below the line are set by Fermata; a caller that
// registers a job leaves them zero.
type Definition struct {
	Key
	Queue    string
	Priority uint8 // 0 lowest to 9 highest
	Handler  string
	Payload  []byte
	// PayloadKey is the id of the key that seals the payload; empty: it is as given.
	PayloadKey string
	Labels     map[string]string

	Schedule schedule.Spec
	Retry    backoff.Retry
	Backoff  backoff.Recurring
	// MinInterval and MaxInterval bound backed-off intervals and hints; 0 is no bound.
	MinInterval, MaxInterval time.Duration
	// Sources are where fields of the policies above came from when they were resolved, those
	// that are not as [backoff.ImpliedSources] has them. See [Definition.PolicySources].
	Sources []backoff.Group

	Overlap Overlap
	// OverlapLimit bounds OverlapBufferAll (1 to MaxBufferedRuns) and
	// OverlapAllowAll (1 to MaxConcurrentRuns); 0 is DefaultOverlapLimit.
	OverlapLimit int
	Misfire      Misfire
	// Locks are held by each run while it is live.
	Locks []Lock
	// Target names what the job depends on, for example a host: jobs of the namespace with the same target share
	// one backoff. "" is none.
	Target string
	// PauseAfter pauses the job after so many failed runs in a row; 0 is never.
	PauseAfter int
	// MaxLag is by how much a run may start late; 0 is no objective. See lag.go.
	MaxLag time.Duration

	Timeout       time.Duration // of one attempt, from its start
	TimeoutGrace  time.Duration // after which it is settled without its answer
	HistoryLimit  int           // finished runs kept, 0-100
	Retention     time.Duration // of a finished one-time job
	DeadLetterTTL time.Duration

	Generation      uint32         // grows when the schedule changes
	Revision        uint32         // grows with each edit
	AnchorMS        unixtime.Milli // when this generation began
	CreatedMS       unixtime.Milli
	UpdatedMS       unixtime.Milli
	CreateRequestID string
	// UpdateRequestIDs are of the last edits that had one.
	UpdateRequestIDs RequestIDs
	// LastEdit is the call that stored this revision, if it was an edit.
	LastEdit Edit
	// Trace is the context of the call that created the job; nil: none was sampled,
	// or nodes do not trace.
	Trace *Trace
	// Unknown carries stored fields that this version does not know.
	Unknown []byte
}

// Lane returns the lane of the definition. A live record may still be in an older one: see [State.Lane].
func (d *Definition) Lane() Lane {
	return Lane{Namespace: d.Namespace, Queue: d.Queue, Priority: d.Priority}
}

// QueueKey returns the queue whose workers, and no others, may have runs of the job.
func (d *Definition) QueueKey() QueueKey {
	return QueueKey{Namespace: d.Namespace, Queue: d.Queue}
}

// Recurring reports whether the schedule yields more than one nominal time.
func (d *Definition) Recurring() bool {
	return d.Schedule.Kind.Recurs()
}

// Compiled is a definition with its schedule made ready to be asked. It is
// immutable and safe for concurrent use.
type Compiled struct {
	*Definition
	schedule *schedule.Schedule
	backlog  *countedBacklog // the last one that was long; nil: none is remembered
}

// Within returns the same job with a budget for all that is asked of its schedule. It is for one
// task, as budgets are.
func (c *Compiled) Within(b *schedule.Budget) *Compiled {
	return &Compiled{Definition: c.Definition, schedule: c.schedule.Within(b)}
}

// Remembering returns the same job with a memory of what was computed of its schedule, which saves work and changes no
// answer. It is for one goroutine at a time.
func (c *Compiled) Remembering() *Compiled {
	return &Compiled{Definition: c.Definition, schedule: c.schedule.Remembering(), backlog: &countedBacklog{}}
}

// withDefinition returns the job with another definition of the same schedule.
func (c *Compiled) withDefinition(d *Definition) *Compiled {
	return &Compiled{Definition: d, schedule: c.schedule}
}

// Compile prepares a definition. It fails only where the schedule itself is impossible; [Validate] checks more.
func Compile(d *Definition) (*Compiled, error) {
	seed := uint64(0)
	if d.Schedule.Seeded() { // most one-time jobs are not, and are compiled at each step
		seed = d.jitterSeed(0, 0)
	}
	s, err := schedule.Compile(d.Schedule, d.AnchorMS.Time(), seed)
	if err != nil {
		return nil, err
	}
	return &Compiled{Definition: d, schedule: s}, nil
}
