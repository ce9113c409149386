package reachability

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

const comparedTTL = 10 * time.Second

// A busy node and an idle one see a change of the latency at the same time.
func TestBusyAndIdleNodesMeasureAlike(t *testing.T) {
	for name, perSecond := range map[string]int{"idle": 3, "busy": 1000} {
		now := time.Unix(1000, 0)
		l := NewLatencyMeter(comparedTTL, time.Second)
		play := func(d, took time.Duration) {
			calls := perSecond
			if took > 100*time.Millisecond {
				calls = 3 // of a busy node, too
			}
			for end := now.Add(d); now.Before(end); now = now.Add(time.Second / time.Duration(calls)) {
				l.observeCall("", took, false, now)
			}
		}
		near := func(what string, want time.Duration) {
			t.Helper()
			if got := l.Current(now); got > want || got < want*8/10 {
				t.Errorf("%s, %s: %v, want %v", name, what, got, want)
			}
		}
		play(5*time.Second, 4*time.Millisecond)
		near("steady", 4*time.Millisecond)
		play(time.Second, 800*time.Millisecond)
		near("slow for a second", 4*time.Millisecond)
		play(1500*time.Millisecond, 800*time.Millisecond)
		near("slow for two and a half", 800*time.Millisecond)
		play(2500*time.Millisecond, 4*time.Millisecond)
		near("fast again", 4*time.Millisecond)
		now = now.Add(time.Minute)
		if got := l.Current(now); got != 0 {
			t.Errorf("%s: %v without calls", name, got)
		}
	}
}

// Failed calls count with their timeout, and with twice the timeout if no call has succeeded for long.
func TestFailedCallsCountWithTheirTimeout(t *testing.T) {
	now := time.Unix(1000, 0)
	l := NewLatencyMeter(comparedTTL, time.Second)
	fail := func(d time.Duration) {
		for end := now.Add(d); now.Before(end); now = now.Add(100 * time.Millisecond) {
			l.observeCall("", time.Millisecond, true, now)
		}
	}
	fail(5 * time.Second)
	if got := l.Current(now); got < 800*time.Millisecond || got > time.Second {
		t.Errorf("after 5 s: %v, want the timeout", got)
	}
	fail(2 * time.Second)
	if got := l.Current(now); got != 2*time.Second {
		t.Errorf("after two thirds of the lock TTL: %v, want twice the timeout", got)
	}
}

// One of three servers that does not answer does not change the latency.
func TestOneSilentServerDoesNotCount(t *testing.T) {
	now := time.Unix(1000, 0)
	l := NewLatencyMeter(comparedTTL, time.Second)
	for range 100 {
		now = now.Add(100 * time.Millisecond)
		for range 10 {
			l.observeCall("x", time.Second, true, now)
		}
		l.observeCall("y", 2*time.Millisecond, false, now)
		l.observeCall("z", 4*time.Millisecond, false, now)
	}
	if got := l.Current(now); got > 4*time.Millisecond || got < 3*time.Millisecond {
		t.Errorf("%v", got)
	}
}

// Most refusals are answers. A call that its caller cancelled does not count.
func TestFailedCalls(t *testing.T) {
	for _, tt := range []struct {
		err    error
		counts bool
		slow   bool
	}{
		{nil, true, false},
		{redis.Nil, true, false},
		{refusal("NOSCRIPT none"), true, false},
		{refusal("ERR wrong"), true, false},
		{refusal("READONLY no"), true, true},
		{refusal("NOPERM no"), true, true},
		{context.Canceled, false, false},
		{context.DeadlineExceeded, true, true},
		{&net.OpError{Op: "read", Err: errors.New("reset")}, true, true},
	} {
		l := NewLatencyMeter(comparedTTL, time.Second)
		for _, call := range []func() error{
			func() error {
				return latencyHook{l, ""}.ProcessHook(func(context.Context,
					redis.Cmder) error {
					return tt.err
				})(t.Context(), redis.NewCmd(t.Context(), "get", "x"))
			},
			func() error {
				return latencyHook{l, ""}.ProcessPipelineHook(func(context.Context,
					[]redis.Cmder) error {
					return tt.err
				})(t.Context(), []redis.Cmder{redis.NewCmd(t.Context(), "get", "x")})
			},
		} {
			if err := call(); !errors.Is(err, tt.err) {
				t.Errorf("%v became %v", tt.err, err)
			}
		}
		got := l.Current(time.Now())
		if (got > 0) != tt.counts || (got >= 800*time.Millisecond) != tt.slow {
			t.Errorf("%v: %v", tt.err, got)
		}
	}
}

