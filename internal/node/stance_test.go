package node

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

// TestLatencyIsTheMedianOfTime: a busy node and an idle one see a change at the same time.
func TestLatencyIsTheMedianOfTime(t *testing.T) {
	for name, perSecond := range map[string]int{"idle": 3, "busy": 1000} {
		now := time.Unix(1000, 0)
		l := newLatencyMeter(comparedTTL, time.Second)
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
			if got := l.currentLatency(now); got > want || got < want*8/10 {
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
		near("quick again", 4*time.Millisecond)
		now = now.Add(time.Minute)
		if got := l.currentLatency(now); got != 0 {
			t.Errorf("%s: %v without calls", name, got)
		}
	}
}

// TestFailedCallsCountWithTheirTimeout, and with twice of it when there has been nothing else for long.
func TestFailedCallsCountWithTheirTimeout(t *testing.T) {
	now := time.Unix(1000, 0)
	l := newLatencyMeter(comparedTTL, time.Second)
	fail := func(d time.Duration) {
		for end := now.Add(d); now.Before(end); now = now.Add(100 * time.Millisecond) {
			l.observeCall("", time.Millisecond, true, now)
		}
	}
	fail(5 * time.Second)
	if got := l.currentLatency(now); got < 800*time.Millisecond || got > time.Second {
		t.Errorf("after 5 s: %v, want the timeout", got)
	}
	fail(2 * time.Second)
	if got := l.currentLatency(now); got != 2*time.Second {
		t.Errorf("after two thirds of a lock's life: %v, want twice the timeout", got)
	}
}

// TestOneServerThatIsAway is one for all nodes: of three primaries the other two count.
func TestOneServerThatIsAway(t *testing.T) {
	now := time.Unix(1000, 0)
	l := newLatencyMeter(comparedTTL, time.Second)
	for range 100 {
		now = now.Add(100 * time.Millisecond)
		for range 10 {
			l.observeCall("x", time.Second, true, now)
		}
		l.observeCall("y", 2*time.Millisecond, false, now)
		l.observeCall("z", 4*time.Millisecond, false, now)
	}
	if got := l.currentLatency(now); got > 4*time.Millisecond || got < 3*time.Millisecond {
		t.Errorf("%v", got)
	}
}

// TestWhatCountsAsFailed: refusals are answers, and who gives up says nothing.
func TestWhatCountsAsFailed(t *testing.T) {
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
		l := newLatencyMeter(comparedTTL, time.Second)
		for _, call := range []func() error{
			func() error {
				return latencyHook{l, ""}.ProcessHook(func(context.Context,
					redis.Cmder) error {
					return tt.err
				})(t.Context(), nil)
			},
			func() error {
				return latencyHook{l, ""}.ProcessPipelineHook(func(context.Context,
					[]redis.Cmder) error {
					return tt.err
				})(t.Context(), nil)
			},
		} {
			if err := call(); !errors.Is(err, tt.err) {
				t.Errorf("%v became %v", tt.err, err)
			}
		}
		got := l.currentLatency(time.Now())
		if (got > 0) != tt.counts || (got >= 800*time.Millisecond) != tt.slow {
			t.Errorf("%v: %v", tt.err, got)
		}
	}
}

type refusal string

func (r refusal) Error() string { return string(r) }
func (refusal) RedisError()     {}

func peers(ms ...int) (list []peerLatency) {
	for _, l := range ms {
		list = append(list, peerLatency{latency: time.Duration(l) * time.Millisecond})
	}
	return list
}

// pacing looks once a second.
func pacing(p *latencyComparison, now *time.Time, seconds int, own int, others []peerLatency) bool {
	for range seconds {
		*now = now.Add(time.Second)
		p.compareLatencies(time.Duration(own)*time.Millisecond, others, *now)
	}
	return p.withdrawn
}

