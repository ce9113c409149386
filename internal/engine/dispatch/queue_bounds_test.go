package dispatch

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/fermata-io/fermata/internal/core/job"
)

// connectQueues connects a worker of an identity to queues of a namespace.
func (b *bench) connectQueues(namespace, identity, worker string, queues ...string) (*Session, error) {
	s, err := b.d.Connect(job.Hello{Namespace: namespace, Identity: identity, WorkerID: worker, Queues: queues,
		Slots: 1, Epoch: 1}, &fakeStream{})
	if err != nil {
		return nil, err
	}
	return s.(*Session), nil
}

// namesOfQueues are n names that begin with a prefix.
func namesOfQueues(prefix string, n int) (names []string) {
	for i := range n {
		names = append(names, fmt.Sprint(prefix, i))
	}
	return names
}

// fillQueues connects workers with new queues until one is refused.
func (b *bench) fillQueues(t *testing.T, namespace, identity string) (sessions []*Session) {
	t.Helper()
	for {
		name := fmt.Sprint(identity, "-", len(sessions), "-")
		s, err := b.connectQueues(namespace, identity, name, namesOfQueues(name, job.MaxQueues)...)
		if errors.Is(err, job.ErrTooManyServedQueues) {
			return sessions
		}
		if err != nil || len(sessions) > maxServedQueues {
			t.Fatalf("worker %s: %v", name, err)
		}
		sessions = append(sessions, s)
	}
}

// TestServedQueuesAreBounded: one identity may name a quarter of the queues that a node serves, and one namespace half.
// Others are served meanwhile, also in the same namespace. Queues that are served already cost nothing.
func TestServedQueuesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		greedy := b.fillQueues(t, "a", "greedy")
		served := len(b.d.Demand())
		if served > maxServedQueues/4 || served < maxServedQueues/4-job.MaxQueues {
			t.Errorf("one identity serves %d queues, want a quarter of %d", served, maxServedQueues)
		}
		if _, err := b.connectQueues("b", "greedy", "elsewhere", namesOfQueues("q", job.MaxQueues)...); err == nil {
			t.Error("the same identity serves more queues in another namespace")
		}
		if _, err := b.connectQueues("a", "second", "s", namesOfQueues("q", job.MaxQueues)...); err != nil {
			t.Errorf("another identity of the same namespace: %v", err)
		}
		if _, err := b.connectQueues("a", "greedy", "same", greedy[0].hello.Queues...); err != nil {
			t.Errorf("queues that are served: %v", err)
		}
		if _, err := b.connectQueues("b", "other", "o", namesOfQueues("q", job.MaxQueues)...); err != nil {
			t.Errorf("another namespace and identity: %v", err)
		}
		for i := range 5 {
			b.fillQueues(t, "a", fmt.Sprint("more", i))
		}
		inNamespace := 0
		for _, q := range b.d.Demand() {
			if q.Namespace == "a" {
				inNamespace++
			}
		}
		if inNamespace > maxServedQueues/2 {
			t.Errorf("one namespace has %d queues, want at most half of %d", inNamespace, maxServedQueues)
		}
		for i := range 3 {
			b.fillQueues(t, fmt.Sprint("n", i), fmt.Sprint("i", i))
		}
		if n := len(b.d.Queues()); n > maxServedQueues {
			t.Errorf("%d queues are served, want at most %d", n, maxServedQueues)
		}
		b.d.audit(t)
	})
}

// TestPlacesOfQueuesComeBack: a session that closes gives back the places of queues that nobody else serves. The place
// of a queue that others serve is theirs from then on.
func TestPlacesOfQueuesComeBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		first, err := b.connectQueues("a", "first", "w", "p", "q")
		if err != nil {
			t.Fatal(err)
		}
		second, err := b.connectQueues("a", "second", "w", "q")
		if err != nil {
			t.Fatal(err)
		}
		first.Close("done", nil)
		first.Close("again", nil)
		if n := b.d.mu.queueShares.TakenSlots(); n != 1 {
			t.Errorf("%d places are taken for one queue", n)
		}
		if holder := b.d.mu.queues[queueKey{"a", "q"}].holder; holder != queueHolder(second) {
			t.Errorf("the queue of the second worker is held by %v", holder)
		}
		second.Close("done", nil)
		if n := b.d.mu.queueShares.TakenSlots(); n != 0 {
			t.Errorf("%d places are taken for no queue", n)
		}
	})
}

// TestRefusedWelcomeTakesNoPlaces: a session that does not begin keeps no places of queues.
func TestRefusedWelcomeTakesNoPlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		_, err := b.d.Connect(job.Hello{Namespace: "a", WorkerID: "w", Queues: []string{"q"}, Slots: 1, Epoch: 1},
			&fakeStream{full: true})
		if err == nil {
			t.Fatal("the session began")
		}
		if n := b.d.mu.queueShares.TakenSlots(); n != 0 || len(b.d.Demand()) != 0 {
			t.Errorf("%d places are taken by a session that did not begin", n)
		}
	})
}

// TestQueuesStaySorted, whatever sessions come and go.
func TestQueuesStaySorted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		var sessions []*Session
		for i, q := range []string{"m", "z", "a", "k", "b"} {
			s, err := b.connectQueues(fmt.Sprint("ns", i%2), "", fmt.Sprint("w", i), q, "shared")
			if err != nil {
				t.Fatal(err)
			}
			sessions = append(sessions, s)
		}
		for len(sessions) > 0 {
			demand := b.d.Demand()
			if !slices.IsSortedFunc(demand, func(x, y job.QueueDemand) int {
				return queueKey{x.Namespace, x.Queue}.compareTo(queueKey{y.Namespace, y.Queue})
			}) || len(demand) != len(b.d.Queues()) {
				t.Errorf("demand is not sorted, or not whole: %v", demand)
			}
			sessions[0].Close("done", nil)
			sessions = sessions[1:]
		}
		if demand := b.d.Demand(); len(demand) != 0 {
			t.Errorf("demand without workers: %v", demand)
		}
	})
}
