package reachability

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/redis/go-redis/v9"
)

// fakeRedis answers commands without a connection, or lets them fail.
type fakeRedis struct {
	redis.Hook
	mu    sync.Mutex
	fault error
	pings int
}

func (f *fakeRedis) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(context.Context, redis.Cmder) error {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.pings++
		return f.fault
	}
}

func (f *fakeRedis) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}
func (f *fakeRedis) DialHook(next redis.DialHook) redis.DialHook { return next }

func (f *fakeRedis) fail(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fault = err
}

func (f *fakeRedis) countPings() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.pings
}

// cluster is the other nodes as a monitor sees them.
type cluster struct {
	mu       sync.Mutex
	alive    bool
	owners   []Report
	received []Report  // from this node
	losing   bool      // what the node publishes does not arrive
	lockless time.Time // when calls on locks began to fail; zero: they do not
}

func (c *cluster) lastLockAnswer() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.lockless.IsZero() {
		return time.Now()
	}
	return c.lockless
}

func (c *cluster) failLockCalls(since time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lockless = since
}

func (c *cluster) peers() (bool, []Report) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.alive, c.owners
}

func (c *cluster) set(alive bool, owners ...Report) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.alive, c.owners = alive, owners
}

func (c *cluster) publish(r Report) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.losing {
		return errors.New("lost")
	}
	c.received = append(c.received, r)
	return nil
}

func (c *cluster) lose(losing bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.losing = losing
}

func (c *cluster) last() Report {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.received) == 0 {
		return Report{Unreachable: -1}
	}
	return c.received[len(c.received)-1]
}

const testTTL = 12 * time.Second

func runMonitor(t *testing.T, test func(t *testing.T, m *Monitor, f *fakeRedis, c *cluster)) {
	synctest.Test(t, func(t *testing.T) {
		f, c := &fakeRedis{}, &cluster{}
		client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
		client.AddHook(f)
		m, err := New(Options{LockTTL: testTTL, Client: client, Latency: NewLatencyMeter(testTTL, time.Second),
			LastLockAnswer: c.lastLockAnswer, Peers: c.peers, Publish: c.publish, Registerer: prometheus.NewRegistry()})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- m.Run(ctx) }()
		test(t, m, f, c)
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		_ = client.Close()
	})
}

// A node alone does not ping, and does not withdraw.
func TestNodeAloneDoesNotPing(t *testing.T) {
	runMonitor(t, func(t *testing.T, m *Monitor, f *fakeRedis, c *cluster) {
		f.fail(errors.New("no route"))
		time.Sleep(10 * testTTL)
		if f.countPings() > 0 || m.Silent() || c.last().Withdrawn {
			t.Errorf("%d pings, silent %v, %+v; want none, false, not withdrawn", f.countPings(), m.Silent(), c.last())
		}
	})
}

// A node that Redis does not answer withdraws after two thirds of the lock TTL since others are alive, and returns
// after Redis has answered for as long.
func TestNodeWithoutRedisWithdraws(t *testing.T) {
	runMonitor(t, func(t *testing.T, m *Monitor, f *fakeRedis, c *cluster) {
		c.set(true, Report{})
		time.Sleep(testTTL)
		synctest.Wait()
		if got, want := c.last(), (Report{}); got != want {
			t.Errorf("while Redis answers: %+v, want %+v", got, want)
		}
		step := func(want Report, wantSilent bool) time.Duration {
			t.Helper()
			began := time.Now()
			for c.last() != want || m.Silent() != wantSilent {
				if time.Since(began) > 2*testTTL {
					t.Fatalf("%+v, silent %v; want %+v, %v", c.last(), m.Silent(), want, wantSilent)
				}
				time.Sleep(testTTL / 120)
				synctest.Wait()
			}
			return time.Since(began)
		}
		f.fail(errors.New("no route"))
		if took := step(Report{Withdrawn: true, Unreachable: 1}, true); took < testTTL/2 || took > testTTL*5/6 {
			t.Errorf("it withdrew after %v, want about %v", took, testTTL*2/3)
		}
		f.fail(nil)
		if took := step(Report{Withdrawn: true, Unreachable: 1}, false); took > testTTL/6 {
			t.Errorf("Redis counted as silent %v after its answer", took)
		}
		if took := step(Report{}, false); took < testTTL/2 || took > testTTL*5/6 {
			t.Errorf("it returned after %v, want about %v", took, testTTL*2/3)
		}
		if n := testutil.ToFloat64(m.metrics.withdrawals); n != 2 {
			t.Errorf("%v changes were counted, want 2", n)
		}
		if n := testutil.ToFloat64(m.metrics.withdrawn); n != 0 {
			t.Errorf("the gauge is %v, want 0", n)
		}
	})
}

