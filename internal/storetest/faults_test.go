package storetest_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/redis/go-redis/v9"

	"github.com/fermata-io/fermata/internal/faultproxy"
	"github.com/fermata-io/fermata/internal/job"
	"github.com/fermata-io/fermata/internal/redisstore"
	"github.com/fermata-io/fermata/internal/redistest"
	"github.com/fermata-io/fermata/internal/storetest"
)

// TestLostAnswers cuts one answer in five while jobs are created, leased,
// renewed and settled by several goroutines, and then counts: every effect took
// place once. A naive script on the same connections shows that the cuts were
// real.
func TestLostAnswers(t *testing.T) {
	server := redistest.Start(t)
	proxy := faultproxy.New(t, server.Addr())
	registry := prometheus.NewRegistry()
	w := storetest.NewWorld(t, server.Client())
	faulty := w.Open(func(o *redisstore.Options) {
		o.Client, o.Registerer = dial(t, "redis://"+proxy.Addr()), registry
	})
	proxy.CutReplies(0.2)

	naive := naiveControl(t, proxy, 300)
	var wg sync.WaitGroup
	for shard := range faulty.Shards() {
		wg.Go(func() { settleThrough(t, w, faulty, shard) })
	}
	wg.Wait()
	proxy.Pass()
	if naive <= 300 {
		t.Errorf("300 naive increments counted %d: the proxy did not bite", naive)
	}
	if cut := proxy.Counters().Cut; cut < 200 {
		t.Errorf("only %d answers were cut", cut)
	}
	for _, script := range []string{"lease", "apply", "create"} {
		if n := replays(t, registry, script); n == 0 {
			t.Errorf("no replay of %s was met", script)
		}
	}
}

// settleThrough takes jobs of a shard through many runs over the faulty store
// and compares what is stored with what it was told.
func settleThrough(t *testing.T, w *storetest.World, s *redisstore.Store, shard int) {
	const jobs, rounds = 20, 40
	rng := rand.New(rand.NewPCG(uint64(shard), 7))
	ctx := context.Background()
	want := map[string]*job.State{}
	var batch []job.Record
	for _, id := range w.InShard(shard, jobs) {
		d := storetest.Definition(id)
		d.Retry.MaxAttempts = 3
		batch = append(batch, w.Record(d))
	}
	created := repeat(t, func() (job.CreateReply, error) {
		r := s.Create(ctx, shard, batch)
		return r, r.Err
	})
	for i, r := range created.Results {
		if r.Code != job.Created && (r.Existing == nil || r.Existing.Definition.CreateRequestID != batch[i].Definition.CreateRequestID) {
			t.Errorf("shard %d: create: %+v", shard, r)
			return
		}
		want[batch[i].Definition.Record()] = &batch[i].State
	}
	for round := range rounds {
		w.Clock.Add(90_000)
		request := storetest.LeaseRequest(shard, jobs, fmt.Sprintf("batch-%d-%d", shard, round))
		leased := repeat(t, func() (job.LeaseReply, error) {
			r := s.Lease(ctx, []job.LeaseRequest{request})[0]
			return r, r.Err
		}).Leased
		var writes []job.Write
		for _, l := range leased {
			if l.State.Token <= want[l.Record].Token {
				t.Errorf("%s: token %d after %d", l.Record, l.State.Token, want[l.Record].Token)
			}
			outcome := []job.Outcome{job.OutcomeSucceeded, job.OutcomeFailed}[rng.IntN(2)]
			writes = append(writes, w.Settle(l, outcome))
		}
		if len(writes) == 0 {
			continue
		}
		reply := repeat(t, func() (job.ApplyReply, error) {
			r := s.Apply(ctx, shard, writes)
			return r, r.Err
		})
		for i, r := range reply.Results {
			if r.Code != job.Written {
				t.Errorf("%s: code %d: %+v", writes[i].Record, r.Code, r.Current)
			}
			want[writes[i].Record] = &writes[i].Decision.State
		}
	}
	for record, state := range want {
		stored := repeat(t, func() ([]*job.Record, error) { return s.GetRecords(ctx, shard, []string{record}) })[0]
		if got := fmt.Sprintf("%+v", stored.State); got != fmt.Sprintf("%+v", *state) {
			t.Errorf("%s: stored\n%s, told\n%+v", record, got, *state)
		}
		if state.Runs < rounds/2 {
			t.Errorf("%s: only %d runs", record, state.Runs)
		}
	}
}

// repeat calls until Redis could be asked.
func repeat[T any](t *testing.T, call func() (T, error)) T {
	for range 100 {
		v, err := call()
		if err == nil {
			return v
		}
		if !errors.Is(err, job.ErrUnavailable) {
			t.Errorf("call: %v", err)
			return v
		}
	}
	t.Error("100 calls in a row were cut")
	var none T
	return none
}

// naiveControl counts in a script that does not know its own repeats, as a
// client does that sends it again after an error.
func naiveControl(t *testing.T, proxy *faultproxy.Proxy, n int) int {
	t.Helper()
	c := dial(t, "redis://"+proxy.Addr())
	for range n {
		for c.Eval(t.Context(), "return redis.call('incr', KEYS[1])", []string{"naive"}).Err() != nil {
		}
	}
	for {
		if total, err := c.Get(t.Context(), "naive").Int(); err == nil {
			return total
		}
	}
}

func replays(t *testing.T, r *prometheus.Registry, script string) float64 {
	t.Helper()
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != "fermata_redis_replays_total" {
			continue
		}
		for _, m := range f.GetMetric() {
			if m.GetLabel()[0].GetValue() == script {
				return m.GetCounter().GetValue()
			}
		}
	}
	return 0
}

