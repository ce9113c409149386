package dispatch

import (
	"time"

	"github.com/fermata-io/fermata/internal/job"
	"github.com/fermata-io/fermata/internal/lease"
)

// attempt is what this node knows of one lease. All fields are guarded by the
// dispatcher's mutex, but for those that never change after it is made.
type attempt struct {
	id     string // lease id
	record string
	token  uint64
	shard  int
	born   time.Time

	// session is whose attempt this is, closed when it is an orphan; nil when
	// only a pending event is left.
	session *Session
	nth     int // among the session's attempts
	// rec is what is believed to be stored; nil until read. The value pointed
	// to never changes.
	rec  *job.Record
	busy bool // takes a slot of the session

	started   bool
	startedMS int64     // shard clock; 0 unknown
	deadline  time.Time // start + timeout + grace; zero: none
	hardStop  int64     // bound of renewals, shard clock; 0: none
	lateAt    time.Time // the lateness objective of its run is judged; zero: it is kept, counted or not there

	until     time.Time // trust in the lease ends
	renewAt   time.Time // zero: not to be renewed
	inIO      bool      // queued for the store, or in a call
	wantRenew bool
	wantRead  bool
	adopting  bool // taken over from another session, not confirmed yet

	pending  job.Event // on its way to the ledger
	byNode   bool      // pending is not the worker's result: nothing to acknowledge
	reported bool      // the worker's result came while byNode was pending
	lost     bool      // the worker said that it has lost the lease, and that is not on its way yet
	since    time.Time // of pending
	tries    int
	retryAt  time.Time // zero: the ledger has it

	// over: the lease has ended for this node; what is awaited is only the
	// worker's word, which frees the slot. settled: this node settled it.
	over, settled bool
	cancelled     bool // the worker was asked to end it
	gone          bool // forgotten
	foreign       bool // Attempts does not know that it is here: it was another node's, or its stream was cut
	told          bool // Attempts knows that it has ended

	at    time.Time // next point in time to act at
	place int       // among the timers, see [minheap.Item]
}

// key is the job of the attempt.
func (a *attempt) key() job.Key {
	key, _, _ := job.ParseRecord(a.record)
	return key
}

// live tells whether the stream of the attempt's worker is open.
func (a *attempt) live() bool { return a.session != nil && !a.session.closed }

// leasedMS is about when the handler could start at the earliest, by the shard's clock:
// when the lease was taken, of which tokens are minted, or when the run was due. It may be
// later than that, never earlier by more than a millisecond.
func (a *attempt) leasedMS() int64 { return a.atLeastDue(int64(a.token / 1000)) }

// atLeastDue is nowMS, or the time that the run is due if that is a little later.
func (a *attempt) atLeastDue(nowMS int64) int64 {
	if a.rec == nil {
		return nowMS
	}
	return a.rec.State.AtLeastDue(nowMS)
}

// next is when something has to be done about the attempt, zero for never.
func (a *attempt) next() time.Time {
	var at time.Time
	earliest := func(t time.Time) {
		if !t.IsZero() && (at.IsZero() || t.Before(at)) {
			at = t
		}
	}
	if a.pending != nil {
		earliest(a.retryAt)
	} else if !a.over {
		earliest(a.until)
		if a.live() {
			earliest(a.deadline)
			earliest(a.lateAt)
		}
	}
	if !a.inIO && !a.over {
		earliest(a.renewAt)
	}
	return at
}

// start notes that the handler began at nowMS of the shard's clock, which shows latest at most.
func (a *attempt) start(now time.Time, nowMS int64, latest lease.Latest, margin time.Duration) {
	a.started, a.startedMS = true, nowMS
	if a.rec == nil {
		return
	}
	if d := a.rec.Definition; d.Timeout > 0 {
		a.deadline = now.Add(d.Timeout + d.TimeoutGrace)
		latest.MS = max(latest.MS, nowMS)
		a.hardStop = latest.After((d.Timeout + d.TimeoutGrace + margin).Milliseconds())
	}
}

// resume estimates the start of an attempt that began under another node. Its
// handler started within one lease of the leasing; the latest such instant
// bounds it, so that it is never cut off early.
func (a *attempt) resume(ttl, margin time.Duration) {
	d := a.rec.Definition
	if a.startedMS == 0 && d.Timeout > 0 {
		a.hardStop = a.leasedMS() + (ttl + d.Timeout + d.TimeoutGrace + margin).Milliseconds()
	}
}

// resumed completes resume when the shard's clock is known.
func (a *attempt) resumed(now time.Time, nowMS int64, margin time.Duration) {
	a.startedMS = min(nowMS, a.leasedMS())
	if a.hardStop != 0 {
		left := time.Duration(a.hardStop-nowMS)*time.Millisecond - margin
		a.deadline = now.Add(max(0, left))
	}
}

// appendStart tells that the attempt started. If that was in time there is no objective to
// be judged any more.
func (d *Dispatcher) appendStart(notices []job.Notice, a *attempt) []job.Notice {
	if !a.lateAt.IsZero() && a.startedMS < a.rec.Definition.BreaksAt(&a.rec.State) {
		a.lateAt = time.Time{}
	}
	return append(notices, d.startNotice(a))
}

// startNotice tells that the attempt started; DueMS and AtMS make its lag. A gate
// that held the run had done so until it was due.
func (d *Dispatcher) startNotice(a *attempt) job.Notice {
	s := &a.rec.State
	n := job.Notice{
		Kind: job.AttemptStarted, Key: a.rec.Definition.Key, Queue: s.Lane.Queue, RunID: s.RunID(),
		Attempt: s.Attempt + 1, Trigger: s.Trigger, DueMS: s.Due, AtMS: a.startedMS, Failures: s.Failures,
		Worker: a.session.hello.WorkerID, Labels: a.rec.Definition.Labels,
	}
	if s.Held.Reason != job.HeldNone {
		n.Held, n.HeldMS = s.Held.Reason, max(0, s.Due-s.Held.SinceMS)
	}
	if d.o.TraceID != nil {
		n.TraceID = d.o.TraceID(a.rec)
	}
	return n
}

// change is the pending event as the ledger takes it. After a failed try it
// comes without what was believed: the store has to be read again.
func (a *attempt) change() job.Change {
	c := job.Change{Record: a.record, Event: a.pending}
	if a.tries == 0 {
		c.Known = a.rec
	}
	return c
}
