package redisstore

import (
	"context"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/unixtime"
	"github.com/fermata-io/fermata/internal/redis/rediserr"
	"github.com/fermata-io/fermata/internal/redis/runner"
)

// Lanes lists the lanes of shards that hold any record, with the first due time of each (job.NeverMS if
// nothing in it is due): at most job.LanesPerRead of each shard, in the order of their due times. It also
// reads the clock of a shard if that is not recent; a plain read costs a tenth of a script. With an error it
// returns the shards that could be read: an unreachable server must not hide the others.
func (s *Store) Lanes(ctx context.Context, shards []int) (map[int][]job.LaneHead, error) {
	return s.readLanes(ctx, shards, s.firstLanes)
}

// firstLanes reads the first lanes of a shard by due time.
func (s *Store) firstLanes(shard int) *runner.Op {
	if _, recent := s.runner.RecentClock(shard); !recent {
		return s.runner.NewLanesCall(shard, job.LanesPerRead)
	}
	key := s.shards[shard].Lanes
	return runner.NewCommand("zrange", key, "zrange", key, 0, job.LanesPerRead-1, "withscores")
}

// DueLanes is Lanes, with the same limit, for lanes in which something is due now or within a duration.
func (s *Store) DueLanes(ctx context.Context, shards []int, within time.Duration) (map[int][]job.LaneHead, error) {
	return s.firstDueLanes(ctx, shards, within, job.LanesPerRead)
}

// firstDueLanes is DueLanes for the first n lanes of each shard by due time.
func (s *Store) firstDueLanes(ctx context.Context, shards []int,
	within time.Duration, n int) (map[int][]job.LaneHead, error) {
	return s.readLanes(ctx, shards, func(shard int) *runner.Op {
		now, recent := s.runner.RecentClock(shard)
		if !recent {
			return s.runner.NewDueLanesCall(shard, n, within)
		}
		key, last := s.shards[shard].Lanes, now+within.Milliseconds()
		return runner.NewCommand("zrange", key, "zrange", key, "-inf", last, "byscore", "limit", 0, n, "withscores")
	})
}

// readLanes reads the index of lanes of each shard by one op.
func (s *Store) readLanes(ctx context.Context, shards []int,
	read func(shard int) *runner.Op) (map[int][]job.LaneHead, error) {
	ops := make([]*runner.Op, len(shards))
	for i, shard := range shards {
		ops[i] = read(shard)
	}
	err := s.runner.Run(ctx, ops...)
	out := make(map[int][]job.LaneHead, len(shards))
	for i, shard := range shards {
		if ops[i].Err == nil {
			out[shard] = s.laneHeads(shard, laneEntries(ops[i]))
		}
	}
	return out, err
}

// laneEntries are the names and scores that a read of an index of lanes returned.
func laneEntries(o *runner.Op) runner.Reply {
	if o.Script != nil {
		return o.Reply.ListAt(2).Pairs()
	}
	return o.Reply.Pairs()
}

// laneHeads reads the members of a shard's index of lanes.
func (s *Store) laneHeads(shard int, pairs runner.Reply) []job.LaneHead {
	heads := make([]job.LaneHead, 0, len(pairs)/2)
	for k := 0; k+1 < len(pairs); k += 2 {
		lane, ok := job.ParseLane(pairs.TextAt(k))
		if !ok {
			s.log.Error("index of lanes has an invalid entry", "shard", shard, "lane", pairs.TextAt(k))
			continue
		}
		heads = append(heads, job.LaneHead{Lane: lane, DueMS: unixtime.Milli(pairs.ScoreAt(k + 1))})
	}
	return heads
}

