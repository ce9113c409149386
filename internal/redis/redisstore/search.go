package redisstore

import (
	"cmp"
	"context"
	"slices"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/redis/codec"
	"github.com/fermata-io/fermata/internal/redis/runner"
)

// This file reads the indexes of lanes for lists of jobs. It changes nothing, and takes only commands: a server
// that has the functions of an older version serves it too.

const (
	// tieOverlap is how many entries before a place among equal scores are read again, for entries that went meanwhile.
	tieOverlap = 64
	// maxPipelineCost bounds the work of one pipeline. Redis runs a pipeline as a whole, and leases wait meanwhile. So
	// lists send many small pipelines. The unit is about a microsecond of Redis.
	maxPipelineCost = 400
	// recordsPerRead bounds the records that one command of a list reads.
	recordsPerRead = 64
)

// listRead is a read of a list with its cost, in the unit of maxPipelineCost.
type listRead struct {
	*runner.Op
	cost int
}

// Costs of the commands that lists use, estimated from a profile of lists with 200,000 jobs.
func costOfRange(entries int) int   { return 4 + entries }
func costOfFields(fields int) int   { return 2 + 3*fields }
func costOfRecords(records int) int { return 16 + 5*records }

const costOfLookup = 2 // of a count or a score

// ReadIndex reads parts of the index of lanes.
func (s *Store) ReadIndex(ctx context.Context, ranges []job.IndexRange) ([][]job.IndexEntry, error) {
	ops := make([]listRead, len(ranges))
	for i, r := range ranges {
		key := s.shards[r.Shard].LaneKey(r.Lane)
		ops[i] = listRead{runner.NewCommand("zrange", key, "zrange", key, r.Min, r.Max, "byscore", "limit", r.Skip, r.Limit,
			"withscores"), costOfRange(min(cmp.Or(r.Expected, r.Limit), r.Limit))}
	}
	if err := s.runInParts(ctx, ops); err != nil {
		return nil, err
	}
	out := make([][]job.IndexEntry, len(ranges))
	for i, r := range ranges {
		pairs := ops[i].Reply.Pairs()
		out[i] = make([]job.IndexEntry, 0, len(pairs)/2)
		for k := 0; k+1 < len(pairs); k += 2 {
			out[i] = append(out[i], job.IndexEntry{Shard: r.Shard, Record: job.RecordID(pairs.TextAt(k)),
				Score: pairs.ScoreAt(k + 1)})
		}
	}
	return out, nil
}

// CountIndex counts the entries of parts of the index of lanes. Skip and Limit of the ranges have no effect.
func (s *Store) CountIndex(ctx context.Context, ranges []job.IndexRange) ([]int, error) {
	ops := make([]listRead, len(ranges))
	for i, r := range ranges {
		key := s.shards[r.Shard].LaneKey(r.Lane)
		ops[i] = listRead{runner.NewCommand("zcount", key, "zcount", key, r.Min, r.Max), costOfLookup}
	}
	if err := s.runInParts(ctx, ops); err != nil {
		return nil, err
	}
	counts := make([]int, len(ranges))
	for i := range ops {
		counts[i] = int(ops[i].Reply.IntAt(0))
	}
	return counts, nil
}

// SkipTies returns for each lane how many of the entries with a score come before a record, or up to 64 fewer: entries
// may go meanwhile, and the caller leaves out those that it reads again. Entries with equal scores are ordered by
// record. It searches all lanes side by side, by halves.
func (s *Store) SkipTies(ctx context.Context, lanes []job.ShardLane, score int64, after job.RecordID) ([]int, error) {
	below, equal := make([]job.IndexRange, len(lanes)), make([]job.IndexRange, len(lanes))
	for i, l := range lanes {
		below[i] = job.IndexRange{Shard: l.Shard, Lane: l.Lane, Max: score - 1}
		equal[i] = job.IndexRange{Shard: l.Shard, Lane: l.Lane, Min: score, Max: score}
	}
	counts, err := s.CountIndex(ctx, append(below, equal...))
	if err != nil {
		return nil, err
	}
	base := counts[:len(lanes)]
	low, high := make([]int, len(lanes)), counts[len(lanes):]
	for {
		var ops []listRead
		var at []int
		for i, l := range lanes {
			if high[i]-low[i] > tieOverlap {
				key, middle := s.shards[l.Shard].LaneKey(l.Lane), base[i]+(low[i]+high[i])/2
				ops = append(ops, listRead{runner.NewCommand("zrange", key, "zrange", key, middle, middle), costOfRange(1)})
				at = append(at, i)
			}
		}
		if len(ops) == 0 {
			break
		}
		if err := s.runInParts(ctx, ops); err != nil {
			return nil, err
		}
		for k, i := range at {
			middle := (low[i] + high[i]) / 2
			if len(ops[k].Reply) > 0 && job.RecordID(ops[k].Reply.TextAt(0)) <= after {
				low[i] = middle
			} else {
				high[i] = middle
			}
		}
	}
	for i := range low {
		low[i] = max(0, low[i]-tieOverlap)
	}
	return low, nil
}

