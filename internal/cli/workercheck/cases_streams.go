package workercheck

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// expectCarriedOver checks that a new session has a running lease.
func (t *trial) expectCarriedOver(s *session, r *leaseRecord) {
	t.check(ruleLive, "live_lease_ids lacks a lease whose handler runs", func() bool { return s.listsAsLive(r) })
}

func checkReconnect(t *trial) {
	n := t.newNode()
	s := t.acceptFirst(n)
	r := t.startSleeper(s, fmt.Sprint(t.ms(1500).Milliseconds()))
	short := t.startSleeper(s, fmt.Sprint(t.ms(150).Milliseconds()))
	n.kill()
	t.expect(ruleReconnect, "want the end of a handler that sleeps for a short time", short.hasEnded)
	n.revive()
	s = t.acceptNext(ruleReconnect, s)
	t.expectCarriedOver(s, r)
	if !readLocked(t, short.hasResult) {
		t.expectCarriedOver(s, short)
	}
	t.expect(ruleKeepResult, "want the result of a handler that ended without a stream", short.hasResult)
	t.expect(ruleReconnect, "want the result of a handler that ran while the stream was broken", r.hasResult)
	t.check(ruleReconnect, "the handler was stopped when the stream broke",
		func() bool { return r.results[0].GetOutcome() == succeeded && len(r.starts) == 1 })
	s.finish(nil)
	s = t.acceptNext(ruleReconnect, s)
	t.expectWorking(ruleReconnect, s)
}

func checkLoadBalancer(t *trial) {
	n := t.newNode()
	dead := []string{t.closedAddress(), t.silentAddress(), t.closedAddress(), t.silentAddress()}
	n.change(func(n *scriptedNode) { n.addresses = dead })
	b := t.newBalancer(n)
	t.startWorker(b.addr)
	s := t.firstSession(n)
	r := t.startSleeper(s, fmt.Sprint(t.ms(2500).Milliseconds()))
	for range 3 {
		t.pause(t.ms(250))
		b.cutAll()
		s = t.acceptNext(ruleConfigured, s)
		if !readLocked(t, r.hasEnded) {
			t.expectCarriedOver(s, r)
		}
	}
	t.expect(ruleConfigured, "want the result of a handler that ran while streams were cut", r.hasResult)
	t.check(ruleReconnect, "the handler was stopped when a stream was cut",
		func() bool { return r.results[0].GetOutcome() == succeeded })
}

func checkAdvertised(t *trial) {
	a, b, c := t.newNode(), t.newNode(), t.newNode()
	dead := t.closedAddress()
	a.change(func(n *scriptedNode) { n.addresses = []string{dead} })
	b.change(func(n *scriptedNode) { n.addresses = []string{c.addr} })
	s := t.acceptFirst(a)
	r := t.startSleeper(s, forever)
	s.advertise(b.addr)
	t.expectWorking(ruleOutcome, s) // it has read the addresses
	a.kill()
	s = t.accept(ruleAdvertised, "want a Hello at the address that Addresses named", b, s)
	t.expectCarriedOver(s, r)
	t.expectWorking(ruleOutcome, s)
	b.kill()
	t.expectCarriedOver(t.accept(ruleAdvertised, "want a Hello at the address that Welcome named", c, s), r)
	t.check(ruleReconnect, "the handler was stopped when the stream broke", r.isRunning)
}

func checkKeepalive(t *trial) {
	n := t.newNode(func(n *scriptedNode) { n.sessionTTL = 0 })
	b := t.newBalancer(n)
	t.startWorker(b.addr)
	s := t.firstSession(n)
	r := t.startSleeper(s, forever)
	b.freezeAll()
	var next *session
	t.expectWithin(t.ms(25_000), ruleKeepalive, "want a new stream after a connection has died silently", func() bool {
		next = t.sessions[len(t.sessions)-1]
		return next != s
	})
	t.expectCarriedOver(next, r)
}

func checkDrain(t *trial) {
	a, b := t.newNode(), t.newNode()
	s := t.acceptFirst(a)
	r := t.startSleeper(s, fmt.Sprint(t.ms(1200).Milliseconds()))
	a.change(refuse)
	s.drain(b.addr)
	next := t.accept(ruleDrain, "want a Hello at the address that Drain named", b, s)
	t.expectCarriedOver(next, r)
	t.expect(ruleDrain, "want the end of the stream to the node that drains", func() bool { return s.closed })
	t.expect(ruleDrain, "want the result at the other node", func() bool { return r.resultOn(next) != nil })
	t.check(ruleDrain, "the handler was stopped when the node drained",
		func() bool { return r.results[0].GetOutcome() == succeeded && len(r.starts) == 1 })
}

