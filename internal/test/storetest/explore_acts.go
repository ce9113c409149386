package storetest

import (
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/unixtime"
)

// exploreAct is one thing that can happen.
type exploreAct struct {
	name string
	// apply does it, and reports whether by the contract it may have an effect.
	apply func(*scene) bool
	// judge returns what is wrong with the effect of an act that may have one.
	judge func(before, after *scene) error
}

func (e *explorer) listActs() []exploreAct {
	acts := []exploreAct{
		{"create", e.createJob, nil},
		{"40 s pass", func(*scene) bool { e.Advance(40 * time.Second); return false }, nil},
	}
	for n := range explorers {
		name := func(what string) string { return fmt.Sprintf("node %d %s", n, what) }
		acts = append(acts,
			exploreAct{name("takes the lock"), func(s *scene) bool {
				s.lock = lockOf(n)
				e.SetLock(0, s.lock)
				return false
			}, nil},
			exploreAct{name("reads"), func(s *scene) bool { s.seen[n] = s.record; return false }, nil},
			exploreAct{name("leases"), func(s *scene) bool { return e.leaseAs(s, n) }, judgeLease},
			exploreAct{name("reports success"), func(s *scene) bool { return e.reportResult(s, n, job.OutcomeSucceeded) }, judgeSuccess},
			exploreAct{name("reports a failure"), func(s *scene) bool { return e.reportResult(s, n, job.OutcomeFailed) }, judgeFailure},
			exploreAct{name("renews"), func(s *scene) bool { return e.renewAs(s, n) }, judgeRenewal},
			exploreAct{name("reaps"), func(s *scene) bool { return e.reapAs(s, n) }, judgeLoss},
		)
	}
	// An operator's request reaches node 0, which decides on what it has read.
	edited := e.newDefinition()
	edited.Queue = "bulk"
	edited.Revision++
	for name, ev := range map[string]job.Input{
		"pauses": job.Pause{Note: "x"}, "resumes": job.Resume{}, "edits": job.Update{New: e.compileDefinition(&edited)},
		"deletes": job.Delete{}, "runs": job.RequestManualRun{RequestID: "r"},
	} {
		acts = append(acts, exploreAct{"node 0 " + name, func(s *scene) bool { return e.decideEvent(s, ev) }, judgeDecision})
	}
	return acts
}

func (e *explorer) createJob(s *scene) bool {
	fresh := e.Record(e.newDefinition())
	reply := Create(e.T.Context(), e.Store, 0, []job.Record{fresh})
	if reply.Err != nil {
		e.T.Fatal(reply.Err)
	}
	want := job.Created
	switch {
	case s.record != nil && s.record.State.Deleting:
		want = job.Tombstone
	case s.record != nil && reflect.DeepEqual(s.record.State, fresh.State) && s.record.Definition.Equal(fresh.Definition):
		// The same creation once more.
	case s.record != nil:
		want = job.Exists
	}
	if got := reply.Results[0].Code; got != want {
		e.T.Errorf("create: code %d, want %d", got, want)
	}
	return s.record == nil
}

func (e *explorer) leaseAs(s *scene, n int) bool {
	bulk := Lane()
	bulk.Queue = "bulk"
	request := LeaseRequest(0, 1, "", Lane(), bulk)
	request.LockValue = lockOf(n)
	reply := e.Store.Lease(e.T.Context(), []job.LeaseRequest{request})[0]
	if s.lock != lockOf(n) {
		if !errors.Is(reply.Err, job.ErrNotHolder) {
			e.T.Errorf("lease without the lock: %+v", reply)
		}
		return false
	}
	if reply.Err != nil {
		e.T.Fatal(reply.Err)
	}
	due := s.record != nil && s.record.State.Region == job.RegionDue &&
		s.record.State.Due <= unixtime.Milli(e.Clock.Load())
	if due != (len(reply.Leased) == 1) {
		e.T.Errorf("leased %d, want %v", len(reply.Leased), due)
	}
	if len(reply.Leased) == 1 {
		s.lease[n] = &reply.Leased[0]
		if token := reply.Leased[0].Known.State.Token; token <= s.highest {
			e.T.Errorf("token %d after %d", token, s.highest)
		} else {
			s.highest = token
		}
	}
	return due
}

func judgeLease(_, after *scene) error {
	if after.record == nil || after.record.State.Region != job.RegionLeased || after.record.State.Token != after.highest {
		return errors.New("not leased under the newest token")
	}
	return nil
}

// reportResult settles the lease that the node believes in, as the ledger does: on what
// it knows, and when that has changed on what is stored.
func (e *explorer) reportResult(s *scene, n int, outcome job.Outcome) bool {
	l := s.lease[n]
	if l == nil {
		return false
	}
	known := l.Known.State
	for range 3 {
		ev := e.finish(*l, outcome)
		write := e.Decide(l.Record, l.Known.Definition, known, ev)
		if s.record != nil {
			write = e.Decide(l.Record, s.record.Definition, known, ev)
		}
		if !write.Decision.Changed {
			break
		}
		result := e.Apply(0, write).Results[0]
		if result.Code != job.Conflict {
			break
		}
		known = *result.Current
	}
	return s.record != nil && s.record.State.Live() && s.record.State.Token == l.Known.State.Token
}

func judgeSuccess(before, after *scene) error {
	switch {
	case before.record.State.Deleting && after.record != nil:
		return errors.New("a deleted job outlives its run")
	case before.record.State.Deleting:
		return nil
	case after.record.State.Live() || after.record.State.SettledToken != before.record.State.Token:
		return errors.New("not settled")
	case after.record.State.Failures != 0 || after.record.State.Succeeded != before.record.State.Succeeded+1:
		return errors.New("not counted as a success")
	}
	return nil
}

