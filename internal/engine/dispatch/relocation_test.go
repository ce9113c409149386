package dispatch

import (
	"testing"
	"testing/synctest"
)

// A relocation asks each worker once, also those that connect later, and leaves their sessions as they are.
func TestRelocationAsksEachWorkerOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		before, first := b.connect("first", 2, 1)
		b.d.RelocateWorkers([]string{"n2:7000"})
		b.wantSent(first, "move to n2:7000")
		if !before.acceptsLeases() || before.sentAway {
			t.Error("the session takes no leases until the worker has moved")
		}
		b.d.RelocateWorkers([]string{"n2:7000", "n3:7000"})
		b.wantSent(first)
		_, second := b.connect("second", 1, 1)
		b.wantSent(second, "move to n2:7000 n3:7000")
		_, back := b.connect("first", 2, 2) // it reaches no other node
		b.wantSent(back)
		b.d.RelocateWorkers(nil)
		_, third := b.connect("third", 1, 1)
		b.wantSent(third)
		b.d.RelocateWorkers([]string{"n3:7000"})
		b.wantSent(third, "move to n3:7000")
		b.wantSent(back, "move to n3:7000")
	})
}