// TestScriptsForgotten empties the script cache between and under pipelines.
func TestScriptsForgotten(t *testing.T) {
	server := redistest.Start(t)
	w := storetest.NewWorld(t, dial(t, server.URL()))
	for shard := range w.Store.Shards() {
		for _, id := range w.InShard(shard, 30) {
			w.Add(storetest.Once(id, 0))
		}
	}
	for range 10 {
		var requests []job.LeaseRequest
		for shard := range w.Store.Shards() {
			requests = append(requests, storetest.LeaseRequest(shard, 3, ""))
		}
		flush(t, server.Client())
		for shard, reply := range w.Store.Lease(t.Context(), requests) {
			if reply.Err != nil || len(reply.Leased) != 3 {
				t.Fatalf("shard %d: %+v", shard, reply)
			}
			flush(t, server.Client())
			for _, l := range reply.Leased {
				w.MustWrite(shard, w.Settle(l, job.OutcomeSucceeded))
			}
		}
	}
}

func flush(t *testing.T, c *redis.Client) {
	t.Helper()
	if err := c.ScriptFlush(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
}

// TestUnavailable takes the server away in all ways: calls end in time, say so,
// and work again afterwards.
func TestUnavailable(t *testing.T) {
	server := redistest.Start(t, redistest.WithAOF("always"))
	proxy := faultproxy.New(t, server.Addr())
	w := storetest.NewWorld(t, dial(t, server.URL()))
	s := w.Open(func(o *redisstore.Options) { o.Client = dial(t, "redis://"+proxy.Addr()) })
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
		if !errors.Is(reply.Err, job.ErrUnavailable) || took > time.Second {
			t.Errorf("%s: %v after %v", when, reply.Err, took)
		}
	}
	proxy.Blackhole(faultproxy.ToClient)
	unavailable("answers vanish")
	proxy.Blackhole(0)
	// The lease took place; the same batch finds it.
	reply, _ := lease("lost")
	if reply.Err != nil || len(reply.Leased) != 1 {
		t.Fatalf("after the answers have vanished: %+v", reply)
	}
	server.Kill()
	unavailable("killed")
	server.Restart()
	redistest.Eventually(t, 10*time.Second, "lease after a restart", func(context.Context) error {
		reply, _ := lease("after")
		return reply.Err
	})
	w.MustWrite(0, w.Settle(reply.Leased[0], job.OutcomeSucceeded))
}

// TestMemoryFull fills the server: creating is refused whole, everything that
// lets work go on passes, and history is what is left out.
func TestMemoryFull(t *testing.T) {
	server := redistest.Start(t)
	w := storetest.NewWorld(t, dial(t, server.URL()))
	ids := w.InShard(0, 12)
	for _, id := range ids[:10] {
		d := storetest.Definition(id)
		d.Retry.MaxAttempts = 1
		w.Add(d)
	}
	w.Clock.Add(60_000)
	leased := w.Lease(0, 5)
	fill(t, server.Client(), "1")

	reply := w.Store.Create(t.Context(), 0, []job.Record{w.Record(storetest.Definition(ids[10])), w.Record(storetest.Definition(ids[11]))})
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
		{Record: leased[0].Record, Lane: storetest.Lane(), Token: leased[0].State.Token, Epoch: 1, Acked: true},
	}}})[0]
	if renewed.Err != nil || renewed.Results[0].Code != job.Renewed {
		t.Errorf("renew: %+v", renewed)
	}
	var writes []job.Write
	for _, l := range leased[:9] {
		writes = append(writes, w.Settle(l, job.OutcomeFailed))
	}
	w.MustWrite(0, writes...)
	runs, err := w.Store.Runs(t.Context(), leased[0].Definition.Key, 3)
	if err != nil || len(runs) != 0 {
		t.Errorf("history %+v (%v)", runs, err)
	}
	if s := w.Get(leased[0].Definition.ID).State; s.Dead != 1 || s.Failures != 1 {
		t.Errorf("state %+v", s)
	}
	w.Clock.Add(61_000)
	lost, err := w.Store.Expired(t.Context(), 0, leaseLock, []job.Lane{storetest.Lane()}, 10)
	if err != nil || len(lost) != 1 {
		t.Errorf("expired %+v (%v)", lost, err)
	}
	r := w.Get(leased[0].Definition.ID)
	w.MustWrite(0, w.Decide(leased[0].Record, r.Definition, r.State, job.Delete{}))
	fill(t, server.Client(), "0")
	w.Add(storetest.Definition(ids[10]))
}

var leaseLock = storetest.LeaseRequest(0, 1, "").LockValue

func fill(t *testing.T, c *redis.Client, maxmemory string) {
	t.Helper()
	if err := c.ConfigSet(t.Context(), "maxmemory", maxmemory).Err(); err != nil {
		t.Fatal(err)
	}
}

// TestErrorsAreCounted keeps the metric of errors honest.
func TestErrorsAreCounted(t *testing.T) {
	server := redistest.Start(t)
	registry := prometheus.NewRegistry()
	w := storetest.NewWorld(t, dial(t, server.URL()), func(o *redisstore.Options) { o.Registerer = registry })
	fill(t, server.Client(), "1")
	w.Store.Create(t.Context(), 0, []job.Record{w.Record(storetest.Definition(w.InShard(0, 1)[0]))})
	n, err := testutil.GatherAndCount(registry, "fermata_redis_errors_total", "fermata_redis_script_seconds")
	if err != nil || n < 2 {
		t.Errorf("%d metrics (%v)", n, err)
	}
}
