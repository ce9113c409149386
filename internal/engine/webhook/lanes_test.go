package webhook

import (
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/fermata-io/fermata/internal/core/job"
)

// nowhere is a webhook whose events go through what the test puts there, one at a time,
// and which tries again after an hour.
func nowhere(dir string) string {
	return strings.ReplaceAll(hookText(dir, "ops", "http://127.0.0.1:1/", "concurrency: 1"), "base-delay: 10ms, max-delay: 20ms", "base-delay: 1h, max-delay: 1h")
}

// TestLaneEndsWhenItsLockMoves rests until the node notices.
func TestLaneEndsWhenItsLockMoves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		b := run(t, m, nowhere)
		synctest.Wait()
		var calls atomic.Int64
		b.through("ops", func(q *http.Request) (*http.Response, error) {
			if calls.Add(1) == 1000 { // or this would go on without an end
				m.mu.Lock()
				m.locks[0] = "another node's"
				m.mu.Unlock()
			}
			if err := q.Context().Err(); err != nil {
				return nil, err
			}
			return answer(http.StatusOK), nil
		})
		m.mu.Lock()
		m.moved = true
		m.mu.Unlock()
		m.happen(0, job.KindRunDead)
		synctest.Wait()
		m.happen(0, job.KindRunDead)
		time.Sleep(time.Second)
		synctest.Wait()
		if n := calls.Load(); n != 1 {
			t.Errorf("%d calls", n)
		}
		families, err := b.reg.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			if f.GetName() != "fermata_webhook_request_seconds" {
				continue
			}
			if n := f.GetMetric()[0].GetHistogram().GetSampleCount(); n != 1 {
				t.Errorf("%d calls are measured", n)
			}
		}
	})
}

// TestLagOfFailingEventsSurvivesTakeover: a node that takes a shard over knows that a webhook is
// behind before it tries again. Its own clock does not matter.
func TestLagOfFailingEventsSurvivesTakeover(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory() // whose clock shows 5 s
		m.happen(0, job.KindRunDead)
		m.states[0]["ops"] = job.WebhookProgress{After: job.Place{}, Attempts: 2, FirstMS: 2000, RetryMS: 3_600_000}
		b := run(t, m, nowhere)
		b.through("ops", func(*http.Request) (*http.Response, error) { return answer(http.StatusServiceUnavailable), nil })
		lag := func(want float64) {
			t.Helper()
			time.Sleep(passInterval)
			synctest.Wait()
			if got := testutil.ToFloat64(b.c.metrics.lag.WithLabelValues("ops")); got != want {
				t.Errorf("%v s, want %v", got, want)
			}
		}
		lag(3.5) // since its first failure, and a pass
		if s, _ := m.state(0, "ops"); s.Attempts != 2 {
			t.Errorf("it was tried before its time: %+v", s)
		}
		m.happen(1, job.KindRunDead) // one of 1.001 s
		lag(4.999)
	})
}

// TestLanesTakeTurns: a lane with many events leaves time for another one.
func TestLanesTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const events = 1000
		m := newMemory()
		b := run(t, m, nowhere)
		synctest.Wait()
		var mu sync.Mutex
		var told []string
		b.through("ops", func(q *http.Request) (*http.Response, error) {
			time.Sleep(100 * time.Millisecond)
			mu.Lock()
			defer mu.Unlock()
			told = append(told, q.Header.Get("Webhook-Id"))
			return answer(http.StatusOK), nil
		})
		m.happen(0, slices.Repeat([]string{job.KindRunDead}, events)...)
		synctest.Wait()
		m.happen(1, job.KindRunDead)
		time.Sleep((events + 2) * 100 * time.Millisecond)
		synctest.Wait()
		at := slices.Index(told, ids(1, 1)[0])
		if most := int(maxTurn / (100 * time.Millisecond)); at < 0 || at > most {
			t.Errorf("the other one's came as number %d, want at most %d", at, most)
		}
		if want := append(ids(0, 1), ids(0, events)...); len(told) != events+1 || told[0] != want[0] || told[events] != want[1] {
			t.Errorf("%d were told", len(told))
		}
	})
}

