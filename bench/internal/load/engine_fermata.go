package load

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/fermata-io/fermata/bench/internal/record"
	"github.com/fermata-io/fermata/worker"
)

// Handler is the name under which jobs find the handler.
const Handler = "noop"

// fermataEngine has workers as users write them.
type fermataEngine struct {
	c Config
	r *record.Recorder
}

func (e fermataEngine) run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	errs := make([]error, max(1, e.c.Servers))
	var all sync.WaitGroup
	for i := range errs {
		all.Go(func() {
			defer cancel() // one that fails ends all
			errs[i] = e.runWorker(ctx, e.addressesOf(i))
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// addressesOf are the addresses of the i-th worker.
func (e fermataEngine) addressesOf(i int) []string {
	if !e.c.EachAtOne {
		return e.c.Addresses
	}
	one := i % len(e.c.Addresses)
	return e.c.Addresses[one : one+1]
}

func (e fermataEngine) runWorker(ctx context.Context, addresses []string) error {
	w, err := worker.New(worker.Options{
		Addresses: addresses, Queues: e.c.Queues, Slots: e.c.Slots, Prefetch: e.c.Prefetch, DrainTimeout: 10 * time.Second,
		Logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
	})
	if err != nil {
		return err
	}
	w.Handle(Handler, func(_ context.Context, t *worker.Task) error {
		e.r.Start(t.Payload, t.DueTime)
		if e.c.FailFirst && t.Attempt == 1 {
			return errFirst
		}
		return nil
	})
	return w.Run(ctx)
}
