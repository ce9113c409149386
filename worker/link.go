package worker

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

const (
	// stableSessionAge is how long a session must last not to count as a failure.
	stableSessionAge = time.Second
	// returnTimeout bounds the search for a node that takes back the leases that the last node may not have
	// received.
	returnTimeout = 5 * time.Second
)

// link keeps one session open and opens another when it ends. Its fields belong to the goroutine of run.
type link struct {
	w            *Worker
	failures     int       // since the last stable session
	withoutSince time.Time // when the last stable session ended, or of the first attempt to connect
	failureLog   logPacer
	replaced     []*session // those that were closed for another one, until they have ended
	sessions     sync.WaitGroup
}

func newLink(w *Worker) *link { return &link{w: w} }

// run returns after ctx has ended and the last session is closed.
func (l *link) run(ctx context.Context) {
	defer l.sessions.Wait()
	life, end := context.WithCancelCause(context.WithoutCancel(ctx))
	defer end(errSessionClosed)
	l.withoutSince = time.Now()
	s := l.openSession(ctx, life, nil)
	for s != nil {
		select {
		case <-ctx.Done():
			l.finishSession(life, s)
			return
		case <-s.done:
			if !l.drainedBeforeEnd(s) {
				l.handleLostSession(s)
				l.pauseRandomly(ctx)
			}
			next := l.openSession(ctx, life, nil)
			if next == nil && l.w.hasDrained() {
				l.finishSession(life, s) // it was cut just after it had sent its last returns
			}
			s = next
		case addresses := <-s.drainAddresses:
			l.preferAddresses(s, addresses)
			l.withoutSince = time.Now()
			s = l.replaceSession(ctx, life, s)
		case addresses := <-s.relocateAddresses:
			l.preferAddresses(s, addresses)
			l.withoutSince = time.Now()
			s = l.replaceSession(ctx, life, s)
		case <-s.unresponsive:
			l.handleUnresponsive(s)
			s = l.replaceSession(ctx, life, s)
		}
	}
}

// replaceSession opens another session and closes s when that is open. Meanwhile s continues. If ctx ends first, s is
// the last session.
func (l *link) replaceSession(ctx, life context.Context, s *session) *session {
	next := l.openSession(ctx, life, s)
	if next == nil {
		l.finishSession(life, s)
		return nil
	}
	s.close()
	l.replaced = append(slices.DeleteFunc(l.replaced, (*session).hasEnded), s)
	return next
}

// openSession opens connections to nodes, several concurrently, and sends a Hello on one at a time until a node
// welcomes the worker or ctx ends. While the session before is open, its address is tried last.
func (l *link) openSession(ctx, life context.Context, before *session) *session {
	d := l.w.newDialSet(ctx)
	defer d.cancelAll()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for ctx.Err() == nil {
		avoid, left := "", (<-chan struct{})(nil)
		if before != nil {
			avoid, left = before.address, before.done
		}
		if again := d.startNext(time.Now(), avoid); !again.IsZero() {
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
			d.recordResult(r)
			if s := l.tryHello(ctx, life, r); s != nil {
				return s
			}
			d.nextStart = time.Time{}
		}
	}
	return nil
}

// tryHello sends a Hello on a ready connection. It returns nil if that fails.
func (l *link) tryHello(ctx, life context.Context, r dialResult) *session {
	err := r.err
	if err == nil {
		var s *session
		s, err = l.w.openSession(ctx, life, r)
		if err == nil {
			l.w.routes.markWelcomed(r.route, time.Now())
			l.attachSession(s)
			return s
		}
		if isNodeRefusal(err) {
			l.w.routes.markAnswered(r.route)
		}
	}
	if ctx.Err() == nil {
		l.failures++
		if isCallerRefusal(err) {
			l.w.routes.markRefused(r.route.address, time.Now(), time.Since(l.withoutSince))
		} else {
			l.w.routes.markFailed(r.route.address, time.Now(), time.Since(l.withoutSince))
		}
		l.reportFailure(r.route.address, err)
	}
	return nil
}

// isNodeRefusal reports whether the error is a node's answer to a Hello, not a connection error.
func isNodeRefusal(err error) bool {
	s, ok := status.FromError(err)
	return ok && s.Code() != codes.Unknown && s.Code() != codes.Unimplemented
}

// isCallerRefusal reports whether a node refuses the worker's credential or role. Other nodes will refuse it as
// well, until the token or the role changes.
func isCallerRefusal(err error) bool {
	code := status.Code(err)
	return code == codes.Unauthenticated || code == codes.PermissionDenied
}

