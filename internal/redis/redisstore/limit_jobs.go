package redisstore

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
)

const (
	// countedPerCall is how many records one call of a census counts: some two
	// milliseconds of the server.
	countedPerCall = 5000
	// measuredPerCall is the same where each job is asked for its size, and for those of its runs.
	measuredPerCall = 200
	// countsPerPipe is how many such calls go in one pipeline: others get their turn
	// between them.
	countsPerPipe = 64
	// maxCounted is how many namespaces have a count, those with most jobs: the one that
	// a census leaves out begins at nothing.
	maxCounted = 10_000
)

// NamespaceCounts are counts of all namespaces, in the slot of the keyspace's own hash: of
// their jobs, or of the bytes of these.
type NamespaceCounts struct {
	store *Store
	key   string
	// census is the script that counts a part of a lane, of perCall places, and keys are those of
	// the lane's shard that it reads.
	census  *script
	perCall int
	keys    func(shardKeys) []string
}

// JobCounts are how many jobs namespaces have.
func (s *Store) JobCounts() *NamespaceCounts {
	return &NamespaceCounts{store: s, key: keyspaceKey(s.prefix) + ":jobs", census: s.scripts.limits.census, perCall: countedPerCall,
		keys: func(k shardKeys) []string { return []string{k.def} }}
}

// ByteCounts are how many bytes the jobs of namespaces have: ids and definitions, as [Store.DefinitionBytes]
// measures each, and what a census finds beside them, their dead letters, the runs that are
// records of their own, and their histories. Nodes of earlier versions do not know them, or count
// definitions alone.
func (s *Store) ByteCounts() *NamespaceCounts {
	return &NamespaceCounts{store: s, key: keyspaceKey(s.prefix) + ":bytes", census: s.scripts.limits.measure, perCall: measuredPerCall,
		keys: func(k shardKeys) []string { return []string{k.def, k.state, k.hist} }}
}

// DefinitionBytes is how many bytes of Redis' memory the id and the definition of a job are,
// without what Redis adds.
func (s *Store) DefinitionBytes(d *job.Definition) int {
	text, err := s.form().encodeDefinition(d)
	if err != nil {
		return 0 // it cannot be stored either
	}
	return len(d.Record()) + len(text)
}

func (c *NamespaceCounts) call(ctx context.Context, argv ...any) (reply, error) {
	o := call(c.store.scripts.limits.jobs, noShard, []string{c.key, c.key + ":new"}, argv)
	err := c.store.perform(ctx, o)
	return o.reply, err
}

// Take counts up to n more for a namespace, as many as a limit leaves, and returns how many
// those are, and what the count is then.
func (c *NamespaceCounts) Take(ctx context.Context, namespace string, n, limit int) (granted, count int, err error) {
	r, err := c.call(ctx, "take", namespace, n, limit)
	return int(r.int(0)), int(r.int(1)), err
}

// Give takes n off the count of a namespace.
func (c *NamespaceCounts) Give(ctx context.Context, namespace string, n int) error {
	_, err := c.call(ctx, "give", namespace, n)
	return err
}

// Counts are those of all namespaces, and whether there has been a census yet.
func (c *NamespaceCounts) Counts(ctx context.Context) (counts map[string]int, counted bool, err error) {
	read := command("counts of namespaces", c.key, "hgetall", c.key)
	if err := c.store.perform(ctx, read); err != nil {
		return nil, false, err
	}
	counts = map[string]int{}
	for field, text := range readHash(read.reply) {
		if strings.HasPrefix(field, "#") {
			counted = counted || field == "#counted"
			continue
		}
		if n, err := strconv.Atoi(text); err == nil {
			counts[field] = n
		}
	}
	return counts, counted, nil
}

// Census counts anew for those namespaces that are wanted, and puts their counts
// right, unless another one begins meanwhile, which does. It does nothing if another one
// began less than a pause ago; began tells whether this one did. What is created meanwhile
// is counted twice at most, until the next one.
func (c *NamespaceCounts) Census(ctx context.Context, every time.Duration, want func(namespace string) bool) (began bool, err error) {
	id := randomID()
	r, err := c.call(ctx, "begin", id, every.Milliseconds())
	if err != nil || r.int(0) != 1 {
		return false, err
	}
	counts, err := c.countAll(ctx, want)
	if err != nil {
		return true, err
	}
	names := make([]string, 0, len(counts))
	for name := range counts {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int { return cmp.Compare(counts[b], counts[a]) })
	argv := []any{"end", id}
	for _, name := range names[:min(len(names), maxCounted)] {
		argv = append(argv, name, counts[name])
	}
	_, err = c.call(ctx, argv...)
	return true, err
}

// countAll counts what namespaces have, shard by shard.
func (c *NamespaceCounts) countAll(ctx context.Context, want func(string) bool) (map[string]int, error) {
	counts := map[string]int{}
	for shard := range c.store.shards {
		heads, err := c.store.Lanes(ctx, []int{shard})
		if err != nil {
			return nil, err
		}
		var lanes []job.Lane
		for _, h := range heads[shard] {
			if want(h.Lane.Namespace) {
				lanes = append(lanes, h.Lane)
			}
		}
		for first := 0; len(lanes) > 0; first += c.perCall {
			if lanes, err = c.countLanes(ctx, shard, lanes, first, counts); err != nil {
				return nil, fmt.Errorf("census: %w", err)
			}
		}
	}
	return counts, nil
}

// countLanes counts one part of each lane and returns those that go on after it.
func (c *NamespaceCounts) countLanes(ctx context.Context, shard int, lanes []job.Lane, first int, counts map[string]int) (more []job.Lane, err error) {
	keys := c.store.shards[shard]
	for part := range slices.Chunk(lanes, countsPerPipe) {
		ops := make([]*op, len(part))
		for i, l := range part {
			ops[i] = call(c.census, noShard, append([]string{keys.laneKey(l)}, c.keys(keys)...), []any{first, c.perCall})
		}
		if err := c.store.perform(ctx, ops...); err != nil {
			return nil, err
		}
		for i, o := range ops {
			counts[part[i].Namespace] += int(o.reply.int(1))
			if int(o.reply.int(0)) == c.perCall {
				more = append(more, part[i])
			}
		}
	}
	return more, nil
}
