package acceptance

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fermata-io/fermata/internal/test/redistest"
)

// TestChaosRedis: what happens to one Redis server, and to the way there.
func TestChaosRedis(t *testing.T) {
	runBesideOthers(t)
	runTrials(t, bedOptions{Beside: redisBeside(t)},
		trial{ID: "T11", Name: "replies of Redis are lost", Bound: eitherBound, Inject: loseReplies},
		trial{ID: "T12", Name: "Redis stalls for longer than locks live", Bound: awayFor(redisStall), Inject: stallRedis},
		trial{ID: "T13", Name: "scripts are forgotten, connections cut", Bound: calmBound, Inject: forgetScripts},
		trial{ID: "T14", Name: "somebody's script keeps Redis busy", Bound: busyBound, Inject: keepBusy},
		trial{ID: "T15", Name: "Redis is full, and has room again", Bound: calmBound, Inject: fillMemory},
		trial{ID: "T24", Name: "Redis is killed, and starts again", Bound: awayFor(redisRestart), Inject: restartRedis},
	)
}

const (
	// redisStall is how long one stall takes.
	redisStall = 3 * time.Second
	// redisRestart is how long a killed server stays away, and may take to start on a
	// busy machine.
	redisRestart = 2 * time.Second
	// redisBack is the documented time until work goes on when Redis is back.
	redisBack = 2 * time.Second
)

// awayFor is the bound where Redis is away for that long. What was just being leased
// may have to wait for the end of a lease that no worker received.
func awayFor(d time.Duration) func(lock, lease time.Duration) time.Duration {
	return func(_, lease time.Duration) time.Duration { return max(d, lease) + redisBack }
}

// backFrom is the documented time until work goes on after an absence.
func backFrom(away time.Duration) time.Duration { return awayFor(away)(chaosTTLs()) - away }

// loseReplies cuts replies after their requests have run: one in a hundred, then one
// in five. A script that does not know its own repeats counts too much on the same
// links.
func loseReplies(b *bed) {
	lock, lease := chaosTTLs()
	for _, p := range []struct {
		probability float64
		least       int
	}{{0.01, 5}, {0.2, 50}} {
		before := b.cutReplies()
		kind := faultKind{Name: fmt.Sprintf("%v of replies lost", p.probability), Within: eitherBound(lock, lease)}
		surplus := 0
		b.injectFault(kind, func() {
			for _, l := range b.links {
				l.redis.CutReplies(p.probability)
			}
			surplus = naiveSurplus(b.t, b.links["a"].redis.Addr(), int(10/p.probability))
			b.waitFor(chaosSpan(3 * time.Second))
			redistest.Eventually(b.t, patience, "replies are cut", func() error {
				if cut := int(b.cutReplies() - before); cut < p.least {
					return fmt.Errorf("%d of %d", cut, p.least)
				}
				return nil
			})
		})
		for _, l := range b.links {
			l.redis.Pass()
		}
		b.requireEffect("replies cut at "+fmt.Sprint(p.probability), int(b.cutReplies()-before), p.least)
		b.requireEffect("what a naive script counts too much", surplus, 1)
		b.awaitCalm(kind.Within)
	}
}

func (b *bed) cutReplies() (n int64) {
	for _, l := range b.links {
		n += l.redis.Counters().Cut
	}
	return n
}

// naiveSurplus increments n times, again after each error, and returns by how much
// the count is too great.
func naiveSurplus(t testing.TB, addr string, n int) int {
	t.Helper()
	c := redis.NewClient(&redis.Options{Addr: addr, MaxRetries: -1, DisableIdentity: true, Protocol: 2})
	defer c.Close()
	ctx := callContext(t)
	key := fmt.Sprintf("test:{naive}:%d", n)
	for range n {
		for c.Eval(ctx, "return redis.call('set', KEYS[1], (redis.call('get', KEYS[1]) or 0) + 1)", []string{key}).Err() != nil && ctx.Err() == nil {
		}
	}
	total, err := c.Get(ctx, key).Int()
	for ; err != nil && ctx.Err() == nil; total, err = c.Get(ctx, key).Int() {
	}
	if err != nil {
		t.Fatalf("naive control: %v", err)
	}
	return total - n
}

// stallRedis makes the server stand still in one way after the other.
func stallRedis(b *bed) {
	admin := b.server.Client()
	ways := []struct {
		name  string
		stall func()
	}{
		{"Redis frozen", func() {
			b.server.Pause()
			b.waitFor(redisStall)
			b.server.Resume()
		}},
		{"Redis clients paused", func() {
			// Between this and the commands that are not paused there is none that
			// the nodes use.
			if err := admin.Do(callContext(b.t), "client", "pause", redisStall.Milliseconds(), "all").Err(); err != nil {
				b.t.Fatal(err)
			}
			b.waitFor(redisStall)
		}},
		{"Redis asleep", func() {
			if err := admin.WithTimeout(2*redisStall).Do(callContext(b.t), "debug", "sleep", redisStall.Seconds()).Err(); err != nil {
				b.t.Fatal(err)
			}
		}},
	}
	if !chaosLong() {
		ways = ways[:2]
	}
	stalls := 0
	for end := time.Now().Add(chaosSpan(0)); stalls < len(ways) || time.Now().Before(end); stalls++ {
		way := ways[stalls%len(ways)]
		took := longestAnswer(b.t, b.server.URL(), func() {
			b.injectFault(faultKind{Name: way.name, Within: backFrom(redisStall)}, way.stall)
		})
		b.requireEffect(way.name+", ms", int(took.Milliseconds()), int(redisStall.Milliseconds())*9/10)
		b.awaitCalm(awayFor(redisStall)(chaosTTLs()))
		b.waitFor(time.Second) // what waited has started
	}
}

// longestAnswer measures the longest that a server gives no answer while do runs.
func longestAnswer(t testing.TB, url string, do func()) (longest time.Duration) {
	t.Helper()
	options, err := redis.ParseURL(url)
	if err != nil {
		t.Fatal(err)
	}
	options.ReadTimeout = time.Minute
	c := redis.NewClient(options)
	defer c.Close()
	ctx, cancel := context.WithCancel(context.Background())
	var pinging sync.WaitGroup
	pinging.Go(func() {
		for ; ctx.Err() == nil; sleepFor(10 * time.Millisecond) {
			began := time.Now()
			if c.Ping(context.WithoutCancel(ctx)).Err() == nil {
				longest = max(longest, time.Since(began))
			}
		}
	})
	do()
	cancel()
	pinging.Wait()
	return longest
}

// countErrorReplies counts the errors of a kind that a server has given to anybody.
func countErrorReplies(t testing.TB, s *redistest.Server, code string) int {
	t.Helper()
	text, err := s.Client().Info(callContext(t), "errorstats").Result()
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`errorstat_` + code + `:count=(\d+)`).FindStringSubmatch(text)
	if found == nil {
		return 0
	}
	n, err := strconv.Atoi(found[1])
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// setConfig changes a setting of a server.
func setConfig(t testing.TB, s *redistest.Server, name, value string) {
	t.Helper()
	if err := s.Client().ConfigSet(callContext(t), name, value).Err(); err != nil {
		t.Fatalf("config set %s %s: %v", strings.ToLower(name), value, err)
	}
}

// redisBeside is a client of a server that nothing else uses. How quickly it answers
// distinguishes the machine's stalls from those that a test makes.
func redisBeside(t testing.TB) *redis.Client { return redistest.Start(t).Client() }
