package storetest_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/unixtime"
	"github.com/fermata-io/fermata/internal/redis/redisstore"
	"github.com/fermata-io/fermata/internal/test/faultproxy"
	"github.com/fermata-io/fermata/internal/test/redistest"
	"github.com/fermata-io/fermata/internal/test/storetest"
)

// TestUnavailable takes the server away in all ways: calls end in time, with an error,
// and work again afterwards.
func TestUnavailable(t *testing.T) {
	server := redistest.Start(t, redistest.WithAOF("always"))
	proxy := faultproxy.New(t, server.Addr())
	w := storetest.NewWorld(t, server.Client(), asOptions(t, server.URL()))
	s := w.Open(func(o *redisstore.Options) { o.Client = dialRedis(t, "redis://"+proxy.Addr()) })
	id := w.InShard(0, 1)[0]
	w.Add(storetest.Definition(id))
	w.Clock.Add(60_000)

	lease := func(batch string) (job.LeaseReply, time.Duration) {
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		started := time.Now()
		reply := s.Lease(ctx, []job.LeaseRequest{storetest.LeaseRequest(0, 1, batch)})[0]
		return reply, time.Since(started)
	}
	unavailable := func(when string) {
		t.Helper()
		reply, took := lease("lost")
		// It ends with its context, not with the store's own patience.
		if !errors.Is(reply.Err, job.ErrUnavailable) || took > 20*time.Second {
			t.Errorf("%s: %v after %v", when, reply.Err, took)
		}
	}
	proxy.Blackhole(faultproxy.ToClient)
	unavailable("answers vanish")
	proxy.Blackhole(0)
	// The lease took place; the same batch finds it.
	var reply job.LeaseReply
	redistest.Eventually(t, redistest.Patience, "the lost lease", func(context.Context) error {
		reply, _ = lease("lost")
		return reply.Err
	})
	if len(reply.Leased) != 1 {
		t.Fatalf("after the answers have vanished: %+v", reply)
	}
	server.Kill()
	unavailable("killed")
	server.Restart()
	redistest.Eventually(t, redistest.Patience, "lease after a restart", func(context.Context) error {
		reply, _ := lease("after")
		return reply.Err
	})
	w.MustWrite(0, w.Settle(reply.Leased[0], job.OutcomeSucceeded))
}

// TestMemoryFull fills the server: creating is refused whole, everything that
// lets work go on passes, and history is what is left out.
func TestMemoryFull(t *testing.T) {
	server := redistest.Start(t)
	w := storetest.NewWorld(t, server.Client(), asOptions(t, server.URL()))
	ids := w.InShard(0, 12)
	for _, id := range ids[:10] {
		d := storetest.Definition(id)
		d.Retry.MaxAttempts = 1
		w.Add(d)
	}
	w.Clock.Add(60_000)
	leased := w.Lease(0, 5)
	fillMemory(t, server.Client(), "1")

	reply := storetest.Create(t.Context(), w.Store, 0, []job.Record{w.Record(storetest.Definition(ids[10])), w.Record(storetest.Definition(ids[11]))})
	if !errors.Is(reply.Err, job.ErrNoMemory) || errors.Is(reply.Err, job.ErrUnavailable) {
		t.Errorf("create: %+v", reply)
	}
	if w.Get(ids[10]) != nil || w.Get(ids[11]) != nil {
		t.Error("create wrote something before it was refused")
	}
	leased = append(leased, w.Lease(0, 5)...)
	if len(leased) != 10 {
		t.Fatalf("leased %d", len(leased))
	}
	renewed := w.Store.Renew(t.Context(), []job.RenewRequest{{Shard: 0, TTL: time.Minute, Renewals: []job.Renewal{
		{Record: leased[0].Record, Lane: storetest.Lane(), Token: leased[0].Known.State.Token, Epoch: 1, Acked: true},
	}}})[0]
	if renewed.Err != nil || renewed.Results[0].Code != job.Renewed {
		t.Errorf("renew: %+v", renewed)
	}
	var writes []job.Write
	for _, l := range leased[:9] {
		writes = append(writes, w.Settle(l, job.OutcomeFailed))
	}
	w.MustWrite(0, writes...)
	runs, err := w.Store.Runs(t.Context(), leased[0].Known.Definition.Key, 3)
	if err != nil || len(runs) != 0 {
		t.Errorf("history %+v (%v)", runs, err)
	}
	if s := w.Get(leased[0].Known.Definition.ID).State; s.Dead != 1 || s.Failures != 1 {
		t.Errorf("state %+v", s)
	}
	w.Clock.Add(61_000)
	lost, err := w.Store.Expired(t.Context(), 0, leaseLock, []job.Lane{storetest.Lane()}, 10)
	if err != nil || len(lost) != 1 {
		t.Errorf("expired %+v (%v)", lost, err)
	}
	r := w.Get(leased[0].Known.Definition.ID)
	w.MustWrite(0, w.Decide(leased[0].Record, r.Definition, r.State, job.Delete{}))
	fillMemory(t, server.Client(), "0")
	w.Add(storetest.Definition(ids[10]))
}

