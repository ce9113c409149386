package dispatch

import (
	"testing"
	"testing/synctest"

	"github.com/fermata-io/fermata/internal/core/job"
)

// A notification of free slots names their group: workers of the same queues are one group, in whatever order
// they list them.
func TestFreeSlotsAreThoseOfAWorkerGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		var last []FreedSlots
		hear := func(slots []FreedSlots) {
			if len(slots) > 0 {
				last = append([]FreedSlots(nil), slots...)
			}
		}
		b.freed.Store(&hear)
		connect := func(name, namespace string, slots int, queues ...string) (*Session, *WorkerGroup) {
			t.Helper()
			s, err := b.d.Connect(job.Hello{WorkerID: name, Namespace: namespace, Queues: queues, Slots: slots, Epoch: 1}, &fakeStream{})
			if err != nil {
				t.Fatal(err)
			}
			if len(last) != 1 || last[0].N != slots {
				t.Fatalf("%s with %d slots has come: %+v", name, slots, last)
			}
			return s.(*Session), last[0].Group
		}
		first, both := connect("first", "ns", 2, "q", "p")
		second, same := connect("second", "ns", 3, "p", "q")
		_, other := connect("other", "ns", 1, "q", "r")
		_, foreign := connect("foreign", "else", 1, "p", "q")
		if both != same || both == other || both == foreign {
			t.Errorf("groups: %+v, %+v, %+v, %+v", both, same, other, foreign)
		}
		if !both.Serves("ns", "p") || !both.Serves("ns", "q") || both.Serves("ns", "r") || both.Serves("else", "p") {
			t.Errorf("%+v does not serve what it says", both)
		}

		ids := b.deliver("a1", "a2", "a3", "a4", "a5", "a6")
		byFleet := map[*WorkerGroup]int{}
		count := func(slots []FreedSlots) {
			for _, x := range slots {
				byFleet[x.Group] += x.N
			}
		}
		b.freed.Store(&count)
		for _, id := range ids {
			for _, s := range b.d.mu.workers {
				s.HandleResults(ok(id))
				synctest.Wait()
			}
		}
		if byFleet[both] != 5 || byFleet[other] != 1 || len(byFleet) != 2 {
			t.Errorf("6 attempts have ended: %v", byFleet)
		}

		b.freed.Store(&hear)
		first.Close("done", nil)
		if _, again := connect("third", "ns", 1, "q", "p"); again != both {
			t.Error("a group that has workers is another one for a new one")
		}
		second.Close("done", nil)
		b.d.mu.Lock()
		workerGroups := len(b.d.mu.workerGroups)
		b.d.mu.Unlock()
		if workerGroups != 3 {
			t.Errorf("%d groups, want 3", workerGroups)
		}
	})
}
