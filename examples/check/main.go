// Command check is the check program of package worker: it has the handlers that fermata worker check needs.
//
//	go build -o /tmp/check ./examples/check && fermata worker check -- /tmp/check
package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/fermata-io/fermata/worker"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := run(ctx); err != nil {
		slog.Error("worker failed", "error", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	o, err := readOptions()
	if err != nil {
		return err
	}
	w, err := worker.New(o)
	if err != nil {
		return err
	}
	w.Use(writeJournal)
	w.Handle("check.succeed", func(_ context.Context, t *worker.Task) error {
		t.SetOutput(t.Payload)
		return nil
	})
	w.Handle("check.fail", func(_ context.Context, t *worker.Task) error { return errors.New(string(t.Payload)) })
	w.Handle("check.permanent", func(_ context.Context, t *worker.Task) error {
		return worker.Permanent(errors.New(string(t.Payload)))
	})
	w.Handle("check.retry_after", func(_ context.Context, t *worker.Task) error {
		delay, err := milliseconds(t.Payload)
		return worker.RetryAfter(cmp.Or(err, errors.New("busy")), delay)
	})
	w.Handle("check.sleep", sleep)
	w.Handle("check.panic", func(context.Context, *worker.Task) error { panic("as the check wants") })
	return w.Run(ctx)
}

func sleep(ctx context.Context, t *worker.Task) error {
	length, err := milliseconds(t.Payload)
	if err != nil {
		return err
	}
	select {
	case <-time.After(length):
		t.SetOutput([]byte("slept"))
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func milliseconds(payload []byte) (time.Duration, error) {
	n, err := strconv.Atoi(string(payload))
	return time.Duration(n) * time.Millisecond, err
}

// writeJournal writes a line before and after each handler.
func writeJournal(next worker.Handler) worker.Handler {
	write := func(word string, t *worker.Task) {
		file, err := os.OpenFile(os.Getenv("FERMATA_CHECK_JOURNAL"), os.O_APPEND|os.O_WRONLY, 0)
		if err != nil {
			panic(err)
		}
		defer file.Close()
		fmt.Fprintf(file, "%s %d\n", word, t.Token)
	}
	return func(ctx context.Context, t *worker.Task) error {
		write("start", t)
		defer write("end", t)
		return next(ctx, t)
	}
}

// readOptions reads the environment that fermata worker check sets.
func readOptions() (o worker.Options, err error) {
	o.Addresses = strings.Split(os.Getenv("FERMATA_ADDRESS"), ",")
	o.Namespace = os.Getenv("FERMATA_NAMESPACE")
	o.Queues = strings.Split(os.Getenv("FERMATA_QUEUES"), ",")
	slots, slotsErr := strconv.Atoi(os.Getenv("FERMATA_SLOTS"))
	prefetch, prefetchErr := strconv.Atoi(os.Getenv("FERMATA_PREFETCH"))
	drain, drainErr := time.ParseDuration(os.Getenv("FERMATA_DRAIN_TIMEOUT"))
	o.Slots, o.Prefetch, o.DrainTimeout = slots, prefetch, drain
	if prefetch == 0 {
		o.Prefetch = -1 // none; 0 is the default
	}
	var tokenErr, tlsErr error
	if path := os.Getenv("FERMATA_TOKEN_FILE"); path != "" {
		o.Token, tokenErr = worker.TokenFile(path)
	}
	if path := os.Getenv("FERMATA_TLS_CA"); path != "" {
		o.TLS, tlsErr = readTLS(path, os.Getenv("FERMATA_TLS_CERT"), os.Getenv("FERMATA_TLS_KEY"))
	}
	return o, errors.Join(slotsErr, prefetchErr, drainErr, tokenErr, tlsErr)
}

func readTLS(authority, cert, key string) (*tls.Config, error) {
	text, err := os.ReadFile(authority)
	if err != nil {
		return nil, err
	}
	c := &tls.Config{RootCAs: x509.NewCertPool(), MinVersion: tls.VersionTLS12}
	if !c.RootCAs.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("%s has no certificate", authority)
	}
	if cert != "" {
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			return nil, err
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}