func checkRelocate(t *trial) {
	a, b := t.newNode(), t.newNode()
	s := t.acceptFirst(a)
	r := t.startSleeper(s, fmt.Sprint(t.ms(1200).Milliseconds()))
	s.relocate(b.addr)
	next := t.accept(ruleRelocate, "want a Hello at the address that Relocate named", b, s)
	t.expectCarriedOver(next, r)
	t.expect(ruleRelocate, "want the end of the stream to the node that asked", func() bool { return s.closed })
	t.expect(ruleRelocate, "want the result at the other node", func() bool { return r.resultOn(next) != nil })
	t.check(ruleRelocate, "the handler was stopped when the worker moved",
		func() bool { return r.results[0].GetOutcome() == succeeded && len(r.starts) == 1 })
}

func checkDrainOutage(t *trial) {
	ttl := t.ms(1200)
	n := t.newNode(shortSession(ttl), func(n *scriptedNode) { n.leaseTTL = t.ms(12_000) })
	s := t.acceptFirst(n)
	r := t.startTrustedSleeper(s)
	n.change(refuse)
	s.drain()
	t.pause(t.ms(200))
	n.kill()
	t.pause(ttl * 3 / 2)
	t.check(ruleDrainTrust, "the handler was stopped when the session had expired, although the node had drained",
		r.isRunning)
	n.change(func(n *scriptedNode) { n.refuseWith = nil })
	n.revive()
	t.expectCarriedOver(t.acceptNext(ruleReconnect, s), r)
}

func checkStopIdle(t *trial) {
	s := t.acceptFirst(t.newNode())
	t.expectWorking(ruleHandlers, s)
	t.pause(t.ms(200)) // the acknowledgement arrives
	t.terminate()
	t.expectExit(ruleFinish, 0)
	t.check(ruleCleanEnd, "the stream was broken off and not closed", func() bool { return s.halfClosed })
}

func checkStopAlone(t *trial) {
	n := t.newNode(refuse)
	t.startWorker(n.addr)
	t.expectWithin(t.ms(30_000), ruleProgram, "want a stream with Hello", func() bool { return len(n.refused) > 0 })
	t.terminate()
	t.expectExit(ruleFinish, 0)
}

func checkStop(t *trial) {
	n := t.newNode(func(n *scriptedNode) { n.acksResults = false })
	s := t.acceptFirst(n)
	r := t.startSleeper(s, fmt.Sprint(t.ms(900).Milliseconds()))
	t.terminate()
	t.expect(ruleDraining, "want Draining after SIGTERM", func() bool { return !s.drainingAt.IsZero() })
	late := t.newLease("check.succeed", "after Draining")
	s.lease(late)
	t.expect(ruleDraining, "want Returned for a lease that came after Draining",
		func() bool { return len(late.returned) > 0 || late.hasRun() })
	t.check(ruleDraining, "a handler was started after Draining", func() bool { return !late.hasRun() })
	t.expectOutcome(ruleFinish, r, succeeded)
	t.expectNever(t.ms(400), ruleFinish, "the worker ended before the result was acknowledged",
		func() bool { return t.process.exited || s.closed })
	s.ack(fermatav1.ResultAck_STATUS_ACCEPTED, r)
	t.expectExit(ruleFinish, 0)
	t.check(ruleCleanEnd, "the stream was broken off and not closed", func() bool { return s.halfClosed })
}

// expectExit waits for the end of the worker process.
func (t *trial) expectExit(rule Rule, code int) {
	t.expectWithin(t.soon()+5*time.Second, rule, "want the end of the process", func() bool { return t.process.exited })
	t.expect(rule, "want the end of the stream", func() bool { return t.sessions[len(t.sessions)-1].closed })
	if t.process.code != code {
		t.fail(rule, "the worker ended with %s, not with exit code %d", t.process.describeExit(), code)
	}
}

func checkStopCut(t *trial) {
	s := t.acceptFirst(t.newNode())
	r := t.startSleeper(s, fmt.Sprint(t.ms(1200).Milliseconds()))
	t.terminate()
	t.expect(ruleDraining, "want Draining after SIGTERM", func() bool { return !s.drainingAt.IsZero() })
	s.breakOff()
	next := t.acceptNext(ruleStopCut, s)
	t.expectCarriedOver(next, r)
	t.expect(ruleStopCut, "want Draining on the new stream", func() bool { return !next.drainingAt.IsZero() })
	t.expectOutcome(ruleStopCut, r, succeeded)
	t.expectExit(ruleStopCut, 0)
}

