package peer

import (
	"fmt"
	"maps"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/sharding"
)

// Slots go to peers that have used up what they knew, to one at a time.
func TestFreeSlotsAreOfferedInTurn(t *testing.T) {
	a, b, c := cluster(t) // b and c know of no free slots at a
	peers := map[string]*node{"b": b, "c": c}
	// told waits until a peer has been notified of this number of free slots.
	told := func(free int) string {
		t.Helper()
		want := fmt.Sprintf("demand a %v", demandOf(free))
		for end := time.Now().Add(time.Minute); time.Now().Before(end); runtime.Gosched() {
			for name, n := range peers {
				if n.removeReceived(want) {
					return name
				}
			}
		}
		t.Fatalf("nobody heard %s", want)
		return ""
	}
	if !a.peer.OfferSlots(demandOf(7)) {
		t.Error("two peers wait, and no other one is left")
	}
	first := told(7)
	if a.peer.OfferSlots(demandOf(8)) {
		t.Error("one peer waited, and another one is left")
	}
	second := told(8)
	if first == second {
		t.Fatalf("%s was told twice", first)
	}
	// Both know of slots. A change is not sent to them, nor to a peer that has used a part of its slots.
	a.permitAndWait(first, 6)
	a.requireNotOffered(demandOf(9))
	a.permitAndWait(first, 1)
	a.requireNotOffered(demandOf(0))
	a.peer.OfferSlots(demandOf(4))
	if now := told(4); now != first {
		t.Errorf("%s was told, want %s, which has used up its slots", now, first)
	}
	// A peer whose permit found no free slots waits to be notified of some.
	a.peer.SendPermitResults(second, []job.LanePermitResult{{PermitResult: job.PermitResult{ID: 1}, Lane: lane}})
	peers[second].waitFor(fmt.Sprintf("result a %+v", job.PermitResult{ID: 1}))
	a.peer.OfferSlots(demandOf(5))
	if now := told(5); now != second {
		t.Errorf("%s was told, want %s, which had none", now, second)
	}
}

// A change of the served queues is sent to all peers at once, and so is a periodic restatement.
func TestQueueChangesAreSentToAllPeersAtOnce(t *testing.T) {
	a, b, c := cluster(t)
	two := append(demandOf(3), job.QueueDemand{Namespace: "ns", Queue: "other"})
	for _, demand := range [][]job.QueueDemand{two, demandOf(3), nil} {
		if a.peer.OfferSlots(demand) {
			t.Error("somebody is left to be told")
		}
		b.waitFor(fmt.Sprintf("demand a %v", nonNilDemand(demand)))
		c.waitFor(fmt.Sprintf("demand a %v", nonNilDemand(demand)))
	}
	for range 2 {
		a.peer.ResendDemand(demandOf(6))
		b.waitFor(fmt.Sprintf("demand a %v", demandOf(6)))
		c.waitFor(fmt.Sprintf("demand a %v", demandOf(6)))
	}
}

// What a peer permits counts for the queue that it is for.
func TestFreeSlotsAreCountedByQueue(t *testing.T) {
	p, links := newWithUnusedLinks(t, 1)
	q := links[0].queue
	three := []job.QueueDemand{{Namespace: "ns", Queue: "p", Free: 1}, demandOf(2)[0], {Namespace: "other", Queue: "q", Free: 1}}
	p.ResendDemand(three)
	q.nextMessage(time.Now())
	q.deductPermits([]job.Permit{{Lane: job.Lane{Namespace: "ns", Queue: "of old"}, N: 9}})
	q.deductPermits([]job.Permit{{Lane: lane, N: 1}})
	if p.OfferSlots(three); q.offerPending {
		t.Error("told, though it knows of slots in every queue")
	}
	q.deductPermits([]job.Permit{{Lane: lane, N: 1}})
	if p.OfferSlots(three); !q.offerPending {
		t.Error("not told, though it has used up those of a queue")
	}
}

