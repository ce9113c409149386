package redisstore

import (
	"fmt"
	"testing"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/sharding"
	"github.com/fermata-io/fermata/internal/core/unixtime"
	"github.com/fermata-io/fermata/internal/redis/runner"
)

// TestACorrectedClockEndsNothingEarly steps the server's clock back by half a minute and, a while
// later, puts it right. A lease, a unit of a lock and a wait that began meanwhile last their time
// by the clock of the caller, and the rate of a queue is kept. That holds as well for a shard which nobody
// calls until TIME has passed its clock again.
func TestACorrectedClockEndsNothingEarly(t *testing.T) {
	for name, c := range map[string]struct {
		calls               int
		every, least, limit time.Duration // limit and least are of the lag
	}{
		"called":                {15, time.Second, 7 * time.Second, 9 * time.Second},
		"quiet":                 {1, 15 * time.Second, 0, 100 * time.Millisecond},
		"quiet for a long time": {1, 40 * time.Second, 0, 100 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) { correctClock(t, c.calls, c.every, c.least, c.limit) })
	}
}

func correctClock(t *testing.T, calls int, every, least, limit time.Duration) {
	const ttl = 8 * time.Second
	s, server := embedded(t)
	start := time.UnixMilli(1_900_000_000_000)
	begin := time.Now()
	now, off := begin, time.Duration(0)
	replaceRunner(t, s, func(o *runner.Options) { o.Now = func() time.Time { return now } })
	pass := func(d time.Duration) {
		now = now.Add(d)
		server.SetTime(start.Add(now.Sub(begin) + off))
	}
	k := s.shards[0]
	run := func(o *runner.Op) *runner.Op {
		t.Helper()
		if err := s.runner.Run(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		return o
	}
	read := func(shard int) int64 {
		return run(s.runner.NewClockCall(shard)).Reply.IntAt(1) / 1000
	}
	name := ""
	for i := 0; name == "" || sharding.ShardOf("", name, 2) != 0; i++ {
		name = fmt.Sprint("n", i)
	}
	s.client.Set(t.Context(), k.Lock, "v", 0)
	pass(0)
	read(0)
	off = -30 * time.Second
	for range calls {
		pass(every)
		read(0)
	}
	if lag := start.Add(now.Sub(begin)).UnixMilli() - read(0); lag < least.Milliseconds() || lag > limit.Milliseconds() {
		t.Fatalf("the clock lags by %d ms", lag)
	}
	deadline := run(runner.NewScriptCall(s.scripts.lease, 0, []string{k.Meta, k.State, k.Lanes, k.Lock, k.Def}, []any{"v", ttl.Milliseconds(), 0, "b:x", "batch", 0, 0})).Reply.IntAt(3)
	if g := s.limits.AcquireUnits(t.Context(), []job.UnitRequest{{Name: name, Limit: 1, Holder: "1@a", TTL: ttl}})[0]; !g.Granted {
		t.Fatalf("%+v", g)
	}
	due := s.Latest(0).After(ttl.Milliseconds())
	began := now
	started := s.limits.TakeRate(t.Context(), []job.RateRequest{{Name: name, N: 1, Interval: time.Second, Burst: 1}})[0].N
	off = 0
	ended := map[string]time.Duration{}
	note := func(what string, over bool) {
		if _, known := ended[what]; over && !known {
			ended[what] = now.Sub(began)
		}
	}
	for now.Sub(began) < 30*time.Second {
		pass(250 * time.Millisecond)
		clock := read(0)
		note("lease", clock >= deadline)
		note("wait", unixtime.Milli(clock) >= due)
		note("unit", s.limits.AcquireUnits(t.Context(), []job.UnitRequest{{Name: name, Limit: 1, Holder: "1@b", TTL: ttl}})[0].Granted)
		started += s.limits.TakeRate(t.Context(), []job.RateRequest{{Name: name, N: 1, Interval: time.Second, Burst: 1}})[0].N
		if most := 1 + int(now.Sub(began)/time.Second); started > most {
			t.Fatalf("%d starts in %v, one a second is the rate", started, now.Sub(began))
		}
	}
	for _, what := range []string{"lease", "wait", "unit"} {
		if at, over := ended[what]; !over || at < ttl || at > 2*ttl {
			t.Errorf("the %s ended after %v (%t), want %v, and no more than twice that", what, at, over, ttl)
		}
	}
	if lag := start.Add(now.Sub(begin)).UnixMilli() - read(0); lag != 0 {
		t.Errorf("the clock lags by %d ms still", lag)
	}
}
