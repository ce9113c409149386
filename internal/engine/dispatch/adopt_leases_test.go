package dispatch

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/unixtime"
)

// A cut stream: what started is renewed once, with the acknowledgement, and then
// left alone.
func TestCutStreamLeavesItsLeases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		s, _ := b.connect("w", 3, 1)
		ids := b.deliver("started", "delivered", "unsent")
		s.HandleStarted(ids[:1])
		unsent := job.Assignments{{LeaseID: ids[2]}}
		s.Close("cut", []job.WorkerMessage{job.ResultAcks{}, unsent})
		s.Close("again", nil)
		b.wantEvents("ReturnLease unsent")
		got := b.store.took()
		if len(got) != 1 || got[0].Record != "ns/started" || !got[0].Acked || got[0].Epoch != 1 {
			t.Errorf("renewed %+v", got)
		}
		time.Sleep(2 * ttl)
		b.wantEvents()
		if got := b.store.took(); len(got) != 0 {
			t.Errorf("renewed %+v for an absent worker", got)
		}
		if n := b.remembered(); n != 0 {
			t.Errorf("%d attempts are remembered", n)
		}
	})
}

// TestLeaseForADrainedWorkerIsReturned: no worker will start it, so it need not wait for its end. Attempts that
// had started may come back with their worker.
func TestLeaseForADrainedWorkerIsReturned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		s, _ := b.connect("w", 3, 1)
		s.HandleStarted(b.deliver("started", "late")[:1])
		s.HandleDraining()
		s.MarkDrained()
		s.Close("worker left", nil)
		b.wantEvents("ReturnLease late")
		if got := b.store.took(); len(got) != 1 || got[0].Record != "ns/started" {
			t.Errorf("renewed %+v", got)
		}
	})
}

func TestFinalRenewalIsRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		s, _ := b.connect("w", 3, 1)
		s.HandleStarted(b.deliver("a"))
		b.store.setFail(job.ErrUnavailable)
		s.Close("cut", nil)
		time.Sleep(5 * time.Second)
		b.store.setFail(nil)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if got := b.store.took(); len(got) != 1 || !got[0].Acked {
			t.Errorf("renewed %+v", got)
		}
	})
}

func TestReconnectToTheSameNode(t *testing.T) {
	for _, cut := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t)
			s, old := b.connect("w", 4, 1)
			ids := b.deliver("kept", "crashed", "missed")
			s.HandleStarted(ids[:2])
			time.Sleep(10 * time.Second)
			if cut {
				s.Close("cut", nil)
				time.Sleep(5 * time.Second)
			}
			b.store.took()
			s2, out := b.connect("w", 4, 2, ids[0], "nonsense")
			b.wantSent(out, "cancel  lease_lost") // nonsense has no job
			if !cut && !errors.Is(old.reason(), job.ErrSuperseded) {
				t.Errorf("old stream goes on: %v", old.reason())
			}
			synctest.Wait()
			changes := b.ledger.took()
			if len(changes) != 2 {
				t.Fatalf("events: %+v", changes)
			}
			for _, c := range changes {
				switch ev := c.Input.(type) {
				case job.LoseLease: // it had started, so it counts towards poison
					if c.Record != "ns/crashed" || !c.Known.State.Acked {
						t.Errorf("lost %s, acknowledged %v", c.Record, c.Known.State.Acked)
					}
				case job.ReturnLease:
					if c.Record != "ns/missed" {
						t.Errorf("returned %s", c.Record)
					}
				default:
					t.Errorf("event %T", ev)
				}
			}
			b.wantFree(3)
			if got := b.store.took(); len(got) != 1 || got[0].Epoch != 2 || got[0].Record != "ns/kept" {
				t.Errorf("taken over by %+v", got)
			}
			s.Close("late", nil)
			s2.HandleResults(ok(ids[0]))
			b.wantSent(out, "ack kept accepted")
			b.wantFree(4)
		})
	}
}

// The report of the start was lost with the stream; the lease in Hello proves the start as well.
func TestReconnectWithALeaseThatWasOnlyDelivered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		s, _ := b.connect("w", 1, 1)
		ids := b.deliver("a")
		s.Close("cut", nil)
		time.Sleep(5 * time.Second)
		_, out := b.connect("w", 1, 2, ids[0])
		b.wantFree(0)
		if n := b.seen.all(); len(n) != 1 || n[0].Kind != job.AttemptStarted || n[0].AtMS != n[0].DueMS {
			t.Errorf("observed %+v", n)
		}
		if l := b.store.lease("ns/a"); !l.rec.State.Acked || l.rec.State.Epoch != 2 {
			t.Errorf("stored as %+v", l.rec.State)
		}
		time.Sleep(job.DefaultTimeout + job.DefaultTimeoutGrace - time.Millisecond)
		b.wantSent(out)
		time.Sleep(time.Millisecond)
		b.wantSent(out, "cancel a timed_out")
	})
}

