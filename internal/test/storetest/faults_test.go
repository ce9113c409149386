package storetest_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/schedule"
	"github.com/fermata-io/fermata/internal/redis/conn"
	"github.com/fermata-io/fermata/internal/redis/redisstore"
	"github.com/fermata-io/fermata/internal/test/faultproxy"
	"github.com/fermata-io/fermata/internal/test/redistest"
	"github.com/fermata-io/fermata/internal/test/storetest"
)

// behindProxy makes a world on the server, and in it a store behind a proxy with metrics of
// its own.
func behindProxy(t *testing.T, server *redistest.Server) (*storetest.World, *faultproxy.Proxy, *redisstore.Store, *prometheus.Registry) {
	t.Helper()
	proxy, registry := faultproxy.New(t, server.Addr()), prometheus.NewRegistry()
	w := storetest.NewWorld(t, server.Client())
	return w, proxy, w.Open(func(o *redisstore.Options) {
		o.Client, o.Registerer = dialRedis(t, "redis://"+proxy.Addr()), registry
	}), registry
}

// TestLostReplies cuts one answer in five while jobs are created, leased,
// renewed and settled by several goroutines, and then counts: every effect took
// place once. A naive script on the same connections shows that the cuts were
// real.
func TestLostReplies(t *testing.T) {
	server := redistest.Start(t)
	w, proxy, faulty, registry := behindProxy(t, server)
	proxy.CutReplies(0.2)

	naive := naiveControl(t, server, proxy, 300)
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
		if n := countReplays(t, registry, script); n == 0 {
			t.Errorf("no replay of %s was met", script)
		}
	}
}

// TestOneLostReply loses the first answer to each kind of call: the store finds
// out by itself what became of it.
func TestOneLostReply(t *testing.T) {
	server := redistest.Start(t)
	proxy := faultproxy.New(t, server.Addr())
	w := storetest.NewWorld(t, server.Client())
	s := w.Open(func(o *redisstore.Options) { o.Client = dialRedis(t, "redis://"+proxy.Addr()) })
	ctx := t.Context()
	lost := int64(0)
	lose := func() {
		t.Helper()
		if cut := proxy.Counters().Cut; cut != lost {
			t.Errorf("%d answers were cut, want %d", cut, lost)
		}
		proxy.CutNextReplies(1)
		lost++
	}
	id := w.InShard(0, 1)[0]
	d := storetest.Once(id, 0)
	lose()
	created := storetest.Create(ctx, s, 0, []job.Record{w.Record(d)})
	if created.Err != nil || created.Results[0].Code != job.Created {
		t.Errorf("create: %+v", created)
	}
	lose()
	reply := s.Lease(ctx, []job.LeaseRequest{storetest.LeaseRequest(0, 1, "")})[0]
	if reply.Err != nil || len(reply.Leased) != 1 {
		t.Fatalf("lease: %+v", reply)
	}
	l := reply.Leased[0]
	lose()
	renewed := s.Renew(ctx, []job.RenewRequest{{Shard: 0, TTL: time.Minute, Renewals: []job.Renewal{
		{Record: l.Record, Lane: storetest.Lane(), Token: l.Known.State.Token, Epoch: 1},
	}}})[0]
	if renewed.Err != nil || renewed.Results[0].Code != job.Renewed {
		t.Errorf("renew: %+v", renewed)
	}
	settle := w.Settle(l, job.OutcomeSucceeded)
	remove := w.Decide(l.Record, &d, settle.Decision.State, job.Delete{})
	for _, write := range []job.Write{settle, remove} {
		lose()
		if r := s.Apply(ctx, 0, []job.Write{write}); r.Err != nil || r.Results[0].Code != job.Written {
			t.Errorf("apply: %+v", r)
		}
	}
	lose()
	if r, err := s.Get(ctx, []job.Key{d.Key}); err != nil || r[0] != nil {
		t.Errorf("get: %+v (%v)", r, err)
	}
	if cut := proxy.Counters().Cut; cut != lost {
		t.Errorf("%d answers were cut, want %d", cut, lost)
	}
}

