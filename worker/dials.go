package worker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"

	"github.com/fermata-io/fermata/internal/lib/dialhint"
	"github.com/fermata-io/fermata/internal/lib/grpccodec"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

const (
	// maxDials bounds the connections that are opened concurrently. maxUnverifiedDials bounds those of them to
	// addresses that have never led to a node.
	maxDials           = 4
	maxUnverifiedDials = 3
	// dialStagger is the delay between the starts of two dials.
	dialStagger = 250 * time.Millisecond
	// firstDialTimeout bounds the time to connect to an address, and again the time until it answers a Hello. It
	// doubles with each failure, up to openTimeout: the node may be far away.
	firstDialTimeout = 2 * time.Second
)

// dialTimeout returns the timeout of an address after this many failures in a row.
func dialTimeout(failures int) time.Duration {
	return min(firstDialTimeout<<min(failures, 4), openTimeout)
}

// dialSet holds the connections that are opened concurrently to find a node. It opens connections only: a Hello
// takes leases over, so there is one Hello at a time.
type dialSet struct {
	w          *Worker
	ctx        context.Context
	cancel     context.CancelFunc
	inProgress int
	nextStart  time.Time // of the next one
	connected  chan dialResult
	running    sync.WaitGroup
}

// dialResult is the result of a dial: conn is ready, or err is set.
type dialResult struct {
	route   *route
	limit   time.Duration // to answer a Hello
	conn    *grpc.ClientConn
	contact *contactTime
	err     error
}

func (w *Worker) newDialSet(ctx context.Context) *dialSet {
	d := &dialSet{w: w, connected: make(chan dialResult, maxDials)}
	d.ctx, d.cancel = context.WithCancel(ctx)
	return d
}

// startNext opens a connection to the best route if the next dial is due. It returns when to call it again; the
// zero time means not before a dial has ended.
func (d *dialSet) startNext(now time.Time, avoid string) (again time.Time) {
	if d.inProgress >= maxDials {
		return time.Time{}
	}
	if now.Before(d.nextStart) {
		return d.nextStart
	}
	r, at := d.w.routes.claimNext(now, avoid)
	if r == nil {
		return at
	}
	d.inProgress++
	d.nextStart = now.Add(dialStagger)
	limit, standsFor := dialTimeout(r.failures), d.w.options.verifiedEndpoint(r)
	d.running.Go(func() { d.connected <- d.w.dialUntilReady(d.ctx, r, standsFor, limit) })
	return d.nextStart
}

// recordResult records that a dial has ended. After a failed dial the next one starts at once.
func (d *dialSet) recordResult(r dialResult) {
	d.inProgress--
	d.w.routes.markDialEnded(r.route)
	if r.err != nil {
		d.nextStart = time.Time{}
	}
}

// cancelAll cancels the remaining dials and waits for them.
func (d *dialSet) cancelAll() {
	d.cancel()
	d.running.Wait()
	close(d.connected)
	for r := range d.connected {
		d.w.routes.markDialEnded(r.route)
		if r.conn != nil {
			r.conn.Close()
		}
	}
}

// dialUntilReady connects to an address and waits until the connection is ready for calls, including TLS and
// HTTP/2.
func (w *Worker) dialUntilReady(ctx context.Context, r *route, standsFor string, limit time.Duration) dialResult {
	out := dialResult{route: r, limit: limit, contact: &contactTime{}}
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("no connection within %v", limit))
	defer cancel()
	conn, err := w.options.newConnection(r.address, standsFor, out.contact)
	if err == nil {
		err = waitReady(ctx, conn)
		if err != nil {
			conn.Close()
		}
	}
	if err != nil {
		out.err = dialhint.Explain(ctx, r.address, err)
		return out
	}
	out.conn = conn
	return out
}

// waitReady waits until a connection is ready or has failed.
func waitReady(ctx context.Context, conn *grpc.ClientConn) error {
	for {
		switch state := conn.GetState(); state {
		case connectivity.Ready:
			return nil
		case connectivity.TransientFailure:
			return connectionError(ctx, conn)
		case connectivity.Shutdown:
			return errors.New("the connection was closed")
		default:
			conn.Connect() // starts an idle connection
			if !conn.WaitForStateChange(ctx, state) {
				return context.Cause(ctx)
			}
		}
	}
}

// connectionError returns why a connection failed. gRPC returns that from calls only, so this makes a call,
// which fails at once. It returns nil if the connection has become ready.
func connectionError(ctx context.Context, conn *grpc.ClientConn) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	_, err := fermatav1.NewWorkerServiceClient(conn).Work(ctx, grpc.ForceCodecV2(grpccodec.Codec()))
	return err
}
