package limits

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/unixtime"
	"github.com/fermata-io/fermata/internal/redis/runner"
)

func take(t testing.TB, s limitBed, ask job.RateRequest) job.RateGrant {
	t.Helper()
	g := s.TakeRate(t.Context(), []job.RateRequest{ask})[0]
	if g.Err != nil {
		t.Fatalf("%+v: %v", ask, g.Err)
	}
	return g
}

func testRate(t *testing.T, w limitWorld) {
	s, clock := w.virtual(t)
	start := clock.Load()
	ask := job.RateRequest{Name: "n", Interval: 100 * time.Millisecond, Burst: 5}
	step := func(n, granted int, at int64) {
		t.Helper()
		ask.N = n
		if g := take(t, s, ask); g.N != granted || g.AtMS != unixtime.Milli(start+at) || g.NowMS != unixtime.Milli(clock.Load()) {
			t.Fatalf("at %d ms: asked %d: %+v, want %d and %d", clock.Load()-start, n, g, granted, start+at)
		}
	}
	step(0, 0, 0)
	step(3, 3, 0)
	step(3, 2, 100)
	step(1, 0, 100)
	clock.pass(99 * time.Millisecond)
	step(1, 0, 100)
	clock.pass(time.Millisecond)
	step(2, 1, 200)
	step(-2, -2, 100)
	step(0, 0, 100)
	step(3, 2, 200)
	step(-100, -100, 100) // no more than a full burst
	step(6, 5, 200)
	clock.pass(time.Hour)
	step(6, 5, 3_600_200)
	// Reservations follow one another.
	pace := job.RateRequest{Name: "pace", N: 3, Interval: time.Second, Reserve: true}
	now := clock.Load()
	for i := range 4 {
		if g := take(t, s, pace); g.N != 3 || g.AtMS != unixtime.Milli(now+int64(i)*3000) {
			t.Fatalf("reservation %d: %+v", i, g)
		}
	}
	clock.pass(30 * time.Second)
	if g := take(t, s, pace); g.AtMS != unixtime.Milli(clock.Load()) {
		t.Fatalf("after a rest: %+v", g)
	}
	// A burst of one start and one of none are the same.
	for i, want := range []int{1, 0} {
		if g := take(t, s, job.RateRequest{Name: "one", N: 9, Interval: time.Minute}); g.N != want {
			t.Errorf("take %d grants %d", i, g.N)
		}
	}
}

// rateModel is a rate limit in plain arithmetic: all in ns since the start.
type rateModel struct{ taken int64 }

func (m *rateModel) take(now int64, a job.RateRequest) (n int, at int64) {
	interval, n := a.Interval.Nanoseconds(), a.N
	slack := int64(max(1, a.Burst)-1) * interval
	m.taken = max(m.taken, now)
	first := m.taken - slack
	switch {
	case n < 0:
		m.taken = max(now, m.taken+int64(n)*interval)
	case a.Reserve:
		m.taken += int64(n) * interval
		if n > 0 {
			return n, max(now, first)
		}
	default:
		granted := 0
		for granted < n && m.taken-slack <= now {
			m.taken += interval
			granted++
		}
		n = granted
	}
	return n, max(now, m.taken-slack)
}

// testRateModel walks rate limits and the model through the same calls.
func testRateModel(t *testing.T, w limitWorld) {
	s, clock := w.virtual(t)
	next := 0
	rapid.Check(t, func(rt *rapid.T) {
		next++
		ask := job.RateRequest{
			Name:     fmt.Sprint("rate/", next),
			Interval: time.Duration(rapid.OneOf(rapid.Int64Range(1, 10_000_000), rapid.Int64Range(1, int64(time.Hour))).Draw(rt, "interval")),
			Burst:    rapid.IntRange(0, 50).Draw(rt, "burst"),
		}
		start := clock.Load()
		var m rateModel
		for range rapid.IntRange(1, 30).Draw(rt, "calls") {
			if rapid.Bool().Draw(rt, "time passes") {
				clock.Add(rapid.OneOf(rapid.Int64Range(0, 20), rapid.Int64Range(0, 2*ask.Interval.Milliseconds()+1)).Draw(rt, "ms"))
			}
			ask.N = rapid.IntRange(-10, 60).Draw(rt, "n")
			ask.Reserve = rapid.IntRange(0, 4).Draw(rt, "reserve") == 0
			now := clock.Load()
			n, at := m.take((now-start)*1_000_000, ask)
			atMS := start + (at+999_999)/1_000_000
			if g := take(t, s, ask); g.N != n || g.AtMS != unixtime.Milli(atMS) || g.NowMS != unixtime.Milli(now) {
				rt.Fatalf("%+v at %d: %+v, want %d at %d", ask, now-start, g, n, atMS)
			}
		}
	})
}