func judgeFailure(before, after *scene) error {
	if before.record.State.Deleting {
		return judgeSuccess(before, after)
	}
	b, a := before.record.State, after.record.State
	last := int(b.Attempt)+1 >= before.record.Definition.Retry.MaxAttempts
	switch {
	case a.Live() || a.SettledToken != b.Token:
		return errors.New("not settled")
	case last && b.Trigger != job.TriggerManual && a.Failures != b.Failures+1:
		return fmt.Errorf("%d failures after %d", a.Failures, b.Failures)
	case a.Failures > b.Failures+1 || a.Failures < b.Failures:
		return fmt.Errorf("%d failures after %d", a.Failures, b.Failures)
	case a.Due < unixtime.Milli(after.clock) && a.Region == job.RegionDue && a.Failures > b.Failures:
		return errors.New("backs off into the past")
	}
	return nil
}

func (e *explorer) renewAs(s *scene, n int) bool {
	l := s.lease[n]
	if l == nil {
		return false
	}
	reply := e.Store.Renew(e.T.Context(), []job.RenewRequest{{Shard: 0, TTL: lockTTL, Renewals: []job.Renewal{
		{Record: l.Record, Lane: l.Known.State.Lane, Token: l.Known.State.Token, Epoch: l.Known.State.Epoch, Acked: true},
	}}})[0]
	if reply.Err != nil {
		e.T.Fatal(reply.Err)
	}
	// A lease is over when its end is stored: until then no one else can have it.
	good := s.record != nil && s.record.State.Live() && s.record.State.Token == l.Known.State.Token
	if (reply.Results[0].Code == job.Renewed) != good {
		e.T.Errorf("renewal: code %d of a lease until %d at %d", reply.Results[0].Code, s.deadline, e.Clock.Load())
	}
	return good
}

func judgeRenewal(_, after *scene) error {
	if want := after.clock + lockTTL.Milliseconds(); after.deadline != want {
		return fmt.Errorf("lease until %d, want %d", after.deadline, want)
	}
	return nil
}

func (e *explorer) reapAs(s *scene, n int) bool {
	bulk := Lane()
	bulk.Queue = "bulk"
	found, err := e.Store.Expired(e.T.Context(), 0, lockOf(n), []job.Lane{Lane(), bulk}, 10)
	if s.lock != lockOf(n) {
		if !errors.Is(err, job.ErrNotHolder) {
			e.T.Errorf("reaping without the lock: %v", err)
		}
		return false
	}
	if err != nil {
		e.T.Fatal(err)
	}
	expired := s.record != nil && s.record.State.Live() && s.deadline <= e.Clock.Load()
	if expired != (len(found) == 1) {
		e.T.Errorf("%d expired, want %v (until %d at %d)", len(found), expired, s.deadline, e.Clock.Load())
	}
	for _, o := range found {
		write := e.Decide(o.Record, s.record.Definition, o.State, job.LoseLease{Token: o.State.Token})
		write.IfExpired = true
		e.MustWrite(0, write)
	}
	return expired
}

func judgeLoss(before, after *scene) error {
	switch {
	case before.record.State.Deleting && after.record != nil:
		return errors.New("a deleted job outlives its run")
	case before.record.State.Deleting:
		return nil
	case after.record.State.Live() ||
		after.record.State.Attempt != before.record.State.Attempt &&
			after.record.State.RunID() == before.record.State.RunID():
		return errors.New("a lost worker has used up an attempt, or is still there")
	case after.record.State.Lost != before.record.State.Lost+1:
		return errors.New("not counted as lost")
	}
	return nil
}

// decideEvent is one try of a request on what node 0 has read, whether or not that still
// is so.
func (e *explorer) decideEvent(s *scene, ev job.Input) bool {
	seen := s.seen[0]
	if seen == nil {
		return false
	}
	write := e.Decide(job.RecordID(e.recordID()), seen.Definition, seen.State, ev)
	if !write.Decision.Changed {
		return false
	}
	result := e.Apply(0, write).Results[0]
	fits := s.isCurrent(seen.State)
	want := job.Conflict
	switch {
	case s.record == nil:
		want = job.NotFound
	case fits, sameWrite(s.record, write.Decision):
		want = job.Written
	}
	if result.Code != want {
		e.T.Errorf("%T: code %d, want %d", ev, result.Code, want)
	}
	return fits
}

// sameWrite reports whether a write has been made before. Renewals in between change
// nothing that it is about. An edit at another time is another write.
func sameWrite(record *job.Record, d *job.Decision) bool {
	stored, written := record.State, d.State
	stored.Acked, stored.Epoch = written.Acked, written.Epoch
	return reflect.DeepEqual(stored, written) &&
		(d.Definition == nil || reflect.DeepEqual(record.Definition, d.Definition))
}

// judgeDecision: only the lease's holder ends a lease, and nothing starts
// while a job is paused but what people ask for.
func judgeDecision(before, after *scene) error {
	b := before.record.State
	switch {
	case b.Live() && after.record == nil:
		return errors.New("a live job is gone")
	case b.Live() && (!after.record.State.Live() || after.record.State.Token != b.Token ||
		after.deadline != before.deadline):
		return errors.New("a live lease was touched")
	case after.record == nil:
		return nil
	}
	a := after.record.State
	if a.Paused && a.Region == job.RegionDue && a.Trigger != job.TriggerManual {
		return errors.New("due while paused")
	}
	return nil
}
