package dispatch

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
)

func TestLostLeasesAreForgiven(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		s, out := b.connect("w", 2, 3)
		s.HandleLost([]string{job.LeaseID("ns/a", 7), job.LeaseID("other/b", 7), "nonsense"})
		b.wantEvents("ForgiveLoss a")
		b.wantSent(out, "ack a accepted")
		// The store cannot be reached: it is tried again.
		b.ledger.set(answering(job.Applied, job.ErrUnavailable))
		s.HandleLost([]string{job.LeaseID("ns/c", 8)})
		synctest.Wait()
		b.ledger.set(answering(job.Stale, nil))
		time.Sleep(time.Second)
		b.wantEvents("ForgiveLoss c", "ForgiveLoss c")
		b.wantSent(out, "ack c stale")
		if n := b.remembered(); n != 0 {
			t.Errorf("%d attempts are remembered", n)
		}
	})
}

// A loss that the node counted when the worker came back is forgiven when the worker reports its reason.
func TestALeaseThatAHelloLeavesOutIsForgiven(t *testing.T) {
	for _, fails := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t)
			s, _ := b.connect("w", 2, 1)
			ids := b.deliver("runs")
			s.HandleStarted(ids)
			s.Close("cut", nil)
			time.Sleep(20 * time.Second)
			if fails {
				b.ledger.set(answering(job.Applied, job.ErrUnavailable))
			}
			s, out := b.connect("w", 2, 2)
			s.HandleLost(ids)
			synctest.Wait()
			if fails {
				b.ledger.set(answering(job.Applied, nil))
				time.Sleep(time.Second)
				b.wantEvents("LoseLease runs", "LoseLease runs", "ForgiveLoss runs")
			} else {
				b.wantEvents("LoseLease runs", "ForgiveLoss runs")
			}
			b.wantSent(out, "ack runs accepted")
			b.wantFree(2)
			if n := b.remembered(); n != 0 {
				t.Errorf("%d attempts are remembered", n)
			}
		})
	}
}

// A worker gives up a lease that this node still believes in.
func TestALeaseThatItsWorkerGivesUpIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		s, out := b.connect("w", 2, 1)
		other, _ := b.connect("other", 1, 1)
		ids := b.deliver("runs")
		s.HandleStarted(ids)
		other.HandleLost(ids) // which is not its own
		b.wantEvents()
		b.ledger.set(nil) // which does not answer
		s.HandleLost(ids)
		s.HandleLost(ids)
		b.wantEvents("ForgiveLoss runs")
		b.wantSent(out, "lease runs")
		b.wantFree(3)
	})
}
