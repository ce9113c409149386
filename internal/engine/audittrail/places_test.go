package audittrail

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/lib/callturn"
)

// reserveAll takes places of a holder as long as there is no wait, and returns them.
func reserveAll(t *testing.T, r *Recorder, holder string) (all []job.TrailPlace) {
	t.Helper()
	ended, end := context.WithCancel(t.Context())
	end()
	for {
		place, err := r.Reserve(ended, holder)
		if err != nil {
			return all
		}
		if !place.Held {
			t.Fatalf("%q goes ahead without a place", holder)
		}
		all = append(all, place)
	}
}

// TestPlacesAreShared: one holder has half of the places, and the next always finds one.
func TestPlacesAreShared(t *testing.T) {
	r := recorder(t, Options{Store: &memory{}, QueueSize: 100})
	defer r.Stop(context.Background())
	var got []int
	all := map[string][]job.TrailPlace{}
	for _, holder := range []string{"a", "b", "c"} {
		all[holder] = reserveAll(t, r, holder)
		got = append(got, len(all[holder]))
	}
	if fmt.Sprint(got) != "[50 25 13]" {
		t.Errorf("shares are %v", got)
	}
	for _, places := range all {
		for _, place := range places {
			r.Release(place)
		}
	}
	if again := reserveAll(t, r, "d"); len(again) != 50 {
		t.Errorf("%d places after all were given back, want 50", len(again))
	}
}

// TestPlacesAreWaitedFor: for a while, unless the call ends before. A place that is given back ends the wait.
func TestPlacesAreWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := recorder(t, Options{Store: &memory{}, QueueSize: 10})
		defer r.Stop(context.Background())
		places := reserveAll(t, r, "a")
		began := time.Now()
		if _, err := r.Reserve(t.Context(), "a"); !errors.Is(err, job.ErrAuditQueueFull) || time.Since(began) != maxPlaceWait {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := r.Reserve(ctx, "a"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the call ended, and got %v", err)
		}
		began = time.Now()
		time.AfterFunc(time.Second, func() { r.Release(places[0]) })
		place, err := r.Reserve(t.Context(), "a")
		if err != nil || !place.Held || time.Since(began) != time.Second {
			t.Errorf("%+v, %v after %v", place, err, time.Since(began))
		}
		// A record gives its place back when it is written.
		time.AfterFunc(time.Second, func() { r.Record(job.TrailRecord{}, place) })
		if place, err = r.Reserve(t.Context(), "a"); err != nil || !place.Held || time.Since(began) != 2*time.Second {
			t.Errorf("%+v, %v after %v", place, err, time.Since(began))
		}
	})
}

// TestCallsHaveNoTurnsWhileTheyWaitForPlaces: they leave their turns on the node to others.
func TestCallsHaveNoTurnsWhileTheyWaitForPlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := recorder(t, Options{Store: &memory{}, QueueSize: 10})
		defer r.Stop(context.Background())
		reserveAll(t, r, "a")
		var held atomic.Int64
		held.Store(1)
		turn := callturn.New("a", func(context.Context) error { held.Add(1); return nil }, func() { held.Add(-1) }, nil)
		ended := make(chan error)
		go func() {
			_, err := r.Reserve(callturn.NewContext(t.Context(), turn), "a")
			ended <- err
		}()
		synctest.Wait()
		if held.Load() != 0 {
			t.Error("a call has its turn while it waits for a place")
		}
		if err := <-ended; !errors.Is(err, job.ErrAuditQueueFull) || held.Load() != 1 {
			t.Errorf("%v, with %d turns", err, held.Load())
		}
	})
}

// TestCallsGoAheadWhileNothingIsStored: calls wait for a place until nothing was stored for a while, and then no more,
// until something is. What they change counts as lost if there is no place for it in the end either.
func TestCallsGoAheadWhileNothingIsStored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &memory{err: errors.New("away")}
		r := recorder(t, Options{Store: store, QueueSize: 10, WriteTimeout: time.Hour})
		places := reserveAll(t, r, "a")
		r.Record(job.TrailRecord{}, job.TrailPlace{})
		began := time.Now()
		place, err := r.Reserve(t.Context(), "a")
		if err != nil || place.Held || time.Since(began) != stuckAfter {
			t.Fatalf("%+v, %v after %v", place, err, time.Since(began))
		}
		began = time.Now()
		if place, err = r.Reserve(t.Context(), "a"); err != nil || place.Held || time.Since(began) != 0 {
			t.Fatalf("%+v, %v after %v", place, err, time.Since(began))
		}
		r.Record(job.TrailRecord{}, place)
		if lost := testutil.ToFloat64(r.lostRecords); lost != 1 {
			t.Errorf("%v are lost, want 1", lost)
		}
		r.Release(places[0])
		r.Record(job.TrailRecord{}, place)
		if lost := testutil.ToFloat64(r.lostRecords); lost != 1 {
			t.Errorf("%v are lost after a place was free", lost)
		}
		store.fail(nil)
		time.Sleep(2 * retryPause)
		synctest.Wait()
		began = time.Now()
		for range 2 { // the place that the record had, and none
			place, err = r.Reserve(t.Context(), "a")
		}
		if !errors.Is(err, job.ErrAuditQueueFull) || time.Since(began) != maxPlaceWait {
			t.Errorf("%+v, %v after %v: records are stored again", place, err, time.Since(began))
		}
		r.Stop(t.Context())
	})
}