// A node that is much slower than its peers withdraws, and publishes its latency.
func TestSlowNodeWithdraws(t *testing.T) {
	runMonitor(t, func(t *testing.T, m *Monitor, _ *fakeRedis, c *cluster) {
		c.set(true, Report{Latency: time.Millisecond}, Report{Latency: time.Millisecond})
		for began := time.Now(); time.Since(began) < testTTL; time.Sleep(100 * time.Millisecond) {
			m.options.Latency.observeCall("", 800*time.Millisecond, false, time.Now())
		}
		synctest.Wait()
		if got := c.last(); !got.Withdrawn || got.Latency < 600*time.Millisecond || got.Latency > 800*time.Millisecond {
			t.Errorf("%+v, want withdrawn, with a latency near 800 ms", got)
		}
	})
}

// What the others have is the state of the node soon after an update was lost, although nothing has changed since.
func TestLostReportIsPublishedAgain(t *testing.T) {
	runMonitor(t, func(t *testing.T, m *Monitor, f *fakeRedis, c *cluster) {
		c.set(true, Report{})
		c.lose(true)
		f.fail(errors.New("no route"))
		time.Sleep(2 * testTTL)
		synctest.Wait()
		if got := c.last(); got.Withdrawn {
			t.Fatalf("%+v arrived while everything is lost", got)
		}
		c.lose(false)
		time.Sleep(testTTL / 6)
		synctest.Wait()
		if got, want := c.last(), (Report{Withdrawn: true, Unreachable: 1}); got != want {
			t.Errorf("%+v, want %+v", got, want)
		}
	})
}

// A node that has measured no call for a while does not publish that it is fast.
func TestUnknownLatencyIsNotPublished(t *testing.T) {
	runMonitor(t, func(t *testing.T, m *Monitor, f *fakeRedis, c *cluster) {
		c.set(true, Report{Latency: time.Second})
		for began := time.Now(); time.Since(began) < testTTL; time.Sleep(100 * time.Millisecond) {
			m.options.Latency.observeCall("", 800*time.Millisecond, false, time.Now())
		}
		time.Sleep(testTTL)
		synctest.Wait()
		if got := c.last().Latency; got < 600*time.Millisecond {
			t.Errorf("latency %v, want that of the last calls", got)
		}
	})
}

// A node that can keep no lock withdraws if others are fast, whatever its other calls take: here they are as fast as
// those of the others.
func TestNodeWithoutLockAnswersWithdraws(t *testing.T) {
	runMonitor(t, func(t *testing.T, m *Monitor, _ *fakeRedis, c *cluster) {
		live := func(d time.Duration) {
			for began := time.Now(); time.Since(began) < d; time.Sleep(100 * time.Millisecond) {
				m.options.Latency.observeCall("", time.Millisecond, false, time.Now())
			}
			synctest.Wait()
		}
		c.set(true, Report{Latency: time.Millisecond}, Report{Latency: time.Millisecond})
		live(testTTL)
		c.failLockCalls(time.Now())
		live(testTTL * 5 / 6)
		if got := c.last(); !got.Withdrawn || got.Latency < time.Second {
			t.Errorf("while calls on locks fail: %+v, want withdrawn, with the latency of failing calls", got)
		}
		c.failLockCalls(time.Time{})
		live(testTTL / 2)
		if got := c.last(); !got.Withdrawn {
			t.Error("it returned before calls on locks had succeeded for two thirds of the lock TTL")
		}
		live(testTTL / 2)
		if got := c.last(); got.Withdrawn {
			t.Errorf("%+v, want returned", got)
		}
	})
}

// No node withdraws where calls on locks fail for all: no other owner would do better.
func TestNoNodeWithdrawsWhenLockCallsFailForAll(t *testing.T) {
	runMonitor(t, func(t *testing.T, m *Monitor, _ *fakeRedis, c *cluster) {
		c.failLockCalls(time.Now())
		c.set(true, Report{Latency: 2 * time.Second}, Report{Latency: 2 * time.Second})
		time.Sleep(2 * testTTL)
		synctest.Wait()
		if c.last().Withdrawn {
			t.Error("withdrawn")
		}
	})
}