// settleThrough takes jobs of a shard through many runs over the faulty store
// and compares what is stored with the answers it got.
func settleThrough(t *testing.T, w *storetest.World, s *redisstore.Store, shard int) {
	const jobs, rounds = 20, 60
	rng := rand.New(rand.NewPCG(uint64(shard), 7))
	ctx := context.Background()
	want := map[job.RecordID]*job.State{}
	for _, id := range w.InShard(shard, jobs) {
		d := storetest.Definition(id)
		d.Retry.MaxAttempts = 3
		r := w.Record(d)
		created := callUntilAvailable(t, func() (job.CreateReply, error) {
			reply := storetest.Create(ctx, s, shard, []job.Record{r})
			return reply, reply.Err
		})
		if created.Results[0].Code != job.Created {
			t.Errorf("create %s: %+v", id, created)
			return
		}
		want[d.Record()] = &r.State
	}
	for round := range rounds {
		w.Clock.Add(90_000)
		request := storetest.LeaseRequest(shard, jobs, fmt.Sprintf("batch-%d-%d", shard, round))
		leased := callUntilAvailable(t, func() (job.LeaseReply, error) {
			r := s.Lease(ctx, []job.LeaseRequest{request})[0]
			return r, r.Err
		}).Leased
		var writes []job.Write
		for _, l := range leased {
			if l.Known.State.Token <= want[l.Record].Token {
				t.Errorf("%s: token %d after %d", l.Record, l.Known.State.Token, want[l.Record].Token)
			}
			outcome := []job.Outcome{job.OutcomeSucceeded, job.OutcomeFailed}[rng.IntN(2)]
			writes = append(writes, w.Settle(l, outcome))
		}
		if len(writes) == 0 {
			continue
		}
		reply := callUntilAvailable(t, func() (job.ApplyReply, error) {
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
		stored := callUntilAvailable(t, func() ([]*job.Record, error) { return s.GetRecords(ctx, shard, []job.RecordID{record}) })[0]
		if got, want := storetest.FormatState(stored.State), storetest.FormatState(*state); got != want {
			t.Errorf("%s: stored\n%s, answered\n%s", record, got, want)
		}
		if state.Runs < rounds/4 {
			t.Errorf("%s: only %d runs", record, state.Runs)
		}
	}
}

// callUntilAvailable calls until Redis could be asked.
func callUntilAvailable[T any](t *testing.T, call func() (T, error)) T {
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
func naiveControl(t *testing.T, server *redistest.Server, proxy *faultproxy.Proxy, n int) int {
	t.Helper()
	o := *server.Client().Options()
	o.Addr, o.MaxRetries = proxy.Addr(), -1
	c := redis.NewClient(&o)
	t.Cleanup(func() { _ = c.Close() })
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

func countReplays(t *testing.T, r *prometheus.Registry, script string) float64 {
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
	w := storetest.NewWorld(t, server.Client(), asOptions(t, server.URL()))
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
		flushAll(t, server.Client())
		texts := countCalls(t, server, "eval")
		for shard, reply := range w.Store.Lease(t.Context(), requests) {
			if reply.Err != nil || len(reply.Leased) != 3 {
				t.Fatalf("shard %d: %+v", shard, reply)
			}
			if n := countCalls(t, server, "eval") - texts; shard == 0 && n != 1 {
				t.Fatalf("the text of the script was sent %d times", n)
			}
			flushAll(t, server.Client())
			for _, l := range reply.Leased {
				w.MustWrite(shard, w.Settle(l, job.OutcomeSucceeded))
			}
		}
	}
}

func flushAll(t *testing.T, c *redis.Client) {
	t.Helper()
	if err := c.ScriptFlush(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
}

// TestLateLeaseIsRefused: a leasing call that the network delivers when its caller
// has given up leases nothing, since no worker would run it.
func TestLateLeaseIsRefused(t *testing.T) {
	server := redistest.Start(t)
	proxy := faultproxy.New(t, server.Addr())
	realTime := func(client redis.UniversalClient) func(*redisstore.Options) {
		return func(o *redisstore.Options) { o.Client, o.Virtual, o.Prefix = client, nil, "late" }
	}
	w := storetest.NewWorldAt(t, server.Client(), "late", time.Now().UnixMilli(), realTime(server.Client()))
	far := w.Open(realTime(dialRedis(t, "redis://"+proxy.Addr())))
	w.Lease(0, 1) // the server knows the script from now on
	d := storetest.Definition(w.InShard(0, 1)[0])
	d.Schedule = schedule.Spec{Kind: schedule.KindOnce, At: time.Now().Add(-time.Minute)}
	w.Add(d)

	proxy.Blackhole(faultproxy.ToServer)
	redistest.Eventually(t, redistest.Patience, "a call is held back", func(context.Context) error {
		ctx, cancel := context.WithTimeout(t.Context(), conn.DefaultReadTimeout/2)
		defer cancel()
		if reply := far.Lease(ctx, []job.LeaseRequest{storetest.LeaseRequest(0, 1, "lost")})[0]; !errors.Is(reply.Err, job.ErrUnavailable) {
			t.Fatalf("a call that did not get through: %+v", reply)
		}
		if proxy.Counters().Stalled == 0 {
			return errors.New("none was sent")
		}
		return nil
	})
	begun := time.Now()
	redistest.Eventually(t, redistest.Patience, "the caller's patience ends", func(context.Context) error {
		if waited := time.Since(begun); waited < conn.DefaultReadTimeout {
			return fmt.Errorf("%v have passed", waited)
		}
		return nil
	})
	calls := scriptCalls(t, server)
	proxy.Pass()
	redistest.Eventually(t, redistest.Patience, "the call arrives", func(context.Context) error {
		if n := scriptCalls(t, server) - calls; n < 1 {
			return fmt.Errorf("%d have", n)
		}
		return nil
	})
	if leased := w.Lease(0, 1); len(leased) != 1 {
		t.Errorf("%d leases are left for a call in time, want 1", len(leased))
	}
}

// TestLeaseIsRefusedWhenItsCallerHasGone: a call under a permit waits for less than the read timeout. A copy of it
// that arrives after its repetition was answered, and after the next call, leases nothing: nobody would receive it.
func TestLeaseIsRefusedWhenItsCallerHasGone(t *testing.T) {
	server := redistest.Start(t)
	proxy := faultproxy.New(t, server.Addr())
	var held atomic.Bool
	held.Store(true)
	client, err := conn.NewClient(conn.ClientOptions{
		URL: server.URL(), ReadTimeout: time.Minute, // so that the machine can stand still
		Dialer: func(ctx context.Context, network, address string) (net.Conn, error) {
			if held.Load() {
				address = proxy.Addr()
			}
			return new(net.Dialer).DialContext(ctx, network, address)
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	realTime := func(c redis.UniversalClient) func(*redisstore.Options) {
		return func(o *redisstore.Options) { o.Client, o.Virtual, o.Prefix = c, nil, "gone" }
	}
	w := storetest.NewWorldAt(t, server.Client(), "gone", time.Now().UnixMilli(), realTime(server.Client()))
	far := w.Open(realTime(client))
	lease := func(ctx context.Context, n int, batch string) job.LeaseReply {
		return far.Lease(ctx, []job.LeaseRequest{storetest.LeaseRequest(0, n, batch)})[0]
	}
	if r := lease(t.Context(), 1, "known"); r.Err != nil { // the clock and the script are known from now on
		t.Fatal(r.Err)
	}
	proxy.Blackhole(faultproxy.ToServer)
	short, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if r := lease(short, 1, "lost"); !errors.Is(r.Err, job.ErrUnavailable) || proxy.Counters().Stalled == 0 {
		t.Fatalf("a call that did not get through: %+v, %+v", r, proxy.Counters())
	}
	held.Store(false) // the next connections go another way
	for _, batch := range []string{"lost", "next"} {
		if r := lease(t.Context(), 0, batch); r.Err != nil || len(r.Leased) > 0 {
			t.Fatalf("batch %s: %+v", batch, r)
		}
	}
	d := storetest.Definition(w.InShard(0, 1)[0])
	d.Schedule = schedule.Spec{Kind: schedule.KindOnce, At: time.Now().Add(-time.Minute)}
	w.Add(d)
	calls := scriptCalls(t, server)
	proxy.Pass()
	redistest.Eventually(t, redistest.Patience, "the call arrives", func(context.Context) error {
		if n := scriptCalls(t, server) - calls; n < 1 {
			return fmt.Errorf("%d have", n)
		}
		return nil
	})
	if leased := w.Lease(0, 1); len(leased) != 1 {
		t.Errorf("%d leases are left for a call in time, want 1", len(leased))
	}
}

// scriptCalls counts the scripts that a server has run.
func scriptCalls(t *testing.T, server *redistest.Server) int {
	t.Helper()
	return countCalls(t, server, "evalsha")
}

// countCalls counts the calls of a command so far.
func countCalls(t *testing.T, server *redistest.Server, command string) int {
	t.Helper()
	info, err := server.Client().Info(t.Context(), "commandstats").Result()
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for line := range strings.Lines(info) {
		if rest, ok := strings.CutPrefix(line, "cmdstat_"+command+":calls="); ok {
			if _, err := fmt.Sscanf(rest, "%d", &n); err != nil {
				t.Fatal(err)
			}
		}
	}
	return n
}
