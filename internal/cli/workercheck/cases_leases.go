package workercheck

import (
	"bytes"
	"fmt"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/types/known/durationpb"

	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// Outcomes, short.
const (
	succeeded   = fermatav1.Result_OUTCOME_SUCCEEDED
	failed      = fermatav1.Result_OUTCOME_FAILED
	permanently = fermatav1.Result_OUTCOME_FAILED_PERMANENTLY
	timedOut    = fermatav1.Result_OUTCOME_TIMED_OUT
	cancelled   = fermatav1.Result_OUTCOME_CANCELLED
)

// forever is how long a sleep is that a case ends.
const forever = "600000"

// expectOutcome waits for the first result of a lease.
func (t *trial) expectOutcome(rule Rule, r *leaseRecord, want fermatav1.Result_Outcome) *fermatav1.Result {
	t.expect(rule, fmt.Sprintf("want a result of %s", r.lease.GetHandler()), r.hasResult)
	result := t.firstResult(r).Result
	if result.GetOutcome() != want {
		t.fail(rule, "the result of %s is %v with the error %q, not %v", r.lease.GetHandler(), result.GetOutcome(),
			result.GetError(), want)
	}
	t.expect(ruleJournal, "want the line of the handler's start and end in the journal", r.hasEnded)
	return result
}

// startSleeper leases a handler that sleeps, and waits until it does.
func (t *trial) startSleeper(s *session, payload string, change ...func(*fermatav1.Lease)) *leaseRecord {
	r := t.newLease("check.sleep", payload, change...)
	s.lease(r)
	t.expect(ruleJournal, "want the start of check.sleep in the journal", r.hasRun)
	return r
}

// expectWorking checks that the worker still runs what it is leased.
func (t *trial) expectWorking(rule Rule, s *session) {
	r := t.newLease("check.succeed", "still works")
	s.lease(r)
	t.expectOutcome(rule, r, succeeded)
}

// breakAfterAcks ends the stream when the worker has read what was acknowledged on it: it has answered a lease that was
// sent later.
func (t *trial) breakAfterAcks(s *session) {
	t.expectWorking(ruleOutcome, s)
	s.breakOff()
}

func checkLease(t *trial) {
	s := t.acceptFirst(t.newNode(func(n *scriptedNode) { n.acksResults = false }))
	r := t.startSleeper(s, "300")
	t.expect(ruleStarted, "want Started while the handler runs",
		func() bool { return len(r.started) > 0 || r.hasResult() })
	if result := t.expectOutcome(ruleHandlers, r, succeeded); string(result.GetOutput()) != "slept" {
		t.fail(ruleHandlers, "the output of check.sleep is %q, not slept", result.GetOutput())
	}
	t.check(ruleStarted, "a handler that ran for 300 ms has no Started before its result",
		func() bool { return len(r.started) > 0 })
	s.ack(fermatav1.ResultAck_STATUS_ACCEPTED, r)
	t.breakAfterAcks(s)
	s = t.acceptNext(ruleReconnect, s)
	t.check(ruleAckFinal, "live_lease_ids has a lease whose result was acknowledged",
		func() bool { return !s.listsAsLive(r) })
	t.expectNever(t.ms(300), ruleAckFinal, "an acknowledged result was repeated",
		func() bool { return len(r.results) > 1 })
}

func checkPayloads(t *trial) {
	s := t.acceptFirst(t.newNode())
	var all [256]byte
	for i := range all {
		all[i] = byte(i)
	}
	for _, payload := range []string{
		"", "text", "\x00", string(all[:]), "\xff\xfe not UTF-8 \xc3\x28", strings.Repeat("1234567\n", 512),
		strings.Repeat(string(all[:]), 4096),
	} {
		r := t.newLease("check.succeed", payload)
		s.lease(r)
		output := t.expectOutcome(rulePayload, r, succeeded).GetOutput()
		// A worker may cut what nodes do not keep.
		if !bytes.HasPrefix([]byte(payload), output) || len(output) < min(len(payload), 4096) {
			t.fail(rulePayload, "the output of check.succeed has %d bytes and is not the payload of %d bytes",
				len(output),
				len(payload))
		}
	}
}

func checkSameLease(t *trial) {
	n := t.newNode(func(n *scriptedNode) { n.acksResults = false })
	s := t.acceptFirst(n)
	r := t.newLease("check.sleep", "400")
	s.lease(r, r)
	t.expect(ruleJournal, "want the start of check.sleep in the journal", r.hasRun)
	s.lease(r)
	t.expectOutcome(ruleStartOnce, r, succeeded)
	s.lease(r)
	t.expectNever(t.ms(400), ruleStartOnce, "a handler was started twice for one lease",
		func() bool { return len(r.starts) > 1 })
}

func checkSlots(t *trial) {
	t.slots = 3
	s := t.acceptFirst(t.newNode())
	var open []*leaseRecord
	for i := 0; i < 30 || len(open) > 0; {
		for ; len(open) < t.slots && i < 30; i++ {
			r := t.newLease("check.sleep", fmt.Sprint(5+7*(i%5)))
			s.lease(r)
			open = append(open, r)
		}
		t.expect(ruleHeldOnly, "want the results of leased sleeps", func() bool {
			for j, r := range open {
				if r.hasResult() {
					open = append(open[:j], open[j+1:]...)
					return true
				}
			}
			return false
		})
	}
	for range t.slots {
		s.lease(t.newLease("check.sleep", forever))
	}
	t.expect(ruleSlots, "want as many handlers at once as there are slots", func() bool { return t.running == t.slots })
}

func checkUnknown(t *trial) {
	n := t.newNode(func(n *scriptedNode) { n.acksResults = false })
	s := t.acceptFirst(n)
	unknown := protowire.AppendTag(nil, 199, protowire.BytesType)
	unknown = protowire.AppendBytes(unknown, []byte("of a later version"))
	m := &fermatav1.WorkResponse{}
	m.ProtoReflect().SetUnknown(unknown)
	s.send(m)
	r := t.newLease("check.succeed", "x", func(l *fermatav1.Lease) { l.ProtoReflect().SetUnknown(unknown) })
	s.lease(r)
	t.expectOutcome(ruleUnknown, r, succeeded)
	s.ack(fermatav1.ResultAck_Status(99), r)
	other := t.startSleeper(s, forever)
	s.cancel(fermatav1.Cancel_Reason(99), other.id)
	t.expect(ruleUnknown, "want the end of a handler after a Cancel with a reason of a later version", other.hasEnded)
	t.expectWorking(ruleUnknown, s)
	t.check(ruleUnknown, "the stream was closed after a message of a later version", func() bool { return !s.closed })
}

func checkTimeout(t *trial) {
	s := t.acceptFirst(t.newNode())
	limit := t.ms(400)
	r := t.newLease("check.sleep", forever, func(l *fermatav1.Lease) { l.Timeout = durationpb.New(limit) })
	other := t.startSleeper(s, forever)
	s.lease(r)
	t.expectOutcome(ruleTimeout, r, timedOut)
	if took := t.firstResult(r).at.Sub(r.sentAt); took < limit {
		t.fail(ruleTimeout, "the handler timed out after %v, and its timeout is %v", took, limit)
	}
	s.cancel(fermatav1.Cancel_REASON_TIMED_OUT, other.id)
	t.expectOutcome(ruleTimeout, other, timedOut)
	unlimited := t.startSleeper(s, "200", func(l *fermatav1.Lease) { l.Timeout = nil })
	t.expectOutcome(ruleTimeout, unlimited, succeeded)
}

func checkFailures(t *trial) {
	s := t.acceptFirst(t.newNode())
	for handler, want := range map[string]fermatav1.Result_Outcome{"check.fail": failed,
		"check.permanent": permanently} {
		r := t.newLease(handler, "no such account: Zoë")
		s.lease(r)
		result := t.expectOutcome(ruleOutcome, r, want)
		if !strings.Contains(result.GetError(), "no such account: Zoë") {
			t.fail(ruleOutcome, "the error of %s is %q and has no text of the handler's error", handler,
				result.GetError())
		}
		if result.GetRetryAfter().AsDuration() != 0 {
			t.fail(ruleRetryAfter, "the result of %s has a retry_after", handler)
		}
	}
	for _, want := range []time.Duration{1500 * time.Millisecond, 42 * time.Millisecond} {
		r := t.newLease("check.retry_after", fmt.Sprint(want.Milliseconds()))
		s.lease(r)
		got := t.expectOutcome(ruleRetryAfter, r, failed).GetRetryAfter().AsDuration()
		if (got - want).Abs() > time.Millisecond {
			t.fail(ruleRetryAfter, "retry_after is %v, not %v", got, want)
		}
	}
}

func checkPanic(t *trial) {
	s := t.acceptFirst(t.newNode())
	r := t.newLease("check.panic", "")
	s.lease(r)
	if t.expectOutcome(rulePanic, r, failed).GetError() == "" {
		t.fail(rulePanic, "the result of a panic has no error")
	}
	missing := t.newLease("check.missing", "")
	s.lease(missing)
	t.expect(rulePanic, "want a result of a handler that the worker does not have", missing.hasResult)
	if got := t.firstResult(missing); got.GetOutcome() != failed || got.GetError() == "" {
		t.fail(rulePanic, "the result of a missing handler is %v with the error %q, not a failure with a text",
			got.GetOutcome(),
			got.GetError())
	}
	t.expectWorking(rulePanic, s)
	t.check(rulePanic, "the stream was closed after a panic", func() bool { return !s.closed && len(t.sessions) == 1 })
}

func checkKeptResults(t *trial) {
	n := t.newNode(func(n *scriptedNode) { n.acksResults = false })
	s := t.acceptFirst(n)
	r := t.newLease("check.succeed", "kept")
	s.lease(r)
	for stream := range 3 {
		t.expect(ruleKeepResult, fmt.Sprintf("want the result on stream %d", stream+1),
			func() bool { return r.resultOn(s) != nil })
		if stream < 2 {
			s.breakOff()
		} else {
			s.ack(fermatav1.ResultAck_STATUS_ACCEPTED, r)
			t.breakAfterAcks(s)
		}
		s = t.acceptNext(ruleReconnect, s)
		if stream < 2 {
			t.check(ruleKeepResult, "live_lease_ids lacks a lease whose result is not acknowledged",
				func() bool { return s.listsAsLive(r) })
		}
	}
	t.check(ruleAckFinal, "live_lease_ids has a lease whose result was acknowledged",
		func() bool { return !s.listsAsLive(r) })
	t.expectNever(t.ms(400), ruleAckFinal, "an acknowledged result was repeated",
		func() bool { return r.resultOn(s) != nil })
	t.check(ruleStartOnce, "a handler was started twice", func() bool { return len(r.starts) == 1 })
}

func checkAcks(t *trial) {
	n := t.newNode(func(n *scriptedNode) { n.acksResults = false })
	s := t.acceptFirst(n)
	var records []*leaseRecord
	for range 4 {
		r := t.newLease("check.succeed", "x")
		s.lease(r)
		records = append(records, r)
		t.expectOutcome(ruleOutcome, r, succeeded)
	}
	s.ack(fermatav1.ResultAck_STATUS_ACCEPTED, &leaseRecord{id: "nobody/has/this"})
	s.ack(fermatav1.ResultAck_STATUS_ACCEPTED, records[0])
	s.ack(fermatav1.ResultAck_STATUS_DUPLICATE, records[1])
	s.ack(fermatav1.ResultAck_STATUS_STALE, records[2])
	s.ack(fermatav1.ResultAck_STATUS_NOT_FOUND, records[3])
	t.breakAfterAcks(s)
	s = t.acceptNext(ruleReconnect, s)
	repeated := func() bool {
		for _, r := range records {
			if s.listsAsLive(r) || r.resultOn(s) != nil {
				return true
			}
		}
		return false
	}
	t.expectNever(t.ms(400), ruleAckFinal,
		"a result that was acknowledged, with whatever status, is still live or repeated",
		repeated)
}

func checkNodeLost(t *trial) {
	withoutAcks := func(n *scriptedNode) { n.acksResults = false }
	s, other := t.firstOfTwo(t.newNode(withoutAcks), t.newNode(withoutAcks))
	r := t.newLease("check.succeed", "not acknowledged")
	s.lease(r)
	t.expectOutcome(ruleOutcome, r, succeeded)
	s.node.kill()
	next := t.accept(ruleReconnect, "want a Hello to the other node", other, s)
	t.check(ruleLive, "live_lease_ids lacks a lease whose result is not acknowledged",
		func() bool { return next.listsAsLive(r) })
	t.expect(ruleKeepResult, "want the result at the other node", func() bool { return r.resultOn(next) != nil })
}

func checkStale(t *trial) {
	n := t.newNode(func(n *scriptedNode) { n.acksResults = false })
	s := t.acceptFirst(n)
	r := t.newLease("check.succeed", "stale")
	s.lease(r)
	t.expectOutcome(ruleOutcome, r, succeeded)
	s.ack(fermatav1.ResultAck_STATUS_STALE, r)
	lostOn := func(s *session) func() bool {
		return func() bool {
			for _, on := range r.lost {
				if on == s {
					return true
				}
			}
			return false
		}
	}
	t.expect(ruleStaleLost, "want Lost for a lease whose result was stale", lostOn(s))
	s.breakOff()
	s = t.acceptNext(ruleReconnect, s)
	t.expect(ruleStaleLost, "want Lost again on the next stream", lostOn(s))
	s.ack(fermatav1.ResultAck_STATUS_ACCEPTED, r)
	t.breakAfterAcks(s)
	s = t.acceptNext(ruleReconnect, s)
	t.expectNever(t.ms(300), ruleStaleLost, "Lost was repeated after it was acknowledged", lostOn(s))
}

func checkCancel(t *trial) {
	s := t.acceptFirst(t.newNode())
	r, other := t.startSleeper(s, forever), t.startSleeper(s, forever)
	s.cancel(fermatav1.Cancel_REASON_REQUESTED, "nobody/has/this", r.id)
	t.expectOutcome(ruleCancel, r, cancelled)
	s.cancel(fermatav1.Cancel_REASON_REQUESTED, r.id) // has ended
	s.cancel(fermatav1.Cancel_REASON_TIMED_OUT, "nobody/has/this")
	t.expectWorking(ruleCancelOther, s)
	t.expectNever(t.ms(200), ruleCancelOther, "Cancel has stopped another handler", other.hasEnded)
	t.expectNever(t.ms(200), ruleCancel, "a cancelled handler has more than one result",
		func() bool { return len(r.results) > 1 })
}

func checkCancelLost(t *trial) {
	s := t.acceptFirst(t.newNode())
	r, other := t.startSleeper(s, forever), t.startSleeper(s, forever)
	s.cancel(fermatav1.Cancel_REASON_LEASE_LOST, r.id)
	t.expect(ruleCancelLost, "want the end of the handler of a lost lease", r.hasEnded)
	t.expect(ruleCancelLost,
		"want Returned, Lost or a result when the handler has ended, so that the node knows of the free slot",
		func() bool { return r.hasResult() || len(r.returned)+len(r.lost) > 0 })
	t.check(ruleCancelLost, "a handler that was stopped has succeeded",
		func() bool { return !r.hasResult() || r.results[0].GetOutcome() != succeeded })
	t.expectNever(t.ms(200), ruleCancelOther, "Cancel has stopped another handler", other.hasEnded)
}
