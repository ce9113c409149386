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
)

// perCall is how many jobs a call registers.
const perCall = 1000

// Register registers n jobs of a class over the given number of clients. job makes the i-th job.
func (c *Cluster) Register(ctx context.Context, class record.Class, n, clients int, job func(i int) *client.Job) error {
	return c.RegisterBy(ctx, CreateNames, class, n, clients, job)
}

// Batch registers jobs by one call.
type Batch func(*client.Client, context.Context, []client.NewJob) ([]client.CreateResult, error)

// CreateNames registers jobs without reading them.
func CreateNames(c *client.Client, ctx context.Context, jobs []client.NewJob) ([]client.CreateResult, error) {
	return c.CreateJobs(ctx, jobs, client.CreateJobsOptions{NamesOnly: true})
}

// RegisterBy is Register by a certain call.
func (c *Cluster) RegisterBy(ctx context.Context, call Batch, class record.Class, n, clients int, job func(i int) *client.Job) error {
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
				errs[k] = createJobs(ctx, cl, call, class, from, min(n, from+perCall), job)
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
func createJobs(ctx context.Context, cl *client.Client, call Batch, class record.Class, from, to int, job func(int) *client.Job) error {
	batch := make([]client.NewJob, 0, to-from)
	for i := from; i < to; i++ {
		batch = append(batch, client.NewJob{ID: record.ID(class, i), Job: job(i)})
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

// regions of a lane's scores: waiting records have their due time, leased ones
// 2^42 + the end of their lease.
const region = 1 << 42

// Open counts the records that are leased, or waiting and due before an instant. It
// asks each server for two ranges of each lane, whose keys it has to find first.
func Open(ctx context.Context, before time.Time, servers ...*redis.Client) (int, error) {
	all := 0
	for _, r := range servers {
		n, err := open(ctx, before, r)
		if err != nil {
			return 0, err
		}
		all += n
	}
	return all, nil
}

func open(ctx context.Context, before time.Time, r *redis.Client) (int, error) {
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
		counts = append(counts,
			pipe.ZCount(ctx, lane, "-inf", fmt.Sprintf("(%d", before.UnixMilli())),
			pipe.ZCount(ctx, lane, fmt.Sprint(region), fmt.Sprintf("(%d", 2*region)))
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