func checkDrainTimeout(t *trial) {
	limit := t.ms(700)
	t.settings["FERMATA_DRAIN_TIMEOUT"] = fmt.Sprintf("%dms", limit.Milliseconds())
	s := t.acceptFirst(t.newNode())
	r := t.startSleeper(s, forever)
	began := time.Now()
	t.terminate()
	t.expect(ruleDrainTimeout, "want the end of a handler that takes longer than the drain timeout",
		func() bool { return r.hasEnded() || t.process.exited })
	if took := time.Since(began); took < limit {
		t.fail(ruleDrainTimeout, "the handler was ended %v after SIGTERM, and the drain timeout is %v", took, limit)
	}
	t.check(ruleDrainTimeout, "the process ended before its handler", r.hasEnded)
	t.expectExit(ruleDrainTimeout, 1)
	t.check(ruleDrainTimeout, "the attempt has a result, which counts", func() bool { return !r.hasResult() })
}

// prefetching starts a worker with one slot and prefetch.
func (t *trial) prefetching(n *scriptedNode) *session {
	t.settings["FERMATA_PREFETCH"] = "8"
	t.slots = 1
	s := t.acceptFirst(n)
	if s.hello.GetPrefetch() == 0 {
		t.leaveOut("the worker announces no prefetch")
	}
	return s
}

func (t *trial) newLeases(n int, handler, payload string) (records []*leaseRecord) {
	for range n {
		records = append(records, t.newLease(handler, payload))
	}
	return records
}

func allReturnedOn(records []*leaseRecord, s *session) func() bool {
	return func() bool {
		for _, r := range records {
			if !slices.Contains(r.returned, s) {
				return false
			}
		}
		return true
	}
}

func checkPrefetch(t *trial) {
	n, other := t.newNode(), t.newNode()
	s := t.prefetching(n)
	if s.hello.GetPrefetch() != 8 {
		t.fail(ruleHelloSettings, "prefetch is %d, not 8", s.hello.GetPrefetch())
	}
	long := t.startSleeper(s, forever)
	waiting := t.newLeases(3, "check.succeed", "waits")
	s.lease(waiting...)
	t.expect(ruleLateReturn, "want Returned for leases that wait for a slot longer than 50 ms", allReturnedOn(waiting,
		s))
	t.check(rulePrefetch, "a handler was started without a slot", func() bool {
		return !slices.ContainsFunc(waiting, func(r *leaseRecord) bool { return r.hasRun() || len(r.started) > 0 })
	})
	s = t.moveWithWaitingLease(s, other, long)
	s.cancel(fermatav1.Cancel_REASON_REQUESTED, long.id)
	t.expectOutcome(ruleCancel, long, cancelled)
	// Leases that waited too long on a busy machine prove nothing about their order.
	for batch := 0; batch < 10 && t.countStartedInOrder(s) < 4; batch++ {
	}
}

// moveWithWaitingLease moves the worker to the other node, and back, while a lease waits for a slot. A lease that was
// returned before the new Hello proves nothing, so it does that several times.
func (t *trial) moveWithWaitingLease(s *session, other *scriptedNode, running *leaseRecord) *session {
	for range 8 {
		waiting := t.newLease("check.succeed", "waits while the node drains")
		s.lease(waiting)
		s.drain(other.addr)
		next := t.accept(ruleDrain, "want a Hello at the address that Drain named", other, s)
		t.expectCarriedOver(next, running)
		t.check(rulePrefetch, "live_lease_ids has a lease that waits for a slot",
			func() bool { return !next.listsAsLive(waiting) })
		t.expect(ruleLateReturn, "want Returned for a lease that waited for a slot when the worker left its node",
			func() bool { return len(waiting.returned) > 0 || s.closed })
		s, other = next, s.node
	}
	return s
}

// countStartedInOrder leases short handlers. Most of them have to wait. It returns how many were started. It fails
// the case if they were not started in their order.
func (t *trial) countStartedInOrder(s *session) int {
	short := append(t.newLeases(1, "check.sleep", "10"), t.newLeases(4, "check.succeed", "short")...)
	s.lease(short...)
	t.expect(rulePrefetch, "want a result or Returned for each lease that waited for a slot", func() bool {
		return !slices.ContainsFunc(short, func(r *leaseRecord) bool { return !r.hasResult() && len(r.returned) == 0 })
	})
	t.mu.Lock()
	ran := slices.DeleteFunc(slices.Clone(short), func(r *leaseRecord) bool { return !r.hasRun() })
	inOrder := slices.IsSortedFunc(ran, func(a, b *leaseRecord) int { return a.place - b.place })
	t.mu.Unlock()
	if !inOrder {
		t.fail(rulePrefetch, "leases that wait for a slot were not started in their order")
	}
	return len(ran)
}

