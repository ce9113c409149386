package dispatch

import (
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/lease"
	"github.com/fermata-io/fermata/internal/core/unixtime"
)

// attempt is this node's state of one lease. All fields are guarded by the dispatcher's mutex, except those that
// never change after it is made.
type attempt struct {
	id     string // lease id
	record job.RecordID
	token  uint64
	shard  int
	born   time.Time

	// session has the attempt. It is closed for an orphan, and nil if only a pending event is left.
	session      *Session
	sessionIndex int // among the session's attempts
	// known is the record as this node last saw it stored; nil until read. The value pointed to never changes.
	known     *job.Record
	takesSlot bool // takes a slot of the session
	// memoryBytes is what is counted for it, for the identity of the session.
	memoryBytes int
	foreignOf   *identityMemory // the result of a lease that this node did not know counts there

	started   bool
	startedMS unixtime.Milli // shard clock; 0 unknown
	deadline  time.Time      // start + timeout + grace; zero: none
	hardStop  unixtime.Milli // bound of renewals, shard clock; 0: none
	lateAt    time.Time      // when the lateness objective of its run is judged; zero: kept, counted, or none

	trustedUntil time.Time // when this node stops trusting the lease
	renewAt      time.Time // zero: not to be renewed
	inIO         bool      // queued for the store, or in a call
	wantRenew    bool
	wantRead     bool
	adopting     bool // taken over from another session, not confirmed yet

	pendingEvent  job.Input // on its way to the ledger
	ownEvent      bool      // pending is not the worker's result: nothing to acknowledge
	resultArrived bool      // the worker's result came while ownEvent was true
	lossReported  bool      // the worker reported that it lost the lease, which is not yet submitted
	pendingSince  time.Time // of pendingEvent
	tries         int
	retryAt       time.Time // zero: the ledger has it

	// over: the lease has ended for this node, which only waits for the worker's answer to free the slot.
	// settled: this node settled it.
	over, settled     bool
	cancelled         bool // the worker was asked to end it
	forgotten         bool // forgotten
	unknownToAttempts bool // Attempts does not know of it: another node delivered it, or its stream was cut
	endReported       bool // Attempts knows that it has ended

	nextAt     time.Time // next point in time to act at
	timerPlace int       // among the timers, see [minheap.Item]
}

// jobKey is the job of the attempt.
func (a *attempt) jobKey() job.Key {
	return a.record.Key()
}

// streamOpen reports whether the stream of the attempt's worker is open.
func (a *attempt) streamOpen() bool { return a.session != nil && !a.session.closed }

// earliestStartMS is about when the handler could start at the earliest, by the shard's clock: when the lease
// was taken, which its token encodes, or when the run was due. It may be too late, but is too early by at most a
// millisecond.
func (a *attempt) earliestStartMS() unixtime.Milli {
	return a.atLeastDue(unixtime.Milli(a.token / 1000))
}

// atLeastDue is nowMS, or the time that the run is due if that is a little later.
func (a *attempt) atLeastDue(nowMS unixtime.Milli) unixtime.Milli {
	if a.known == nil {
		return nowMS
	}
	return a.known.State.AtLeastDue(nowMS)
}

// nextDeadline is when something has to be done about the attempt, zero for never.
func (a *attempt) nextDeadline() time.Time {
	var at time.Time
	earliest := func(t time.Time) {
		if !t.IsZero() && (at.IsZero() || t.Before(at)) {
			at = t
		}
	}
	if a.pendingEvent != nil {
		earliest(a.retryAt)
	} else if !a.over {
		earliest(a.trustedUntil)
		if a.streamOpen() {
			earliest(a.deadline)
			earliest(a.lateAt)
		}
	}
	if !a.inIO && !a.over {
		earliest(a.renewAt)
	}
	return at
}

// markStarted notes that the handler started at nowMS by the shard's clock, which shows latest at most.
func (a *attempt) markStarted(now time.Time, nowMS unixtime.Milli, latest lease.ClockBound, margin time.Duration) {
	a.started, a.startedMS = true, nowMS
	if a.known == nil {
		return
	}
	if d := a.known.Definition; d.Timeout > 0 {
		a.deadline = now.Add(d.Timeout + d.TimeoutGrace)
		latest.MS = max(latest.MS, nowMS)
		a.hardStop = latest.After((d.Timeout + d.TimeoutGrace + margin).Milliseconds())
	}
}

// boundAdopted bounds an attempt that started under another node. Its handler started within one lease of the
// leasing; the latest such instant bounds it, so that it is never cut off early.
func (a *attempt) boundAdopted(ttl, margin time.Duration) {
	d := a.known.Definition
	if a.startedMS == 0 && d.Timeout > 0 {
		a.hardStop = a.earliestStartMS().Add((ttl + d.Timeout + d.TimeoutGrace + margin))
	}
}

// estimateStart completes boundAdopted when the shard's clock is known.
func (a *attempt) estimateStart(now time.Time, nowMS unixtime.Milli, margin time.Duration) {
	a.startedMS = min(nowMS, a.earliestStartMS())
	if a.hardStop != 0 {
		left := a.hardStop.Sub(nowMS) - margin
		a.deadline = now.Add(max(0, left))
	}
}

// appendStart adds the notice that the attempt started. If it started in time, its objective is not judged any
// more.
func (d *Dispatcher) appendStart(notices []job.Notice, a *attempt) []job.Notice {
	if !a.lateAt.IsZero() && a.startedMS < a.known.Definition.BreachAtMS(&a.known.State) {
		a.lateAt = time.Time{}
	}
	return append(notices, d.startNotice(a))
}

// startNotice returns the notice that the attempt started; its lag is AtMS - DueMS. A gate that held the run did
// so until it was due.
func (d *Dispatcher) startNotice(a *attempt) job.Notice {
	s := &a.known.State
	n := job.Notice{
		Kind: job.AttemptStarted, Key: a.known.Definition.Key, Queue: a.known.Definition.Queue, RunID: s.RunID(),
		Attempt: s.Attempt + 1, Trigger: s.Trigger, DueMS: s.Due, AtMS: a.startedMS, Failures: s.Failures,
		Worker: a.session.hello.WorkerID, Labels: a.known.Definition.Labels,
	}
	if s.Held.Reason != job.HeldNone {
		n.Held, n.HeldMS = s.Held.Reason, max(0, int64(s.Due-s.Held.SinceMS))
	}
	if d.o.TraceID != nil {
		n.TraceID = d.o.TraceID(a.known)
	}
	return n
}

// pendingChange is the pending event as a change for the ledger. After a failed try it has no known record: the
// store has to be read again.
func (a *attempt) pendingChange() job.Change {
	c := job.Change{Record: a.record, Input: a.pendingEvent}
	if a.tries == 0 {
		c.Known = a.known
	}
	return c
}
