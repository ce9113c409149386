package sim

import (
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/fermata-io/fermata/internal/core/lease"
	"github.com/fermata-io/fermata/internal/core/unixtime"
	"github.com/fermata-io/fermata/internal/test/historycheck"
	"github.com/fermata-io/fermata/internal/test/redistest"
	"github.com/fermata-io/fermata/internal/test/simnet"
)

// Times of the simulated cluster. Leases and locks are shorter than the defaults,
// so that more of them end in a run.
const (
	lockTTL  = 3 * time.Second
	leaseTTL = 6 * time.Second
	// sessionTTL is the default for such leases.
	sessionTTL = 4 * time.Second
	shards     = 4
)

// world is one run of the simulation.
type world struct {
	keyspace   string
	network    *simnet.Network
	redis      *redisServer
	story      *story
	ended      chan struct{} // closed when everything is to end
	background sync.WaitGroup

	mu        sync.Mutex
	steady    bool          // Redis's clock is real, and wrong only for a while: see nowNS
	skew      time.Duration // of Redis's clock
	clock     lease.Clock   // the clock of the shards, as the last caller got it
	disturbed map[string]redisFaults
	events    []historycheck.Event
	counts    map[string]int // faults that really hit something
}

func newWorld(seed uint64, redis *redisServer, steady bool) *world {
	w := &world{
		steady:   steady,
		keyspace: fmt.Sprintf("sim-%d", seed), network: simnet.New(seed), redis: redis, story: newStory(),
		ended: make(chan struct{}), disturbed: map[string]redisFaults{}, counts: map[string]int{},
	}
	redis.now = w.redisNow
	if steady {
		redis.clock = redistest.NewStoredClock(storedClock)
	}
	w.answerDials()
	return w
}

// answerDials lets hosts find out whether Redis is reachable.
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
		<-w.ended
		_ = l.Close() // it has no other error than being closed
	})
}

// redisNow is what Redis's clock shows, in Unix milliseconds.
func (w *world) redisNow() unixtime.Milli {
	w.mu.Lock()
	defer w.mu.Unlock()
	return unixtime.Milli(w.advanceClock())
}

// advanceClock moves the clock of the shards along. The lock is held.
func (w *world) advanceClock() int64 {
	raw := time.Now().Add(w.skew).UnixMilli()
	next, err := w.clock.Advance(unixtime.Milli(raw), lease.Expectation{}, true)
	if err == nil {
		w.clock = next
	}
	return raw
}

// nowNS is the instant by the clock of the shards, which handlers and clients use for their records. Within one
// of its milliseconds the bubble's clock counts. A steady world uses the bubble's clock alone: no deadline may
// end earlier by that clock.
func (w *world) nowNS() int64 {
	if w.steady {
		return time.Now().UnixNano()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.advanceClock()
	return int64(w.clock.MS*1e6 + unixtime.Milli(time.Now().Nanosecond()%1e6))
}

// stepClock sets Redis's clock forward or back.
func (w *world) stepClock(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.advanceClock()
	w.skew += d
}

func (w *world) setRedisFaults(ip string, f redisFaults) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.disturbed[ip] = f
}

func (w *world) redisFaultsOf(ip string) redisFaults {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.disturbed[ip]
}

// countHit notes that a fault hit something.
func (w *world) countHit(kind string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.counts[kind]++
}

// recordEvent adds an event of a handler.
func (w *world) recordEvent(e historycheck.Event) {
	w.mu.Lock()
	w.events = append(w.events, e)
	w.mu.Unlock()
	w.story.addLine(e.Worker, slog.LevelDebug, "%s %s of %s, attempt %d, token %d%s", e.Kind, e.Run, e.Job, e.Attempt,
		e.Token,
		outcomeSuffix(e.Outcome))
}

func outcomeSuffix(outcome string) string {
	if outcome == "" {
		return ""
	}
	return ": " + outcome
}
