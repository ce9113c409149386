package redisstore

import (
	"context"
	"errors"
	"fmt"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/sharding"
	"github.com/fermata-io/fermata/internal/redis/rediserr"
	"github.com/fermata-io/fermata/internal/redis/runner"
)

// Limits are shared by the runs of all shards. Each has a name, and a home shard
// that the name alone decides; its keys carry that shard's tag, and its times are
// those of that shard's clock. T is the tag, P the prefix:
//
//	P:{T}:u:<name>     sorted set  holder of a unit, score: expiry
//	P:{T}:s:<name>     hash        holder -> since when
//	P:{T}:w:<name>     sorted set  waiter in line, score: rank
//	P:{T}:q:<name>     sorted set  waiter, score: when it last asked, or until when a
//	                               unit is reserved for it
//	P:{T}:rate:<name>  string      rate limit
//	P:{T}:cell:<name>  string      cell: expiry and text
//	P:{meta}:queues    hash        namespace/queue -> settings, protobuf
//	P:{meta}:queues:counts  hash   namespace -> its queues that have settings
//	P:{meta}:jobs      hash        namespace -> jobs, where their number is limited
//	P:{meta}:jobs:new  hash        namespace -> jobs taken since the last census began
//	P:{meta}:bytes     hash        namespace -> bytes of its jobs, where those are limited
//	P:{meta}:bytes:new hash        namespace -> bytes taken since the last census began
//
// What has expired by the shard's clock counts as missing. Redis deletes the keys of unused names: units
// and waiters after three days, cells after two weeks, rate limits a minute after they are idle.
const (
	// maxAsksPerCall is how many asks one script call is about: a hundred units of as many
	// limits take a thousand commands, some three milliseconds.
	maxAsksPerCall = 100
	// maxLimitName bounds names, holders and waiters, in bytes.
	maxLimitName = 1024
)

// limitScripts are the scripts of limits. All pass at maxmemory: what is live has
// to be given back, what is due to be started, and a limit to be changed. What they
// store is bounded.
type limitScripts struct {
	units, count, rate, swap, read, queues, jobs, census, measure *runner.Script
}

// loadLimits composes the scripts. Only what others rely on is confirmed to the
// durability class: a rate limit that a failover loses lets one burst through.
func loadLimits(l loader) limitScripts {
	load := func(name string, mutates bool) *runner.Script {
		s := l.load(name, "allow-oom")
		s.Mutates = mutates
		return s
	}
	// Runs ask for units and circuits one batch each. Where answers are late a connection for each
	// would be more than there are. Nobody waits for rates and rooms for longer than a moment.
	joining := func(name string, mutates bool) *runner.Script {
		s := load(name, mutates)
		s.MayShare = true
		return s
	}
	s := limitScripts{
		units:  joining("limit_units", true),
		count:  load("limit_units", false),
		rate:   load("limit_rate", false),
		swap:   joining("limit_cells", true),
		read:   joining("limit_cells", false),
		queues: load("limit_queues", true),
		jobs:   load("limit_jobs", false),
		census: l.load("census", "no-writes"),

		measure: l.load("census_bytes", "no-writes"),
	}
	s.census.Mutates, s.measure.Mutates = false, false
	return s
}

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
func (s *Store) runLimitItems(ctx context.Context, sc *runner.Script, items []limitItem, suffixes ...string) []limitReply {
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
			answers[place] = limitReply{Reply: list.ListAt(i), nowMS: c.op.Reply.IntAt(1) / 1000, lagMS: c.op.ClockLagMS, err: err}
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
