package dispatch

import (
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// setOthers sets the other nodes, and reports the change.
func (b *bench) setOthers(addresses ...string) {
	b.areOthers(addresses...)
	b.d.AddressesChanged()
}

func TestWorkersAreSentChangedAddresses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		_, first := b.connect("first", 1, 1)
		time.Sleep(2 * announceEvery)
		b.wantSent(first) // it had them with its Welcome
		b.setOthers("n3:7000", "n2:7000")
		synctest.Wait()
		b.wantSent(first, "addresses n2:7000 n3:7000")
		// Changes that follow each other are sent once, and what is as before is not sent.
		for _, name := range []string{"n4:7000", "n5:7000", "n6:7000"} {
			b.setOthers("n2:7000", name)
		}
		synctest.Wait()
		b.wantSent(first)
		time.Sleep(announceEvery)
		b.wantSent(first, "addresses n2:7000 n6:7000")
		time.Sleep(2 * announceEvery)
		b.setOthers("n6:7000", "n2:7000")
		synctest.Wait()
		b.wantSent(first)
		time.Sleep(2 * announceEvery)
		b.setOthers() // alone: what the worker knows may still be of use
		synctest.Wait()
		b.wantSent(first)
	})
}

// A worker that connects while the nodes change is notified of the change, whichever comes first.
func TestAWorkerThatConnectsDuringAChangeIsNotified(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.setOthers("n3:7000")
		synctest.Wait() // there was no worker to send it to
		time.Sleep(2 * announceEvery)
		var asked atomic.Int32
		changing := func() []string { // what Connect reads is old by the time it is sent
			if asked.Add(1) == 1 {
				return []string{"n2:7000"}
			}
			return []string{"n3:7000"}
		}
		b.others.Store(&changing)
		_, out := b.connect("w", 1, 1)
		synctest.Wait()
		if got := out.took(); !slices.Equal(got, []string{"addresses n3:7000"}) {
			t.Errorf("sent %v", got)
		}
	})
}