func TestLatencyComparison(t *testing.T) {
	for name, tt := range map[string]struct {
		own    int
		others []peerLatency
		aside  bool
	}{
		"fast":                           {3, peers(1, 1), false},
		"three times the others":         {300, peers(100, 100), false},
		"nine times, but fast enough":    {99, peers(11, 11), false},
		"much slower":                    {200, peers(1, 1), true},
		"all are slow":                   {2000, peers(800, 1500), false},
		"one of two others is slow":      {800, peers(900, 5), true},
		"one of eight others is better":  {800, peers(5, 900, 900, 900, 900, 900, 900, 900), false},
		"two of eight others are better": {800, peers(5, 6, 900, 900, 900, 900, 900, 900), true},
		"the others do not say":          {800, peers(0, 0), false},
		"the others are aside":           {800, []peerLatency{{5 * time.Millisecond, true}}, false},
		"there are no others":            {800, nil, false},
		"it is not known":                {0, peers(1, 1), false},
	} {
		now := time.Unix(1000, 0)
		p := &latencyComparison{ttl: comparedTTL}
		if pacing(p, &now, 4, tt.own, tt.others) {
			t.Errorf("%s: aside at once", name)
		}
		if pacing(p, &now, 2, tt.own, tt.others) != tt.aside {
			t.Errorf("%s: aside is %t", name, p.withdrawn)
		}
	}
}

func TestNodeReturnsWhenItIsFast(t *testing.T) {
	now := time.Unix(1000, 0)
	p := &latencyComparison{ttl: comparedTTL}
	leave := func() {
		t.Helper()
		if !pacing(p, &now, 10, 800, peers(1, 1)) {
			t.Fatal("not aside")
		}
	}
	leave()
	if !pacing(p, &now, 60, 90, peers(1, 1)) {
		t.Error("back although still slower than half of the limit")
	}
	if !pacing(p, &now, 7, 3, peers(1, 1)) || pacing(p, &now, 2, 3, peers(1, 1)) {
		t.Error("it has to be fast for two thirds of a lock's life")
	}
	leave()
	if !pacing(p, &now, 14, 3, peers(1, 1)) || pacing(p, &now, 2, 3, peers(1, 1)) {
		t.Error("the second time, for twice as long")
	}
	leave()
	if pacing(p, &now, 1, 3, peers(800, 900)) {
		t.Error("it has to return at once when the others are slow")
	}
	leave()
	if pacing(p, &now, 1, 800, []peerLatency{{5 * time.Millisecond, true}}) {
		t.Error("it has to return at once when nobody else stands")
	}
	pacing(p, &now, 1000, 3, peers(1, 1))
	leave()
	if !pacing(p, &now, 7, 3, peers(1, 1)) || pacing(p, &now, 2, 3, peers(1, 1)) {
		t.Error("what was long ago makes it stay longer")
	}
}

// TestALinkThatComesAndGoesDoesNotFlap: a link that is slow and quick in turn moves shards less and less often.
func TestALinkThatComesAndGoesDoesNotFlap(t *testing.T) {
	now := time.Unix(1000, 0)
	p := &latencyComparison{ttl: comparedTTL}
	changes, aside := 0, false
	for range 120 { // an hour
		for _, own := range []int{800, 3} {
			for range 15 {
				if pacing(p, &now, 1, own, peers(1, 1)) != aside {
					aside, changes = !aside, changes+1
				}
			}
		}
	}
	if changes > 8 {
		t.Errorf("%d changes in an hour", changes)
	}
}

// TestSlowRedisPutsNobodyAside: Redis becomes slow for all, which three nodes measure and tell each
// other at times of their own.
func TestSlowRedisPutsNobodyAside(t *testing.T) {
	t.Parallel()
	for seed := range uint64(1000) {
		rng := rand.New(rand.NewPCG(seed, 2))
		type member struct {
			l     *latencyMeter
			p     *latencyComparison
			told  time.Duration
			heard time.Duration // by the others, one tick later
			next  time.Time     // call
			busy  bool
		}
		now := time.Unix(1000, 0)
		var nodes [3]*member
		for i := range nodes {
			nodes[i] = &member{l: newLatencyMeter(comparedTTL, time.Second), p: &latencyComparison{ttl: comparedTTL},
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
				var others []peerLatency
				for j, o := range nodes {
					if j != i {
						others = append(others, peerLatency{latency: o.heard})
					}
				}
				own := n.l.currentLatency(now)
				if n.p.compareLatencies(own, others, now) {
					t.Fatalf("seed %d: node %d stands aside at step %d: own %v, others %v", seed, i, step, own, others)
				}
				n.heard = n.told
				if hasChangedStep(n.told, own) {
					n.told = max(own, latencyFloor)
				}
			}
		}
	}
}
