package acceptance

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/fermata-io/fermata/internal/test/faultproxy"
	"github.com/fermata-io/fermata/internal/test/redistest"
)

// TestChaosLinks: what happens to the links of nodes, to Redis and to each other.
func TestChaosLinks(t *testing.T) {
	runBesideOthers(t)
	runTrials(t, bedOptions{}, append(slowTrials(),
		trial{ID: "T18", Name: "a node's packets to and from Redis are lost", Bound: cutOffBound, Inject: blackholeRedis},
		trial{ID: "T19", Name: "a node's calls reach Redis, the replies are lost", Bound: unheardBound, Inject: loseRepliesOfOne},
		trial{ID: "T20", Name: "nodes cannot reach each other", Bound: eitherBound, Inject: partitionNodes},
		trial{ID: "T22", Name: "all links are slow and break", Bound: unheardBound, Inject: roughLinks},
	)...)
}

// unheardBound: what a node leases without hearing of it ends with its lease, and
// the lock that it refreshes without hearing of it, with the lock.
func unheardBound(lock, lease time.Duration) time.Duration { return lock + lease + 2*time.Second }

// cutOffBound: a run that the node had when it was cut off waits for its lease, and now
// and then for a second one, which was given to a worker of that node once more. Most
// often it is eitherBound.
func cutOffBound(lock, lease time.Duration) time.Duration { return lock + 2*lease + 2*time.Second }

// blackholeRedis cuts a node off from Redis without closing a connection. When the
// fault ends, its last calls arrive, which others have superseded long since.
func blackholeRedis(b *bed) {
	starveNode(b, "a", "redis out of reach of a node", faultproxy.Both, cutOffBound)
}

// loseRepliesOfOne is the asymmetric form: all that the node asks for takes place.
func loseRepliesOfOne(b *bed) {
	starveNode(b, "c", "replies of redis to a node lost", faultproxy.ToClient, unheardBound)
}

func starveNode(b *bed, id, name string, dir faultproxy.Direction, bound func(lock, lease time.Duration) time.Duration) {
	lock, lease := chaosTTLs()
	link := b.links[id].redis
	before := link.Counters().Stalled
	b.injectFault(faultKind{Name: name, Within: bound(lock, lease)}, func() {
		watch := b.watchTakeOver(id)
		link.Blackhole(dir)
		watch.awaitTakeOver(unheardBound(lock, lease))
		b.waitFor(chaosSpan(3*lock) - lock)
		redistest.Eventually(b.t, patience, id+" knows that it holds no shards", func() error {
			if held := b.nodeByID(id).readMetric(b.t, "fermata_shards_held"); held != 0 {
				return fmt.Errorf("it believes to hold %v", held)
			}
			return nil
		})
		link.Pass()
	})
	b.requireEffect("calls or replies held back", int(link.Counters().Stalled-before), 3)
}

// partitionNodes cuts nodes off from each other: one pair, one from all, all from
// all. Redis and workers stay in reach, and locks decide, so that work goes on.
func partitionNodes(b *bed) {
	ids := []string{"a", "b", "c"}
	for _, n := range b.nodes { // alone, a node can use the workers that it has
		if n.readMetric(b.t, "fermata_dispatch_sessions", `queue="default"`) == 0 {
			b.addWorkerAt(n)
		}
	}
	cuts := []struct {
		name    string
		severed [][2]string // to, from
	}{
		{"a pair of nodes apart", [][2]string{{"a", "b"}, {"b", "a"}}},
		{"one way of a pair lost", [][2]string{{"a", "b"}}},
		{"one node apart", [][2]string{{"c", "a"}, {"c", "b"}, {"a", "c"}, {"b", "c"}}},
		{"all nodes apart", [][2]string{{"a", "b"}, {"a", "c"}, {"b", "a"}, {"b", "c"}, {"c", "a"}, {"c", "b"}}},
	}
	if !chaosLong() {
		cuts = cuts[3:]
	}
	for _, cut := range cuts {
		lost := func() (n int64) {
			for _, l := range b.links {
				n += l.packets.Counters().Lost
			}
			return n
		}
		before := lost()
		b.injectFault(faultKind{Name: cut.name, Within: eitherBound(chaosTTLs())}, func() {
			for _, to := range ids {
				var from []string
				for _, s := range cut.severed {
					if s[0] == to {
						from = append(from, s[1])
					}
				}
				if len(from) > 0 {
					b.links[to].cutOff(from...)
				}
			}
			if len(cut.severed) == 6 {
				for _, n := range b.nodes {
					redistest.Eventually(b.t, patience, n.name+" is alone", func() error {
						if m := n.readMetric(b.t, "fermata_members"); m != 1 {
							return fmt.Errorf("it sees %v members", m)
						}
						return nil
					})
				}
			}
			b.waitFor(chaosSpan(3 * time.Second))
			for _, l := range b.links {
				l.removeFaults()
			}
		})
		b.requireEffect(cut.name+": packets lost", int(lost()-before), 5)
		healed := time.Now()
		b.awaitSettled()
		if took := time.Since(healed); took > 20*time.Second+b.pulse.Since(healed)+busyAllowance() {
			b.t.Errorf("%s: the nodes took %v to find each other again", cut.name, took)
		}
	}
}

// roughLinks delays everything by 100 to 300 ms there and back and breaks one
// connection in a hundred replies of Redis, fewer of the others.
func roughLinks(b *bed) {
	lock, lease := chaosTTLs()
	var delayed, cut int64
	from := time.Now().UnixNano()
	b.injectFault(faultKind{Name: "all links rough", Within: unheardBound(lock, lease)}, func() {
		for _, l := range b.links {
			l.makeRough(50*time.Millisecond, 150*time.Millisecond, 0.002)
			l.redis.CutReplies(0.01)
		}
		b.waitFor(chaosSpan(5 * time.Second))
		// Where the machine is slow there are fewer replies to cut.
		redistest.Eventually(b.t, patience, "some connections are cut", func() error {
			delayed, cut = 0, 0
			for _, l := range b.links {
				for _, p := range l.allProxies() {
					delayed += p.Counters().Delayed
					cut += p.Counters().Cut
				}
			}
			if cut < 3 {
				return fmt.Errorf("%d are", cut)
			}
			return nil
		})
		for _, l := range b.links {
			l.removeFaults()
		}
	})
	b.requireEffect("chunks delayed", int(delayed), 100)
	b.requireEffect("connections cut", int(cut), 3)
	lags := b.startLags(from, time.Now().UnixNano())
	b.requireEffect("runs on rough links", len(lags), 50)
	b.t.Logf("lag on rough links: p50 %v p99 %v max %v", quantileOfSorted(lags, 0.5), quantileOfSorted(lags, 0.99), quantileOfSorted(lags, 1))
}

// startLags are how late the runs of an interval began, in order.
func (b *bed) startLags(fromNS, toNS int64) []time.Duration {
	b.t.Helper()
	first := map[string]time.Duration{}
	for _, e := range b.readEvents() {
		if e.Kind == "start" && e.AtNS >= fromNS && e.AtNS < toNS {
			lag := time.Duration(e.AtNS - e.DueMS*1e6)
			if old, seen := first[e.Run]; !seen || lag < old {
				first[e.Run] = lag
			}
		}
	}
	var all []time.Duration
	for _, lag := range first {
		all = append(all, lag)
	}
	slices.Sort(all)
	return all
}
