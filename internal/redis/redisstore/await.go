package redisstore

import (
	"context"
	"crypto/tls"
	"errors"
	"github.com/fermata-io/fermata/internal/redis/conn"
	"github.com/fermata-io/fermata/internal/redis/rediserr"
	"log/slog"
	"net"
	"time"
)

// Waits of [Await] between two looks; each is twice as long as the one before.
const (
	awaitFirst = 100 * time.Millisecond
	awaitMost  = 3 * time.Second
)

// Await returns nil when the keyspace has been opened, so that [Open] will succeed, or when
// what is wrong does not pass by itself: Open says then what that is. Until then it
// tries again and again, and tells waiting each time what it waits for: a server
// that cannot be reached, is loading or takes no writes, a primary that is still to be
// elected, replicas that have not come yet. When ctx ends it returns the last of these
// reasons. It makes the keyspace where there is none, as Open does.
func Await(ctx context.Context, o Options, waiting func(reason error)) error {
	pause := awaitFirst
	for {
		reason := passing(ctx, o)
		if reason == nil {
			return nil
		}
		waiting(reason)
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return reason
		}
		pause = min(2*pause, awaitMost)
	}
}

// passing is what keeps the keyspace from being opened now, and may not later. A server
// answers INFO also while it is loading, has no majority or no replica to write to: only
// calls as Open makes them tell that it serves.
func passing(ctx context.Context, o Options) error {
	report, err := preflight(ctx, o)
	if err == nil {
		demands := o.preflightOptions()
		if err = report.Refusal(demands); err != nil {
			if report.MayPass(demands) {
				return err
			}
			return nil
		}
		o.Registerer, o.Logger = nil, slog.New(slog.DiscardHandler)
		_, err = Open(ctx, o)
	}
	if err == nil || !rediserr.Classify(err).Retry || lasting(err) {
		return nil
	}
	return err
}

// lasting tells of errors that are repeated in operation, when they are about one server
// or one moment, and that a start had better tell somebody: functions that nobody has
// loaded, a certificate that is not trusted, a server that speaks no TLS.
func lasting(err error) bool {
	var untrusted *tls.CertificateVerificationError
	var plain tls.RecordHeaderError
	var op *net.OpError
	return errors.Is(err, ErrFunctions) || errors.As(err, &untrusted) || errors.As(err, &plain) ||
		errors.As(err, &op) && op.Op == "remote error" // an alert: it does not trust us
}

// preflight checks the servers by the options of a store.
func preflight(ctx context.Context, o Options) (conn.Report, error) {
	o, err := o.withDefaults()
	if err != nil {
		return conn.Report{}, err
	}
	return conn.Preflight(ctx, o.preflightOptions())
}
