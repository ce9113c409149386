package job

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/fermata-io/fermata/internal/core/unixtime"
)

// Kinds of events, as subscribers name them. Later versions may add some; none
// changes its meaning.
const (
	KindJobCreated     = "job.created"
	KindJobUpdated     = "job.updated"
	KindJobDeleted     = "job.deleted"
	KindJobPaused      = "job.paused"
	KindJobResumed     = "job.resumed"
	KindJobRestored    = "job.restored"
	KindJobRescheduled = "job.rescheduled"
	KindJobBackoff     = "job.backoff"
	KindJobHint        = "job.hint"

	KindRunTriggered   = "run.triggered"
	KindRunStarted     = "run.started"
	KindRunFailed      = "run.failed"
	KindRunTimedOut    = "run.timed_out"
	KindRunLost        = "run.lost"
	KindRunHeld        = "run.held"
	KindRunSucceeded   = "run.succeeded"
	KindRunDead        = "run.dead"
	KindRunQuarantined = "run.quarantined"
	KindRunCancelled   = "run.cancelled"
	KindRunMissed      = "run.missed"
	KindRunLate        = "run.late"
	KindRunRedriven    = "run.redriven"

	KindBackfillStarted = "backfill.started"
	KindBackfillDone    = "backfill.done"

	KindNodeJoined = "node.joined"
	KindNodeLeft   = "node.left"
	KindShardTaken = "shard.taken"
)

// subscriberKinds maps the notices that subscribers receive to event kinds.
var subscriberKinds = map[NoticeKind]string{
	JobCreated: KindJobCreated, JobUpdated: KindJobUpdated, JobDeleted: KindJobDeleted,
	JobPaused: KindJobPaused, JobResumed: KindJobResumed, ScheduleUpdated: KindJobRescheduled,
	BackoffApplied: KindJobBackoff, HintSet: KindJobHint,
	ManualRunStarted: KindRunTriggered, AttemptStarted: KindRunStarted, AttemptFailed: KindRunFailed,
	AttemptTimedOut: KindRunTimedOut, AttemptLost: KindRunLost, RunHeld: KindRunHeld,
	RunSucceeded: KindRunSucceeded, RunDead: KindRunDead, RunQuarantined: KindRunQuarantined,
	RunCancelled: KindRunCancelled, NominalSkipped: KindRunMissed, LagBreached: KindRunLate,
	RunRedriven:     KindRunRedriven,
	BackfillStarted: KindBackfillStarted, BackfillDone: KindBackfillDone,
}

// Kinds returns all kinds, sorted.
func Kinds() []string {
	all := []string{KindJobRestored, KindNodeJoined, KindNodeLeft, KindShardTaken}
	for _, kind := range subscriberKinds {
		all = append(all, kind)
	}
	slices.Sort(all)
	return all
}

// Place is the position of an event in the stream of its shard: an instant by the shard's clock, which never
// steps back, and a number that grows by one.
type Place struct {
	MS  unixtime.Milli
	Seq uint64
}

// Before reports whether p is earlier in the stream.
func (p Place) Before(o Place) bool { return p.MS < o.MS || p.MS == o.MS && p.Seq < o.Seq }

// PlaceBefore returns the place before all that is of an instant or later.
func PlaceBefore(ms unixtime.Milli) Place { return Place{MS: max(0, ms-1), Seq: math.MaxUint64} }

// Exact reports whether p is the place of an event, or the beginning of the stream, so that the number of the
// next event is known.
func (p Place) Exact() bool { return p.Seq != math.MaxUint64 }

// Event is an event that subscribers receive: a stored notice, or an event of the cluster, which has no Key.
// Fields that do not apply are zero.
type Event struct {
	Shard int
	Place Place

	Kind     string
	AtMS     unixtime.Milli
	Key      Key
	Queue    string
	RunID    string
	Attempt  uint32
	Trigger  Trigger
	DueMS    unixtime.Milli // when the run was due, or the next one, or the next attempt, is
	StartMS  unixtime.Milli // of the attempt that ended
	Failures uint32
	Count    int64
	Reason   string
	Error    string
	Worker   string
	Node     string
	Labels   map[string]string // the job's; read-only
}

// ReasonMoved is the reason of the job.updated that readers of a queue receive when a job leaves it.
const ReasonMoved = "moved to another queue"

