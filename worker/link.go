package worker

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

const (
	// settledAfter is how long a session lasts that was not a failure.
	settledAfter = time.Second
	// returnTimeout bounds the search for a node that takes back what the last one may not
	// have heard of.
	returnTimeout = 5 * time.Second
)

// link keeps one session open, whatever happens to nodes. Its fields belong to
// the goroutine of run.
type link struct {
	w        *Worker
	failures int       // since a session lasted
	since    time.Time // when the last session that lasted ended, or the first try was made
	told     reports
	sessions sync.WaitGroup
}

func newLink(w *Worker) *link { return &link{w: w} }

// run returns after ctx has ended and the last session is closed.
func (l *link) run(ctx context.Context) {
	defer l.sessions.Wait()
	life, end := context.WithCancelCause(context.WithoutCancel(ctx))
	defer end(errClosed)
	l.since = time.Now()
	s := l.connect(ctx, life, nil)
	for s != nil {
		select {
		case <-ctx.Done():
			l.finish(life, s)
			return
		case <-s.done:
			if !l.sentAway(s) {
				l.lost(s)
				l.pause(ctx)
			}
			s = l.connect(ctx, life, nil)
		case addresses := <-s.drained:
			l.heed(s, addresses)
			l.since = time.Now()
			s = l.move(ctx, life, s)
		case <-s.silent:
			l.suspect(s)
			s = l.move(ctx, life, s)
		}
	}
}

// move opens a session in place of one that stands, and goes on until then.
func (l *link) move(ctx, life context.Context, s *session) *session {
	next := l.connect(ctx, life, s)
	s.close()
	if next == nil {
		<-s.done
	}
	return next
}

// connect opens connections to nodes, several at once, and says Hello to one after the other
// until one welcomes the worker or ctx ends. The address of the session before is tried last
// while that stands.
func (l *link) connect(ctx, life context.Context, before *session) *session {
	d := l.w.newDials(ctx)
	defer d.end()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for ctx.Err() == nil {
		avoid, left := "", (<-chan struct{})(nil)
		if before != nil {
			avoid, left = before.address, before.done
		}
		if again := d.start(time.Now(), avoid); !again.IsZero() {
			timer.Reset(time.Until(again))
		} else {
			timer.Stop()
		}
		select {
		case <-ctx.Done():
		case <-timer.C:
		case <-left:
			before = nil
		case r := <-d.connected:
			d.take(r)
			if s := l.greet(ctx, life, r); s != nil {
				return s
			}
			d.startAt = time.Time{}
		}
	}
	return nil
}

// greet says Hello on a connection that is ready. It returns nil if that fails.
func (l *link) greet(ctx, life context.Context, r dialed) *session {
	err := r.err
	if err == nil {
		var s *session
		if s, err = l.w.open(ctx, life, r); err == nil {
			l.w.routes.welcomed(r.route, time.Now())
			l.attach(s)
			return s
		}
		if refusedByNode(err) {
			l.w.routes.answeredBy(r.route)
		}
	}
	if ctx.Err() == nil {
		l.failures++
		if refusesCaller(err) {
			l.w.routes.refused(r.route.address, time.Now(), time.Since(l.since))
		} else {
			l.w.routes.failed(r.route.address, time.Now(), time.Since(l.since))
		}
		l.report(r.route.address, err)
	}
	return nil
}

// refusedByNode reports whether an error is a node's answer to a Hello, and not that of a
// connection without one.
func refusedByNode(err error) bool {
	s, ok := status.FromError(err)
	return ok && s.Code() != codes.Unknown && s.Code() != codes.Unimplemented
}

// refusesCaller reports whether a node does not accept who calls, or does not let it work
// here. The next node will not either, until somebody changes the token or a role.
func refusesCaller(err error) bool {
	code := status.Code(err)
	return code == codes.Unauthenticated || code == codes.PermissionDenied
}

func (l *link) attach(s *session) {
	l.w.attach(s)
	l.w.routes.replaceAdvertised(usable(s.welcome.GetAddresses()))
	l.sessions.Go(s.run)
	l.told = reports{}
	l.w.o.Logger.Info("connected", "node", s.welcome.GetNode(), "address", s.address, "epoch", s.epoch)
}

// report logs a failed try: the first of a row, and others at times that grow apart.
func (l *link) report(address string, err error) {
	err = fmt.Errorf("connect to %s: %w", address, err)
	l.w.mu.Lock()
	l.w.table.linkErr = err
	l.w.mu.Unlock()
	if !l.told.due(time.Now()) {
		return
	}
	text := "failed to connect to a node"
	switch status.Code(err) {
	case codes.Unauthenticated:
		text = "node refuses the credential of this worker: replace its token or certificate, or have the nodes' access file name it"
	case codes.PermissionDenied:
		text = "node refuses this worker: its identity needs the role worker for this namespace and these queues"
	}
	l.w.o.Logger.Warn(text, "error", err, "tries", l.failures)
}

// Failed tries in a row are reported at once, and then after pauses that double.
const (
	firstReportPause = 5 * time.Second
	lastReportPause  = time.Minute
)

// reports decide when a failed try is logged. The zero value reports the next one.
type reports struct {
	next  time.Time
	pause time.Duration
}

func (r *reports) due(now time.Time) bool {
	if now.Before(r.next) {
		return false
	}
	r.pause = min(max(2*r.pause, firstReportPause), lastReportPause)
	r.next = now.Add(r.pause)
	return true
}

// lost counts a session that ended by itself.
func (l *link) lost(s *session) {
	now := time.Now()
	l.failures++
	atOnce := now.Sub(s.began) < settledAfter
	if !atOnce {
		l.failures, l.since = 1, now
	}
	l.w.routes.ended(s.address, now, atOnce, now.Sub(l.since))
	l.w.o.Logger.Warn("stream ended, reconnecting", "node", s.welcome.GetNode(), "address", s.address, "error", s.err)
}

// suspect leaves a node that does not acknowledge heartbeats, while there is time to have the
// leases taken over.
func (l *link) suspect(s *session) {
	l.since = time.Now()
	l.w.o.Logger.Warn("node does not acknowledge heartbeats, going to another one", "node", s.welcome.GetNode(), "address", s.address)
}

// sentAway tells whether the last that an ended session heard was where to go. The node ends
// a stream with nothing to report at once, so that both are there together; the addresses
// may be the only ones that still lead anywhere.
func (l *link) sentAway(s *session) bool {
	select {
	case addresses := <-s.drained:
		l.heed(s, addresses)
		l.since = time.Now()
		return true
	default:
		return false
	}
}

// heed goes where a node says: one that drains, or whose stream is old or has a credential that
// is about to expire. These name no addresses.
func (l *link) heed(s *session, addresses []string) {
	l.w.o.Logger.Info("node asks for a new connection", "node", s.welcome.GetNode(), "addresses", addresses)
	l.w.routes.prefer(usable(addresses))
}

// pause spreads the workers that lost their node together.
func (l *link) pause(ctx context.Context) {
	timer := time.NewTimer(backoffBase/2 + rand.N(backoffBase/2))
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// finish ends the last session. If that is cut before the node has confirmed that it read
// everything, what was returned goes to another node.
func (l *link) finish(life context.Context, s *session) {
	s.close()
	<-s.done
	ctx, cancel := context.WithTimeout(life, returnTimeout)
	defer cancel()
	for l.w.owes() && ctx.Err() == nil {
		l.lost(s)
		l.pause(ctx)
		next := l.connect(ctx, life, nil)
		if next == nil {
			return
		}
		s = next
		s.close()
		<-s.done
	}
}