// The worker is back while the renewal of its former session is on the way: the
// answer to that does not make the lease the new session's.
func TestReconnectDuringARenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		s, _ := b.connect("w", 4, 1)
		ids := b.deliver("a")
		s.HandleStarted(ids)
		b.store.mu.Lock()
		b.store.during = func() { b.connect("w", 4, 2, ids[0]) }
		b.store.mu.Unlock()
		time.Sleep(time.Second)
		synctest.Wait()
		if got := b.store.took(); len(got) != 2 || got[0].Epoch != 1 || got[1].Epoch != 2 {
			t.Errorf("renewed %+v", got)
		}
	})
}

// TestIdentitiesDoNotLockEachOtherOut: a worker's id is chosen by its client, so one identity must not keep
// another from a node by its id, whichever comes first and whatever the epochs.
func TestIdentitiesDoNotLockEachOtherOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		eve, toEve := b.greet(job.Hello{WorkerID: "w", Slots: 1, Epoch: job.MaxEpoch, Identity: "token:eve"})
		eve.HandleDraining() // takes nothing
		ann, _ := b.greet(job.Hello{WorkerID: "w", Slots: 1, Epoch: 1, Identity: "token:ann"})
		id := b.deliver("a")[0]
		ann.HandleStarted([]string{id})
		b.wantSent(toEve)

		// A report of one session about a lease of the other changes nothing.
		eve.HandleLost([]string{id})
		eve.HandleReturned([]string{id})
		eve.HandleResults(ok(id))
		b.wantSent(toEve, "ack a stale")
		b.wantEvents()
		_, toEve2 := b.greet(job.Hello{WorkerID: "w", Slots: 1, Epoch: job.MaxEpoch, Identity: "token:eve2", Live: []string{id}})
		b.wantSent(toEve2, "cancel a lease_lost")

		// Neither does the end of one, nor that a stranger is here while the owner's stream is cut.
		eve.Close("cut", nil)
		ann.Close("cut", nil)
		_, toEve = b.greet(job.Hello{WorkerID: "w", Slots: 1, Epoch: job.MaxEpoch, Identity: "token:eve", Live: []string{id}})
		b.wantSent(toEve, "cancel a lease_lost")
		again, toAnn := b.greet(job.Hello{WorkerID: "w", Slots: 1, Epoch: 2, Identity: "token:ann", Live: []string{id}})
		again.HandleResults(ok(id))
		b.wantSent(toAnn, "ack a accepted")
		b.wantEvents("FinishAttempt a succeeded")
	})
}

// TestWorkersOfOneIDAreListedByIdentity: all of them, each with its own.
func TestWorkersOfOneIDAreListedByIdentity(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		for _, identity := range []string{"token:eve", "token:ann"} {
			b.greet(job.Hello{WorkerID: "w", Slots: 1, Epoch: 1, Identity: identity})
		}
		var listed []string
		for _, w := range b.d.Workers() {
			listed = append(listed, w.ID+" "+w.Identity)
		}
		if want := []string{"w token:ann", "w token:eve"}; !slices.Equal(listed, want) {
			t.Errorf("listed %q, want %q", listed, want)
		}
		if loads := b.d.QueueLoads(); len(loads) != 1 || loads[0].Workers != 2 || loads[0].Free != 2 {
			t.Errorf("loads %+v", loads)
		}
	})
}

func TestOlderSessionIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		s, _ := b.connect("w", 1, 5)
		hello := job.Hello{WorkerID: "w", Namespace: "ns", Queues: []string{"q"}, Slots: 1, Epoch: 5}
		if _, err := b.d.Connect(hello, &fakeStream{}); !errors.Is(err, job.ErrSuperseded) {
			t.Errorf("same epoch: %v", err)
		}
		// A process that counts from the start again is another one: what the
		// one before it had is left to expire, for it may still run.
		s.HandleStarted(b.deliver("a"))
		s.Close("crash", nil)
		b.connect("w", 1, 1)
		b.wantEvents()
		b.wantFree(1)
		time.Sleep(2 * ttl)
		b.wantEvents()
		if n := b.remembered(); n != 0 {
			t.Errorf("%d attempts are remembered", n)
		}
		hello.Epoch = 9
		if _, err := b.d.Connect(hello, &fakeStream{full: true}); err == nil {
			t.Error("a stream that takes no welcome was admitted")
		}
	})
}

