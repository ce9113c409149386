package workercheck

import (
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// needsHeartbeats leaves a case out for workers that send none.
func (t *trial) needsHeartbeats(s *session) {
	if !s.hello.GetSupportsHeartbeats() {
		t.leaveOut("the worker announces no heartbeats")
	}
}

// shortSession makes sessions expire soon; leases last far longer.
func shortSession(ttl time.Duration) func(*scriptedNode) {
	return func(n *scriptedNode) { n.sessionTTL = ttl }
}

// refuse makes a node refuse new streams.
func refuse(n *scriptedNode) { n.refuseWith = status.Error(codes.Unavailable, "refused by the case") }

// startTrusted connects the worker to a new node whose sessions last for ttl. It returns when a handler runs and a
// heartbeat has been acknowledged meanwhile.
func (t *trial) startTrusted(ttl time.Duration) (*scriptedNode, *session, *leaseRecord) {
	n := t.newNode(shortSession(ttl))
	s := t.acceptFirst(n)
	return n, s, t.startTrustedSleeper(s)
}

// startTrustedSleeper starts a handler on a stream, and waits until a heartbeat has been acknowledged meanwhile.
func (t *trial) startTrustedSleeper(s *session) *leaseRecord {
	t.needsHeartbeats(s)
	r := t.startSleeper(s, forever)
	t.expect(ruleHeartbeats, "want a heartbeat", func() bool { return !s.ackedAt.IsZero() })
	return r
}

// trustEnd is the time at which the worker may not trust its leases any more, unless another heartbeat is acknowledged.
func (t *trial) trustEnd(s *session, ttl time.Duration) time.Time {
	return t.ackedHeartbeat(s).Add(ttl)
}

// expectStopped checks that a handler has ended by the time when another worker may have its run.
func (t *trial) expectStopped(rule Rule, r *leaseRecord, by time.Time) {
	limit := by.Add(t.slack())
	if !t.await(time.Until(limit), func() bool { return r.hasEnded() && !r.ends[0].After(limit) }) {
		t.fail(rule, "the handler still ran when another worker might have had its run, for %v", t.slack())
	}
}

// expectGivenUp checks what a worker says on its first stream after its leases were lost.
func (t *trial) expectGivenUp(s *session, r *leaseRecord) {
	t.check(ruleLive, "live_lease_ids has a lease that was lost and whose handler has ended",
		func() bool { return !s.listsAsLive(r) })
	if t.options.Profile == ProfileFull {
		t.expect(ruleReportLost, "want Lost for a lease that was given up",
			func() bool { return slices.Contains(r.lost, s) })
	}
	t.check(ruleTrustEnds, "a handler that was stopped has succeeded",
		func() bool { return !r.hasResult() || r.results[0].GetOutcome() != succeeded })
}

// expectGivenUpAfter revives a node at an instant at which its leases have ended, and checks what the worker says then.
func (t *trial) expectGivenUpAfter(at time.Time, n *scriptedNode, s *session, r *leaseRecord) {
	t.pause(time.Until(at))
	n.revive()
	t.expectGivenUp(t.acceptNext(ruleReconnect, s), r)
}

func checkHeartbeats(t *trial) {
	ttl := t.ms(1000)
	s := t.acceptFirst(t.newNode(shortSession(ttl)))
	t.needsHeartbeats(s)
	t.expect(ruleHeartbeats, "want a heartbeat, also without a lease", func() bool { return len(s.heartbeats) > 0 })
	r := t.startSleeper(s, forever)
	if after := readLocked(t, func() time.Time { return s.heartbeats[0].at }).Sub(s.at); after > ttl/2+t.slack() {
		t.fail(ruleHeartbeats, "the first heartbeat came %v after Hello", after)
	}
	began, from := time.Now(), readLocked(t, func() int { return len(s.heartbeats) })
	t.pause(ttl * 4)
	quarters := int(time.Since(began) / (ttl / 4))
	t.check(ruleHeartbeats, "heartbeats do not come every quarter of session_ttl",
		func() bool { return len(s.heartbeats)-from >= quarters*6/10 })
	t.check(ruleHeartbeats, "there are more than 100 heartbeats in a session_ttl",
		func() bool { return len(s.heartbeats) < 400 })
	t.check(ruleTrustEnds, "the handler was stopped although heartbeats were acknowledged",
		func() bool { return r.isRunning() && !s.closed })
}

func checkTrust(t *trial) {
	ttl := t.ms(1800)
	n, s, r := t.startTrusted(ttl)
	n.kill()
	t.expectStopped(ruleTrustEnds, r, t.trustEnd(s, ttl))
	t.expectGivenUpAfter(t.trustEnd(s, ttl), n, s, r)
}

func checkSilentNode(t *trial) {
	ttl := t.ms(1500)
	n, s, r := t.startTrusted(ttl)
	n.change(func(n *scriptedNode) { n.acksHeartbeats = false; refuse(n) })
	t.expectStopped(ruleTrustEnds, r, t.trustEnd(s, ttl))
	late := t.newLease("check.succeed", "late")
	t.pause(time.Until(t.trustEnd(s, ttl)))
	s.ackHeartbeat(readLocked(t, func() int64 { return s.lastSeq }), true)
	s.lease(late)
	t.expectNever(t.ms(300), ruleTrustClose, "a handler was started after the leases could not be trusted any more",
		late.hasRun)
	t.expect(ruleTrustClose, "want the end of the stream when the leases cannot be trusted any more",
		func() bool { return s.closed })
	n.change(func(n *scriptedNode) { n.acksHeartbeats, n.refuseWith = true, nil })
	t.expectGivenUp(t.acceptNext(ruleReconnect, s), r)
}

func checkSilentNodeLeft(t *trial) {
	ttl := t.ms(2400)
	s, other := t.firstOfTwo(t.newNode(shortSession(ttl)), t.newNode(shortSession(ttl)))
	r := t.startTrustedSleeper(s)
	s.node.change(func(n *scriptedNode) { n.acksHeartbeats = false; refuse(n) })
	next := t.accept(ruleSilentNode, "want a Hello to the other node when heartbeats are not answered", other, s)
	if late := next.at.Sub(t.ackedHeartbeat(s)); late > ttl {
		t.fail(ruleSilentNode, "Hello came to the other node %v after the last acknowledged heartbeat", late)
	}
	t.check(ruleSilentNode, "the lease of a running handler was given up before another node was asked",
		func() bool { return next.listsAsLive(r) })
	t.pause(time.Until(t.trustEnd(s, ttl+ttl/4)))
	t.check(ruleSilentNode, "the handler was stopped although another node had taken its lease over", r.isRunning)
}

func checkLateAck(t *trial) {
	ttl := t.ms(2000)
	n, s, r := t.startTrusted(ttl)
	seq := int64(0)
	n.change(func(n *scriptedNode) { n.acksHeartbeats = false; refuse(n); seq = s.lastSeq })
	var next receivedHeartbeat
	t.expect(ruleHeartbeats, "want the next heartbeat", func() bool {
		i := slices.IndexFunc(s.heartbeats, func(h receivedHeartbeat) bool { return h.seq > seq })
		if i >= 0 {
			next = s.heartbeats[i]
		}
		return i >= 0
	})
	t.pause(time.Until(next.at.Add(ttl * 45 / 100)))
	s.ackHeartbeat(next.seq, true)
	t.expectStopped(ruleLateAck, r, next.at.Add(ttl))
}

func checkUnconfirmed(t *trial) {
	ttl := t.ms(1800)
	n, s, r := t.startTrusted(ttl)
	n.change(func(n *scriptedNode) { n.confirms = false })
	s.breakOff()
	next := t.acceptNext(ruleReconnect, s)
	t.check(ruleLive, "live_lease_ids lacks a lease whose handler runs", func() bool { return next.listsAsLive(r) })
	t.expectStopped(ruleUnconfirmed, r, t.trustEnd(s, ttl))
}

func checkConfirmed(t *trial) {
	ttl := t.ms(1800)
	_, s, r := t.startTrusted(ttl)
	s.breakOff()
	next := t.acceptNext(ruleReconnect, s)
	t.expectCarriedOver(next, r)
	t.pause(time.Until(t.trustEnd(s, ttl+ttl/4)))
	t.check(ruleUnconfirmed, "the handler was stopped although its lease was confirmed on a new stream",
		func() bool { return r.isRunning() && !next.closed })
}

func checkSuspended(t *trial) {
	ttl := t.ms(1200)
	_, s, r := t.startTrusted(ttl)
	if err := suspendGroup(t.process.cmd); err != nil {
		t.fail(ruleProgram, "cannot suspend the worker: %v", err)
	}
	t.pause(t.ms(100)) // the signal reaches all threads
	late := t.newLease("check.succeed", "late")
	s.lease(late)
	t.pause(ttl + t.ms(200))
	t.check(ruleProgram,
		"the worker has started a handler while it was suspended: its command starts it beyond its process group",
		func() bool { return !late.hasRun() })
	if err := continueGroup(t.process.cmd); err != nil {
		t.fail(ruleProgram, "cannot continue the worker: %v", err)
	}
	t.expectNever(t.ms(700), ruleSuspended,
		"a handler was started on a lease that had expired while the process was suspended",
		late.hasRun)
	t.expect(ruleSuspended, "want the end of a handler whose lease has expired", r.hasEnded)
}

func checkTwoThirds(t *trial) {
	ttl := t.ms(3000)
	n := t.newNode(func(n *scriptedNode) { n.leaseTTL, n.sessionTTL = ttl, 0 })
	s := t.acceptFirst(n)
	r := t.startSleeper(s, forever)
	t.pause(t.ms(300))
	t.check(ruleHeartbeats, "a heartbeat was sent to a node whose Welcome has no session_ttl",
		func() bool { return len(s.heartbeats) == 0 })
	broken := time.Now()
	n.kill()
	t.expectStopped(ruleTwoThirds, r, broken.Add(ttl*2/3))
	t.expectGivenUpAfter(broken.Add(ttl), n, s, r)
}
