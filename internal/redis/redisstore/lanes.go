package redisstore

import (
	"context"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/redis/rediserr"
)

// lanesPerShard bounds the lanes that one read lists of a shard.
const lanesPerShard = job.LanesPerRead

// Lanes lists the lanes of shards that hold any record, at most job.LanesPerRead of each shard, those that are
// due first, with the first due time
// of each (job.NeverMS if nothing in it is due), and reads the shards' clocks where
// they have not been heard of for seconds: a plain read costs a tenth of a script. With
// an error come those shards that could be read: a server that is away must not
// hide the others'.
func (s *Store) Lanes(ctx context.Context, shards []int) (map[int][]job.LaneHead, error) {
	return s.readLanes(ctx, shards, s.firstLanes)
}

// firstLanes reads the lanes of a shard that are due first.
func (s *Store) firstLanes(shard int) *op {
	k := s.shards[shard]
	if s.hears(shard) {
		return command("zrange", k.lanes, "zrange", k.lanes, 0, lanesPerShard-1, "withscores")
	}
	return call(s.scripts.clock, shard, []string{k.meta, k.lanes}, []any{lanesPerShard})
}

// DueLanes is Lanes, with the same limit, for those lanes only in which something is due, or will be before
// some time has passed.
func (s *Store) DueLanes(ctx context.Context, shards []int, within time.Duration) (map[int][]job.LaneHead, error) {
	return s.firstDueLanes(ctx, shards, within, lanesPerShard)
}

// firstDueLanes is DueLanes for at most n lanes of each shard, those that are due first.
func (s *Store) firstDueLanes(ctx context.Context, shards []int, within time.Duration, n int) (map[int][]job.LaneHead, error) {
	return s.readLanes(ctx, shards, func(shard int) *op {
		k := s.shards[shard]
		if s.hears(shard) {
			now := s.clocks[shard].expect(s.now())
			return command("zrange", k.lanes, "zrange", k.lanes, "-inf", now+within.Milliseconds(), "byscore", "limit", 0, n, "withscores")
		}
		return call(s.scripts.clock, shard, []string{k.meta, k.lanes}, []any{n, within.Milliseconds()})
	})
}

// hears tells whether lanes of a shard may be read without its clock.
func (s *Store) hears(shard int) bool { return s.virtual == nil && s.clocks[shard].heard(s.now()) }

// readLanes reads indexes of lanes, each by an op of its own.
func (s *Store) readLanes(ctx context.Context, shards []int, read func(shard int) *op) (map[int][]job.LaneHead, error) {
	ops := make([]*op, len(shards))
	for i, shard := range shards {
		ops[i] = read(shard)
	}
	err := s.perform(ctx, ops...)
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
		return flat(o.reply.list(2))
	}
	return flat(o.reply)
}

// laneHeads reads the members of a shard's index of lanes.
func (s *Store) laneHeads(shard int, pairs reply) []job.LaneHead {
	heads := make([]job.LaneHead, 0, len(pairs)/2)
	for k := 0; k+1 < len(pairs); k += 2 {
		lane, ok := job.ParseLane(pairs.text(k))
		if !ok {
			s.log.Error("index of lanes names what is no lane", "shard", shard, "lane", pairs.text(k))
			continue
		}
		heads = append(heads, job.LaneHead{Lane: lane, DueMS: score(pairs.at(k + 1))})
	}
	return heads
}

// readsPerCall bounds the small reads that go in one pipeline.
const readsPerCall = 2000

// Stats counts the records of lanes by region, shard by shard in the order of the
// lanes. The counts are taken one after the other while work goes on, so they need
// not add up. With an error come those shards that could be counted as a whole.
//
// Where nothing happens all of a lane is scheduled, which its size and its two ends tell;
// only the others are counted.
func (s *Store) Stats(ctx context.Context, lanes map[int][]job.Lane) (map[int][]job.LaneStat, error) {
	var looks []*laneLook
	out, failed := make(map[int][]job.LaneStat, len(lanes)), failures{}
	for shard, list := range lanes {
		now, err := s.Now(ctx, shard)
		if failed.note(shard, err) {
			continue
		}
		out[shard] = make([]job.LaneStat, len(list))
		for i, l := range list {
			looks = append(looks, newLaneLook(s.shards[shard], shard, now, l, &out[shard][i]))
		}
	}
	readParts(ctx, s, looks)
	var counts []*laneCount
	for _, l := range looks {
		if !failed.note(l.shard, firstError(l.ops[:])) && !l.plain() {
			counts = append(counts, newLaneCount(l))
		}
	}
	readParts(ctx, s, counts)
	for _, c := range counts {
		failed.note(c.shard, firstError(c.ops))
	}
	s.readDeaths(ctx, counts, failed)
	return out, failed.leaveOut(out)
}

// failures are the shards of which something could not be read, and why.
type failures map[int]error

// note tells whether there was an error.
func (f failures) note(shard int, err error) bool {
	if err != nil {
		f[shard] = err
	}
	return err != nil
}