// ReadEntries reads the records of entries, in any shards. A record that does not exist, or cannot be read, is nil. A
// run that is a record of its own comes with its job's definition. Record.IndexMS is zero.
func (s *Store) ReadEntries(ctx context.Context, entries []job.IndexEntry) ([]*job.Record, error) {
	var reads []*rawRead
	var places [][]int
	for shard, all := range placesByShard(entries) {
		for at := range slices.Chunk(all, recordsPerRead) {
			reads = append(reads, s.newRawRead(shard, recordsAt(entries, at)))
			places = append(places, at)
		}
	}
	first := 0
	for first < len(reads) {
		n := countWithinCost(len(reads)-first, func(i int) int { return costOfRecords(len(reads[first+i].ids)) })
		if err := s.performReads(ctx, reads[first:first+n]); err != nil {
			return nil, err
		}
		first += n
	}
	out := make([]*job.Record, len(entries))
	for k, r := range reads {
		for i, record := range r.records(s) {
			out[places[k][i]] = record
		}
	}
	return out, nil
}

// ReadStates reads the states of records, without their definitions. One that does not exist, or cannot be read, is
// nil.
func (s *Store) ReadStates(ctx context.Context, entries []job.IndexEntry) ([]*job.State, error) {
	out := make([]*job.State, len(entries))
	var ops []listRead
	var at [][]int
	for shard, places := range placesByShard(entries) {
		for part := range slices.Chunk(places, recordsPerRead) {
			o := runner.NewFieldsRead(shard, s.shards[shard].State, recordsAt(entries, part))
			ops, at = append(ops, listRead{o, costOfFields(len(part))}), append(at, part)
		}
	}
	if err := s.runInParts(ctx, ops); err != nil {
		return nil, err
	}
	for k, o := range ops {
		for i, place := range at[k] {
			if !o.Reply.HasTextAt(i) {
				continue
			}
			state, err := codec.DecodeState(entries[place].Record, o.Reply.TextAt(i))
			if err != nil {
				s.runner.ReportCorrupt(entries[place].Shard, "list", err, string(entries[place].Record))
				continue
			}
			out[place] = &state
		}
	}
	return out, nil
}

// ReadScores returns the scores that records with these states have in the lanes of their states. A record that is not
// in its lane, or has no state, has 0.
func (s *Store) ReadScores(ctx context.Context, entries []job.IndexEntry, states []*job.State) ([]int64, error) {
	var ops []listRead
	var at []int
	for i, e := range entries {
		if states[i] != nil {
			key := s.shards[e.Shard].LaneKey(states[i].Lane)
			o := runner.NewCommand("zscore", key, "zscore", key, string(e.Record))
			ops, at = append(ops, listRead{o, costOfLookup}), append(at, i)
		}
	}
	if err := s.runInParts(ctx, ops); err != nil {
		return nil, err
	}
	scores := make([]int64, len(entries))
	for k, o := range ops {
		scores[at[k]] = o.Reply.ScoreAt(0)
	}
	return scores, nil
}

// runInParts runs reads in pipelines of bounded cost, one after the other.
func (s *Store) runInParts(ctx context.Context, reads []listRead) error {
	for len(reads) > 0 {
		n := countWithinCost(len(reads), func(i int) int { return reads[i].cost })
		ops := make([]*runner.Op, n)
		for i := range ops {
			ops[i] = reads[i].Op
		}
		if err := s.runner.Run(ctx, ops...); err != nil {
			return err
		}
		reads = reads[n:]
	}
	return nil
}

// countWithinCost returns how many of n reads one pipeline takes: at least one.
func countWithinCost(n int, cost func(i int) int) int {
	for i, total := 0, 0; i < n; i++ {
		total += cost(i)
		if total > maxPipelineCost && i > 0 {
			return i
		}
	}
	return n
}

// placesByShard returns the indexes of entries by shard.
func placesByShard(entries []job.IndexEntry) map[int][]int {
	places := map[int][]int{}
	for i, e := range entries {
		places[e.Shard] = append(places[e.Shard], i)
	}
	return places
}

func recordsAt(entries []job.IndexEntry, places []int) []job.RecordID {
	ids := make([]job.RecordID, len(places))
	for i, at := range places {
		ids[i] = entries[at].Record
	}
	return ids
}
