package limits

import (
	"context"
	"errors"
	"fmt"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/sharding"
	"github.com/fermata-io/fermata/internal/redis/rediserr"
	"github.com/fermata-io/fermata/internal/redis/runner"
)

// Options of a [Store]. All are required.
type Options struct {
	Scripts Scripts
	// EachLane calls visit with all lanes of a shard. It may visit a lane more than once.
	EachLane func(ctx context.Context, shard int, visit func(job.Lane)) error
	// ExplainDenial names the commands that the user may not run, if the error of a census means that.
	ExplainDenial func(ctx context.Context, err error) error
}

// Store keeps the limits of a keyspace. It has no goroutines of its own and is safe for concurrent use. Every
// method is bounded by its context and by the timeout of the runner; errors wrap the sentinels of package job.
type Store struct {
	runner        *runner.Runner
	prefix        string
	shards        []runner.ShardKeys
	scripts       Scripts
	eachLane      func(ctx context.Context, shard int, visit func(job.Lane)) error
	explainDenial func(ctx context.Context, err error) error
}

// New makes a store of the limits of a keyspace, whose shards the runner knows.
func New(r *runner.Runner, o Options) *Store {
	return &Store{
		runner: r, prefix: r.Prefix(), shards: r.Shards(),
		scripts: o.Scripts, eachLane: o.EachLane, explainDenial: o.ExplainDenial,
	}
}

const (
	// maxAsksPerCall is how many asks one script call is about: a hundred units of as many
	// limits take a thousand commands, some three milliseconds.
	maxAsksPerCall = 100
	// maxLimitName bounds names, holders and waiters, in bytes.
	maxLimitName = 1024
)

// homeShard is the shard that has the keys of a limit. It is part of the stored format.
func (s *Store) homeShard(name string) int { return sharding.ShardOf("", name, len(s.shards)) }

// limitItem is one request about a limit.
type limitItem struct {
	name string
	argv []any
	size int   // how many asks it has, if several
	err  error // why it is not sent
}

// limitReply is the reply for an item. A reply with job.ErrDurability is complete.
type limitReply struct {
	runner.Reply
	nowMS int64
	lagMS int64
	err   error
}

func (a limitReply) complete() bool { return a.err == nil || errors.Is(a.err, job.ErrDurability) }

// limitCall is a script call about some of the items, all of one home shard.
type limitCall struct {
	op     *runner.Op
	places []int // indexes in the caller's list
	size   int   // asks
}

// runLimitItems runs items: up to a hundred asks of a shard in one script call, all calls in one pipeline
// for each server. prefixes precede the name in the keys of an item.
func (s *Store) runLimitItems(ctx context.Context, sc *runner.Script, items []limitItem,
	suffixes ...string) []limitReply {
	answers := make([]limitReply, len(items))
	byShard := map[int]*limitCall{}
	var calls []*limitCall
	for i, item := range items {
		answers[i].err = item.err
		if item.err != nil {
			continue
		}
		shard := s.homeShard(item.name)
		c := byShard[shard]
		if size := max(item.size, 1); c == nil || c.size+size > maxAsksPerCall {
			c = &limitCall{op: runner.NewScriptCall(sc, shard, []string{s.shards[shard].Meta}, nil)}
			c.op.MayShare = sc.MayShare
			byShard[shard], calls = c, append(calls, c)
		}
		for _, suffix := range suffixes {
			c.op.Keys = append(c.op.Keys, s.shards[shard].Base+suffix+item.name)
		}
		c.op.Argv = append(c.op.Argv, item.argv...)
		c.places = append(c.places, i)
		c.size += max(item.size, 1)
	}
	ops := make([]*runner.Op, len(calls))
	for i, c := range calls {
		ops[i] = c.op
	}
	s.runner.RunEach(ctx, ops)
	for _, c := range calls {
		err, list := rediserr.Wrap(sc.Name, c.op.Err), c.op.Reply.ListAt(2)
		for i, place := range c.places {
			answers[place] = limitReply{Reply: list.ListAt(i), nowMS: c.op.Reply.IntAt(1) / 1000,
				lagMS: c.op.ClockLagMS, err: err}
		}
	}
	return answers
}

// validateLimitNames rejects invalid names of limits, holders and waiters.
func validateLimitNames(name string, others ...string) error {
	if name == "" {
		return errors.New("a limit without a name")
	}
	for _, text := range append(others, name) {
		if len(text) > maxLimitName {
			return fmt.Errorf("limit %.64q: a name of %d bytes, at most %d are allowed", name, len(text), maxLimitName)
		}
	}
	return nil
}
