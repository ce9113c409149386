package workercheck

import (
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func checkHello(t *trial) {
	n := t.newNode()
	s := t.first(n)
	t.check(ruleLive, "live_lease_ids of the first Hello is not empty",
		func() bool { return len(s.hello.GetLiveLeaseIds()) == 0 })
	t.never(t.ms(200), ruleHelloFirst, "the worker has opened a second stream beside the first",
		func() bool { return len(t.sessions) > 1 })
	id := t.forgetWorker()
	again := t.accept(ruleProgram, "want a stream of the second process", nil, s)
	if again.hello.GetWorkerId() == id {
		t.fail(ruleWorkerID, "two processes have the worker_id %q", id)
	}
}

// forgetWorker ends the worker process and starts another one. It returns the id of the first one.
func (t *trial) forgetWorker() string {
	t.mu.Lock()
	t.mayExit = true
	old := t.process
	t.mu.Unlock()
	killGroup(old.cmd)
	t.expect(ruleProgram, "want the end of the killed process", func() bool { return old.exited })
	t.mu.Lock()
	id := t.workerID
	t.workerID, t.epoch, t.mayExit = "", 0, false
	address := t.settings["FERMATA_ADDRESS"]
	t.mu.Unlock()
	t.startWorker(address)
	return id
}

func checkAnnounces(t *trial) {
	t.settings["FERMATA_PREFETCH"] = "8"
	h := t.first(t.newNode()).hello
	switch {
	case !h.GetSupportsHeartbeats():
		t.fail(ruleAnnounce, "supports_heartbeats is not set")
	case !h.GetSupportsStartAfter():
		t.fail(ruleAnnounce, "supports_start_after is not set")
	case h.GetPrefetch() != 8:
		t.fail(ruleAnnounce, "prefetch is %d, not 8", h.GetPrefetch())
	}
}

func checkOneHello(t *trial) {
	nodes := []*scriptedNode{}
	for range 3 {
		nodes = append(nodes, t.newNode(func(n *scriptedNode) { n.withholdWelcome = true }))
	}
	t.startWorker(addressesOf(nodes)...)
	s := t.firstSession(nil)
	// A worker waits 2 s for a Welcome.
	t.never(time.Second, ruleOneHello, "a second Hello was sent while the first one had no answer yet",
		func() bool { return len(t.sessions) > 1 })
	for _, n := range nodes {
		n.change(func(n *scriptedNode) { n.withholdWelcome = n == s.node })
	}
	var welcomed *session
	t.expectWithin(t.soon()*2, ruleOneHello, "want a Hello to another node after one that sent no Welcome", func() bool {
		for _, other := range t.sessions {
			if other.node != s.node && !other.closed {
				welcomed = other
			}
		}
		return welcomed != nil
	})
	r := t.newLease("check.succeed", "works")
	welcomed.lease(r)
	t.expect(ruleOneHello, "want the result of a lease", r.hasResult)
}

func checkRefused(t *trial) {
	n := t.newNode(func(n *scriptedNode) { n.refuseWith = status.Error(codes.Unavailable, "the node starts") })
	t.startWorker(n.addr)
	t.expectWithin(t.ms(30_000), ruleProgram, "want a stream with Hello", func() bool { return len(n.refused) > 0 })
	t.expectWithin(t.soon()*2, ruleRefused, "want a second Hello after a refused one",
		func() bool { return len(n.refused) > 1 })
	t.never(t.ms(2000), ruleRefused, "more than 60 Hellos in 2 s to a node that refuses them",
		func() bool { return len(n.refused) > 60 })
	n.change(func(n *scriptedNode) { n.refuseWith = nil })
	t.accept(ruleRefused, "want a Hello when the node accepts it", n, nil)
}
