package redisstore

import (
	"context"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/redis/rediserr"
)

// Lanes lists the lanes of shards that hold any record, with the first due time of each (job.NeverMS if
// nothing in it is due): at most job.LanesPerRead of each shard, in the order of their due times. It also
// reads the clock of a shard if that is not recent; a plain read costs a tenth of a script. With an error it
// returns the shards that could be read: an unreachable server must not hide the others.
func (s *Store) Lanes(ctx context.Context, shards []int) (map[int][]job.LaneHead, error) {
	return s.readLanes(ctx, shards, s.firstLanes)
}

// firstLanes reads the first lanes of a shard by due time.
func (s *Store) firstLanes(shard int) *op {
	k := s.shards[shard]
	if s.clockIsRecent(shard) {
		return newCommand("zrange", k.lanes, "zrange", k.lanes, 0, job.LanesPerRead-1, "withscores")
	}
	return newScriptCall(s.scripts.clock, shard, []string{k.meta, k.lanes}, []any{job.LanesPerRead})
}

// DueLanes is Lanes, with the same limit, for lanes in which something is due now or within a duration.
func (s *Store) DueLanes(ctx context.Context, shards []int, within time.Duration) (map[int][]job.LaneHead, error) {
	return s.firstDueLanes(ctx, shards, within, job.LanesPerRead)
}

// firstDueLanes is DueLanes for the first n lanes of each shard by due time.
func (s *Store) firstDueLanes(ctx context.Context, shards []int, within time.Duration, n int) (map[int][]job.LaneHead, error) {
	return s.readLanes(ctx, shards, func(shard int) *op {
		k := s.shards[shard]
		if s.clockIsRecent(shard) {
			now := s.clocks[shard].expectedMS(s.now())
			return newCommand("zrange", k.lanes, "zrange", k.lanes, "-inf", now+within.Milliseconds(), "byscore", "limit", 0, n, "withscores")
		}
		return newScriptCall(s.scripts.clock, shard, []string{k.meta, k.lanes}, []any{n, within.Milliseconds()})
	})
}

// clockIsRecent reports whether lanes of a shard may be read without its clock.
func (s *Store) clockIsRecent(shard int) bool {
	return s.virtual == nil && s.clocks[shard].isRecent(s.now())
}

// readLanes reads the index of lanes of each shard by one op.
func (s *Store) readLanes(ctx context.Context, shards []int, read func(shard int) *op) (map[int][]job.LaneHead, error) {
	ops := make([]*op, len(shards))
	for i, shard := range shards {
		ops[i] = read(shard)
	}
	err := s.runAndWrap(ctx, ops...)
	out := make(map[int][]job.LaneHead, len(shards))
	for i, shard := range shards {
		if ops[i].err == nil {
			out[shard] = s.laneHeads(shard, laneEntries(ops[i]))
		}
	}
	return out, err
}

// laneEntries are the names and scores that a read of an index of lanes returned.
func laneEntries(o *op) reply {
	if o.script != nil {
		return flattenPairs(o.reply.listAt(2))
	}
	return flattenPairs(o.reply)
}

// laneHeads reads the members of a shard's index of lanes.
func (s *Store) laneHeads(shard int, pairs reply) []job.LaneHead {
	heads := make([]job.LaneHead, 0, len(pairs)/2)
	for k := 0; k+1 < len(pairs); k += 2 {
		lane, ok := job.ParseLane(pairs.textAt(k))
		if !ok {
			s.log.Error("index of lanes has an invalid entry", "shard", shard, "lane", pairs.textAt(k))
			continue
		}
		heads = append(heads, job.LaneHead{Lane: lane, DueMS: parseScore(pairs.valueAt(k + 1))})
	}
	return heads
}

// maxReadsPerPipeline bounds the small reads in one pipeline.
const maxReadsPerPipeline = 2000

// Stats counts the records of lanes by region, shard by shard in the order of the
// lanes. The counts are read one after the other while work continues, so they need not add up. With an
// error it returns the shards that were counted completely.
//
// If all records of a lane are scheduled, its size and its two ends show that; only other lanes are
// counted.
func (s *Store) Stats(ctx context.Context, lanes map[int][]job.Lane) (map[int][]job.LaneStat, error) {
	var looks []*laneProbe
	out, failed := make(map[int][]job.LaneStat, len(lanes)), shardFailures{}
	for shard, list := range lanes {
		now, err := s.Now(ctx, shard)
		if failed.addError(shard, err) {
			continue
		}
		out[shard] = make([]job.LaneStat, len(list))
		for i, l := range list {
			looks = append(looks, newLaneProbe(s.shards[shard], shard, now, l, &out[shard][i]))
		}
	}
	runReads(ctx, s, looks)
	var counts []*laneCount
	for _, l := range looks {
		if !failed.addError(l.shard, firstError(l.ops[:])) && !l.allScheduled() {
			counts = append(counts, newLaneCount(l))
		}
	}
	runReads(ctx, s, counts)
	for _, c := range counts {
		failed.addError(c.shard, firstError(c.ops))
	}
	s.readOldestDeaths(ctx, counts, failed)
	return out, failed.dropFailed(out)
}

// shardFailures are the errors of shards that could not be read completely.
type shardFailures map[int]error

// addError reports whether there was an error.
func (f shardFailures) addError(shard int, err error) bool {
	if err != nil {
		f[shard] = err
	}
	return err != nil
}

// dropFailed deletes failed shards from the counts, and returns one of the errors.
func (f shardFailures) dropFailed(counted map[int][]job.LaneStat) (err error) {
	for shard := range f {
		delete(counted, shard)
		err = f[shard]
	}
	return err
}