// maxReadsPerPipeline bounds the small reads in one pipeline. Redis runs a pipeline as a whole, and leases wait
// meanwhile.
const maxReadsPerPipeline = 250

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
			looks = append(looks, newLaneProbe(s.shards[shard], shard, int64(now), l, &out[shard][i]))
		}
	}
	runReads(ctx, s, looks)
	var counts []*laneCount
	for _, l := range looks {
		if !failed.addError(l.shard, runner.FirstError(l.ops[:])) && !l.allScheduled() {
			counts = append(counts, newLaneCount(l))
		}
	}
	runReads(ctx, s, counts)
	for _, c := range counts {
		failed.addError(c.shard, runner.FirstError(c.ops))
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
	reads() []*runner.Op
	read()
}](ctx context.Context, s *Store, all []R) {
	for len(all) > 0 {
		var ops []*runner.Op
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
func (s *Store) runAllUnlessDone(ctx context.Context, ops []*runner.Op) {
	if ctx.Err() == nil {
		_ = s.runner.Run(ctx, ops...)
		return
	}
	for _, o := range ops {
		o.Err = rediserr.Wrap(o.Name, ctx.Err())
	}
}

// laneProbe reads the size and the two ends of a lane.
type laneProbe struct {
	shard int
	now   int64
	lane  job.Lane
	keys  runner.ShardKeys
	ops   [3]*runner.Op
	stat  *job.LaneStat
}

func newLaneProbe(keys runner.ShardKeys, shard int, now int64, lane job.Lane, stat *job.LaneStat) *laneProbe {
	key := keys.LaneKey(lane)
	return &laneProbe{shard: shard, now: now, lane: lane, keys: keys, stat: stat, ops: [3]*runner.Op{
		runner.NewCommand("zcard", key, "zcard", key),
		runner.NewCommand("zrange", key, "zrange", key, 0, 0, "withscores"),
		runner.NewCommand("zrange", key, "zrange", key, -1, -1, "withscores"),
	}}
}

func (l *laneProbe) reads() []*runner.Op { return l.ops[:] }

func (l *laneProbe) read() {
	*l.stat = job.LaneStat{Lane: l.lane}
	if first := l.ops[1].Reply.FirstScore(); l.allScheduled() && l.size() > 0 {
		l.stat.Scheduled = l.size()
		if unixtime.Milli(first) < job.NeverMS {
			l.stat.NextDueMS = unixtime.Milli(first)
		}
	}
}

func (l *laneProbe) size() int64 { return l.ops[0].Reply.IntAt(0) }

// allScheduled reports whether all records of the lane are scheduled.
func (l *laneProbe) allScheduled() bool {
	if l.size() == 0 {
		return true
	}
	// The three were not read at one instant: the lane may have become empty.
	return len(l.ops[1].Reply) > 0 && len(l.ops[2].Reply) > 0 &&
		l.ops[1].Reply.FirstScore() > l.now && l.ops[2].Reply.FirstScore() <= job.Score(job.RegionDue, job.NeverMS)
}

// laneCount counts the records of a lane by region.
type laneCount struct {
	shard int
	now   int64
	lane  job.Lane
	keys  runner.ShardKeys
	ops   []*runner.Op
	stat  *job.LaneStat
}

// overdueOp is the index of the read that only lanes with an overdue first record have.
const overdueOp = 8

func newLaneCount(l *laneProbe) *laneCount {
	key, now := l.keys.LaneKey(l.lane), l.now
	count := func(region job.Region, from, to int64) *runner.Op {
		first, last := job.Score(region, unixtime.Milli(from)), job.Score(region, unixtime.Milli(to))
		return runner.NewCommand("zcount", key, "zcount", key, first, last)
	}
	c := &laneCount{shard: l.shard, now: now, lane: l.lane, keys: l.keys, stat: l.stat, ops: []*runner.Op{
		count(job.RegionDue, 0, now), count(job.RegionDue, now+1, int64(job.NeverMS)),
		count(job.RegionLeased, 0, int64(job.NeverMS)), count(job.RegionPaused, 0, int64(job.NeverMS)),
		count(job.RegionDead, 0, int64(job.NeverMS)), count(job.RegionDone, 0, int64(job.NeverMS)),
		runner.NewCommand("zrange", key, "zrange", key, 0, 0, "withscores"),
		runner.NewCommand("zrange", key, "zrange", key, job.Score(job.RegionDead, 0), job.Score(job.RegionDead, job.NeverMS),
			"byscore", "limit", 0, deadLettersRead, "withscores"),
	}}
	if late := now - job.OverdueAfter.Milliseconds() - 1; l.ops[1].Reply.FirstScore() <= late {
		c.ops = append(c.ops, count(job.RegionDue, 0, late))
	}
	return c
}

func (c *laneCount) reads() []*runner.Op { return c.ops }

func (c *laneCount) read() {
	n := func(k int) int64 { return c.ops[k].Reply.IntAt(0) }
	*c.stat = job.LaneStat{
		Lane: c.lane, Backlog: n(0), Scheduled: n(1), Leased: n(2), Paused: n(3), Dead: n(4), Done: n(5),
	}
	if len(c.ops) > overdueOp {
		c.stat.Overdue = min(n(overdueOp), n(0)) // the two were not read at one instant
	}
	switch due := c.ops[6].Reply.FirstScore(); {
	case n(0) > 0 && due <= c.now:
		c.stat.OldestDueMS = unixtime.Milli(due)
	case n(0) == 0 && n(1) > 0 && due > c.now && unixtime.Milli(due) < job.NeverMS:
		c.stat.NextDueMS = unixtime.Milli(due)
	}
	if n(4) > 0 && len(c.ops[7].Reply) > 0 { // the two were not read at one instant
		c.stat.DeadUntilMS = unixtime.Milli(c.ops[7].Reply.FirstScore() - job.Score(job.RegionDead, 0))
	}
}