// A worker comes from another node with leases that only the store knows.
func TestAdoptionFromAnotherNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		other := newBench(t)
		other.store = b.store
		other.d.o.Store = b.store
		s1, _ := other.connect("w", 4, 1)
		ids := other.deliver("a", "b", "c")
		s1.HandleStarted(ids)
		time.Sleep(9 * time.Second)
		b.store.update("ns/b", func(l *fakeLease) { l.rec.State.Token++ })
		b.store.update("ns/c", func(l *fakeLease) { l.rec.State.Cancel = true })

		// The old node believes in a half-open stream.
		b.store.setFail(job.ErrUnavailable)
		hello := append([]string{job.LeaseID("ns/gone", 77), job.LeaseID("theirs/a", 78)}, ids...)
		s2, out := b.connect("w", 8, 2, hello...)
		b.wantSent(out, "cancel a lease_lost") // of the other namespace; the rest is not known yet
		b.wantFree(4)
		b.store.setFail(nil)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		got := map[string]bool{}
		for _, m := range out.took() {
			got[m] = true
		}
		if len(got) != 3 || !got["cancel b lease_lost"] || !got["cancel gone lease_lost"] || !got["cancel c requested"] {
			t.Errorf("worker was sent %v", got)
		}
		if e := b.store.lease("ns/a").rec.State.Epoch; e != 2 {
			t.Errorf("epoch is %d", e)
		}
		// The old node learns it from its next renewal and ends its stream.
		time.Sleep(10 * time.Second)
		synctest.Wait()
		s2.HandleResults(ok(ids[0]))
		b.wantSent(out, "ack a accepted")
		settle := b.wantEvents("FinishAttempt a succeeded")[0]
		if ev := settle.Input.(job.FinishAttempt); int64(unixtime.MilliOf(time.Now())-ev.StartedMS) < 21_000 || settle.Known == nil {
			t.Errorf("settled with start %d, known %v", ev.StartedMS, settle.Known)
		}
		if n := len(other.ledger.took()); n != 0 {
			t.Errorf("the old node still settles: %d", n)
		}
		// c's handler does not listen; it ends with timeout, grace and one TTL
		// from its lease at the latest.
		time.Sleep(job.DefaultTimeout + job.DefaultTimeoutGrace + 10*time.Second)
		b.wantEvents("FinishAttempt c timed_out")
	})
}

// TestLeaseOfAnotherNodeIsReturnedHere: the stream on which it came was cut before the worker could return it
// there.
func TestLeaseOfAnotherNodeIsReturnedHere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		s, out := b.connect("w", 1, 2)
		mine := b.deliver("mine")
		other, _ := b.connect("other", 1, 1)
		s.HandleReturned([]string{job.LeaseID("theirs/a", 70), "nonsense", job.LeaseID("ns/a", 71), job.LeaseID("ns/b", 72)})
		b.wantEvents("ReturnLease a", "ReturnLease b")
		other.HandleReturned(mine) // whose lease it is not
		b.wantEvents()
		b.wantSent(out, "lease mine")

		// What is not so, a node need not believe for long.
		for n := range uint64(s.hello.MaxLive() + 10) {
			s.HandleReturned([]string{job.LeaseID("ns/a", 100+n)})
		}
		synctest.Wait()
		if n := len(b.ledger.took()); n != s.hello.MaxLive()-2 {
			t.Errorf("%d were taken back", n)
		}
		if n := b.remembered(); n != 1 {
			t.Errorf("%d attempts are still known", n)
		}
	})
}

func TestDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		leaver, lout := b.connect("leaver", 1, 1)
		stayer, sout := b.connect("stayer", 1, 1)
		ids := b.deliver("a", "b")
		leaver.HandleStarted(ids)
		stayer.HandleStarted(ids)
		lout.took()
		sout.took()
		words := b.demands.Load()
		done := make(chan error, 1)
		go func() { done <- b.d.Drain(context.Background()) }()
		time.Sleep(time.Second)
		if served := b.d.Demand(); len(served) != 0 || b.demands.Load() == words {
			t.Errorf("while draining %v is served, after %d words of it", served, b.demands.Load()-words)
		}
		b.wantSent(lout, "elsewhere")
		b.wantSent(sout, "elsewhere")
		if n := b.d.Reserve("ns", "q", 1).Count(); n != 0 {
			t.Error("reserved while draining")
		}
		if _, err := b.d.Connect(job.Hello{WorkerID: "x", Namespace: "ns", Queues: []string{"q"}, Slots: 1, Epoch: 1}, &fakeStream{}); !errors.Is(err, job.ErrDraining) {
			t.Errorf("connected while draining: %v", err)
		}
		leaver.Close("elsewhere", nil)
		time.Sleep(time.Second)
		select {
		case <-done:
			t.Fatal("did not wait for the worker that stays")
		default:
		}
		for _, id := range ids {
			stayer.HandleResults(ok(id)) // the other's is refused
		}
		if err := <-done; err != nil {
			t.Errorf("drain: %v", err)
		}
		if !errors.Is(sout.reason(), job.ErrDraining) {
			t.Errorf("stream ended with %v", sout.reason())
		}
		stayer.Close("drained", nil)
	})
}

func TestDrainIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		s, out := b.connect("w", 1, 1)
		s.HandleStarted(b.deliver("a"))
		ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
		defer cancel()
		if err := b.d.Drain(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("drain: %v", err)
		}
		if out.reason() == nil {
			t.Error("stream goes on")
		}
		s.Close("drained", nil)
	})
}

func TestInspection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		r := prometheus.NewPedanticRegistry()
		d, err := New(Options{Node: "n1", Store: b.store, Ledger: b.ledger, Observer: b.seen, Registerer: r})
		if err != nil {
			t.Fatal(err)
		}
		b.d = d
		b.connect("w2", 4, 1)
		s, _ := b.connect("w1", 4, 1)
		b.deliver("a", "b", "c")
		s.HandleDraining()
		loads := d.QueueLoads()
		if len(loads) != 1 || loads[0].Running != 3 || loads[0].Workers != 2 || loads[0].Free < 2 {
			t.Errorf("loads: %+v", loads)
		}
		workers := d.Workers()
		if len(workers) != 2 || workers[0].ID != "w1" || !workers[0].Draining || workers[0].Running+workers[1].Running != 3 {
			t.Errorf("workers: %+v", workers)
		}
		families, err := r.Gather()
		if err != nil || len(families) == 0 {
			t.Errorf("metrics: %v, %v", families, err)
		}
		if _, err := New(Options{Node: "n1", Store: b.store, Ledger: b.ledger, Observer: b.seen, Registerer: r}); err == nil {
			t.Error("registered twice")
		}
	})
}

func TestOptionsAreChecked(t *testing.T) {
	good := Options{Node: "n", Store: &fakeStore{}, Ledger: &fakeLedger{}, Observer: &notices{}}
	if _, err := New(good); err != nil {
		t.Fatal(err)
	}
	for name, spoil := range map[string]func(*Options){
		"no node":  func(o *Options) { o.Node = "" },
		"no store": func(o *Options) { o.Store = nil },
		"short":    func(o *Options) { o.LeaseTTL = time.Millisecond },
		"negative": func(o *Options) { o.AckAfter = -1 },
	} {
		o := good
		spoil(&o)
		if _, err := New(o); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// A lease that is known only from the worker's report may have been renewed last a third of its life before the
// worker came. If Redis does not answer, it is given up accordingly.
func TestAReportedLeaseIsTrustedForLess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.store.setFail(job.ErrUnavailable)
		_, out := b.connect("w", 1, 1, "7@ns/elsewhere")
		told := func() bool {
			out.mu.Lock()
			defer out.mu.Unlock()
			return slices.ContainsFunc(out.messages, func(m job.WorkerMessage) bool {
				c, is := m.(job.Cancellation)
				return is && c.Reason == job.CancelLeaseLost
			})
		}
		time.Sleep(ttl - ttl/3 - ttl/10 - time.Second)
		if told() {
			t.Error("it is given up too soon")
		}
		time.Sleep(2 * time.Second)
		if !told() {
			t.Error("it is trusted longer than it may live")
		}
	})
}

// A cancel request that was sent into a stream that had broken is repeated to the worker's next one.
func TestACancelThatWasLostWithTheStreamIsRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		s, old := b.connect("w", 1, 1)
		l := b.lease("a")
		l.Known.Definition.Timeout = time.Hour
		id := job.LeaseID(l.Record, l.Known.State.Token)
		b.d.Reserve("ns", "q", 1).Deliver([]job.Leased{l})
		s.HandleStarted([]string{id})
		time.Sleep(time.Second)
		b.store.update("ns/a", func(f *fakeLease) { // the run is cancelled
			f.rec.State.Cancel = true
			f.rec.State.Revision++
		})
		b.d.CancelAttempt(l.Record, l.Known.State.Token)
		b.wantSent(old, "lease a", "cancel a requested") // which goes nowhere: the network is cut
		time.Sleep(15 * time.Second)
		s.Close("keepalive", nil)
		time.Sleep(time.Second)
		_, out := b.connect("w", 1, 2, id)
		time.Sleep(time.Minute)
		b.wantSent(out, "cancel a requested")
	})
}