// The handshake of a new connection is answered from memory, and hides no call.
func TestHandshakesAreNotMeasured(t *testing.T) {
	l := NewLatencyMeter(comparedTTL, time.Second)
	hook, ctx := latencyHook{l, ""}, t.Context()
	answer := hook.ProcessHook(func(context.Context, redis.Cmder) error { return nil })
	answerAll := hook.ProcessPipelineHook(func(context.Context, []redis.Cmder) error { return nil })
	fail := hook.ProcessHook(func(context.Context, redis.Cmder) error { return context.DeadlineExceeded })
	for range 10 {
		_ = answer(ctx, redis.NewCmd(ctx, "HELLO", "3"))
		_ = answerAll(ctx, []redis.Cmder{redis.NewCmd(ctx, "select", 1), redis.NewCmd(ctx, "client", "setname", "x")})
		_ = answerAll(ctx, []redis.Cmder{redis.NewCmd(ctx, "client", "setname", "x")})
	}
	if got := l.Current(time.Now()); got != 0 {
		t.Errorf("handshakes alone show a latency of %v", got)
	}
	_ = fail(ctx, redis.NewCmd(ctx, "get", "x"))
	if got := l.Current(time.Now()); got < 800*time.Millisecond {
		t.Errorf("latency %v, want the timeout of the only call", got)
	}
}

type refusal string

func (r refusal) Error() string { return string(r) }
func (refusal) RedisError()     {}

func peersWith(ms ...int) (list []Report) {
	for _, l := range ms {
		list = append(list, Report{Latency: time.Duration(l) * time.Millisecond})
	}
	return list
}

// compareEachSecond compares the same latencies once a second.
func compareEachSecond(p *latencyComparison, now *time.Time, seconds int, own int, others []Report) bool {
	for range seconds {
		*now = now.Add(time.Second)
		p.compareLatencies(time.Duration(own)*time.Millisecond, others, *now)
	}
	return p.withdrawn
}

func TestLatencyComparison(t *testing.T) {
	for name, tt := range map[string]struct {
		own    int
		others []Report
		aside  bool
	}{
		"fast":                           {3, peersWith(1, 1), false},
		"three times the others":         {300, peersWith(100, 100), false},
		"nine times, but fast enough":    {99, peersWith(11, 11), false},
		"much slower":                    {200, peersWith(1, 1), true},
		"all are slow":                   {2000, peersWith(800, 1500), false},
		"one of two others is slow":      {800, peersWith(900, 5), true},
		"one of eight others is better":  {800, peersWith(5, 900, 900, 900, 900, 900, 900, 900), false},
		"two of eight others are better": {800, peersWith(5, 6, 900, 900, 900, 900, 900, 900), true},
		"the others publish nothing":     {800, peersWith(0, 0), false},
		"the others are withdrawn":       {800, []Report{{Latency: 5 * time.Millisecond, Withdrawn: true}}, false},
		"there are no others":            {800, nil, false},
		"own latency is unknown":         {0, peersWith(1, 1), false},
	} {
		now := time.Unix(1000, 0)
		p := &latencyComparison{ttl: comparedTTL}
		if compareEachSecond(p, &now, 4, tt.own, tt.others) {
			t.Errorf("%s: withdrawn at once", name)
		}
		if compareEachSecond(p, &now, 2, tt.own, tt.others) != tt.aside {
			t.Errorf("%s: withdrawn is %t", name, p.withdrawn)
		}
	}
}

