package worker

import (
	"context"
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
