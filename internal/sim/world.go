package sim

import (
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/fermata-io/fermata/internal/check"
	"github.com/fermata-io/fermata/internal/lease"
	"github.com/fermata-io/fermata/internal/redistest"
	"github.com/fermata-io/fermata/internal/simnet"
)

// Times of the simulated cluster. Leases and locks are shorter than the defaults,
// so that more of them end in a run.
const (
	lockTTL  = 3 * time.Second
	leaseTTL = 6 * time.Second
	// sessionTTL is what the default comes to with such leases.
	sessionTTL = 4 * time.Second
	shards     = 4
)

// world is one run of the simulation.
type world struct {
	keyspace   string
	network    *simnet.Network
	redis      *server
	story      *story
	over       chan struct{} // closed when everything is to end
	background sync.WaitGroup

	mu        sync.Mutex
	steady    bool          // Redis's clock is a real one, and wrong only for a while: people and handlers go by the bubble's
	skew      time.Duration // of Redis's clock
	clock     lease.Clock   // the clock of the shards, as the last caller got it
	disturbed map[string]redisFaults
	events    []check.Event
	counts    map[string]int // faults that really hit something
}

func newWorld(seed uint64, redis *server, steady bool) *world {
	w := &world{
		steady:   steady,
		keyspace: fmt.Sprintf("sim-%d", seed), network: simnet.New(seed), redis: redis, story: newStory(),
		over: make(chan struct{}), disturbed: map[string]redisFaults{}, counts: map[string]int{},
	}
	redis.now = w.redisNow
	if steady {
		redis.clock = redistest.NewStoredClock(storedClock)
	}
	w.answerDials()
	return w
}

// answerDials lets hosts find out whether there is a way to Redis.
func (w *world) answerDials() {
	l, err := w.network.Boot(redisIP).Listen(redisIP + ":6379")
	if err != nil {
		panic(err) // a host that just booted has every port free
	}
	w.background.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_ = conn.Close() // nothing was sent
		}
	})
	w.background.Go(func() {
		<-w.over
		_ = l.Close() // it has no other error than being closed
	})
}

// redisNow is what Redis's clock shows, in Unix milliseconds.
func (w *world) redisNow() int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.tick()
}

// tick moves the clock of the shards along. The lock is held.
func (w *world) tick() int64 {
	raw := time.Now().Add(w.skew).UnixMilli()
	next, err := w.clock.Advance(raw, lease.Expectation{}, true)
	if err == nil {
		w.clock = next
	}
	return raw
}

// nowNS is the instant by the clock of the shards, by which handlers and clients
// date what they saw. Between two of its milliseconds the bubble's clock tells. A steady world
// goes by the bubble's clock alone: no deadline may end before that says so.
func (w *world) nowNS() int64 {
	if w.steady {
		return time.Now().UnixNano()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.tick()
	return w.clock.MS*1e6 + int64(time.Now().Nanosecond()%1e6)
}

// step sets Redis's clock forward or back.
func (w *world) step(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.tick()
	w.skew += d
}

func (w *world) disturb(ip string, f redisFaults) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.disturbed[ip] = f
}

func (w *world) redisFaultsOf(ip string) redisFaults {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.disturbed[ip]
}

// count notes that a fault hit something.
func (w *world) count(kind string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.counts[kind]++
}

// record adds what a handler did.
func (w *world) record(e check.Event) {
	w.mu.Lock()
	w.events = append(w.events, e)
	w.mu.Unlock()
	w.story.tell(e.Worker, slog.LevelDebug, "%s %s of %s, attempt %d, token %d%s", e.Kind, e.Run, e.Job, e.Attempt, e.Token,
		suffix(e.Outcome))
}

func suffix(outcome string) string {
	if outcome == "" {
		return ""
	}
	return ": " + outcome
}
