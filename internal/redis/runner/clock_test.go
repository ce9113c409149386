package runner

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/lease"
	"github.com/fermata-io/fermata/internal/core/unixtime"
	"github.com/fermata-io/fermata/internal/redis/rediserr"
)

// TestScriptClock walks the script's clock and the one in Go through the same
// readings, expectations and acceptances.
func TestScriptClock(t *testing.T) {
	r, _ := onEmbedded(t, func(o *Options) { o.Virtual = func() unixtime.Milli { return 0 } })
	ctx := t.Context()
	rapid.Check(t, func(t *rapid.T) {
		key := "clock:" + strconv.Itoa(rapid.Int().Draw(t, "key"))
		r.client.Del(ctx, key)
		var c lease.Clock
		real := rapid.Int64Range(1, 1<<41).Draw(t, "start")
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			real = max(1, real+rapid.OneOf(rapid.Int64Range(-2, 5), rapid.Int64Range(-100_000, 100_000)).Draw(t, "step"))
			expect := rapid.SampledFrom([]int64{0, -1}).Draw(t, "expects nothing")
			if rapid.IntRange(0, 2).Draw(t, "expects") > 0 {
				from := rapid.SampledFrom([]int64{real, int64(c.MS)}).Draw(t, "of")
				expect = max(2, from+rapid.OneOf(rapid.Int64Range(-3, 5), rapid.Int64Range(-70_000, 1000)).Draw(t, "expect"))
			}
			accept := rapid.Bool().Draw(t, "accept")
			least := int64(0)
			if !accept && expect > 0 {
				least = max(0, expect-rapid.Int64Range(0, 100_000).Draw(t, "less"))
			}
			before := c
			next, err := c.Advance(unixtime.Milli(real), lease.Expectation{LeastMS: unixtime.Milli(least), MostMS: unixtime.Milli(expect)}, accept)
			if accept {
				least = acceptJump
			}
			args := []any{expect, least, real, 0}
			got, evalErr := r.client.Eval(ctx, r.clockScripts.read.Source, []string{key, key + ":lanes"}, args...).Slice()
			if evalErr != nil {
				t.Fatal(evalErr)
			}
			if code := got[0].(int64); (code == 1) != errors.Is(err, lease.ErrClockJump) {
				t.Fatalf("script answers %d, Go %v", code, err)
			} else if code == 0 {
				c = next
				if us, lag := Reply(got).readClock(); unixtime.Micro(us) != c.MS.Micro() || lag != c.LagMS(unixtime.Milli(real)) {
					t.Fatalf("TIME %d, expected %d to %d, before %+v: script says %d, lag %d, Go %+v, lag %d", real, least, expect, before, us, lag, c, c.LagMS(unixtime.Milli(real)))
				}
				want := fmt.Sprintf("%016d%016d%016d%016d1", c.MS, c.AnchorReal, c.AnchorClock, 0)
				if stored := r.client.HGet(ctx, key, "c").Val(); stored != want {
					t.Fatalf("stored %s, want %s", stored, want)
				}
			}
		}
	})
}

// TestVirtualClockIsRefused: only a keyspace made for it takes a caller's time.
func TestVirtualClockIsRefused(t *testing.T) {
	r, _ := onEmbedded(t)
	r.virtual = func() unixtime.Milli { return 1 << 41 }
	err := r.Run(t.Context(), r.NewClockCall(0))
	if !errors.Is(err, rediserr.ErrKeyspace) {
		t.Errorf("error %v", err)
	}
}

// TestClockJump: a server whose clock leaps is refused for half a minute, with
// nothing stored, and then believed.
func TestClockJump(t *testing.T) {
	r, server := onEmbedded(t)
	start := time.UnixMilli(1_900_000_000_000)
	server.SetTime(start)
	now := time.Now()
	r.now = func() time.Time { return now }
	read := func() (int64, error) {
		o := r.NewClockCall(0)
		err := r.Run(t.Context(), o)
		return o.Reply.IntAt(1) / 1000, err
	}
	r.clocks[0] = shardClock{} // as after a start
	if ms, err := read(); err != nil || ms != start.UnixMilli() {
		t.Fatalf("clock %d (%v)", ms, err)
	}
	before := r.client.HGet(t.Context(), r.shards[0].Meta, "c").Val()
	server.SetTime(start.Add(time.Hour))
	for i := range 3 {
		if _, err := read(); !errors.Is(err, job.ErrClockJump) {
			t.Fatalf("after %d s: %v", i*14, err)
		}
		now = now.Add(14 * time.Second)
	}
	if stored := r.client.HGet(t.Context(), r.shards[0].Meta, "c").Val(); stored != before {
		t.Errorf("a refused call stored %s", stored)
	}
	if ms, err := read(); err != nil || ms != start.Add(time.Hour).UnixMilli() {
		t.Errorf("after half a minute: %d (%v)", ms, err)
	}
	// A jump that goes away is forgotten: the half minute starts anew.
	server.SetTime(start.Add(3 * time.Hour))
	if _, err := read(); !errors.Is(err, job.ErrClockJump) {
		t.Errorf("another jump: %v", err)
	}
	server.SetTime(start.Add(time.Hour + time.Minute))
	if _, err := read(); err != nil {
		t.Errorf("back again: %v", err)
	}
	now = now.Add(40 * time.Second)
	server.SetTime(start.Add(3 * time.Hour))
	if _, err := read(); !errors.Is(err, job.ErrClockJump) {
		t.Errorf("a third jump: %v", err)
	}
}

