// Command worker sends digests: it runs the jobs of the queue mail whose handler is send-digest.
//
//	go run ./examples/worker
//	fermata jobs create digest --every 1m --queue mail --handler send-digest --payload ada@example.com
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/fermata-io/fermata/worker"
)

func main() {
	logger := slog.New(slog.NewTextHandler(os.Stderr, nil))
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := run(ctx, logger); err != nil {
		logger.Error("worker failed", "error", err)
		os.Exit(1)
	}
}

// run works until ctx ends, and then finishes what runs. While no node can be reached it
// keeps trying, and logs why.
func run(ctx context.Context, logger *slog.Logger) error {
	addresses := cmp.Or(os.Getenv("FERMATA_ADDRESS"), "127.0.0.1:7070")
	w, err := worker.New(worker.Options{
		Addresses: strings.Split(addresses, ","), // of any nodes
		Queues:    []string{"mail"},
		Slots:     20,
		Logger:    logger,
	})
	if err != nil {
		return err
	}
	w.Handle("send-digest", sendDigest)
	return w.Run(ctx)
}

var errNoSuchAccount = errors.New("no such account")

// sendDigest is called once for each attempt. An error makes the attempt fail, and the job's policy decides when the
// next one is due.
func sendDigest(ctx context.Context, t *worker.Task) error {
	account := string(t.Payload)
	err := send(ctx, account, t.Token) // the token only grows: a store can refuse what an older attempt writes
	if errors.Is(err, errNoSuchAccount) {
		return worker.Permanent(err) // another attempt would fail as well
	}
	if err == nil {
		t.SetOutput(fmt.Appendf(nil, "sent to %s", account)) // kept with the run
	}
	return err
}

// send stands for your own code.
func send(ctx context.Context, account string, token int64) error {
	if account == "" {
		return errNoSuchAccount
	}
	slog.InfoContext(ctx, "digest sent", "account", account, "token", token)
	return nil
}