// testRateOthers: settings that change, lots that are far away, texts that are none,
// repeats, and idle limits.
func testRateOthers(t *testing.T, w limitWorld) {
	s, clock := w.virtual(t)
	// Ten starts ahead stay ten when the queue is sped up, and slowed down.
	take(t, s, job.RateRequest{Name: "n", N: 10, Interval: 1000 * time.Second, Reserve: true})
	for _, interval := range []time.Duration{time.Second, time.Minute, 70 * time.Microsecond} {
		g := take(t, s, job.RateRequest{Name: "n", N: 1, Interval: interval, Reserve: true})
		if want := clock.Load() + int64(math.Ceil(10*interval.Seconds()*1000)); g.AtMS != unixtime.Milli(want) {
			t.Errorf("one in %v: %+v, want %d", interval, g, want)
		}
		take(t, s, job.RateRequest{Name: "n", N: -1, Interval: interval})
	}
	// Reservations end at 100 days.
	for range 3 {
		take(t, s, job.RateRequest{Name: "far", N: 1_000_000, Interval: time.Hour, Reserve: true})
	}
	if g := take(t, s, job.RateRequest{Name: "far", N: 1, Interval: time.Hour, Reserve: true}); g.AtMS != unixtime.Milli(clock.Load()+100*24*3600*1000) {
		t.Errorf("far ahead: %+v", g)
	}
	key := s.shards[s.homeShard("odd")].Base + "rate:odd"
	s.client.Set(t.Context(), key, "odd", 0)
	if g := take(t, s, job.RateRequest{Name: "odd", N: 1, Interval: time.Hour}); g.N != 1 {
		t.Errorf("over a text that is none: %+v", g)
	}
	// The last calls are known again, older ones are not, and memory is bounded.
	ids := map[string]int{}
	again := func(id string) int64 {
		o := runner.NewScriptCall(s.scripts.rate, s.homeShard("odd"), []string{s.shards[s.homeShard("odd")].Meta, key},
			[]any{id, 1, int64(time.Hour), 1_000_000, "0"})
		if err := s.runner.Run(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		ids[id]++
		return o.Reply.ListAt(2).ListAt(0).IntAt(1)
	}
	id := func(i int) string { return fmt.Sprintf("call%08d", i) }
	for i := range 20 {
		again(id(i))
	}
	before := s.client.Get(t.Context(), key).Val()
	for i := 12; i < 20; i++ {
		again(id(i))
	}
	if after := s.client.Get(t.Context(), key).Val(); after != before || len(after) != 35+8*36 {
		t.Errorf("repeats changed %q to %q", before, after)
	}
	if again(id(11)); s.client.Get(t.Context(), key).Val() == before {
		t.Error("a call of long ago is still known")
	}
	// In real time an idle limit is cleared away.
	real := w.store(t)
	take(t, real, job.RateRequest{Name: "n", N: 10, Interval: time.Second, Burst: 20})
	if ttl := real.client.PTTL(t.Context(), real.shards[real.homeShard("n")].Base+"rate:n").Val(); ttl < 70*time.Second || ttl > 81*time.Second {
		t.Errorf("cleared away in %v", ttl)
	}
	for _, bad := range []job.RateRequest{
		{N: 1, Interval: 1}, {Name: "n", N: 1}, {Name: "n", N: maxRateN + 1, Interval: 1}, {Name: "n", N: -maxRateN - 1, Interval: 1},
		{Name: "n", Interval: 25 * time.Hour}, {Name: "n", Interval: 1, Burst: maxRateBurst + 1}, {Name: strings.Repeat("n", 1025), Interval: 1},
	} {
		if g := s.TakeRate(t.Context(), []job.RateRequest{bad})[0]; g.Err == nil {
			t.Errorf("%.80v is accepted", bad)
		}
	}
}