// leaveOut takes what failed out of what was counted, and tells one of the errors.
func (f failures) leaveOut(counted map[int][]job.LaneStat) (err error) {
	for shard := range f {
		delete(counted, shard)
		err = f[shard]
	}
	return err
}

// readParts does many small reads, and has each part understand its answers. What could
// not be read has its error in the part's ops, and reads as nothing.
func readParts[R interface {
	reads() []*op
	read()
}](ctx context.Context, s *Store, all []R) {
	for len(all) > 0 {
		var ops []*op
		n := 0
		for ; n < len(all) && (n == 0 || len(ops)+len(all[n].reads()) <= readsPerCall); n++ {
			ops = append(ops, all[n].reads()...)
		}
		s.performAll(ctx, ops)
		for _, r := range all[:n] {
			r.read()
		}
		all = all[n:]
	}
}

// performAll runs ops, none of them once the caller's time is over. Each has its own error.
func (s *Store) performAll(ctx context.Context, ops []*op) {
	if ctx.Err() == nil {
		_ = s.perform(ctx, ops...)
		return
	}
	for _, o := range ops {
		o.err = rediserr.Wrap(o.name, ctx.Err())
	}
}

// laneLook is a look at the size and the ends of a lane.
type laneLook struct {
	shard int
	now   int64
	lane  job.Lane
	keys  shardKeys
	ops   [3]*op
	stat  *job.LaneStat
}

func newLaneLook(keys shardKeys, shard int, now int64, lane job.Lane, stat *job.LaneStat) *laneLook {
	key := keys.laneKey(lane)
	return &laneLook{shard: shard, now: now, lane: lane, keys: keys, stat: stat, ops: [3]*op{
		command("zcard", key, "zcard", key),
		command("zrange", key, "zrange", key, 0, 0, "withscores"),
		command("zrange", key, "zrange", key, -1, -1, "withscores"),
	}}
}

func (l *laneLook) reads() []*op { return l.ops[:] }

func (l *laneLook) read() {
	*l.stat = job.LaneStat{Lane: l.lane}
	if first := firstScore(l.ops[1].reply); l.plain() && l.size() > 0 {
		l.stat.Scheduled = l.size()
		if first < job.NeverMS {
			l.stat.NextDueMS = first
		}
	}
}

func (l *laneLook) size() int64 { return l.ops[0].reply.int(0) }

// plain tells whether all of the lane is scheduled.
func (l *laneLook) plain() bool {
	if l.size() == 0 {
		return true
	}
	// The three were not read at one instant: the lane may have become empty.
	return len(l.ops[1].reply) > 0 && len(l.ops[2].reply) > 0 &&
		firstScore(l.ops[1].reply) > l.now && firstScore(l.ops[2].reply) <= job.Score(job.RegionDue, job.NeverMS)
}

// laneCount reads the numbers of one lane.
type laneCount struct {
	shard int
	now   int64
	lane  job.Lane
	keys  shardKeys
	ops   []*op
	stat  *job.LaneStat
}

// overdueOp is the read of a lane whose first record is overdue; of others it is left out.
const overdueOp = 8

func newLaneCount(l *laneLook) *laneCount {
	key, now := l.keys.laneKey(l.lane), l.now
	count := func(region job.Region, from, to int64) *op {
		return command("zcount", key, "zcount", key, job.Score(region, from), job.Score(region, to))
	}
	c := &laneCount{shard: l.shard, now: now, lane: l.lane, keys: l.keys, stat: l.stat, ops: []*op{
		count(job.RegionDue, 0, now), count(job.RegionDue, now+1, job.NeverMS),
		count(job.RegionLeased, 0, job.NeverMS), count(job.RegionPaused, 0, job.NeverMS),
		count(job.RegionDead, 0, job.NeverMS), count(job.RegionDone, 0, job.NeverMS),
		command("zrange", key, "zrange", key, 0, 0, "withscores"),
		command("zrange", key, "zrange", key, job.Score(job.RegionDead, 0), job.Score(job.RegionDead, job.NeverMS),
			"byscore", "limit", 0, deathsRead, "withscores"),
	}}
	if late := now - job.OverdueAfter.Milliseconds() - 1; firstScore(l.ops[1].reply) <= late {
		c.ops = append(c.ops, count(job.RegionDue, 0, late))
	}
	return c
}

func (c *laneCount) reads() []*op { return c.ops }

func (c *laneCount) read() {
	n := func(k int) int64 { return c.ops[k].reply.int(0) }
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

// flat is a list of members with their scores as one protocol sends it; the other
// sends a list of pairs.
func flat(r reply) reply {
	if len(r) == 0 || r.list(0) == nil {
		return r
	}
	out := make(reply, 0, 2*len(r))
	for i := range r {
		out = append(out, r.list(i)...)
	}
	return out
}

// firstScore reads an answer of one member with its score.
func firstScore(r reply) int64 { return score(flat(r).at(1)) }