func checkReturnedAgain(t *trial) {
	s := t.prefetching(t.newNode())
	t.startSleeper(s, forever)
	waiting := t.newLeases(2, "check.succeed", "waits")
	s.lease(waiting...)
	t.expect(ruleLateReturn, "want Returned for leases that wait for a slot longer than 50 ms", allReturnedOn(waiting,
		s))
	s.breakOff()
	s = t.acceptNext(ruleReconnect, s)
	t.expect(ruleReturnedAgain, "want Returned again on the next stream", allReturnedOn(waiting, s))
}

func checkStartAfter(t *trial) {
	s := t.acceptFirst(t.newNode())
	if !s.hello.GetSupportsStartAfter() {
		t.leaveOut("the worker announces no early leases")
	}
	early := func(ms int) *leaseRecord {
		return t.newLease("check.sleep", "1", func(l *fermatav1.Lease) { l.StartAfter = durationpb.New(t.ms(ms)) })
	}
	first, second := early(250), early(900)
	s.lease(second, first)
	t.expectOutcome(ruleStartAfter, first, succeeded)
	s.breakOff()
	next := t.acceptNext(ruleReconnect, s)
	if !readLocked(t, second.hasRun) {
		t.check(ruleStartAfter, "live_lease_ids lacks an early lease", func() bool { return next.listsAsLive(second) })
	}
	t.expectOutcome(ruleStartAfter, second, succeeded)
	third := early(700)
	next.lease(third)
	next.cancel(fermatav1.Cancel_REASON_REQUESTED, third.id)
	t.expect(ruleCancel, "want Returned or a result for an early lease that was cancelled",
		func() bool { return len(third.returned) > 0 || third.hasResult() })
	t.expectNever(t.ms(1000), ruleCancel, "the handler of a cancelled early lease was started", third.hasRun)
	for _, r := range []*leaseRecord{first, second} {
		after := readLocked(t, func() time.Time { return r.starts[0] }).Sub(r.sentAt)
		if after < r.lease.GetStartAfter().AsDuration() {
			t.fail(ruleStartAfter, "the handler started %v after its lease, which said %v", after,
				r.lease.GetStartAfter().AsDuration())
		}
	}
}

func checkTLS(t *trial) {
	trusted, other := t.newAuthority("trusted"), t.newAuthority("other")
	impostor, plain := t.newSecureNode(t.serverTLS(other, nil)), t.newNode()
	real := t.newSecureNode(t.serverTLS(trusted, nil))
	t.writeFile("FERMATA_TLS_CA", "ca.pem", trusted.pem)
	t.startWorker(impostor.addr, plain.addr, real.addr)
	s := t.firstSession(nil)
	t.expectWorking(ruleTLS, s)
	t.check(ruleTLS, "Hello was sent to a node without a certificate of the authority", func() bool {
		return !slices.ContainsFunc(t.sessions, func(s *session) bool { return s.node != real })
	})
}

func checkClientCertificate(t *trial) {
	a := t.newAuthority("trusted")
	n := t.newSecureNode(t.serverTLS(a, a))
	cert, key := t.issue(a, "worker")
	t.writeFile("FERMATA_TLS_CA", "ca.pem", a.pem)
	t.writeFile("FERMATA_TLS_CERT", "worker.pem", cert)
	t.writeFile("FERMATA_TLS_KEY", "worker.key", key)
	t.startWorker(n.addr)
	t.expectWorking(ruleTLS, t.accept(ruleTLS, "want a stream with Hello at a node that requires the certificate of "+
		"FERMATA_TLS_CERT", n, nil))
}

func checkToken(t *trial) {
	n := t.newNode()
	t.writeFile("FERMATA_TOKEN_FILE", "token", []byte("first-token\n"))
	s := t.acceptFirst(n)
	t.check(ruleToken, "authorization of the stream is not Bearer and the token of the file",
		func() bool { return s.token() == "first-token" })
	t.writeFile("FERMATA_TOKEN_FILE", "token", []byte("second-token\n"))
	t.pause(t.ms(100))
	s.finish(status.Error(codes.Unauthenticated, "the token has expired"))
	t.expectWithin(t.soon()*2, ruleToken, "want a stream with the new token of the file", func() bool {
		last := t.sessions[len(t.sessions)-1]
		if last != s && last.token() == "first-token" {
			last.finish(status.Error(codes.Unauthenticated, "the token has expired"))
		}
		return last.token() == "second-token"
	})
}

// token returns the bearer token of a stream.
func (s *session) token() string {
	values := s.meta.Get("authorization")
	if len(values) != 1 {
		return ""
	}
	token, found := strings.CutPrefix(values[0], "Bearer ")
	if !found {
		return ""
	}
	return token
}