// TestNewWebhookBeginsAtTheKnownEnd: a webhook that is new in a shard waits until the end of the stream is
// known, and gets no earlier events.
func TestNewWebhookBeginsAtTheKnownEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		m.unknown[1] = true
		m.happen(1, job.KindRunDead)
		b := run(t, m, nowhere)
		synctest.Wait()
		var calls atomic.Int64
		b.through("ops", func(*http.Request) (*http.Response, error) {
			calls.Add(1)
			return answer(http.StatusOK), nil
		})
		m.happen(0, job.KindRunDead)
		synctest.Wait()
		if _, known := m.state(1, "ops"); known || calls.Load() != 1 {
			t.Errorf("%d calls, begun with the other shard: %v", calls.Load(), known)
		}
		m.mu.Lock()
		m.unknown[1] = false
		m.mu.Unlock()
		time.Sleep(passInterval)
		synctest.Wait()
		if state, known := m.state(1, "ops"); !known || state.After.Seq != 1 || calls.Load() != 1 {
			t.Errorf("%d calls, begun at %+v", calls.Load(), state)
		}
	})
}

// TestShardsOfHealthyServersAreDelivered while the server of other shards is away.
func TestShardsOfHealthyServersAreDelivered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		m.dark[1] = true
		b := run(t, m, nowhere)
		synctest.Wait()
		var calls atomic.Int64
		b.through("ops", func(*http.Request) (*http.Response, error) {
			calls.Add(1)
			return answer(http.StatusOK), nil
		})
		m.happen(0, job.KindRunDead)
		synctest.Wait()
		if _, known := m.state(1, "ops"); known || calls.Load() != 1 {
			t.Errorf("%d calls", calls.Load())
		}
		m.mu.Lock()
		m.dark[1] = false
		m.mu.Unlock()
		time.Sleep(passInterval)
		synctest.Wait()
		if _, known := m.state(1, "ops"); !known {
			t.Error("the other shard has not been begun with")
		}
	})
}

// TestUnsavedPositionIsStoredLater, without another event: by the next pass, or at
// the latest when the node stops.
func TestUnsavedPositionIsStoredLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		b := run(t, m, nowhere)
		synctest.Wait()
		calls := 0
		b.through("ops", func(*http.Request) (*http.Response, error) { calls++; return answer(http.StatusOK), nil })
		save := func(err error) {
			m.mu.Lock()
			defer m.mu.Unlock()
			m.unsaved = err
		}
		stored := func(want uint64) {
			t.Helper()
			if s, _ := m.state(0, "ops"); s.After.Seq != want {
				t.Errorf("stored %+v, want %d", s, want)
			}
		}
		save(job.ErrUnavailable)
		m.happen(0, job.KindRunDead, job.KindRunDead, job.KindRunDead)
		time.Sleep(5 * time.Second)
		stored(0)
		save(nil)
		time.Sleep(5 * time.Second)
		stored(3)
		save(job.ErrUnavailable)
		m.happen(0, job.KindRunDead)
		time.Sleep(5*time.Second + passInterval/5)
		save(nil)
		b.stop()
		if stored(4); calls != 4 {
			t.Errorf("%d calls", calls)
		}
	})
}

// TestStreamThatLostItsEnd is not read again and again until something happens.
func TestStreamThatLostItsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		b := run(t, m, nowhere)
		synctest.Wait()
		b.through("ops", func(*http.Request) (*http.Response, error) { return answer(http.StatusOK), nil })
		m.mu.Lock()
		m.ahead = 5
		m.mu.Unlock()
		m.happen(0, job.KindRunDead)
		time.Sleep(10 * time.Second)
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.reads > 30 {
			t.Errorf("%d reads in ten seconds", m.reads)
		}
	})
}
