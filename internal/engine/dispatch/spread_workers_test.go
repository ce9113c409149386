package dispatch

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
)

// A node keeps a worker of each group, and asks each of the others once, also when it has come back.
func TestSpreadWorkerAsksEachWorkerOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		to := []string{"n2:7000"}
		_, first := b.connect("first", 2, 1)
		if b.d.SpreadWorker(to) {
			t.Error("the only worker is asked to move")
		}
		b.wantSent(first)
		b.deliver("a", "b")
		_, second := b.connect("second", 2, 1)
		b.deliver("c")
		idle, third := b.connect("third", 2, 1)
		first.took()
		second.took()
		if b.d.SpreadWorker(nil) || !b.d.SpreadWorker(to) {
			t.Error("one of three workers is to move, if there is a node for it")
		}
		b.wantSent(third, "move to n2:7000") // it has nothing to do
		if !idle.acceptsLeases() || idle.sentAway {
			t.Error("a session ends before its worker has moved")
		}
		_, back := b.connect("third", 2, 2)
		for i, want := range []bool{true, true, false} {
			if asked := b.d.SpreadWorker(to); asked != want {
				t.Errorf("of three workers the two that were not asked yet are to be asked, once; time %d: %v", i, asked)
			}
		}
		b.wantSent(back)
		b.wantSent(first, "move to n2:7000")
		b.wantSent(second, "move to n2:7000")
	})
}

// A worker that has come back, because the node that it moved to has stopped, is asked again after a while. Those that
// were asked are not remembered for ever.
func TestSpreadWorkerAsksAgainLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		to := []string{"n2:7000"}
		b.connect("first", 2, 1)
		b.connect("second", 2, 1)
		askAll := func() (asked int) {
			for b.d.SpreadWorker(to) {
				asked++
			}
			return asked
		}
		if asked := askAll(); asked != 2 {
			t.Errorf("%d of two workers are asked", asked)
		}
		time.Sleep(askAgainAfter - time.Second)
		if askAll() > 0 {
			t.Error("a worker is asked again too soon")
		}
		time.Sleep(time.Second)
		b.d.SpreadWorker(nil)
		b.d.mu.Lock()
		remembered := len(b.d.mu.spread)
		b.d.mu.Unlock()
		if asked := askAll(); asked != 2 || remembered != 0 {
			t.Errorf("after an hour %d of two workers are asked again, and %d are remembered", asked, remembered)
		}
	})
}

// The last worker of a group stays, whatever others there are; so do workers of a node that drains, or that sends all
// workers away.
func TestSpreadWorkerKeepsOneOfEachGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		for i := range 3 {
			_, err := b.d.Connect(job.Hello{WorkerID: fmt.Sprintf("w%d", i), Slots: 1, Epoch: 1, Namespace: "ns",
				Queues: []string{fmt.Sprintf("q%d", i)}}, &fakeStream{})
			if err != nil {
				t.Fatal(err)
			}
		}
		if b.d.SpreadWorker([]string{"n2:7000"}) {
			t.Error("the only worker of a queue is asked to move")
		}
		leaver, _ := b.connect("a", 1, 1)
		b.connect("b", 1, 1)
		leaver.HandleDraining()
		if b.d.SpreadWorker([]string{"n2:7000"}) {
			t.Error("a worker that drains counts as one that stays")
		}
		b.connect("c", 1, 1)
		b.d.RelocateWorkers([]string{"n3:7000"})
		if b.d.SpreadWorker([]string{"n2:7000"}) {
			t.Error("a worker is asked to move to two nodes")
		}
		b.d.RelocateWorkers(nil)
		if !b.d.SpreadWorker([]string{"n2:7000"}) {
			t.Error("no worker is asked")
		}
		b.connect("d", 1, 1)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_ = b.d.Drain(ctx) // its error is that it is cancelled
		if b.d.SpreadWorker([]string{"n2:7000"}) {
			t.Error("a node that drains asks a worker to move to another node than the rest")
		}
	})
}
