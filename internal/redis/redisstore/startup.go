package redisstore

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"time"

	"github.com/fermata-io/fermata/internal/redis/conn"
	"github.com/fermata-io/fermata/internal/redis/rediserr"
)

// Pauses of [WaitForRedis] between two tries. Each is twice as long as the one before.
const (
	minAwaitPause = 100 * time.Millisecond
	maxAwaitPause = 3 * time.Second
)

// WaitForRedis waits until [Open] can succeed. It returns nil when the keyspace could be opened, or when an
// obstacle is permanent: Open then returns it. Until then it retries, and calls waiting with the reason
// each time: a server is unreachable, loads its data or accepts no writes, no primary is elected, or
// replicas are missing. When ctx ends it returns the last reason. It creates the keyspace if there is
// none, as Open does.
func WaitForRedis(ctx context.Context, o Options, waiting func(reason error)) error {
	pause := minAwaitPause
	for {
		reason := temporaryObstacle(ctx, o)
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
		pause = min(2*pause, maxAwaitPause)
	}
}

// temporaryObstacle is why the keyspace cannot be opened now, if that may change. A server also answers
// INFO while it loads its data, or has no majority or no replica. Only the calls of Open show that it
// works.
func temporaryObstacle(ctx context.Context, o Options) error {
	report, err := preflight(ctx, o)
	if err == nil {
		demands := o.preflightOptions()
		err = report.Refusal(demands)
		if err != nil {
			if report.MayPass(demands) {
				return err
			}
			return nil
		}
		o.Registerer, o.Logger = nil, slog.New(slog.DiscardHandler)
		_, err = Open(ctx, o)
	}
	if err == nil || !rediserr.Classify(err).Retry || isPermanent(err) {
		return nil
	}
	return err
}

// isPermanent reports whether an error should end the start, although calls retry it in operation:
// functions that are not loaded, a certificate that is not trusted, a server without TLS.
func isPermanent(err error) bool {
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