var leaseLock = storetest.LeaseRequest(0, 1, "").LockValue

// TestMemoryFullForRuns moves runs into records of their own, ends them and tries a
// dead one again while Redis is full: only history and dead letters are left out.
func TestMemoryFullForRuns(t *testing.T) {
	server := redistest.Start(t)
	w := storetest.NewWorld(t, server.Client(), asOptions(t, server.URL()))
	d := storetest.Overlapping(w.InShard(0, 1)[0])
	w.Add(d)
	fail := func(l job.Leased) []job.Write {
		return w.Family(l.Record, job.FinishAttempt{Token: l.Known.State.Token, Outcome: job.OutcomeFailed, StartedMS: unixtime.Milli(w.Clock.Load())})
	}
	w.MustWrite(0, fail(w.Spawn(d, 1)[0])...) // its dead letter is kept
	fillMemory(t, server.Client(), "1")
	live := w.Spawn(d, 2)
	w.MustWrite(0, fail(live[0])...)
	settle := fail(live[1])
	w.MustWrite(0, settle...)
	w.MustWrite(0, settle...)
	if s := w.Get(d.ID).State; s.Dead != 3 || s.Children != 0 {
		t.Errorf("state %+v", s)
	}
	letter := d.Record().Letter(0)
	redrive := w.Family(letter, job.Redrive{})
	w.MustWrite(0, redrive...)
	w.MustWrite(0, redrive...)
	if s := w.Get(d.ID).State; s.Children != 1 {
		t.Errorf("state %+v", s)
	}
	letters, _, _, err := w.Store.ListDeadLetters(t.Context(), "ns", "", 100)
	if err != nil || len(letters) != 0 {
		t.Errorf("dead letters %+v (%v)", letters, err)
	}
	fillMemory(t, server.Client(), "0")
}

func fillMemory(t *testing.T, c *redis.Client, maxmemory string) {
	t.Helper()
	if err := c.ConfigSet(t.Context(), "maxmemory", maxmemory).Err(); err != nil {
		t.Fatal(err)
	}
}

// TestErrorsAreCounted keeps the metric of errors honest.
func TestErrorsAreCounted(t *testing.T) {
	server := redistest.Start(t)
	registry := prometheus.NewRegistry()
	w := storetest.NewWorld(t, server.Client(), asOptions(t, server.URL()), func(o *redisstore.Options) { o.Registerer = registry })
	fillMemory(t, server.Client(), "1")
	storetest.Create(t.Context(), w.Store, 0, []job.Record{w.Record(storetest.Definition(w.InShard(0, 1)[0]))})
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == "fermata_redis_errors_total" && strings.Contains(m.String(), `"oom"`) && m.GetCounter().GetValue() > 0 {
				return
			}
		}
	}
	t.Error("no error of kind oom was counted")
}
