package redisstore

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fermata-io/fermata/internal/job"
)

const (
	// countedPerCall is how many records one call of a census counts, as its script has
	// it: some two milliseconds of the server.
	countedPerCall = 5000
	// countsPerPipe is how many such calls go in one pipeline: others get their turn
	// between them.
	countsPerPipe = 64
	// maxCounted is how many namespaces have a count, those with most jobs: the one that
	// a census leaves out begins at nothing.
	maxCounted = 10_000
)

// jobsKeys are the hashes of how many jobs namespaces have, in the slot of the
// keyspace's own.
func jobsKeys(prefix string) []string {
	k := keyspaceKey(prefix) + ":jobs"
	return []string{k, k + ":new"}
}

func (s *Store) jobsCall(ctx context.Context, argv ...any) (reply, error) {
	o := call(s.scripts.limits.jobs, noShard, jobsKeys(s.prefix), argv)
	err := s.perform(ctx, o)
	return o.reply, err
}

// TakeJobs counts up to n new jobs for a namespace, as many as a limit leaves, and
// tells how many those are. The namespace has jobs then.
func (s *Store) TakeJobs(ctx context.Context, namespace string, n, limit int) (granted, jobs int, err error) {
	r, err := s.jobsCall(ctx, "take", namespace, n, limit)
	return int(r.int(0)), int(r.int(1)), err
}

// GiveJobs takes jobs off the count of a namespace.
func (s *Store) GiveJobs(ctx context.Context, namespace string, n int) error {
	_, err := s.jobsCall(ctx, "give", namespace, n)
	return err
}

// Jobs are the counts of all namespaces, and whether there has been a census yet.
func (s *Store) Jobs(ctx context.Context) (jobs map[string]int, counted bool, err error) {
	key := jobsKeys(s.prefix)[0]
	read := command("jobs of namespaces", key, "hgetall", key)
	if err := s.perform(ctx, read); err != nil {
		return nil, false, err
	}
	jobs = map[string]int{}
	for field, text := range readHash(read.reply) {
		if strings.HasPrefix(field, "#") {
			counted = counted || field == "#counted"
			continue
		}
		if n, err := strconv.Atoi(text); err == nil {
			jobs[field] = n
		}
	}
	return jobs, counted, nil
}

// Census counts the jobs of those namespaces that are wanted, and puts their counts
// right, unless another one begins meanwhile, which does. It does nothing if another one
// began less than a pause ago; began tells whether this one did. What is created meanwhile
// is counted twice at most, until the next one.
func (s *Store) Census(ctx context.Context, every time.Duration, want func(namespace string) bool) (began bool, err error) {
	id := randomID()
	r, err := s.jobsCall(ctx, "begin", id, every.Milliseconds())
	if err != nil || r.int(0) != 1 {
		return false, err
	}
	counts, err := s.countJobs(ctx, want)
	if err != nil {
		return true, err
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
	_, err = s.jobsCall(ctx, argv...)
	return true, err
}

// countJobs counts the jobs of namespaces, shard by shard.
func (s *Store) countJobs(ctx context.Context, want func(string) bool) (map[string]int, error) {
	counts := map[string]int{}
	for shard := range s.shards {
		heads, err := s.Lanes(ctx, []int{shard})
		if err != nil {
			return nil, err
		}
		var lanes []job.Lane
		for _, h := range heads[shard] {
			if want(h.Lane.Namespace) {
				lanes = append(lanes, h.Lane)
			}
		}
		for first := 0; len(lanes) > 0; first += countedPerCall {
			if lanes, err = s.countLanes(ctx, shard, lanes, first, counts); err != nil {
				return nil, fmt.Errorf("census: %w", err)
			}
		}
	}
	return counts, nil
}

// countLanes counts one part of each lane and returns those that go on after it.
func (s *Store) countLanes(ctx context.Context, shard int, lanes []job.Lane, first int, counts map[string]int) (more []job.Lane, err error) {
	for part := range slices.Chunk(lanes, countsPerPipe) {
		ops := make([]*op, len(part))
		for i, l := range part {
			ops[i] = call(s.scripts.limits.census, noShard, []string{s.shards[shard].laneKey(l)}, []any{first})
		}
		if err := s.perform(ctx, ops...); err != nil {
			return nil, err
		}
		for i, o := range ops {
			counts[part[i].Namespace] += int(o.reply.int(1))
			if o.reply.int(0) == countedPerCall {
				more = append(more, part[i])
			}
		}
	}
	return more, nil
}