// Places where attempts wait for a slot count like slots.
func TestPlacesAheadOfSlotsAreOffered(t *testing.T) {
	a, b, _ := cluster(t)
	ahead := []job.QueueDemand{{Namespace: "ns", Queue: "q", Free: 1, Ahead: 2}}
	a.peer.ResendDemand(ahead)
	b.waitFor(fmt.Sprintf("demand a %v", ahead))

	p, links := newWithUnusedLinks(t, 1)
	q := links[0].queue
	p.ResendDemand(ahead)
	q.nextMessage(time.Now())
	q.deductPermits([]job.Permit{{Lane: lane, N: 2}})
	if p.OfferSlots(ahead); q.offerPending || p.PeersWithoutSlots("ns", []string{"q"}) != 0 {
		t.Error("told, though it knows of a place")
	}
	q.deductPermits([]job.Permit{{Lane: lane, N: 1}})
	if p.OfferSlots(demandOf(0)); q.offerPending {
		t.Error("told that there is nothing")
	}
	if p.OfferSlots(ahead); !q.offerPending {
		t.Error("not told, though it has used up all places")
	}
}

// A permit that found no free slots affects its own queue only.
func TestUnusedPermitAffectsOnlyItsQueue(t *testing.T) {
	p, links := newWithUnusedLinks(t, 1)
	q := links[0].queue
	demand := func(free int) []job.QueueDemand {
		return append(demandOf(free), job.QueueDemand{Namespace: "ns", Queue: "r", Free: 3})
	}
	p.ResendDemand(demand(1))
	q.nextMessage(time.Now())
	p.SendPermitResults(links[0].member.Name, []job.LanePermitResult{{PermitResult: job.PermitResult{ID: 1}, Lane: lane}})
	if p.OfferSlots(demand(0)); q.offerPending {
		t.Error("told, though nothing has come free")
	}
	if p.OfferSlots(demand(1)); !q.offerPending {
		t.Error("not told of what has come free where it had none")
	}
}

// A peer wants slots when it knows of none, also while there are none to offer.
func TestWantingCountsPeersWithoutKnownSlots(t *testing.T) {
	p, links := newWithUnusedLinks(t, 2)
	now := time.Now()
	hear := func() {
		now = now.Add(time.Second)
		for _, l := range links {
			l.queue.nextMessage(now)
		}
	}
	p.ResendDemand(demandOf(2))
	hear()
	for _, step := range []struct {
		name        string
		spent, free int // what the first peer has permitted, and the slots that are offered then
		want        int
	}{
		{"both know of two", 0, 2, 0},
		{"one has used them up, and hears of two again", 2, 2, 1},
		{"it has used them up, and none is free", 2, 0, 1},
		{"one is free, and it hears of that", 0, 1, 1},
		{"it knows of that one", 0, 1, 0},
	} {
		links[0].queue.deductPermits([]job.Permit{{Lane: lane, N: step.spent}})
		p.OfferSlots(demandOf(step.free))
		if got := p.PeersWithoutSlots("ns", []string{"q"}); got != step.want {
			t.Errorf("%s: %d want slots, not %d", step.name, got, step.want)
		}
		hear()
	}
	links[0].queue.deductPermits([]job.Permit{{Lane: lane, N: 1}})
	if p.OfferSlots(demandOf(0)); p.PeersWithoutSlots("ns", []string{"p", "q"}) != 1 {
		t.Errorf("%d want slots before the peers are gone", p.PeersWithoutSlots("ns", []string{"q"}))
	}
	if n := p.PeersWithoutSlots("ns", []string{"p"}) + p.PeersWithoutSlots("other", []string{"q"}); n != 0 {
		t.Errorf("%d want slots of other queues", n)
	}
	clear(p.links)
	if p.PeersWithoutSlots("ns", []string{"q"}) != 0 {
		t.Errorf("%d want slots when there is no peer", p.PeersWithoutSlots("ns", []string{"q"}))
	}
}

// With any number of peers, each is notified within 8 offers. Peers that use their slots up at once come after
// those that wait.
func TestEachPeerIsOfferedWithinEightOffers(t *testing.T) {
	for _, peers := range []int{1, 7, 8, 9, 24, 99} {
		p, links := newWithUnusedLinks(t, peers)
		now := started
		hear := func() (told []*link) {
			now = now.Add(demandPause)
			for _, l := range links {
				if m, _, _ := l.queue.nextMessage(now); m != nil {
					told = append(told, l)
				}
			}
			return told
		}
		p.ResendDemand(demandOf(0))
		hear()
		had := map[*link]bool{}
		for range offersPerRound {
			p.OfferSlots(demandOf(1))
			told := hear()
			if most := (peers + offersPerRound - 1) / offersPerRound; len(told) > most {
				t.Errorf("%d of %d peers were told at once, want %d at most", len(told), peers, most)
			}
			for _, l := range told {
				had[l] = true
			}
			if len(told) > 0 {
				told[0].queue.deductPermits([]job.Permit{{Lane: lane, N: 1}})
			}
		}
		if len(had) != peers {
			t.Errorf("%d of %d peers had a turn among %d", len(had), peers, offersPerRound)
		}
		for p.OfferSlots(demandOf(1)) {
			hear()
		}
		if p.notifiedAtOnce != 0 {
			t.Errorf("%d peers: the round does not end", peers)
		}
	}
}

