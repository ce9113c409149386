package acceptance

import (
	"fmt"
	"strconv"
	"time"

	"github.com/fermata-io/fermata/internal/test/redistest"
)

// slowTrials delay what Redis answers some nodes: by times below and above those after which
// calls are given up, in the long form.
func slowTrials() []trial {
	delays, most := []time.Duration{400 * time.Millisecond}, 1
	if chaosLong() {
		delays, most = nil, 3
		for _, ms := range []time.Duration{100, 200, 400, 600, 900, 1200, 2000} {
			delays = append(delays, ms*time.Millisecond)
		}
	}
	var all []trial
	for _, delay := range delays {
		for nodes := 1; nodes <= most; nodes++ {
			id := "T41"
			if chaosLong() {
				id = fmt.Sprintf("T41-%d-%d", delay.Milliseconds(), nodes)
			}
			all = append(all, trial{
				ID: id, Name: fmt.Sprintf("redis answers %d of 3 nodes %v late", nodes, delay), Bound: lateBound(delay, nodes),
				Inject: func(b *bed) { slowRedis(b, delay, nodes) },
			})
		}
	}
	return all
}

// lateBound: where other nodes are quick, a node has given its shards away after the life of
// a lock and 2 s, and what it had leased is done or has been given up: where calls are given up, that
// may be twice, as when the node is cut off. Where all are slow, work waits
// for some twenty answers; beyond the time after which calls are given up, for the end of the fault.
func lateBound(delay time.Duration, nodes int) func(lock, lease time.Duration) time.Duration {
	return func(lock, lease time.Duration) time.Duration {
		bound := unheardBound(lock, lease)
		switch {
		case nodes < 3 && delay < time.Second:
			return bound
		case nodes < 3:
			return cutOffBound(lock, lease)
		case delay < time.Second:
			return bound + 20*delay + chaosSpan(3*lock)/2
		}
		return bound + chaosSpan(3*lock)
	}
}

// slowRedis delays the answers to the last so many nodes.
func slowRedis(b *bed, delay time.Duration, nodes int) {
	lock, lease := chaosTTLs()
	slow := []string{"c", "b", "a"}[:nodes]
	delayed := func() (n int64) {
		for _, id := range slow {
			n += b.links[id].redis.Counters().Delayed
		}
		return n
	}
	before, moves, stances := delayed(), b.countLocksObtained(), b.countOwnershipChanges()
	from := time.Now()
	b.injectFault(faultKind{Name: "redis answers late", Within: lateBound(delay, nodes)(lock, lease)}, func() {
		for _, id := range slow {
			b.links[id].redis.Latency(delay / 2)
		}
		if nodes < 3 && delay > 100*time.Millisecond {
			b.quickOnesHoldAll(slow, lock+2*time.Second, from)
		}
		b.waitFor(chaosSpan(3*lock) - time.Since(from))
		moved, changed := b.countLocksObtained()-moves, b.countOwnershipChanges()-stances
		b.t.Logf("T41: %v late to %d of 3: %d locks obtained, %d changes of stance in %v",
			delay, nodes, moved, changed, time.Since(from).Round(time.Second))
		if nodes < 3 && changed > nodes {
			b.t.Errorf("T41: %d nodes changed their stance %d times while nothing changed", nodes, changed)
		}
		for _, id := range slow {
			b.links[id].redis.Pass()
		}
	})
	b.requireEffect("chunks delayed", int(delayed()-before), 10)
}

// quickOnesHoldAll waits until those nodes hold all shards that are not slow.
func (b *bed) quickOnesHoldAll(slow []string, within time.Duration, from time.Time) {
	b.t.Helper()
	redistest.Eventually(b.t, within+patience, "the quick nodes hold all shards", func() error {
		for _, id := range slow {
			if held := b.nodeByID(id).readMetric(b.t, "fermata_shards_held"); held != 0 {
				return fmt.Errorf("%s holds %v", id, held)
			}
		}
		now, err := b.readLocks()
		if err != nil {
			return err
		}
		for shard, value := range now {
			if value == "" {
				return fmt.Errorf("shard %d has no holder", shard)
			}
		}
		return nil
	})
	took := time.Since(from)
	if most := within + b.pulse.Since(from) + busyAllowance(); took > most {
		b.t.Errorf("T41: the quick nodes held all shards after %v, %v is documented", took, within)
	}
	b.current.TakeOvers = append(b.current.TakeOvers, took)
}

// countLocksObtained counts the locks that nodes have obtained.
func (b *bed) countLocksObtained() (n int) {
	for _, x := range b.nodes {
		for _, how := range []string{"free", "break"} {
			n += int(x.readMetric(b.t, "fermata_shard_takeovers_total", "how="+strconv.Quote(how)))
		}
	}
	return n
}

// countOwnershipChanges counts how often nodes have begun or ceased to leave their shards to others.
func (b *bed) countOwnershipChanges() (n int) {
	for _, x := range b.nodes {
		n += x.countLogged(`"msg":"node withdrawn from shard ownership`) + x.countLogged(`"msg":"node returned to shard ownership`)
	}
	return n
}
