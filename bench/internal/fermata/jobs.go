package fermata

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fermata-io/fermata/bench/internal/record"
	"github.com/fermata-io/fermata/client"
	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/unixtime"
)

// perCall is how many jobs a call registers.
const perCall = 1000

// Register registers n jobs of a class over the given number of clients. newJob makes the i-th job.
func (c *Cluster) Register(ctx context.Context, class record.Class, n, clients int,
	newJob func(i int) *client.Job) error {
	return c.RegisterBy(ctx, CreateNames, class, n, clients, newJob)
}

// Batch registers jobs by one call.
type Batch func(*client.Client, context.Context, []client.NewJob) ([]client.CreateResult, error)

// CreateNames registers jobs without reading them.
func CreateNames(c *client.Client, ctx context.Context, jobs []client.NewJob) ([]client.CreateResult, error) {
	return c.CreateJobs(ctx, jobs, client.CreateJobsOptions{NamesOnly: true})
}

// RegisterBy is Register by a certain call.
func (c *Cluster) RegisterBy(ctx context.Context, call Batch, class record.Class,
	n, clients int, newJob func(i int) *client.Job) error {
	var next atomic.Int64
	errs := make([]error, clients)
	var all sync.WaitGroup
	for k := range clients {
		all.Go(func() {
			cl, err := c.Client()
			if err != nil {
				errs[k] = err
				return
			}
			defer cl.Close()
			for {
				from := int(next.Add(perCall)) - perCall
				if from >= n {
					return
				}
				errs[k] = createJobs(ctx, cl, call, class, from, min(n, from+perCall), newJob)
				if errs[k] != nil {
					return
				}
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// createJobs registers the jobs with indexes from up to, not including, to. It fails for jobs that exist.
func createJobs(ctx context.Context, cl *client.Client, call Batch,
	class record.Class, from, to int, newJob func(int) *client.Job) error {
	batch := make([]client.NewJob, 0, to-from)
	for i := from; i < to; i++ {
		batch = append(batch, client.NewJob{ID: record.ID(class, i), Job: newJob(i)})
	}
	results, err := call(cl, ctx, batch)
	if err != nil {
		return err
	}
	for i, r := range results {
		if r.Err != nil {
			return fmt.Errorf("job %s: %w", batch[i].ID, r.Err)
		}
	}
	return nil
}

// Open counts the records that are leased, or waiting and due before an instant.
func Open(ctx context.Context, before time.Time, servers ...*redis.Client) (int, error) {
	due := scores{job.Score(job.RegionDue, 0), job.Score(job.RegionDue, unixtime.Milli(before.UnixMilli()))}
	return count(ctx, servers, due, scores{job.Score(job.RegionLeased, 0), job.Score(job.RegionLeased+1, 0)})
}

// Finished counts the finished records that are not deleted yet.
func Finished(ctx context.Context, servers ...*redis.Client) (int, error) {
	return count(ctx, servers, scores{job.Score(job.RegionDone, 0), job.Score(job.RegionDone+1, 0)})
}

// scores are those from one up to, not including, another.
type scores struct{ from, to int64 }

// count counts the records of all lanes with these scores. It asks each server for the ranges of each lane, whose keys
// it has to find first.
func count(ctx context.Context, servers []*redis.Client, ranges ...scores) (int, error) {
	all := 0
	for _, r := range servers {
		n, err := countAt(ctx, r, ranges)
		if err != nil {
			return 0, err
		}
		all += n
	}
	return all, nil
}

func countAt(ctx context.Context, r *redis.Client, ranges []scores) (int, error) {
	var lanes []string
	scan := r.Scan(ctx, 0, "*:l:*", 1000).Iterator()
	for scan.Next(ctx) {
		lanes = append(lanes, scan.Val())
	}
	if err := scan.Err(); err != nil {
		return 0, err
	}
	pipe := r.Pipeline()
	var counts []*redis.IntCmd
	for _, lane := range lanes {
		for _, s := range ranges {
			counts = append(counts, pipe.ZCount(ctx, lane, fmt.Sprint(s.from), fmt.Sprintf("(%d", s.to)))
		}
	}
	if len(counts) > 0 {
		if _, err := pipe.Exec(ctx); err != nil {
			return 0, err
		}
	}
	n := 0
	for _, c := range counts {
		n += int(c.Val())
	}
	return n, nil
}
