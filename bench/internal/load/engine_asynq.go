package load

import (
	"context"
	"time"

	"github.com/hibiken/asynq"

	"github.com/fermata-io/fermata/bench/internal/record"
)

// asynqEngine runs asynq servers in this process.
type asynqEngine struct {
	c Config
	r *record.Recorder
}

func (e asynqEngine) run(ctx context.Context) error {
	queues := map[string]int{}
	for _, q := range e.c.Queues {
		queues[q] = 1
	}
	poll := time.Duration(e.c.PollMS) * time.Millisecond
	var servers []*asynq.Server
	defer func() {
		for _, s := range servers {
			s.Shutdown()
		}
	}()
	for range max(1, e.c.Servers) {
		// A connection for each handler and some more: with go-redis's 10 a core handlers wait for one.
		s := asynq.NewServer(asynq.RedisClientOpt{Addr: e.c.Addresses[0], PoolSize: e.c.Slots + 20}, asynq.Config{
			Concurrency: e.c.Slots, Queues: queues, LogLevel: asynq.FatalLevel,
			TaskCheckInterval: poll, DelayedTaskCheckInterval: poll,
			RetryDelayFunc: func(int, error, *asynq.Task) time.Duration { return 0 },
		})
		if err := s.Start(asynq.HandlerFunc(e.handle)); err != nil {
			return err
		}
		servers = append(servers, s)
	}
	<-ctx.Done()
	return nil
}

func (e asynqEngine) handle(ctx context.Context, t *asynq.Task) error {
	e.r.Start(t.Payload(), time.Time{})
	if n, ok := asynq.GetRetryCount(ctx); e.c.FailFirst && ok && n == 0 {
		return errFirst
	}
	return nil
}
