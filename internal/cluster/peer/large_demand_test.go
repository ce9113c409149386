package peer

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/protobuf/proto"

	"github.com/fermata-io/fermata/internal/core/job"
)

// longestDemand is the demand of n queues whose names are as long as they may be.
func longestDemand(n int) []job.QueueDemand {
	demand := make([]job.QueueDemand, n)
	for i := range demand {
		demand[i] = job.QueueDemand{Namespace: strings.Repeat("n", job.MaxName), Queue: fmt.Sprintf("%0*d", job.MaxName, i),
			Free: 1 << 30, Ahead: 1 << 30, InAdvance: true}
	}
	return demand
}

// TestLargeDemandEndsNoLink: however many queues workers serve, the demand is less than what nodes of the previous
// build take, and what follows it arrives.
func TestLargeDemandEndsNoLink(t *testing.T) {
	a, b, _ := cluster(t)
	demand := longestDemand(60_000) // 8 MiB
	a.peer.OfferSlots(demand)
	b.waitFor(fmt.Sprintf("demand a of %d queues", maxDemandQueues))
	a.peer.SendNudge("b", 3, job.LaneHead{Lane: lane, DueMS: 5})
	b.waitFor(fmt.Sprintf("nudge 3 %s 5", lane))
	if b.removeReceived("down a") {
		t.Error("the link has ended")
	}
	if size := proto.Size(demandToPB(a.peer.cutDemand(demand))); size > maxSent {
		t.Errorf("the demand takes %d bytes, want at most %d", size, maxSent)
	}
	if n := testutil.ToFloat64(a.peer.metrics.cut.WithLabelValues("demand")); n < 1 {
		t.Errorf("%v demands were counted as cut", n)
	}
}

// TestNodesTakeLargerMessages than they send.
func TestNodesTakeLargerMessages(t *testing.T) {
	n := start(t, "n", "127.0.0.1:0", nil)
	n.hasMembers("x")
	stream := dial(t, n)
	send(t, stream, helloOf("x"))
	send(t, stream, demandToPB(longestDemand(60_000)))
	n.waitFor("demand x of 60000 queues")
}

// TestLargeDemandIsSentLessOften: a set of queues that changes again and again is not sent whole each time. A small one
// is sent as often as before.
func TestLargeDemandIsSentLessOften(t *testing.T) {
	for queues, most := range map[int]int{1: 1000, 200: 1000, 10_000: 20} {
		q, sent, now := newSendQueue(offer{}), 0, time.Unix(1, 0)
		demand := longestDemand(queues)
		for version := range uint64(1000) {
			now = now.Add(time.Millisecond)
			q.setOffer(offer{demand: demand, queuesVersion: version + 1}, nil)
			q.scheduleOffer()
			if m, _, _ := q.nextMessage(now); m.GetDemand() != nil {
				sent++
			}
		}
		if sent > most || sent < most*9/10 {
			t.Errorf("%d queues were sent %d times in a second, want about %d times", queues, sent, most)
		}
	}
}
