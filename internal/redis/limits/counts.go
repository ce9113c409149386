package limits

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/redis/rediserr"
	"github.com/fermata-io/fermata/internal/redis/runner"
)

const (
	// countedPerCall is how many records one call of a census looks at: some two
	// milliseconds of the server. Each call is a round trip of its own: Redis carries out a
	// pipeline without a look at other connections.
	countedPerCall = 5000
	// looksPerCall is how many fields one call looks at where each job is asked for its size,
	// and for those of its runs.
	looksPerCall = 1000
	// lanesPerCall is how many lanes one call goes through.
	lanesPerCall = 64
	// answersPerLane is how many numbers a call answers for each lane.
	answersPerLane = 3
	// maxCounted is how many namespaces have a count, those with most jobs: the one that
	// a census leaves out begins at nothing.
	maxCounted = 10_000
	// countsPerRead and maxReadCounts bound the counts that one command, and one look, reads.
	countsPerRead = 1000
	maxReadCounts = 2 * maxCounted
)

// NamespaceCounts are counts of all namespaces, in the slot of the keyspace's own hash: of
// their jobs, or of the bytes of these.
type NamespaceCounts struct {
	store *Store
	key   string
	// census is the script that counts parts of lanes, with perCall looks at most, and keys are
	// those of the lanes' shard that it reads beside them.
	census  *runner.Script
	perCall int
	keys    func(runner.ShardKeys) []string
}

// JobCounts are how many jobs namespaces have.
func (s *Store) JobCounts() *NamespaceCounts {
	return &NamespaceCounts{store: s, key: runner.KeyspaceKey(s.prefix) + ":jobs", census: s.scripts.census,
		perCall: countedPerCall, keys: func(runner.ShardKeys) []string { return nil }}
}

// ByteCounts are how many bytes the jobs of namespaces have: ids and definitions, as the store of jobs
// measures each, and what a census finds beside them, their revisions, their dead letters, the runs that are
// records of their own, and their histories. Nodes of earlier versions do not know them, or count
// definitions alone.
func (s *Store) ByteCounts() *NamespaceCounts {
	return &NamespaceCounts{
		store: s, key: runner.KeyspaceKey(s.prefix) + ":bytes", census: s.scripts.measure, perCall: looksPerCall,
		keys: func(k runner.ShardKeys) []string { return []string{k.Def, k.State, k.Hist, k.Revisions} },
	}
}

func (c *NamespaceCounts) call(ctx context.Context, argv ...any) (runner.Reply, error) {
	o := runner.NewScriptCall(c.store.scripts.jobs, runner.NoShard, []string{c.key, c.key + ":new"}, argv)
	err := c.store.runner.Run(ctx, o)
	return o.Reply, err
}

// Reserve counts up to n more for a namespace, as many as a limit leaves, and returns how many
// those are, and what the count is then.
func (c *NamespaceCounts) Reserve(ctx context.Context, namespace string, n, limit int) (granted, count int, err error) {
	r, err := c.call(ctx, "take", namespace, n, limit)
	return int(r.IntAt(0)), int(r.IntAt(1)), err
}

// Return takes n off the count of a namespace.
func (c *NamespaceCounts) Return(ctx context.Context, namespace string, n int) error {
	_, err := c.call(ctx, "give", namespace, n)
	return err
}

// Counts are those of all namespaces, and whether there has been a census yet. They are read in parts: while a
// census ends, some may be missing. Of very many namespaces, only maxReadCounts are read.
func (c *NamespaceCounts) Counts(ctx context.Context) (counts map[string]int, counted bool, err error) {
	counts = map[string]int{}
	for at := "0"; ; {
		read := runner.NewCommand("counts of namespaces", c.key, "hscan", c.key, at, "count", countsPerRead)
		if err := c.store.runner.Run(ctx, read); err != nil {
			return nil, false, err
		}
		fields := read.Reply.ListAt(1)
		for i := 0; i+1 < len(fields); i += 2 {
			field := fields.TextAt(i)
			if strings.HasPrefix(field, "#") {
				counted = counted || field == "#counted"
				continue
			}
			if n, err := strconv.Atoi(fields.TextAt(i + 1)); err == nil {
				counts[field] = n
			}
		}
		at = read.Reply.TextAt(0)
		if at == "0" || at == "" || len(counts) >= maxReadCounts {
			return counts, counted, nil
		}
	}
}

// Census counts the wanted namespaces again and corrects their counts, unless another census begins
// meanwhile. It does nothing if another one
// began less than a pause ago; began reports whether this one did. What is created meanwhile
// is counted twice at most, until the next one.
func (c *NamespaceCounts) Census(ctx context.Context, every time.Duration,
	want func(namespace string) bool) (began bool, err error) {
	id := rand.Text()
	r, err := c.call(ctx, "begin", id, every.Milliseconds())
	if err != nil || r.IntAt(0) != 1 {
		return false, err
	}
	counts, err := c.countAll(ctx, want)
	if err != nil {
		return true, c.store.explainDenial(ctx, err)
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
		wanted := map[job.Lane]struct{}{}
		err := c.store.eachLane(ctx, shard, func(l job.Lane) {
			if want(l.Namespace) {
				wanted[l] = struct{}{}
			}
		})
		if err != nil {
			return nil, err
		}
		parts := make([]lanePart, 0, len(wanted))
		for l := range wanted {
			parts = append(parts, lanePart{lane: l})
		}
		for len(parts) > 0 {
			parts, err = c.countParts(ctx, shard, parts, counts)
			if err != nil {
				return nil, fmt.Errorf("census: %w", err)
			}
		}
	}
	return counts, nil
}

// lanePart is the part of a lane that a census has not counted yet.
type lanePart struct {
	lane  job.Lane
	first int
}

// countParts counts as much of some lanes as one call may, and returns what is left. A
// call without an answer is not repeated: Redis may still be at work on it.
func (c *NamespaceCounts) countParts(ctx context.Context, shard int, parts []lanePart,
	counts map[string]int) (left []lanePart, err error) {
	asked := parts[:min(len(parts), lanesPerCall)]
	keys, argv := slices.Clone(c.keys(c.store.shards[shard])), []any{c.perCall}
	for _, p := range asked {
		keys, argv = append(keys, c.store.shards[shard].LaneKey(p.lane)), append(argv, p.first)
	}
	o := runner.NewScriptCall(c.census, runner.NoShard, keys, argv)
	o.NeverRetry = true
	if err := c.store.runner.Run(ctx, o); err != nil {
		return nil, err
	}
	answered := len(o.Reply) / answersPerLane
	if answered == 0 {
		return nil, fmt.Errorf("%w: nothing was counted", rediserr.ErrNoAnswer)
	}
	left = parts[min(answered, len(asked)):]
	for i, p := range asked[:min(answered, len(asked))] {
		records, more := int(o.Reply.IntAt(i*answersPerLane)), o.Reply.IntAt(i*answersPerLane+2) == 1
		counts[p.lane.Namespace] += int(o.Reply.IntAt(i*answersPerLane + 1))
		if more {
			left = append(left, lanePart{p.lane, p.first + records})
		}
	}
	return left, nil
}