// TestNow extrapolates, asks when its knowledge is old, and never goes back.
func TestNow(t *testing.T) {
	r, server := onEmbedded(t)
	start := time.UnixMilli(1_900_000_000_000)
	server.SetTime(start)
	now := time.Now()
	r.now = func() time.Time { return now }
	r.clocks[0] = shardClock{}
	read := func() int64 {
		t.Helper()
		ms, err := r.Now(t.Context(), 0)
		if err != nil {
			t.Fatal(err)
		}
		return int64(ms - unixtime.MilliOf(start))
	}
	if got := read(); got != 0 {
		t.Errorf("at first %d", got)
	}
	now = now.Add(9 * time.Second)
	if got := read(); got != 9000 {
		t.Errorf("after 9 s %d", got)
	}
	now = now.Add(2 * time.Second)
	server.SetTime(start.Add(8 * time.Second)) // stepped back by 3 s
	if got := read(); got != 10_969 {
		t.Errorf("asked again %d, want what has passed for certain", got)
	}
	now = now.Add(5 * time.Second)
	if got := read(); got != 15_969 {
		t.Errorf("after the server has been asked %d", got)
	}
}

// TestLatestBoundsTheClock: the latest that a clock can show counts from when the quickest of the
// last requests was sent, not from when its answer came.
func TestLatestBoundsTheClock(t *testing.T) {
	start := time.Now()
	after := func(ms int64) time.Time { return start.Add(time.Duration(ms) * time.Millisecond) }
	var c shardClock
	if l := c.upperBound(start); l != (lease.ClockBound{}) {
		t.Errorf("unknown: %+v", l)
	}
	const us = 1_900_000_000_000_000
	c.observe(us+100, 0, after(0), after(40))
	if l := c.upperBound(after(40)); l.MS != us/1000+42 {
		t.Errorf("after an answer that took 40 ms: %+v", int64(l.MS-us/1000))
	}
	c.observe(us+50_000, 0, after(49), after(51)) // quicker
	if l := c.upperBound(after(51)); l.MS != us/1000+53 {
		t.Errorf("after one that took 2 ms: %d", int64(l.MS-us/1000))
	}
	c.observe(us+60_000, 0, after(59), after(99)) // slower
	if l := c.upperBound(after(99)); l.MS < us/1000+99 || l.MS > us/1000+101 {
		t.Errorf("after another slow one: %d", int64(l.MS-us/1000))
	}
	c.observe(us+5_000_000, 0, after(100), after(101)) // the server's clock was set forward
	if l := c.upperBound(after(101)); l.MS < us/1000+5001 || l.MS > us/1000+5003 {
		t.Errorf("after a step forward: %d", int64(l.MS-us/1000))
	}
	c.observe(us+5_000_000, 700, after(102), after(103)) // and back, by which it may run ahead
	if l := c.upperBound(after(203)); l.MS < us/1000+5200 || l.MS > us/1000+5204 || l.LagMS < 597 || l.LagMS > 599 {
		t.Errorf("while it may catch up: %d, %d", int64(l.MS-us/1000), l.LagMS)
	}
}

// A script is refused when its caller has gone, which is after the read timeout or when the context ends.
func TestCallsExpireWithTheirCallers(t *testing.T) {
	r, _ := onEmbedded(t)
	now := time.Now()
	r.now = func() time.Time { return now }
	r.clocks[0].observe(5_000_000, 0, now, now)
	short, cancel := context.WithDeadline(t.Context(), now.Add(r.answerTimeout/2))
	defer cancel()
	long, cancel := context.WithDeadline(t.Context(), now.Add(time.Hour))
	defer cancel()
	for name, tt := range map[string]struct {
		ctx  context.Context
		want time.Duration
	}{"without an end": {t.Context(), r.answerTimeout}, "long": {long, r.answerTimeout}, "short": {short, r.answerTimeout / 2}} {
		if got := r.answerDeadline(tt.ctx, 0); got > 5000+tt.want.Milliseconds() || got < 5000 {
			t.Errorf("%s: %d ms after the call, want %v at most", name, got-5000, tt.want)
		}
	}
}

// TestVirtualClockThatWentBack: a process that has not heard of a shard since virtual time went back asks where its
// clock stands, as it would ask for a real one that it does not know.
func TestVirtualClockThatWentBack(t *testing.T) {
	now := unixtime.Milli(10_000)
	var options Options
	holder, _ := onEmbedded(t, func(o *Options) {
		o.Virtual = func() unixtime.Milli { return now }
		options = *o
	})
	other, err := New(options)
	if err != nil {
		t.Fatal(err)
	}
	other.AddShards(2)
	read := func(r *Runner, shard int) unixtime.Milli {
		t.Helper()
		ms, err := r.Now(t.Context(), shard)
		if err != nil {
			t.Fatal(err)
		}
		return ms
	}
	read(other, 0)
	now = 17_000
	if err := holder.Run(t.Context(), holder.NewClockCall(0)); err != nil {
		t.Fatal(err)
	}
	if ms := read(other, 1); ms != 17_000 {
		t.Errorf("%d, want 17000", ms)
	}
	now = 14_000
	if other.NowIsKnown(0) {
		t.Error("a clock that went back counts as known")
	}
	for name, r := range map[string]*Runner{"the holder": holder, "another process": other} {
		if ms := read(r, 0); ms < 17_000 {
			t.Errorf("%s reads %d, want 17000", name, ms)
		}
	}
	fresh, err := New(options)
	if err != nil {
		t.Fatal(err)
	}
	fresh.AddShards(2)
	if ms := read(fresh, 0); ms < 17_000 {
		t.Errorf("a new process reads %d, want 17000", ms)
	}
}
