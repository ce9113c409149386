package redisstore

import (
	"context"
	"fmt"
	"strconv"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/unixtime"
	"github.com/fermata-io/fermata/internal/redis/runner"
)

const (
	// forecastBytes bounds the definitions of one page of WalkShard. The last read may exceed it by a few definitions.
	forecastBytes = 512 << 10
	// duePageSize is how many entries of the due index one page has.
	duePageSize = 1000
)

// WalkShard reads a page of the jobs of a shard, in no particular order: about 500, or 512 KiB. at is "" for the first
// page, then what the last page returned; next is "" at the end. A job that exists all the while is read at least once.
func (s *Store) WalkShard(ctx context.Context, shard int, at string) (jobs []job.Record, next string, err error) {
	if at == "" {
		at = "0"
	}
	if _, err := strconv.ParseUint(at, 10, 64); err != nil || shard < 0 || shard >= len(s.shards) {
		return nil, "", fmt.Errorf("%w: shard %d, %.40q", job.ErrCursor, shard, at)
	}
	found, next, _, err := s.scan(ctx, shard, at, "", scanStep, forecastBytes)
	if err != nil {
		return nil, "", err
	}
	for _, f := range found {
		if !isChild(f.id) {
			jobs = append(jobs, f.Record)
		}
	}
	if next == "0" {
		next = ""
	}
	return jobs, next, nil
}

// DuePages reads pages of due times, ms: those up to a time, about 1,000 each. A record that is added or moved while
// the pages of a lane are read may be in none, or in two.
func (s *Store) DuePages(ctx context.Context, reads []job.DueRead, uptoMS unixtime.Milli) ([]job.DuePage, error) {
	ops := make([]*runner.Op, len(reads))
	for i, r := range reads {
		key := s.shards[r.Shard].LaneKey(r.Lane)
		ops[i] = runner.NewCommand("zrange", key, "zrange", key, int64(r.DueMS), job.Score(job.RegionDue, uptoMS), "byscore",
			"limit", r.Ties, duePageSize, "withscores")
	}
	if err := s.runner.Run(ctx, ops...); err != nil {
		return nil, err
	}
	pages := make([]job.DuePage, len(reads))
	for i, o := range ops {
		pages[i] = duePage(reads[i], o.Reply.Pairs())
	}
	return pages, nil
}

// duePage reads the members and scores of a page.
func duePage(from job.DueRead, pairs runner.Reply) job.DuePage {
	page := job.DuePage{DueMS: make([]unixtime.Milli, 0, len(pairs)/2), Next: from}
	for i := 1; i < len(pairs); i += 2 {
		page.DueMS = append(page.DueMS, unixtime.Milli(pairs.ScoreAt(i)))
	}
	n := len(page.DueMS)
	page.More = n == duePageSize
	if !page.More {
		return page
	}
	last := page.DueMS[n-1]
	if last != from.DueMS {
		page.Next.Ties = 0
	}
	for i := n - 1; i >= 0 && page.DueMS[i] == last; i-- {
		page.Next.Ties++
	}
	page.Next.DueMS = last
	return page
}
