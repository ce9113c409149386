package ledger

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
)

// slowReads is a store whose reads take a round trip.
type slowReads struct {
	*fakeStore
	reads atomic.Int64
}

func (s *slowReads) GetRecords(ctx context.Context, shard int, names []job.RecordID) ([]*job.Record, error) {
	time.Sleep(time.Millisecond)
	s.reads.Add(1)
	return s.fakeStore.GetRecords(ctx, shard, names)
}

func newSlowLedger() (*Ledger, *slowReads) {
	records := map[job.RecordID]*job.Record{"ns/busy": record("busy"), "ns/other": record("other")}
	store, rec := &slowReads{fakeStore: &fakeStore{records: records}}, &recorder{}
	return New(Options{Store: store, Observer: rec, Nudger: rec}), store
}

// pauseTime pauses a job, and returns how long that took.
func pauseTime(t *testing.T, l *Ledger, record job.RecordID) time.Duration {
	began := time.Now()
	result := l.SubmitAndWait(t.Context(), job.Change{Record: record, Input: job.Pause{Note: "y"}})[0]
	if result.Err != nil {
		t.Error(result.Err)
	}
	return time.Since(began)
}

// TestEndedCallsDelayNobody: calls that end soon leave no work behind, however many of them there were.
func TestEndedCallsDelayNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, store := newSlowLedger()
		defer l.Stop()
		for range 500 { // 10 s
			var calls sync.WaitGroup
			for range 64 {
				calls.Go(func() {
					ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
					defer cancel()
					l.SubmitAndWait(ctx, job.Change{Record: "ns/busy", Input: job.Pause{Note: "x"},
						Begin: func() bool { return ctx.Err() == nil }})
				})
			}
			calls.Wait()
		}
		reads := store.reads.Load()
		if waited := pauseTime(t, l, "ns/other"); waited > 10*time.Millisecond || store.reads.Load() > reads+2 {
			t.Errorf("behind calls that have ended, a change waited %v for %d reads", waited, store.reads.Load()-reads)
		}
	})
}

// TestChangesOfOneJobLeaveRoomToOthers: changes of one job, which wait for one another, do not fill the batches of
// their shard. They are made in their order.
func TestChangesOfOneJobLeaveRoomToOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _ := newSlowLedger()
		defer l.Stop()
		var order []int
		ended := make(chan bool, 1)
		const changes = 1000
		for i := range changes {
			l.Submit(job.Change{Record: "ns/busy", Input: job.Pause{Note: "x"}}, func(job.ChangeResult) {
				order = append(order, i)
				if len(order) == changes {
					ended <- true
				}
			})
		}
		time.Sleep(10 * time.Millisecond)
		for range 3 {
			if waited := pauseTime(t, l, "ns/other"); waited > 10*time.Millisecond {
				t.Errorf("behind %d changes of another job, a change waited %v", changes, waited)
			}
		}
		<-ended
		for i, n := range order {
			if i != n {
				t.Fatalf("change %d was made as number %d", n, i)
			}
		}
	})
}
