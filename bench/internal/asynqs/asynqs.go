// Package asynqs fills the queues of hibiken/asynq and reports when they are empty.
package asynqs

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
)

// Task is the type of all tasks.
const Task = "noop"

// Client enqueues tasks.
type Client struct{ c *asynq.Client }

// New connects.
func New(addr string) *Client { return &Client{asynq.NewClient(asynq.RedisClientOpt{Addr: addr})} }

// Close disconnects.
func (c *Client) Close() { _ = c.c.Close() }

// One enqueues one task.
func (c *Client) One(ctx context.Context, payload []byte, options ...asynq.Option) error {
	_, err := c.c.EnqueueContext(ctx, asynq.NewTask(Task, payload), options...)
	return err
}

// Enqueue enqueues n tasks with inFlight calls at a time, since asynq has no call for several. task
// makes the i-th task.
func (c *Client) Enqueue(ctx context.Context, n, inFlight int, task func(i int) ([]byte, []asynq.Option)) error {
	var next atomic.Int64
	errs := make([]error, inFlight)
	var all sync.WaitGroup
	for k := range inFlight {
		all.Go(func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= n {
					return
				}
				payload, options := task(i)
				errs[k] = c.One(ctx, payload, options...)
				if errs[k] != nil {
					return
				}
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// Open counts the tasks of the queues that are not done.
func Open(ctx context.Context, r *redis.Client, queues ...string) (int, error) {
	pipe := r.Pipeline()
	var counts []*redis.IntCmd
	for _, q := range queues {
		base := "asynq:{" + q + "}:"
		counts = append(counts, pipe.LLen(ctx, base+"pending"), pipe.LLen(ctx, base+"active"),
			pipe.ZCard(ctx, base+"scheduled"), pipe.ZCard(ctx, base+"retry"))
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return 0, err
	}
	n := 0
	for _, c := range counts {
		n += int(c.Val())
	}
	return n, nil
}
