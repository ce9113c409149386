package webhook

import (
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fermata-io/fermata/internal/job"
)

// nowhere is a webhook whose events go through what the test puts there.
func nowhere(dir string) string { return hookText(dir, "ops", "http://127.0.0.1:1/", "") }

// TestALaneWhoseLockHasMoved rests until the node notices.
func TestALaneWhoseLockHasMoved(t *testing.T) {
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