func TestNodeReturnsWhenItIsFast(t *testing.T) {
	now := time.Unix(1000, 0)
	p := &latencyComparison{ttl: comparedTTL}
	leave := func() {
		t.Helper()
		if !compareEachSecond(p, &now, 10, 800, peersWith(1, 1)) {
			t.Fatal("not withdrawn")
		}
	}
	leave()
	if !compareEachSecond(p, &now, 60, 90, peersWith(1, 1)) {
		t.Error("it returned although it is slower than half of the limit")
	}
	if !compareEachSecond(p, &now, 7, 3, peersWith(1, 1)) || compareEachSecond(p, &now, 2, 3, peersWith(1, 1)) {
		t.Error("it has to be fast for two thirds of the lock TTL")
	}
	leave()
	if !compareEachSecond(p, &now, 14, 3, peersWith(1, 1)) || compareEachSecond(p, &now, 2, 3, peersWith(1, 1)) {
		t.Error("the second time it has to be fast for twice as long")
	}
	leave()
	if compareEachSecond(p, &now, 1, 3, peersWith(800, 900)) {
		t.Error("it has to return at once when the others are slow")
	}
	leave()
	if compareEachSecond(p, &now, 1, 800, []Report{{Latency: 5 * time.Millisecond, Withdrawn: true}}) {
		t.Error("it has to return at once when all others are withdrawn")
	}
	compareEachSecond(p, &now, 1000, 3, peersWith(1, 1))
	leave()
	if !compareEachSecond(p, &now, 7, 3, peersWith(1, 1)) || compareEachSecond(p, &now, 2, 3, peersWith(1, 1)) {
		t.Error("an old withdrawal prolongs this one")
	}
}

// A link that is slow and fast in turn moves shards less and less often.
func TestUnstableLinkMovesShardsLessOften(t *testing.T) {
	now := time.Unix(1000, 0)
	p := &latencyComparison{ttl: comparedTTL}
	changes, withdrawn := 0, false
	for range 120 { // an hour
		for _, own := range []int{800, 3} {
			for range 15 {
				if compareEachSecond(p, &now, 1, own, peersWith(1, 1)) != withdrawn {
					withdrawn, changes = !withdrawn, changes+1
				}
			}
		}
	}
	if changes > 8 {
		t.Errorf("%d changes in an hour", changes)
	}
}

// Redis becomes slow for all nodes. Three nodes measure it and publish it at different times.
func TestNoNodeWithdrawsWhenRedisIsSlowForAll(t *testing.T) {
	t.Parallel()
	for seed := range uint64(1000) {
		rng := rand.New(rand.NewPCG(seed, 2))
		type member struct {
			l         *LatencyMeter
			p         *latencyComparison
			published time.Duration
			received  time.Duration // by the others, one tick later
			next      time.Time     // call
			busy      bool
		}
		now := time.Unix(1000, 0)
		var nodes [3]*member
		for i := range nodes {
			nodes[i] = &member{l: NewLatencyMeter(comparedTTL, time.Second), p: &latencyComparison{ttl: comparedTTL},
				next: now, busy: rng.IntN(2) == 0}
		}
		slow := 100 + rng.IntN(2000) // ms
		const tick = 100 * time.Millisecond
		for step := range 600 {
			now = now.Add(tick)
			for i, n := range nodes {
				took := time.Duration(1+rng.IntN(3)) * time.Millisecond
				if step > 200 && step < 400 {
					took = time.Duration(slow*(80+rng.IntN(40))/100) * time.Millisecond
				}
				for !n.next.After(now) {
					n.l.observeCall("", min(took, time.Second), took > time.Second, n.next)
					pause := max(took, 400*time.Millisecond)
					if n.busy {
						pause = max(took, 10*time.Millisecond)
					}
					n.next = n.next.Add(pause)
				}
				if (step+3*i)%8 != 0 {
					continue
				}
				var others []Report
				for j, o := range nodes {
					if j != i {
						others = append(others, Report{Latency: o.received})
					}
				}
				own := n.l.Current(now)
				if n.p.compareLatencies(own, others, now) {
					t.Fatalf("seed %d: node %d withdrew at step %d: own %v, others %v", seed, i, step, own, others)
				}
				n.received = n.published
				if hasChangedStep(n.published, own) {
					n.published = max(own, latencyFloor)
				}
			}
		}
	}
}
