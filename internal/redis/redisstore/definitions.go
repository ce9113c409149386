package redisstore

import (
	"context"
	"sync/atomic"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/redis/rediserr"
	"github.com/fermata-io/fermata/internal/redis/runner"
)

const (
	// maxLeasedBytes is how many bytes of definitions one leasing call takes, by their mean size.
	maxLeasedBytes = 16 << 20
	// minLeased is how many records a leasing call may take, however large their definitions are.
	minLeased = 8
	// maxPartFailures is how often parts of one read may fail before the read fails: what was read before a failure
	// need not be read again.
	maxPartFailures = 3
)

// definitionsRead reads definitions of a shard, some 2 MiB by each command.
type definitionsRead struct {
	shard   int
	texts   runner.Reply   // those that were read
	missing []job.RecordID // those to be read, in the order in which they follow texts
	fails   int            // parts that could not be read
	err     error
}

// completeDefinitions reads the missing definitions. Each read has its own error.
func (s *Store) completeDefinitions(ctx context.Context, reads []*definitionsRead) {
	for len(reads) > 0 {
		ops := make([]*runner.Op, len(reads))
		for i, r := range reads {
			argv := make([]any, len(r.missing))
			for k, id := range r.missing {
				argv[k] = string(id)
			}
			ops[i] = runner.NewScriptCall(s.scripts.definitions, r.shard, []string{s.shards[r.shard].Def}, argv)
			ops[i].ReplySize = min(len(r.missing)*largeDefinition, maxReplyBytes)
		}
		s.runner.RunEach(ctx, ops)
		var left []*definitionsRead
		for i, r := range reads {
			r.err = ops[i].Err
			if r.err != nil {
				r.fails++
				if r.fails < maxPartFailures && ctx.Err() == nil {
					left = append(left, r)
				}
				continue
			}
			n := min(len(ops[i].Reply), len(r.missing))
			if n == 0 {
				r.err = rediserr.ErrNoAnswer
				continue
			}
			r.texts, r.missing = append(r.texts, ops[i].Reply[:n]...), r.missing[n:]
			if len(r.missing) > 0 {
				left = append(left, r)
			}
		}
		reads = left
	}
}

// completeReads reads the definitions that the script did not return. A record whose definition has gone meanwhile is
// read again, so that its state and its definition are of one instant.
func (s *Store) completeReads(ctx context.Context, reads []*rawRead) error {
	var short []*definitionsRead
	for _, r := range reads {
		r.defs = definitionsRead{shard: r.shard, texts: r.op.Reply.ListAt(1)}
		r.defs.missing = r.names[min(len(r.defs.texts), len(r.names)):]
		if len(r.defs.missing) > 0 {
			short = append(short, &r.defs)
		}
	}
	if len(short) == 0 {
		return nil
	}
	s.completeDefinitions(ctx, short)
	for _, d := range short {
		if d.err != nil {
			return rediserr.Wrap("definitions", d.err)
		}
	}
	return s.rereadGone(ctx, reads)
}

// rereadGone reads the records again that had a state and, later, no definition.
func (s *Store) rereadGone(ctx context.Context, reads []*rawRead) error {
	for _, r := range reads {
		states := r.op.Reply.ListAt(0)
		for i := len(r.op.Reply.ListAt(1)); i < len(r.ids); i++ {
			if r.names[i] == "" || !states.HasTextAt(i) || r.defs.texts.HasTextAt(i) {
				continue
			}
			again := s.newRawRead(r.shard, r.ids[i:i+1])
			if err := s.runner.Run(ctx, again.op); err != nil {
				return err
			}
			states[i], r.defs.texts[i] = again.op.Reply.ListAt(0).ValueAt(0), again.op.Reply.ListAt(1).ValueAt(0)
		}
	}
	return nil
}

// definitionSize is about how many bytes a definition of a shard has, by the last ones that were leased.
type definitionSize struct{ mean atomic.Int64 }

// learn takes definitions into the mean; half of it is of the last ones.
func (d *definitionSize) learn(texts runner.Reply) {
	if len(texts) == 0 {
		return
	}
	bytes := 0
	for i := range texts {
		bytes += len(texts.TextAt(i))
	}
	mean := int64(bytes / len(texts))
	if before := d.mean.Load(); before > 0 {
		mean = (before + mean + 1) / 2
	}
	d.mean.Store(mean)
}

// countWithin is how many definitions fit into so many bytes.
func (d *definitionSize) countWithin(bytes int) int {
	mean := d.mean.Load()
	if mean == 0 {
		return job.MaxLeasesPerCall // schedulers begin with few
	}
	return max(minLeased, int(int64(bytes)/mean))
}