func (l *link) attachSession(s *session) {
	l.w.attachSession(s)
	l.w.routes.replaceAdvertised(plainAddresses(s.welcome.GetAddresses()))
	l.sessions.Go(s.run)
	l.failureLog = logPacer{}
	l.w.options.Logger.Info("connected", "node", s.welcome.GetNode(), "address", s.address, "epoch", s.epoch)
}

// reportFailure logs a failed attempt to connect: the first of a series, and later ones at growing intervals.
func (l *link) reportFailure(address string, err error) {
	err = fmt.Errorf("connect to %s: %w", address, err)
	l.w.mu.Lock()
	l.w.table.linkErr = err
	l.w.mu.Unlock()
	if !l.failureLog.isDue(time.Now()) {
		return
	}
	text := "failed to connect to a node"
	switch status.Code(err) {
	case codes.Unauthenticated:
		text = "node refused the worker's credential: replace its token or certificate, or add it to the nodes' " +
			"access file"
	case codes.PermissionDenied:
		text = "node refused the worker: its identity needs the role worker for this namespace and these queues"
	}
	l.w.options.Logger.Warn(text, "error", err, "tries", l.failures)
}

// Failures in a row are logged at once, and then after pauses that double.
const (
	firstReportPause = 5 * time.Second
	lastReportPause  = time.Minute
)

// logPacer decides when a failure is logged. The zero value logs the next one.
type logPacer struct {
	next  time.Time
	pause time.Duration
}

func (r *logPacer) isDue(now time.Time) bool {
	if now.Before(r.next) {
		return false
	}
	r.pause = min(max(2*r.pause, firstReportPause), lastReportPause)
	r.next = now.Add(r.pause)
	return true
}

// handleLostSession counts and logs a session that ended unexpectedly.
func (l *link) handleLostSession(s *session) {
	now := time.Now()
	l.failures++
	atOnce := now.Sub(s.began) < stableSessionAge
	if !atOnce {
		l.failures, l.withoutSince = 1, now
	}
	l.w.routes.markEnded(s.address, now, atOnce, now.Sub(l.withoutSince))
	l.w.options.Logger.Warn("stream ended, reconnecting", "node", s.welcome.GetNode(), "address", s.address, "error",
		s.err)
}

// handleUnresponsive starts the search for another node, while there is time to have the leases taken over.
func (l *link) handleUnresponsive(s *session) {
	l.withoutSince = time.Now()
	l.w.options.Logger.Warn("node does not acknowledge heartbeats, connecting to another one", "node",
		s.welcome.GetNode(), "address", s.address)
}

// drainedBeforeEnd reports whether the session received a Drain just before it ended, and uses its addresses. A
// node ends a stream without leases at once, so that both events come together. The addresses may be the only
// ones that are still valid.
func (l *link) drainedBeforeEnd(s *session) bool {
	select {
	case addresses := <-s.drainAddresses:
		l.preferAddresses(s, addresses)
		l.withoutSince = time.Now()
		return true
	default:
		return false
	}
}

// preferAddresses makes the next session try these addresses first. A node sends them when it drains or asks the
// worker to move. A node that only renews an old stream or an expiring credential sends none.
func (l *link) preferAddresses(s *session, addresses []string) {
	l.w.options.Logger.Info("node requested a new connection", "node", s.welcome.GetNode(), "addresses", addresses)
	l.w.routes.preferAddresses(plainAddresses(addresses))
}

// pauseRandomly spreads the reconnections of workers that lost their node at the same time.
func (l *link) pauseRandomly(ctx context.Context) {
	timer := time.NewTimer(backoffBase/2 + rand.N(backoffBase/2))
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// finishSession closes the last session. If the stream is cut before the node has confirmed that it read everything,
// the returned leases are sent to another node. The sessions before it have to end first: leases that came on them too
// late to be returned there are returned on the last one.
func (l *link) finishSession(life context.Context, s *session) {
	for _, before := range l.replaced {
		<-before.done
	}
	s.close()
	<-s.done
	ctx, cancel := context.WithTimeout(life, returnTimeout)
	defer cancel()
	for l.w.hasPendingReturns() && ctx.Err() == nil {
		l.handleLostSession(s)
		l.pauseRandomly(ctx)
		next := l.openSession(ctx, life, nil)
		if next == nil {
			return
		}
		s = next
		s.close()
		<-s.done
	}
}
