package redisstore

import (
	"context"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/unixtime"
	"github.com/fermata-io/fermata/internal/redis/runner"
)

const (
	// lanesPerPage is how many lanes each page after the first one lists at least.
	lanesPerPage = 5000
	// lanesPageOverlap is how many lanes of one due time are listed once more by the next page. If no more of them
	// have gone meanwhile, no lane is left out.
	lanesPageOverlap = 1000
	// namesPerLookup bounds the lanes that one command looks up.
	namesPerLookup = 1000
)

// LanePages lists the lanes of shards from a place on, in the order of due times. The first page of a shard is
// [Store.Lanes]. The pages are read at different instants: a lane whose due time became earlier in between may be in
// none, a lane may be in two. With an error come the shards that could be read.
func (s *Store) LanePages(ctx context.Context, from map[int]job.LaneCursor) (map[int]job.LanePage, error) {
	ops := make(map[int]*runner.Op, len(from))
	list := make([]*runner.Op, 0, len(from))
	for shard, cursor := range from {
		o := s.firstLanes(shard)
		if cursor != (job.LaneCursor{}) {
			key := s.shards[shard].Lanes
			o = runner.NewCommand("zrange", key, "zrange", key, int64(cursor.DueMS), "+inf", "byscore",
				"limit", tiesToSkip(cursor), lanesPerPage+lanesPageOverlap, "withscores")
		}
		ops[shard], list = o, append(list, o)
	}
	err := s.runner.Run(ctx, list...)
	pages := make(map[int]job.LanePage, len(from))
	for shard, cursor := range from {
		if ops[shard].Err == nil {
			pages[shard] = s.lanePage(shard, laneEntries(ops[shard]), cursor)
		}
	}
	return pages, err
}

// tiesToSkip is how many lanes with the cursor's due time the next page leaves out.
func tiesToSkip(cursor job.LaneCursor) int { return max(0, cursor.Ties-lanesPageOverlap) }

// lanePage reads the page that begins at a cursor.
func (s *Store) lanePage(shard int, pairs runner.Reply, cursor job.LaneCursor) job.LanePage {
	n, most := len(pairs)/2, lanesPerPage+lanesPageOverlap
	if cursor == (job.LaneCursor{}) {
		most = job.LanesPerRead
	}
	page := job.LanePage{Heads: s.laneHeads(shard, pairs), More: n >= most}
	if !page.More {
		return page
	}
	page.Next.DueMS = unixtime.Milli(pairs.ScoreAt(2*n - 1))
	for i := n - 1; i >= 0 && unixtime.Milli(pairs.ScoreAt(2*i+1)) == page.Next.DueMS; i-- {
		page.Next.Ties++
	}
	if page.Next.Ties == n && cursor.Ties > 0 && page.Next.DueMS == cursor.DueMS {
		page.Next.Ties += tiesToSkip(cursor)
	}
	page.More = page.Next.DueMS >= cursor.DueMS // not so with scores that are no times
	return page
}

// EachLane calls visit with all lanes of a shard, page by page. A lane may be in more than one page.
func (s *Store) EachLane(ctx context.Context, shard int, visit func(job.Lane)) error {
	for page := (job.LanePage{More: true}); page.More; {
		pages, err := s.LanePages(ctx, map[int]job.LaneCursor{shard: page.Next})
		if err != nil {
			return err
		}
		page = pages[shard]
		for _, h := range page.Heads {
			visit(h.Lane)
		}
	}
	return nil
}

// FindLanes looks up lanes by name, however many others there are, and returns the first due times of those that
// hold any record. With an error come the shards that could be read.
func (s *Store) FindLanes(ctx context.Context, lanes map[int][]job.Lane) (map[int][]job.LaneHead, error) {
	ops := make(map[int][]*runner.Op, len(lanes))
	var list []*runner.Op
	for shard, names := range lanes {
		for first := 0; first < len(names); first += namesPerLookup {
			key := s.shards[shard].Lanes
			args := []any{"zmscore", key}
			for _, l := range names[first:min(first+namesPerLookup, len(names))] {
				args = append(args, l.String())
			}
			o := runner.NewCommand("zmscore", key, args...)
			ops[shard], list = append(ops[shard], o), append(list, o)
		}
	}
	err := s.runner.Run(ctx, list...)
	found := make(map[int][]job.LaneHead, len(lanes))
	for shard, names := range lanes {
		if runner.FirstError(ops[shard]) == nil {
			found[shard] = foundLanes(names, ops[shard])
		}
	}
	return found, err
}

// foundLanes reads the answers to lookups of lanes.
func foundLanes(names []job.Lane, ops []*runner.Op) []job.LaneHead {
	var heads []job.LaneHead
	for i, l := range names {
		reply, at := ops[i/namesPerLookup].Reply, i%namesPerLookup
		if reply.ValueAt(at) != nil {
			heads = append(heads, job.LaneHead{Lane: l, DueMS: unixtime.Milli(reply.ScoreAt(at))})
		}
	}
	return heads
}
