package node

import (
	"cmp"
	"context"
	"errors"
	"math"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// latencySlices is the number of spans of time that have a figure each.
	latencySlices = 8
	// latencySteps is the number of steps of latency, four to each doubling from 1 ms on.
	latencySteps = 64
)

// latency measures how long Redis takes to answer this node's own calls: those that
// obtain and refresh locks, write heartbeats, lease, and store results. A call that fails counts with
// its whole timeout. Each server has its figure, the median of a window, a third of a lock's life, in
// which each slice of time counts once, however many calls it had: a busy node and an idle one see the
// same change of Redis at the same time. Of several servers the middle one counts: one that is away, for
// everybody, says nothing about this node.
type latency struct {
	slice    time.Duration
	patience time.Duration // without any success, after which a figure is twice the timeout
	timeout  time.Duration // what a call that failed counts at least

	mu      sync.Mutex
	servers map[string]*serverLatency
}

// serverLatency is that of one server.
type serverLatency struct {
	slices    [latencySlices]latencySlice
	succeeded time.Time // last; at first, when it was called first
}

// latencySlice counts the calls that ended in one slice of time, by step.
type latencySlice struct {
	turn  int64
	calls int
	count [latencySteps]int
}

func newLatency(ttl, timeout time.Duration) *latency {
	return &latency{
		slice: ttl / (3 * latencySlices), patience: ttl * 2 / 3, timeout: timeout, servers: map[string]*serverLatency{},
	}
}

func (l *latency) turn(now time.Time) int64 { return now.UnixNano() / int64(l.slice) }

// observe takes one call to a server that has ended.
func (l *latency) observe(server string, took time.Duration, failed bool, now time.Time) {
	if failed {
		took = max(took, l.timeout)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	x := l.servers[server]
	if x == nil {
		x = &serverLatency{succeeded: now}
		l.servers[server] = x
	}
	if !failed {
		x.succeeded = now
	}
	turn := l.turn(now)
	s := &x.slices[turn%latencySlices]
	if s.turn != turn {
		*s = latencySlice{turn: turn}
	}
	s.calls++
	s.count[stepOf(took)]++
}

// value is 0 if no call has ended within the window.
func (l *latency) value(now time.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	var all []time.Duration
	for name, x := range l.servers {
		v := x.value(l.turn(now))
		if v == 0 {
			delete(l.servers, name)
			continue
		}
		if now.Sub(x.succeeded) >= l.patience {
			v = 2 * l.timeout
		}
		all = append(all, v)
	}
	return middle(all)
}

// value is 0 without calls in the window that ends with a turn.
func (x *serverLatency) value(turn int64) time.Duration {
	var medians []int
	for i := range x.slices {
		if s := &x.slices[i]; s.calls > 0 && s.turn <= turn && s.turn > turn-latencySlices {
			medians = append(medians, s.median())
		}
	}
	if len(medians) == 0 {
		return 0
	}
	return latencyOf(middle(medians))
}

// middle is the lower median, and zero of nothing.
func middle[T cmp.Ordered](all []T) (m T) {
	if len(all) > 0 {
		slices.Sort(all)
		m = all[(len(all)-1)/2]
	}
	return m
}

func (s *latencySlice) median() int {
	seen := 0
	for step, n := range s.count {
		if seen += n; 2*seen >= s.calls {
			return step
		}
	}
	return latencySteps - 1
}

// stepOf is the step that a latency falls into, latencyOf where that begins.
func stepOf(took time.Duration) int {
	ms := float64(took) / float64(time.Millisecond)
	if ms < 1 {
		return 0
	}
	return min(int(4*math.Log2(ms)), latencySteps-1)
}

func latencyOf(step int) time.Duration {
	return time.Duration(math.Exp2(float64(step)/4) * float64(time.Millisecond))
}

// watch has the calls of a client measured: those to each server, of a Redis Cluster.
func (l *latency) watch(client redis.UniversalClient) {
	if cluster, ok := client.(*redis.ClusterClient); ok {
		cluster.OnNewNode(func(c *redis.Client) { c.AddHook(latencyHook{l, c.Options().Addr}) })
		return
	}
	client.AddHook(latencyHook{l, ""})
}

// latencyHook measures calls of a client, with the wait for a connection and its making.
type latencyHook struct {
	l      *latency
	server string
}

// DialHook measures nothing: the call that needs the connection is measured.
func (h latencyHook) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) { return next(ctx, network, addr) }
}

// ProcessHook measures single commands.
func (h latencyHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		begun := time.Now()
		err := next(ctx, cmd)
		h.ended(begun, err)
		return err
	}
}

// ProcessPipelineHook measures pipelines, each as one call.
func (h latencyHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		begun := time.Now()
		err := next(ctx, cmds)
		h.ended(begun, err)
		return err
	}
}

// ended takes a call that has ended. That the caller has given up says nothing about Redis.
func (h latencyHook) ended(begun time.Time, err error) {
	if errors.Is(err, context.Canceled) {
		return
	}
	now := time.Now()
	h.l.observe(h.server, now.Sub(begun), err != nil && !answered(err), now)
}

// unusable are the first words of refusals by which a server, or this node's user, is of no use
// for any call.
var unusable = []string{
	"NOAUTH", "NOPERM", "WRONGPASS", "READONLY", "LOADING", "MASTERDOWN", "CLUSTERDOWN", "NOREPLICAS", "MISCONF", "DENIED",
}

// answered is true of a refusal that is about the call alone.
func answered(err error) bool {
	var refusal redis.Error
	if !errors.As(err, &refusal) {
		return false
	}
	word, _, _ := strings.Cut(refusal.Error(), " ")
	return !slices.Contains(unusable, word)
}
