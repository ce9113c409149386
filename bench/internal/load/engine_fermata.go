package load

import (
	"context"
	"log/slog"
	"os"
	"time"

	"github.com/fermata-io/fermata/bench/internal/record"
	"github.com/fermata-io/fermata/worker"
)

// Handler is the name under which jobs find the handler.
const Handler = "noop"

// fermataEngine is a worker as users write it.
type fermataEngine struct {
	c Config
	r *record.Recorder
}

func (e fermataEngine) run(ctx context.Context) error {
	w, err := worker.New(worker.Options{
		Addresses: e.c.Addresses, Queues: e.c.Queues, Slots: e.c.Slots, Prefetch: e.c.Prefetch, DrainTimeout: 10 * time.Second,
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
