package worker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// told is a worker with a session that nobody carries.
type told struct {
	*Worker
	t       *testing.T
	s       *session
	release chan struct{} // ends handlers that block
	leases  int
}

func newTold(t *testing.T) *told {
	w, err := New(Options{Addresses: []string{"127.0.0.1:1"}, Slots: 100})
	if err != nil {
		t.Fatal(err)
	}
	b := &told{Worker: w, t: t, s: &session{w: w, wake: make(chan struct{}, 1)}, release: make(chan struct{})}
	w.Handle("quick", func(context.Context, *Task) error { return nil })
	w.Handle("slow", func(context.Context, *Task) error { <-b.release; return nil })
	w.baseContext = context.Background()
	w.table.current, w.table.trustedUntil = b.s, time.Now().Add(time.Hour)
	return b
}

func (b *told) lease(handlers ...string) {
	var list []*attempt
	for _, h := range handlers {
		b.leases++
		list = append(list, &attempt{id: strconv.Itoa(b.leases), task: Task{Handler: h}})
	}
	b.acceptLeases(b.s, list)
	synctest.Wait()
}

// want is what the sender, if it was woken, sends.
func (b *told) want(what ...string) {
	b.t.Helper()
	var got []string
	select {
	case <-b.s.wake:
		for _, m := range b.takeMessages(b.s) {
			switch m := m.(type) {
			case *resultFrame:
				got = append(got, fmt.Sprint("results ", len(m.attempts)))
			case *fermatav1.WorkRequest:
				if m.GetDraining() != nil {
					got = append(got, "draining")
					continue
				}
				got = append(got, fmt.Sprint("starts ", len(m.GetStarted().GetLeaseIds())))
			}
		}
	default:
	}
	if !slices.Equal(got, what) {
		b.t.Errorf("sent %q, want %q", got, what)
	}
}

func (b *told) wait(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// What is leased together and takes no time is reported in one message; nobody waits for
// long beside those who take longer.
func TestResultsAreCoalesced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newTold(t)
		b.lease(slices.Repeat([]string{"quick"}, 20)...)
		b.want("results 20")

		b.lease("slow", "slow")
		b.want()
		b.wait(flushDelay)
		b.want("starts 2")
		b.wait(time.Second)
		b.want()
		// Those that run have done so for a while: no other result is at hand.
		b.lease("quick")
		b.want("results 1")
		// One that has just begun may end at once, or not.
		b.lease("slow", "quick")
		b.want()
		b.wait(flushDelay)
		b.want("starts 1", "results 1")
		b.lease("slow")
		b.want()
		close(b.release)
		synctest.Wait()
		b.want("results 4")
		b.wait(time.Second)
		b.want()
		b.stopRunners()
		b.runners.Wait()
	})
}

// runQuick runs that many attempts, one each interval.
func (b *told) runQuick(n int, interval time.Duration) {
	for range n {
		b.lease("quick")
		b.wait(interval)
	}
}

// drainOutbox takes whatever waits to be sent.
func (b *told) drainOutbox() {
	select {
	case <-b.s.wake:
	default:
	}
	b.takeMessages(b.s)
}

// gathering runs test at a rate at which results are gathered.
func gathering(t *testing.T, test func(b *told)) {
	synctest.Test(t, func(t *testing.T) {
		b := newTold(t)
		b.Handle("fails", func(context.Context, *Task) error { return errors.New("broken") })
		b.runQuick(200, time.Millisecond)
		b.drainOutbox()
		test(b)
		b.stopRunners()
		close(b.release)
		b.runners.Wait()
		b.flushTimer.Stop()
	})
}

func TestFrequentResultsAreGathered(t *testing.T) {
	gathering(t, func(b *told) {
		b.lease("quick")
		b.want()
		b.wait(time.Millisecond)
		b.lease("quick", "quick")
		b.want()
		b.wait(gatherTime - time.Millisecond)
		b.want("results 3")
		// Starts wait as long.
		b.lease("slow")
		b.wait(gatherTime - time.Millisecond)
		b.want()
		b.wait(time.Millisecond)
		b.want("starts 1")
	})
}

func TestRareResultsAreSentAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newTold(t)
		for range 50 {
			b.lease("quick")
			b.want("results 1")
			b.wait(5 * time.Millisecond) // 200 a second
		}
		// After a pause the rate of the time before does not count.
		b.runQuick(200, time.Millisecond)
		b.wait(time.Second)
		b.drainOutbox()
		b.lease("quick")
		b.want("results 1")
		b.stopRunners()
		b.runners.Wait()
	})
}

// Nobody waits for a result that is gathered.
func TestResultsThatMatterAreSentAtOnce(t *testing.T) {
	for name, test := range map[string]func(b *told){
		"failure": func(b *told) {
			b.lease("quick")
			b.lease("fails")
			b.want("results 2")
		},
		"half of the slots taken": func(b *told) {
			b.lease(slices.Repeat([]string{"slow"}, b.options.Slots/2)...)
			b.wait(time.Second)
			b.drainOutbox()
			b.runQuick(200, time.Millisecond)
			b.drainOutbox()
			b.lease("quick")
			b.want("results 1")
		},
		"attempt waits for a slot": func(b *told) {
			b.lease("quick")
			b.want()
			b.lease(slices.Repeat([]string{"slow"}, b.options.Slots+1)...)
			b.want("starts 100", "results 1")
		},
		"worker drains": func(b *told) {
			b.lease("quick", "slow")
			b.want()
			b.beginDrain()
			b.want("draining", "starts 1", "results 1")
		},
		"node drains": func(b *told) {
			b.lease("quick")
			b.want()
			b.leaveNode(b.s)
			b.want("results 1")
		},
	} {
		t.Run(name, func(t *testing.T) { gathering(t, test) })
	}
}
