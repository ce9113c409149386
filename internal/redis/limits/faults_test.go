package limits

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/redis/conn"
	"github.com/fermata-io/fermata/internal/redis/runner"
	"github.com/fermata-io/fermata/internal/test/faultproxy"
	"github.com/fermata-io/fermata/internal/test/redistest"
)

// TestLimitsLoseAnswers loses the answer to each kind of call once: the store asks
// again, and the effect is that of one call.
func TestLimitsLoseAnswers(t *testing.T) {
	server := redistest.Start(t)
	proxy := faultproxy.New(t, server.Addr())
	s := limitWorld{url: "redis://" + proxy.Addr()}.store(t)
	lost := int64(0)
	lose := func() {
		proxy.CutNextReplies(1)
		lost++
	}
	ask := func(holder string) job.UnitRequest {
		return job.UnitRequest{Name: "n", Limit: 1, Holder: holder, Waiter: job.RecordID("record-" + holder), TTL: time.Minute}
	}
	lose()
	if g := acquire(t, s, ask("a")); !g.Granted {
		t.Errorf("acquire: %+v", g)
	}
	lose()
	if g := acquire(t, s, ask("b")); g.Granted || g.By != "a" {
		t.Errorf("second: %+v", g)
	}
	lose()
	if lost, err := s.RenewUnits(t.Context(), []job.UnitRenewal{{Name: "n", Holder: "a", TTL: time.Minute}}); err != nil || len(lost) > 0 {
		t.Errorf("keep: %v", err)
	}
	lose()
	if woken := release(t, s, "n", 1, "a"); len(woken) != 1 || woken[0] != "record-b" {
		t.Errorf("release wakes %v", woken)
	}
	rate := job.RateRequest{Name: "n", N: 3, Interval: time.Hour, Burst: 10}
	for _, n := range []int{3, -1} {
		rate.N = n
		lose()
		if g := s.TakeRate(t.Context(), []job.RateRequest{rate})[0]; g.Err != nil || g.N != n {
			t.Errorf("take %d: %+v", n, g)
		}
	}
	rate.N = 100
	if g := s.TakeRate(t.Context(), []job.RateRequest{rate})[0]; g.N != 8 {
		t.Errorf("after 3 taken and 1 given back %d of 10 are left", g.N)
	}
	for _, swap := range []job.CellSwap{{Name: "c", New: "1"}, {Name: "c", Old: "1", New: "2"}, {Name: "c", Old: "2"}} {
		lose()
		if r := s.SwapCells(t.Context(), []job.CellSwap{swap})[0]; r.Err != nil || !r.Swapped || r.Text != swap.New {
			t.Errorf("%+v: %+v", swap, r)
		}
	}
	lose()
	if err := s.PutQueueSettings(t.Context(), job.QueueKey{Namespace: "n", Queue: "q"}, job.QueueSettings{Burst: 1}, ""); err != nil {
		t.Errorf("settings: %v", err)
	}
	if cut := proxy.Counters().Cut; cut != lost {
		t.Errorf("%d answers were cut, want %d", cut, lost)
	}
}

// TestLimitsAtMaxMemory: a full Redis refuses new jobs, but units, rates, cells and
// settings go on.
func TestLimitsAtMaxMemory(t *testing.T) {
	server := redistest.Start(t)
	s := limitWorld{url: server.URL()}.store(t)
	if g := acquire(t, s, job.UnitRequest{Name: "n", Limit: 1, Holder: "a", TTL: time.Minute}); !g.Granted {
		t.Fatalf("%+v", g)
	}
	if err := server.Client().ConfigSet(t.Context(), "maxmemory", "1").Err(); err != nil {
		t.Fatal(err)
	}
	if err := server.Client().Set(t.Context(), "x", "y", 0).Err(); err == nil || !strings.HasPrefix(err.Error(), "OOM") {
		t.Fatalf("memory is not full: %v", err)
	}
	release(t, s, "n", 1, "a")
	if g := acquire(t, s, job.UnitRequest{Name: "n", Limit: 1, Holder: "b", TTL: time.Minute}); !g.Granted {
		t.Errorf("acquire: %+v", g)
	}
	if g := s.TakeRate(t.Context(), []job.RateRequest{{Name: "n", N: 1, Interval: time.Second}})[0]; g.Err != nil || g.N != 1 {
		t.Errorf("rate: %+v", g)
	}
	if r := s.SwapCells(t.Context(), []job.CellSwap{{Name: "n", New: "x"}})[0]; r.Err != nil || !r.Swapped {
		t.Errorf("cell: %+v", r)
	}
	if err := s.PutQueueSettings(t.Context(), job.QueueKey{Namespace: "n", Queue: "q"}, job.QueueSettings{Burst: 1}, ""); err != nil {
		t.Errorf("settings: %v", err)
	}
}

// TestLimitsUnconfirmed: what no replica confirms is answered in full, with the
// error beside it; rates and what only reads need no confirmation.
func TestLimitsUnconfirmed(t *testing.T) {
	s := limitWorld{url: redistest.Start(t).URL()}.store(t, func(o *runner.Options) {
		o.Durability, o.WaitTimeout = conn.DurabilityReplica, time.Millisecond
	})
	ctx := t.Context()
	grant := s.AcquireUnits(ctx, []job.UnitRequest{{Name: "n", Limit: 1, Holder: "a", TTL: time.Minute}})[0]
	if !errors.Is(grant.Err, job.ErrDurability) || !grant.Granted || grant.NowMS == 0 {
		t.Errorf("acquire: %+v", grant)
	}
	if _, err := s.RenewUnits(ctx, []job.UnitRenewal{{Name: "n", Holder: "a", TTL: time.Minute}}); !errors.Is(err, job.ErrDurability) {
		t.Errorf("keep: %v", err)
	}
	if r := s.SwapCells(ctx, []job.CellSwap{{Name: "n", New: "x"}})[0]; !errors.Is(r.Err, job.ErrDurability) || !r.Swapped {
		t.Errorf("swap: %+v", r)
	}
	if err := s.PutQueueSettings(ctx, job.QueueKey{Namespace: "n", Queue: "q"}, job.QueueSettings{}, ""); !errors.Is(err, job.ErrDurability) {
		t.Errorf("settings: %v", err)
	}
	if r := s.TakeRate(ctx, []job.RateRequest{{Name: "n", N: 1, Interval: 1}})[0]; r.Err != nil || r.N != 1 {
		t.Errorf("rate: %+v", r)
	}
	if r := s.ReadCells(ctx, []string{"n"})[0]; r.Err != nil || r.Text != "x" {
		t.Errorf("read: %+v", r)
	}
	if n, err := s.FreeUnits(ctx, "n", 3); err != nil || n != 2 {
		t.Errorf("room %d (%v)", n, err)
	}
}
