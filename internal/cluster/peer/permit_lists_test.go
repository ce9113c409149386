package peer

import (
	"fmt"
	"testing"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/sharding"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// permitsOf are valid permits with ids from 0 on.
func permitsOf(n int) []job.Permit {
	permits := make([]job.Permit, n)
	for i := range permits {
		permits[i] = job.Permit{ID: int64(i), Shard: i, Lane: lane, N: 1, LockValue: "v", ValidFor: job.PermitValidity}
	}
	return permits
}

// Permits that are sent together arrive together, and so do their results.
func TestPermitsArriveTogether(t *testing.T) {
	a, b, _ := cluster(t)
	if n := a.peer.SendPermits("b", permitsOf(3)); n != 3 {
		t.Errorf("%d of 3 permits are on their way", n)
	}
	b.waitFor("permits a 3")
	b.waitFor(fmt.Sprintf("permit a %+v", permitsOf(3)[2]))
	results := []job.LanePermitResult{
		{PermitResult: job.PermitResult{ID: 0, Leased: 1, DueMS: 5}, Lane: lane},
		{PermitResult: job.PermitResult{ID: 1}, Lane: lane},
	}
	b.peer.SendPermitResults("a", results)
	a.waitFor("results b 2")
	for _, r := range results {
		a.waitFor(fmt.Sprintf("result b %+v", r.PermitResult))
	}
	b.peer.SendPermitResults("a", results[:1])
	a.waitFor("results b 1")
}

// A node of the previous build, which does not say that it understands several permits in one message, is sent a message
// for each. So is a single permit to any node.
func TestPermitsForThePreviousBuildAreSentOneByOne(t *testing.T) {
	n := start(t, "n", "127.0.0.1:0", nil)
	n.hasMembers("x")
	for _, c := range []struct {
		lists          bool
		room, permits  int
		sent, messages int
	}{
		{false, 10, 3, 3, 3}, {true, 10, 3, 3, 1}, {true, 10, 1, 1, 1}, {true, 10, 150, 150, 3},
		{false, 2, 3, 2, 2}, {true, 1, 100, 64, 1},
	} {
		l := &servedLink{node: "x", permitLists: c.lists, outgoing: make(chan *fermatav1.LinkResponse, c.room)}
		n.peer.addServedLink(l)
		if sent := n.peer.SendPermits("x", permitsOf(c.permits)); sent != c.sent || len(l.outgoing) != c.messages {
			t.Errorf("%+v: %d permits are sent in %d messages", c, sent, len(l.outgoing))
		}
		first := <-l.outgoing
		if single := first.GetPermit() != nil; single != (!c.lists || c.permits == 1) {
			t.Errorf("%+v: the first message is %v", c, first)
		}
		n.peer.removeServedLink(l)
	}
	hello := n.peer.localHandshake().helloRequest().GetHello()
	if !hello.GetPermitLists() {
		t.Error("this node does not say that it understands several permits")
	}
}

// Invalid permits of a message are left out, and those beyond the bound. Without a valid one nothing is passed on.
func TestInvalidPermitsOfAListAreRefused(t *testing.T) {
	n := start(t, "n", "127.0.0.1:0", nil)
	l, err := n.peer.newLink(sharding.Member{Name: "x", PeerAddr: "127.0.0.1:1"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.conn.Close()
	defer l.cancel()
	list := []*fermatav1.Permit{nil, {Lane: "ns/q/5"}}
	l.receivePermits(list)
	list = append(list, permitToPB(permitsOf(1)[0]))
	l.receivePermits(list)
	n.waitFor("permits x 1")
	for _, p := range permitsOf(100) {
		list = append(list, permitToPB(p))
	}
	l.receivePermits(list)
	n.waitFor(fmt.Sprintf("permits x %d", job.MaxPermitsPerMessage))
	if permit, _ := permitFromPB(permitToPB(job.Permit{Advance: time.Hour})); permit.Advance != job.MaxAdvance {
		t.Errorf("a permit allows leases %v in advance", permit.Advance)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, text := range n.heard {
		if text == "permits x 0" {
			t.Error("a message without valid permits is passed on")
		}
	}
}

// Where workers have slots to spare, peers are notified before they have used up the slots that they know of.
func TestPeersAreNotifiedBeforeSlotsInAdvanceRunOut(t *testing.T) {
	for _, c := range []struct {
		inAdvance  bool
		used, free int
		want       demandState
	}{
		{true, 4, 10, satisfied}, {true, 6, 10, exhausted}, {true, 6, 7, satisfied}, {true, 6, 0, satisfied},
		{false, 6, 10, satisfied}, {false, 10, 10, exhausted}, {true, 10, 10, exhausted},
	} {
		offered := func(free int) offer {
			return offer{demand: []job.QueueDemand{{Namespace: "ns", Queue: "q", Free: free, InAdvance: c.inAdvance}}}
		}
		q := newSendQueue(offered(10))
		q.markOfferSent(time.Now())
		q.deductPermits([]job.Permit{{Lane: lane, N: c.used}})
		starved := make([]int, 1)
		if got, _ := q.setOffer(offered(c.free), starved); got != c.want || (starved[0] > 0) != (c.used == 10) {
			t.Errorf("%+v: state %d, starved %v", c, got, starved)
		}
	}
}
