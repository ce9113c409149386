package worker_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os/signal"
	"syscall"
	"time"

	"github.com/fermata-io/fermata/worker"
)

func Example() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()

	w, err := worker.New(worker.Options{
		Addresses: []string{"scheduler-0:7070", "scheduler-1:7070"},
		Queues:    []string{"billing"},
		Slots:     32,
	})
	if err != nil {
		log.Fatal(err)
	}
	w.Handle("send-invoice", sendInvoice)
	if err := w.Run(ctx); err != nil {
		log.Fatal(err)
	}
}

var (
	errNoSuchCustomer = errors.New("no such customer")
	errBusy           = errors.New("mail server is busy")
)

func sendInvoice(ctx context.Context, t *worker.Task) error {
	var invoice struct {
		Customer string
		Cents    int64
	}
	if err := t.Decode(&invoice); err != nil {
		return worker.Permanent(err)
	}
	// The run's name makes sending idempotent, the token fences what is written.
	switch err := mail(ctx, invoice.Customer, t.Run, t.Token); {
	case errors.Is(err, errNoSuchCustomer):
		return worker.Permanent(err)
	case errors.Is(err, errBusy):
		return worker.RetryAfter(err, 5*time.Minute)
	case err != nil:
		return err
	}
	t.SetOutput(fmt.Appendf(nil, "sent %d cents", invoice.Cents))
	return nil
}

func mail(context.Context, string, string, int64) error { return nil }