// A peer whose link is down is not notified, and takes no turn of the others.
func TestPeersWithoutLinkAreNotOffered(t *testing.T) {
	a, b, c := cluster(t)
	c.stop()
	for len(a.sentDemands()) > 1 {
		runtime.Gosched()
	}
	a.peer.OfferSlots(demandOf(1))
	b.waitFor(fmt.Sprintf("demand a %v", demandOf(1)))
	a.requireNotOffered(demandOf(2))
}

// BenchmarkOffer offers slots of so many queues to seven peers, which know of enough.
func BenchmarkOffer(b *testing.B) {
	for _, queues := range []int{64, 1024, 10000} {
		b.Run(fmt.Sprint(queues), func(b *testing.B) {
			p, links := newWithUnusedLinks(b, 7)
			demand := make([]job.QueueDemand, queues)
			for i := range demand {
				demand[i] = job.QueueDemand{Namespace: "ns", Queue: fmt.Sprintf("q-%05d", i), Free: 10}
			}
			p.ResendDemand(demand)
			for _, l := range links {
				l.queue.nextMessage(time.Now())
			}
			b.ReportAllocs()
			for b.Loop() {
				p.OfferSlots(demand)
			}
		})
	}
}

// newWithUnusedLinks makes a peer with links that count as up and have no stream: their messages stay queued.
func newWithUnusedLinks(t testing.TB, n int) (*Peer, []*link) {
	t.Helper()
	p, err := New(Options{Self: "a", Handler: &node{}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Stop)
	links := make([]*link, n)
	for i := range links {
		l, err := p.newLink(sharding.Member{Name: fmt.Sprint("p", i), PeerAddr: "127.0.0.1:1"})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.conn.Close() })
		l.streamOpen.Store(true)
		links[i], p.links[l.member.Name] = l, l
	}
	return p, links
}

// removeReceived reports whether a message was received, and removes it.
func (n *node) removeReceived(want string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	i := slices.Index(n.heard, want)
	if i >= 0 {
		n.heard = slices.Delete(n.heard, i, i+1)
	}
	return i >= 0
}

func (n *node) linkTo(to string) *link {
	n.peer.mu.Lock()
	defer n.peer.mu.Unlock()
	return n.peer.links[to]
}

// permitAndWait has a peer use free slots, and waits until that is known.
func (n *node) permitAndWait(by string, count int) {
	n.t.Helper()
	n.linkTo(by).queue.deductPermits([]job.Permit{{Lane: lane, N: count}})
}

// requireNotOffered offers free slots that no peer is to be notified of. Earlier messages have arrived by then.
func (n *node) requireNotOffered(demand []job.QueueDemand) {
	n.t.Helper()
	before := n.sentDemands()
	if n.peer.OfferSlots(demand) {
		n.t.Errorf("%v: somebody is left to be told", demand)
	}
	if after := n.sentDemands(); !maps.Equal(before, after) {
		n.t.Errorf("%v: somebody was told, %v, before %v", demand, after, before)
	}
}

// sentDemand is the last demand sent on a link.
type sentDemand struct {
	coming bool
	said   time.Time
}

func (n *node) sentDemands() map[string]sentDemand {
	n.peer.mu.Lock()
	defer n.peer.mu.Unlock()
	all := make(map[string]sentDemand)
	for name, l := range n.peer.links {
		l.queue.mu.Lock()
		if l.isUp() {
			all[name] = sentDemand{l.queue.offerPending, l.queue.offerSentAt}
		}
		l.queue.mu.Unlock()
	}
	return all
}

// nonNilDemand is a demand as it is received.
func nonNilDemand(d []job.QueueDemand) []job.QueueDemand {
	if d == nil {
		return []job.QueueDemand{}
	}
	return d
}
