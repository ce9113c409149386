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
	// maxDials bounds the connections that are opened at once, maxDoubtful those of them to
	// addresses that are not known to lead to a node.
	maxDials    = 4
	maxDoubtful = 3
	// dialStagger is the head start of one dial over the next.
	dialStagger = 250 * time.Millisecond
	// firstPatience is how long an address has to accept a connection, and as long again to
	// answer a Hello. One that was too slow gets twice as long at the next try, up to
	// openTimeout: it may be far away.
	firstPatience = 2 * time.Second
)

// patience is how long an address has that has failed so many times in a row.
func patience(failures int) time.Duration {
	return min(firstPatience<<min(failures, 4), openTimeout)
}

// dials are the connections that are opened at the same time to find a node. No more than
// a connection is opened: a Hello takes leases over, so that there is one at a time.
type dials struct {
	w         *Worker
	ctx       context.Context
	cancel    context.CancelFunc
	open      int
	startAt   time.Time // of the next one
	connected chan dialed
	running   sync.WaitGroup
}

// dialed is a dial that has ended: conn is ready, or nil and err says why.
type dialed struct {
	route   *route
	limit   time.Duration // what the address has to answer
	conn    *grpc.ClientConn
	contact *contact
	err     error
}

func (w *Worker) newDials(ctx context.Context) *dials {
	d := &dials{w: w, connected: make(chan dialed, maxDials)}
	d.ctx, d.cancel = context.WithCancel(ctx)
	return d
}

// start opens a connection to the best route if it is time for one, and tells when it is
// time to look again; the zero time is not before a dial has ended.
func (d *dials) start(now time.Time, avoid string) (again time.Time) {
	if d.open >= maxDials {
		return time.Time{}
	}
	if now.Before(d.startAt) {
		return d.startAt
	}
	r, at := d.w.routes.take(now, avoid)
	if r == nil {
		return at
	}
	d.open++
	d.startAt = now.Add(dialStagger)
	limit, standsFor := patience(r.failures), d.w.o.standsFor(r)
	d.running.Go(func() { d.connected <- d.w.dialReady(d.ctx, r, standsFor, limit) })
	return d.startAt
}

// take notes that a dial has ended. After one that failed the next starts at once.
func (d *dials) take(r dialed) {
	d.open--
	d.w.routes.landed(r.route)
	if r.err != nil {
		d.startAt = time.Time{}
	}
}

// end gives up the dials that are left, and waits for them.
func (d *dials) end() {
	d.cancel()
	d.running.Wait()
	close(d.connected)
	for r := range d.connected {
		d.w.routes.landed(r.route)
		if r.conn != nil {
			r.conn.Close()
		}
	}
}

// dialReady connects to an address: the connection is ready for calls, TLS and HTTP/2
// included.
func (w *Worker) dialReady(ctx context.Context, r *route, standsFor string, limit time.Duration) dialed {
	out := dialed{route: r, limit: limit, contact: &contact{}}
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("no connection within %v", limit))
	defer cancel()
	conn, err := w.o.dial(r.address, standsFor, out.contact)
	if err == nil {
		if err = waitReady(ctx, conn); err != nil {
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

// waitReady waits until a connection is ready, or has failed.
func waitReady(ctx context.Context, conn *grpc.ClientConn) error {
	for {
		switch state := conn.GetState(); state {
		case connectivity.Ready:
			return nil
		case connectivity.TransientFailure:
			return whyFailed(ctx, conn)
		case connectivity.Shutdown:
			return errors.New("the connection was closed")
		default:
			conn.Connect() // an idle one
			if !conn.WaitForStateChange(ctx, state) {
				return context.Cause(ctx)
			}
		}
	}
}

// whyFailed is why a connection could not be made. gRPC tells callers only, so this makes a
// call, which fails at once; it is nil should the connection be ready by now.
func whyFailed(ctx context.Context, conn *grpc.ClientConn) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	_, err := fermatav1.NewWorkerServiceClient(conn).Work(ctx, grpc.ForceCodecV2(grpccodec.Codec()))
	return err
}
