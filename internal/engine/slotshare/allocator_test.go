package slotshare

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
)

type fakeFleet struct {
	namespace string
	queues    []string
}

func (f *fakeFleet) ServedQueues() (string, []string) { return f.namespace, f.queues }

func (f *fakeFleet) Serves(namespace, queue string) bool {
	return namespace == f.namespace && slices.Contains(f.queues, queue)
}

// fakeNode is the scheduler and the peers of a node, with records of all calls.
type fakeNode struct {
	mu       sync.Mutex
	starved  bool // own shards wait for slots
	linked   bool
	wanting  int // peers
	own      int // calls of DemandChanged
	offers   int
	restated int
	results  []int64 // ids of permits
}

func (n *fakeNode) DemandChanged(string, []string)         { n.mu.Lock(); n.own++; n.mu.Unlock() }
func (n *fakeNode) HasWaitingLanes(string, []string) bool  { return n.starved }
func (n *fakeNode) HasPeers() bool                         { return n.linked }
func (n *fakeNode) PeersWithoutSlots(string, []string) int { return n.wanting }
func (n *fakeNode) ResendDemand([]job.QueueDemand)         { n.mu.Lock(); n.restated++; n.mu.Unlock() }

func (n *fakeNode) OfferSlots([]job.QueueDemand) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.offers++
	return false
}

func (n *fakeNode) SendPermitResults(_ string, results []job.LanePermitResult) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, r := range results {
		n.results = append(n.results, r.ID)
	}
}

// leaseFunc is a call under permits.
type leaseFunc func() map[job.Lane]int

func (f leaseFunc) Lease(context.Context) map[job.Lane]int { return f() }

func (n *fakeNode) counts() (own, offers, restated, results int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.own, n.offers, n.restated, len(n.results)
}

func newAllocator(n *fakeNode, accept func(string, []job.Permit) []PermittedLease) *Allocator {
	return New(Options{Scheduler: n, Peers: n, Accept: accept, FreeSlots: func() []job.QueueDemand { return nil }})
}

// Peers get slots only if they want some, and if own shards wait for slots as well. Slots of
// a peers' turn go to own shards when it ends.
func TestSlotsAreSharedOnlyWhileBothWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, f := &fakeNode{}, &fakeFleet{"ns", []string{"q"}}
		a := newAllocator(n, nil)
		assign := func(want int, why string) {
			t.Helper()
			before, _, _, _ := n.counts()
			a.AssignFreed(f, 1)
			if after, _, _, _ := n.counts(); after-before != want {
				t.Errorf("%s: own shards got %d slots, want %d", why, after-before, want)
			}
		}
		for range 3 {
			assign(1, "no peer wants slots")
		}
		n.wanting = 1
		for range 3 {
			assign(1, "own shards do not wait")
			time.Sleep(time.Second)
		}
		n.starved = true
		assign(1, "own turn")
		time.Sleep(time.Second)
		assign(0, "peers' turn")
		before, _, _, _ := n.counts()
		time.Sleep(maxPeersTurn)
		synctest.Wait()
		if after, _, _, _ := n.counts(); after != before+1 {
			t.Errorf("own shards were notified %d times after the peers' turn, want 1", after-before)
		}
	})
}

// TestManyQueuesAreOfferedLessOften: the free slots of very many queues are not listed for each change, those of few
// are offered as soon as before.
func TestManyQueuesAreOfferedLessOften(t *testing.T) {
	for queues, most := range map[int]int{0: 502, 1000: 502, 10_000: 52} {
		synctest.Test(t, func(t *testing.T) {
			n, listed := &fakeNode{linked: true}, 0
			a := New(Options{Scheduler: n, Peers: n, FreeSlots: func() []job.QueueDemand {
				listed++
				return make([]job.QueueDemand, queues)
			}})
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			done := make(chan error, 1)
			go func() { done <- a.Run(ctx) }()
			for ctx.Err() == nil {
				a.NotifyPeers()
				time.Sleep(time.Millisecond)
			}
			if err := <-done; err != nil {
				t.Fatal(err)
			}
			if listed > most || listed < most*9/10 {
				t.Errorf("%d queues were listed %d times in a second, want about %d times", queues, listed, most)
			}
		})
	}
}

// Changes are coalesced into one offer for each interval, and all peers are notified every second.
func TestOffersAreCoalesced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &fakeNode{linked: true}
		a := newAllocator(n, nil)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- a.Run(ctx) }()
		for range 1000 {
			a.NotifyPeers()
			time.Sleep(minOfferInterval / 20)
		}
		synctest.Wait()
		if _, offers, _, _ := n.counts(); offers < 45 || offers > 55 {
			t.Errorf("%d offers for 1000 changes in 50 intervals", offers)
		}
		time.Sleep(10 * time.Second)
		if _, _, restated, _ := n.counts(); restated != 10 {
			t.Errorf("all peers were notified %d times in 10 s, want 10", restated)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// Permits are accepted in the order of their arrival, with the time that they have left.
func TestPermitsAreAcceptedInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &fakeNode{}
		var accepted []int64
		leased := make(chan int64, 10)
		a := newAllocator(n, func(_ string, permits []job.Permit) (calls []PermittedLease) {
			for _, p := range permits {
				accepted = append(accepted, p.ID)
				if p.ValidFor != time.Second {
					t.Errorf("permit %d is valid for %v after a wait of 1 s, want 1 s", p.ID, p.ValidFor)
				}
				if p.ID%2 == 0 {
					calls = append(calls, leaseFunc(func() map[job.Lane]int { leased <- p.ID; return nil }))
				}
			}
			return calls
		})
		permit := func(id int64) job.Permit { return job.Permit{ID: id, N: 1, ValidFor: 2 * time.Second} }
		a.QueuePermits("peer", []job.Permit{permit(0), permit(1), permit(2)})
		for id := int64(3); id < 6; id++ {
			a.QueuePermits("peer", []job.Permit{permit(id)})
		}
		time.Sleep(time.Second)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- a.Run(ctx) }()
		synctest.Wait()
		if !slices.Equal(accepted, []int64{0, 1, 2, 3, 4, 5}) || len(leased) != 3 {
			t.Errorf("permits %v were accepted, %d leased; want 0 to 5, and 3", accepted, len(leased))
		}
		cancel()
		<-done
	})
}

// A permit for which the queue has no room is answered at once, and so is one that reaches a node
// that stops.
func TestPermitsWithoutRoomAreAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &fakeNode{}
		a := newAllocator(n, func(string, []job.Permit) []PermittedLease { return nil })
		for id := range int64(maxQueuedPermits) {
			a.QueuePermits("peer", []job.Permit{{ID: id}})
		}
		a.QueuePermits("peer", []job.Permit{{ID: maxQueuedPermits}, {ID: maxQueuedPermits + 1}})
		a.QueuePermits("peer", []job.Permit{{ID: maxQueuedPermits + 2}})
		if !slices.Equal(n.results, []int64{maxQueuedPermits, maxQueuedPermits + 1, maxQueuedPermits + 2}) {
			t.Errorf("results of permits %v, want the last three", n.results)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- a.Run(ctx) }()
		synctest.Wait()
		cancel()
		<-done
		_, _, _, before := n.counts()
		a.QueuePermits("peer", []job.Permit{{ID: 1}})
		if _, _, _, after := n.counts(); after != before+1 {
			t.Errorf("%d results for a permit to a stopped node, want 1", after-before)
		}
	})
}