// runReads runs the reads of all parts, then lets each part read its replies. A failed read has its
// error in the ops of the part, and reads as empty.
func runReads[R interface {
	reads() []*op
	read()
}](ctx context.Context, s *Store, all []R) {
	for len(all) > 0 {
		var ops []*op
		n := 0
		for ; n < len(all) && (n == 0 || len(ops)+len(all[n].reads()) <= maxReadsPerPipeline); n++ {
			ops = append(ops, all[n].reads()...)
		}
		s.runAllUnlessDone(ctx, ops)
		for _, r := range all[:n] {
			r.read()
		}
		all = all[n:]
	}
}

// runAllUnlessDone runs ops, unless ctx has ended. Each op has its own error.
func (s *Store) runAllUnlessDone(ctx context.Context, ops []*op) {
	if ctx.Err() == nil {
		_ = s.runAndWrap(ctx, ops...)
		return
	}
	for _, o := range ops {
		o.err = rediserr.Wrap(o.name, ctx.Err())
	}
}

// laneProbe reads the size and the two ends of a lane.
type laneProbe struct {
	shard int
	now   int64
	lane  job.Lane
	keys  shardKeys
	ops   [3]*op
	stat  *job.LaneStat
}

func newLaneProbe(keys shardKeys, shard int, now int64, lane job.Lane, stat *job.LaneStat) *laneProbe {
	key := keys.laneKey(lane)
	return &laneProbe{shard: shard, now: now, lane: lane, keys: keys, stat: stat, ops: [3]*op{
		newCommand("zcard", key, "zcard", key),
		newCommand("zrange", key, "zrange", key, 0, 0, "withscores"),
		newCommand("zrange", key, "zrange", key, -1, -1, "withscores"),
	}}
}

func (l *laneProbe) reads() []*op { return l.ops[:] }

func (l *laneProbe) read() {
	*l.stat = job.LaneStat{Lane: l.lane}
	if first := firstScore(l.ops[1].reply); l.allScheduled() && l.size() > 0 {
		l.stat.Scheduled = l.size()
		if first < job.NeverMS {
			l.stat.NextDueMS = first
		}
	}
}

func (l *laneProbe) size() int64 { return l.ops[0].reply.intAt(0) }

// allScheduled reports whether all records of the lane are scheduled.
func (l *laneProbe) allScheduled() bool {
	if l.size() == 0 {
		return true
	}
	// The three were not read at one instant: the lane may have become empty.
	return len(l.ops[1].reply) > 0 && len(l.ops[2].reply) > 0 &&
		firstScore(l.ops[1].reply) > l.now && firstScore(l.ops[2].reply) <= job.Score(job.RegionDue, job.NeverMS)
}

// laneCount counts the records of a lane by region.
type laneCount struct {
	shard int
	now   int64
	lane  job.Lane
	keys  shardKeys
	ops   []*op
	stat  *job.LaneStat
}

// overdueOp is the index of the read that only lanes with an overdue first record have.
const overdueOp = 8

func newLaneCount(l *laneProbe) *laneCount {
	key, now := l.keys.laneKey(l.lane), l.now
	count := func(region job.Region, from, to int64) *op {
		return newCommand("zcount", key, "zcount", key, job.Score(region, from), job.Score(region, to))
	}
	c := &laneCount{shard: l.shard, now: now, lane: l.lane, keys: l.keys, stat: l.stat, ops: []*op{
		count(job.RegionDue, 0, now), count(job.RegionDue, now+1, job.NeverMS),
		count(job.RegionLeased, 0, job.NeverMS), count(job.RegionPaused, 0, job.NeverMS),
		count(job.RegionDead, 0, job.NeverMS), count(job.RegionDone, 0, job.NeverMS),
		newCommand("zrange", key, "zrange", key, 0, 0, "withscores"),
		newCommand("zrange", key, "zrange", key, job.Score(job.RegionDead, 0), job.Score(job.RegionDead, job.NeverMS),
			"byscore", "limit", 0, deadLettersRead, "withscores"),
	}}
	if late := now - job.OverdueAfter.Milliseconds() - 1; firstScore(l.ops[1].reply) <= late {
		c.ops = append(c.ops, count(job.RegionDue, 0, late))
	}
	return c
}

func (c *laneCount) reads() []*op { return c.ops }

func (c *laneCount) read() {
	n := func(k int) int64 { return c.ops[k].reply.intAt(0) }
	*c.stat = job.LaneStat{
		Lane: c.lane, Backlog: n(0), Scheduled: n(1), Leased: n(2), Paused: n(3), Dead: n(4), Done: n(5),
	}
	if len(c.ops) > overdueOp {
		c.stat.Overdue = min(n(overdueOp), n(0)) // the two were not read at one instant
	}
	switch due := firstScore(c.ops[6].reply); {
	case n(0) > 0 && due <= c.now:
		c.stat.OldestDueMS = due
	case n(0) == 0 && n(1) > 0 && due > c.now && due < job.NeverMS:
		c.stat.NextDueMS = due
	}
	if n(4) > 0 && len(c.ops[7].reply) > 0 { // the two were not read at one instant
		c.stat.DeadUntilMS = firstScore(c.ops[7].reply) - job.Score(job.RegionDead, 0)
	}
}

// flattenPairs returns members with their scores as one list, as RESP2 sends them; RESP3 sends a list
// of pairs.
func flattenPairs(r reply) reply {
	if len(r) == 0 || r.listAt(0) == nil {
		return r
	}
	out := make(reply, 0, 2*len(r))
	for i := range r {
		out = append(out, r.listAt(i)...)
	}
	return out
}

// firstScore reads the score of the first member.
func firstScore(r reply) int64 { return parseScore(flattenPairs(r).valueAt(1)) }
