package acceptance

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fermata-io/fermata/internal/core/sharding"
	"github.com/fermata-io/fermata/internal/test/historycheck"
	"github.com/fermata-io/fermata/internal/test/redistest"
)

// TestChaosRedisCluster: what happens to a Redis Cluster of three primaries with a
// replica each.
func TestChaosRedisCluster(t *testing.T) {
	runBesideOthers(t)
	var redis *redistest.Cluster
	trials := []trial{
		{ID: "T28", Name: "slots of busy shards move to and fro", Bound: calmBound, Inject: func(b *bed) { moveSlots(b, redis) }},
		{ID: "T27", Name: "a primary of the cluster is killed", Bound: awayFor(clusterFailover), Inject: func(b *bed) { killPrimary(b, redis) }},
	}
	// In the long form each trial has a bed of its own, whose jobs have the names of another's.
	each := len(trials)
	if chaosLong() {
		each = 1
	}
	for some := range slices.Chunk(trials, each) {
		if !slices.ContainsFunc(some, func(x trial) bool { return isChosen(t, x.ID) }) {
			continue
		}
		redis = redistest.StartCluster(t, 3, 1, redistest.WithAOF("no"))
		runTrials(t, bedOptions{
			RedisURL: "redis+cluster://" + strings.Join(redis.Addrs(), ","), Beside: redisBeside(t),
		}, some...)
	}
}

// clusterFailover is how long a range of slots may be without a primary: two seconds
// until its death is noticed (the cluster's node timeout), and the election.
const clusterFailover = 6 * time.Second

// moveSlots moves three shards that are at work to another primary and back, one key
// at a time.
func moveSlots(b *bed, redis *redistest.Cluster) {
	asked, moves := countRedirections(b.t, redis), 0
	kind := faultKind{Name: "slot moved", Harmless: true}
	for end := time.Now().Add(chaosSpan(4 * time.Second)); moves < 6 || time.Now().Before(end); {
		slot := int(sharding.Slot(sharding.Tags(shards)[moves/2%shards]))
		home := redis.Owner(slot)
		b.injectFault(kind, func() {
			for _, to := range []*redistest.Server{otherPrimary(redis, home), home} {
				redis.MoveSlot(slot, to, func() { sleepFor(10 * time.Millisecond) })
				moves++
			}
		})
	}
	b.requireEffect("calls that were sent elsewhere", countRedirections(b.t, redis)-asked, 10)
}

func otherPrimary(redis *redistest.Cluster, not *redistest.Server) *redistest.Server {
	for i := range 2 {
		if m := redis.Master(i); m != not {
			return m
		}
	}
	return redis.Master(2)
}

// countRedirections counts the answers by which servers send clients elsewhere.
func countRedirections(t testing.TB, redis *redistest.Cluster) (n int) {
	for _, s := range redis.Nodes() {
		for _, code := range []string{"ASK", "MOVED", "TRYAGAIN"} {
			n += countErrorReplies(t, s, code)
		}
	}
	return n
}

// killPrimary kills one of three. The shards of the other two go on as if nothing
// had happened.
func killPrimary(b *bed, redis *redistest.Cluster) {
	victim := redis.Master(1)
	var others []historycheck.ExpectedSchedule
	for _, p := range b.load.promises {
		slot := sharding.Slot(sharding.Tags(shards)[sharding.ShardOf("default", p.Job, shards)])
		if redis.Owner(int(slot)) != victim {
			others = append(others, p)
		}
	}
	b.requireEffect("jobs of other primaries", len(others), len(b.load.promises)/2)
	b.requireEffect("jobs of the one to be killed", len(b.load.promises)-len(others), 10)
	from := time.Now()
	b.injectFault(faultKind{Name: "primary killed", Within: backFrom(clusterFailover)}, func() {
		redis.WaitFailover(redis.KillMaster(1))
	})
	took := time.Since(from)
	if took > clusterFailover {
		b.t.Logf("the failover alone took %v", took)
	}
	b.requireEffect("failover, ms", int(took.Milliseconds()), 500)
	b.waitFor(time.Second)
	gap, job := newService(others).longestGap(b.readEvents(), from.UnixNano(), time.Now().UnixNano())
	b.t.Logf("T27: jobs of other primaries waited %v at most", gap)
	if most := calmLag + b.pulse.Since(from) + busyAllowance(); gap > most {
		b.t.Errorf("T27: %s, a job of another primary, waited %v, want at most %v", job, gap, most)
	}
	victim.Restart()
}
