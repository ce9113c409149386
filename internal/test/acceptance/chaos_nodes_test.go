package acceptance

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fermata-io/fermata/internal/test/faultproxy"
	"github.com/fermata-io/fermata/internal/test/redistest"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// TestChaosNodes: what happens to nodes. Work goes on within two seconds of a death,
// and within the life of a lock and two seconds after a freeze, on schedule, exactly
// fenced.
func TestChaosNodes(t *testing.T) {
	runBesideOne(t)
	runTrials(t, bedOptions{Raced: true},
		trial{ID: "T01", Name: "nodes are killed, and start again", Bound: deathBound, Inject: killNodes},
		trial{ID: "T03", Name: "a node with shards freezes, its calls arrive late", Bound: eitherBound, Inject: freezeNode},
		trial{ID: "T38", Name: "rolling restart under faults", Bound: unheardBound, Inject: rollRoughly, LongOnly: true},
	)
}

// killNodes kills one node after the other, every one in turn, and starts it again
// at once, or after another one has taken its shards over.
func killNodes(b *bed) {
	deaths := 0
	kind := faultKind{Name: "node killed", Within: deathBound(chaosTTLs())}
	for end := time.Now().Add(chaosSpan(7 * time.Second)); deaths < 2 || time.Now().Before(end); deaths++ {
		id := string(rune('a' + deaths%len(b.links)))
		b.injectFault(kind, func() {
			watch := b.watchTakeOver(id)
			b.killNode(b.nodeByID(id))
			if deaths%2 == 0 {
				watch.awaitTakeOver(takeOverPromise)
				b.startNode(id)
				return
			}
			again := time.Now()
			b.startNode(id)
			watch.awaitTakeOver(takeOverPromise + time.Since(again))
		})
		b.waitFor(500 * time.Millisecond)
	}
	b.requireEffect("nodes killed", deaths, 2)
}

// freezeNode stops a node while its calls to Redis are on their way. They arrive
// when others have its shards.
func freezeNode(b *bed) {
	lock, lease := chaosTTLs()
	n := b.nodeByID("b")
	link := b.links["b"].redis
	held := b.shardsOf("b")
	before := link.Counters().Stalled
	b.injectFault(faultKind{Name: "node frozen", Within: eitherBound(lock, lease)}, func() {
		link.Blackhole(faultproxy.ToServer)
		redistest.Eventually(b.t, patience, "a call is on its way", func() error {
			if link.Counters().Stalled == before {
				return errors.New("none is")
			}
			return nil
		})
		watch := b.watchTakeOver("b")
		n.freezeProcess()
		watch.awaitTakeOver(nodeBound(lock, lease))
		b.waitFor(chaosSpan(2*lock) - lock)
		link.Pass() // late calls of a node that has lost its locks
		b.waitFor(100 * time.Millisecond)
		n.thawProcess()
	})
	b.requireEffect("calls that came late", int(link.Counters().Stalled-before), 1)
	b.requireEffect("shards held", len(held), 1)
	redistest.Eventually(b.t, patience, "the node knows that it has lost its shards", func() error {
		lost := n.readMetric(b.t, "fermata_shard_lock_losses_total", `reason="expired"`) + n.readMetric(b.t, "fermata_shard_lock_losses_total", `reason="lost"`)
		if int(lost) < 1 {
			return errors.New("it does not say so")
		}
		return nil
	})
}

// rollRoughly drains and restarts every node while all links are slow and replies
// get lost.
func rollRoughly(b *bed) {
	lock, lease := chaosTTLs()
	cut := int64(0)
	b.injectFault(faultKind{Name: "node restarted on bad links", Within: unheardBound(lock, lease)}, func() {
		for _, l := range b.links {
			l.makeRough(5*time.Millisecond, 20*time.Millisecond, 0.005)
		}
		for _, n := range slices.Clone(b.nodes) {
			b.stopNode(n)
			b.startNode(n.id)
		}
		for _, l := range b.links {
			cut += l.redis.Counters().Cut
			l.removeFaults()
		}
	})
	b.requireEffect("replies of redis cut", int(cut), 1)
	b.awaitSettled()
}

// shardsOf are the shards that a node holds, by the list of any node that answers.
func (b *bed) shardsOf(id string) map[int]bool {
	b.t.Helper()
	held := map[int]bool{}
	redistest.Eventually(b.t, patience, "a node lists the shards", func() error {
		for _, n := range b.nodes {
			list, err := n.cluster.ListShards(callContext(b.t), &fermatav1.ListShardsRequest{})
			if err != nil {
				continue
			}
			for _, s := range list.GetShards() {
				if s.GetHolder() == id {
					held[int(s.GetShard())] = true
				}
			}
			if len(held) > 0 {
				return nil
			}
		}
		return fmt.Errorf("%s holds none", id)
	})
	return held
}

// readMetric is the sum of a node's series of this name that have these labels.
func (n *schedulerNode) readMetric(t testing.TB, name string, labels ...string) float64 {
	t.Helper()
	sum := 0.0
	for line := range strings.Lines(fetchText(t, "http://"+n.http+"/metrics")) {
		series, value, ok := strings.Cut(strings.TrimSpace(line), " ")
		if !ok || series != name && !strings.HasPrefix(series, name+"{") {
			continue
		}
		if slices.ContainsFunc(labels, func(l string) bool { return !strings.Contains(series, l) }) {
			continue
		}
		var v float64
		if _, err := fmt.Sscan(value, &v); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		sum += v
	}
	return sum
}