// NewEvent converts a notice to an event; false if subscribers do not receive it. Queue and labels have to be of the
// same definition: whoever may read the queue may read the labels. Empty, the queue is that of the notice.
func NewEvent(n *Notice, queue string, labels map[string]string) (Event, bool) {
	kind, ok := subscriberKinds[n.Kind]
	if !ok {
		return Event{}, false
	}
	return Event{
		Kind: kind, AtMS: n.AtMS, Key: n.Key, Queue: cmp.Or(queue, n.Queue), RunID: n.RunID, Attempt: n.Attempt,
		Trigger: n.Trigger,
		DueMS:   n.DueMS, StartMS: n.StartedMS, Failures: n.Failures, Count: n.Count, Reason: n.Reason, Error: n.Error,
		Worker: n.Worker, Labels: labels,
	}, true
}

// NewDeparture returns the event for readers of the queue that a job leaves by the edit of a notice; false if it
// leaves none. It has nothing of the job as it is after the edit, which these readers may not see.
func NewDeparture(n *Notice, before, after *Definition) (Event, bool) {
	if n.Kind != JobUpdated || before.Queue == "" || before.Queue == after.Queue {
		return Event{}, false
	}
	return Event{
		Kind: KindJobUpdated, AtMS: n.AtMS, Key: n.Key, Queue: before.Queue, Reason: ReasonMoved, Labels: before.Labels,
	}, true
}

// ID is unique in the cluster.
func (h *Event) ID() string {
	return strconv.Itoa(h.Shard) + "-" + strconv.FormatInt(int64(h.Place.MS), 10) + "-" +
		strconv.FormatUint(h.Place.Seq, 10)
}

// Correlation returns that of the run that the event is about; "" if it is about none.
func (h *Event) Correlation() string {
	if h.RunID == "" {
		return ""
	}
	return Correlation(h.Key, h.RunID)
}

// EventFilter selects events; an empty field selects all.
type EventFilter struct {
	Namespaces, Queues, Jobs []string
	// Kinds are kinds, or a part of one before its dot and ".*".
	Kinds  []string
	Labels map[string]string
	// Covers, when set, hides events of queues that it does not cover, and those of no queue.
	Covers func(queue string) bool
}

// Limits of a EventFilter.
const maxFilterTerms = 64

// Matches reports whether the filter selects an event. Events of the cluster have no namespace, queue or job.
func (f *EventFilter) Matches(h *Event) bool {
	for name, value := range f.Labels {
		if has, ok := h.Labels[name]; !ok || has != value {
			return false
		}
	}
	return f.WantsNamespace(h.Key.Namespace) && matchesAny(f.Queues, h.Queue) && f.WantsJob(h.Key.ID) &&
		f.WantsKind(h.Kind) && (f.Covers == nil || h.Queue != "" && f.Covers(h.Queue))
}

// WantsNamespace reports whether anything of a namespace may be selected.
func (f *EventFilter) WantsNamespace(namespace string) bool {
	return matchesAny(f.Namespaces, namespace)
}

// WantsJob reports whether anything of jobs with an id may be selected.
func (f *EventFilter) WantsJob(id string) bool { return matchesAny(f.Jobs, id) }

func matchesAny(list []string, s string) bool { return len(list) == 0 || slices.Contains(list, s) }

// WantsKind reports whether anything of a kind may be selected.
func (f *EventFilter) WantsKind(kind string) bool {
	if len(f.Kinds) == 0 {
		return true
	}
	family, _, _ := strings.Cut(kind, ".")
	for _, k := range f.Kinds {
		if before, all := strings.CutSuffix(k, ".*"); k == kind || all && before == family {
			return true
		}
	}
	return false
}

// Validate lists invalid fields of a filter. Their paths begin with this prefix.
func (f *EventFilter) Validate(prefix string) []Violation {
	v := violations{prefix: prefix}
	for _, list := range []struct {
		field string
		terms []string
		fault func(string) string
	}{
		{"namespaces", f.Namespaces, validateName}, {"queues", f.Queues, validateName},
		{"job_ids", f.Jobs, func(id string) string { return validateID(id, MaxID) }},
		{"kinds", f.Kinds, validateKind},
	} {
		v.addUnless(len(list.terms) <= maxFilterTerms, list.field, "has %d entries, at most %d are allowed",
			len(list.terms), maxFilterTerms)
		for _, term := range list.terms[:min(len(list.terms), maxFilterTerms)] {
			v.add(list.field, list.fault(term))
		}
	}
	v.checkLabels(f.Labels, maxFilterLabels)
	return v.list
}

func validateKind(kind string) string {
	for _, known := range Kinds() {
		family, _, _ := strings.Cut(known, ".")
		if kind == known || kind == family+".*" {
			return ""
		}
	}
	return "has " + Clip(kind, 40) + ", which is no kind of event; want one of " + strings.Join(Kinds(),
		", ") + ", or job.*, run.* ..."
}