// TestLossesAreInTheChain: after an outage one record says how many were lost and when. It is there also if no call
// follows, it is verified, and exports get it.
func TestLossesAreInTheChain(t *testing.T) {
	for name, follow := range map[string]bool{"a call follows": true, "none does": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store, began := &memory{}, time.Now()
				r := recorder(t, Options{Store: store, Node: "n", QueueSize: 10})
				r.Record(job.TrailRecord{Resource: "before"}, job.TrailPlace{})
				synctest.Wait()
				store.fail(errors.New("away"))
				time.Sleep(time.Second)
				r.Record(job.TrailRecord{Resource: "one that is tried"}, job.TrailPlace{})
				synctest.Wait()
				time.Sleep(time.Second)
				for range 13 {
					r.Record(job.TrailRecord{}, job.TrailPlace{})
				}
				time.Sleep(2 * DefaultWriteTimeout)
				synctest.Wait()
				if lost := testutil.ToFloat64(r.lostRecords); lost != 14 {
					t.Errorf("%v are lost, want 14", lost)
				}
				store.fail(nil)
				if follow {
					r.Record(job.TrailRecord{Resource: "after"}, job.TrailPlace{})
				}
				time.Sleep(checkEvery + time.Second)
				synctest.Wait()

				at := func(seconds int) string {
					return began.Add(time.Duration(seconds) * time.Second).UTC().Format("2006-01-02T15:04:05.000Z")
				}
				want := fmt.Sprint("fermata n ", LostMethod, " audit [records=14 from_time=", at(1), " to_time=", at(2), "]")
				page, err := r.Read(t.Context(), "", 0)
				records := page.Records
				if err != nil || len(records) < 2 || len(records) != map[bool]int{true: 3, false: 2}[follow] {
					t.Fatalf("%v, %+v", err, records)
				}
				l := records[1]
				if got := fmt.Sprint(l.Identity, " ", l.Node, " ", l.Method, " ", l.Resource, " ", l.Fields); got != want {
					t.Errorf("got  %s\nwant %s", got, want)
				}
				if breaks := check(records, nil); len(breaks) > 0 || follow && records[2].Resource != "after" {
					t.Errorf("%+v, %+v", breaks, records)
				}
				// It is said once.
				r.Record(job.TrailRecord{}, job.TrailPlace{})
				r.Stop(t.Context())
				if n := len(store.records); n != len(records)+1 {
					t.Errorf("%d records after another one, want %d", n, len(records)+1)
				}
			})
		})
	}
}

// TestLossesWhileTheyAreWritten are said by the next record of losses.
func TestLossesWhileTheyAreWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &memory{}
		r := recorder(t, Options{Store: store})
		r.countLost(loss{records: 2, first: 5, last: 7}, nil)
		var once sync.Once
		store.before = func() { once.Do(func() { r.countLost(loss{records: 3, first: 8, last: 9}, nil) }) }
		r.Record(job.TrailRecord{}, job.TrailPlace{})
		synctest.Wait()
		r.Stop(t.Context())
		var got []string
		for _, l := range store.records {
			got = append(got, fmt.Sprint(l.Fields))
		}
		want := "[[records=2 from_time=1970-01-01T00:00:00.005Z to_time=1970-01-01T00:00:00.007Z] [] " +
			"[records=3 from_time=1970-01-01T00:00:00.007Z to_time=1970-01-01T00:00:00.009Z]]"
		if fmt.Sprint(got) != want || len(check(store.records, nil)) > 0 {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	})
}

// TestBatchesAreBounded: a write has up to 300 records, and about 1 MiB of large ones.
func TestBatchesAreBounded(t *testing.T) {
	large := job.TrailRecord{}
	for range job.MaxTrailNames {
		large.Names = append(large.Names, string(make([]byte, job.MaxTrailText)))
	}
	for name, c := range map[string]struct {
		record job.TrailRecord
		want   int
	}{"small": {job.TrailRecord{}, maxBatch}, "large": {large, maxBatchBytes/large.Size() + 1}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := &memory{}
				hold := make(chan struct{})
				store.before = func() { <-hold }
				r := recorder(t, Options{Store: store})
				r.Record(c.record, job.TrailPlace{})
				synctest.Wait()
				for range 2000 {
					r.Record(c.record, job.TrailPlace{})
				}
				hold <- struct{}{}
				hold <- struct{}{}
				synctest.Wait()
				store.mu.Lock()
				if n := len(store.records) - 1; n != c.want {
					t.Errorf("%d records by one write, want %d", n, c.want)
				}
				store.mu.Unlock()
				close(hold)
				r.Stop(t.Context())
				if len(store.records) != 2001 || len(check(store.records, nil)) > 0 {
					t.Errorf("%d records", len(store.records))
				}
			})
		})
	}
}
