package storecycle

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/fermata-io/fermata/internal/test/redistest"
)

// layout is how a job could be stored: the bytes of the values that Redis would hold of it.
type layout struct {
	name       string
	namespace  string // of the names of records
	state      int    // 0: none
	definition int    // 0: the state is all that is stored beside the entry of the lane
	perHash    int    // states in a hash, where it is not one hash a shard
}

// The values of a recurring job with a payload of 200 bytes before its first run: its state and its definition, as
// docs/decisions/0012-spare-records.md describes them, and a reference to a definition that many jobs share.
const (
	stateSize      = 44
	definitionSize = 220
	referenceSize  = 12
)

var layouts = []layout{
	{name: "as built", namespace: "default", state: stateSize, definition: definitionSize},
	{name: "no state before the first run", namespace: "default", definition: definitionSize},
	{name: "state and definition in one field", namespace: "default", state: stateSize + definitionSize},
	{name: "64 states in a hash", namespace: "default", state: stateSize, definition: definitionSize, perHash: 64},
	{name: "shared definitions", namespace: "default", state: stateSize, definition: referenceSize},
	{name: "shared definitions, no state", namespace: "default", definition: referenceSize},
	{name: "shared definitions, all in one field", namespace: "default", state: stateSize + referenceSize},
	{name: "as built, short names", namespace: "mail", state: stateSize, definition: definitionSize},
	{name: "no state, short names", namespace: "mail", definition: definitionSize},
	{name: "shared definitions, no state, short names", namespace: "mail", definition: referenceSize},
}

// BenchmarkLayout stores a million jobs in 64 shards by the plain commands of Redis, and writes each state again. It
// reports what Redis takes for a job, and for writing a state.
func BenchmarkLayout(b *testing.B) {
	for _, l := range layouts {
		b.Run(l.name, func(b *testing.B) { l.measure(b) })
	}
}

func (l layout) measure(b *testing.B) {
	const jobs = 1_000_000
	client := redistest.Start(b).Client()
	for b.Loop() {
		if err := client.FlushAll(b.Context()).Err(); err != nil {
			b.Fatal(err)
		}
		before := usedMemory(b, client)
		l.write(b, client, jobs, l.store)
		b.ReportMetric(float64(usedMemory(b, client)-before)/jobs, "bytes/job")
		if l.state > 0 {
			begin := cpu(b, client)
			l.write(b, client, jobs, l.storeState)
			b.ReportMetric((cpu(b, client)-begin)*1e6/jobs, "redis-us/state")
		}
	}
}

// write calls f for each of the jobs in random order, in pipelines.
func (l layout) write(b *testing.B, client *redis.Client, jobs int, f func(context.Context, redis.Pipeliner, int)) {
	b.Helper()
	order := rand.Perm(jobs)
	for from := 0; from < jobs; from += batch {
		_, err := client.Pipelined(b.Context(), func(p redis.Pipeliner) error {
			for _, i := range order[from:min(jobs, from+batch)] {
				f(b.Context(), p, i)
			}
			return nil
		})
		if err != nil {
			b.Fatal(err)
		}
	}
}

func (l layout) store(ctx context.Context, p redis.Pipeliner, i int) {
	const shards = 64
	name, shard := l.nameOf(i), i%shards
	p.ZAdd(ctx, fmt.Sprintf("lane:%d", shard), redis.Z{Score: rand.Float64(), Member: name})
	if l.definition > 0 {
		p.HSet(ctx, fmt.Sprintf("definitions:%d", shard), name, make([]byte, l.definition))
	}
	l.storeState(ctx, p, i)
}

func (l layout) storeState(ctx context.Context, p redis.Pipeliner, i int) {
	if l.state == 0 {
		return
	}
	hash := i % 64
	if l.perHash > 0 {
		hash = i / l.perHash
	}
	p.HSet(ctx, fmt.Sprintf("states:%d", hash), l.nameOf(i), make([]byte, l.state))
}

func (l layout) nameOf(i int) string { return fmt.Sprintf("%s/bench-%018d", l.namespace, i) }

func usedMemory(b *testing.B, client *redis.Client) int64 {
	b.Helper()
	info, err := client.InfoMap(b.Context(), "memory").Result()
	if err != nil {
		b.Fatal(err)
	}
	var bytes int64
	if _, err := fmt.Sscan(info["Memory"]["used_memory"], &bytes); err != nil {
		b.Fatal(err)
	}
	return bytes
}
