package worker

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/fermata-io/fermata/internal/lookup"
)

const (
	backoffBase = 100 * time.Millisecond
	backoffMax  = 5 * time.Second
	// maxLearnt bounds the addresses remembered beside the configured ones.
	maxLearnt = 32
	// settledAfter is how long a session lasts that was not a failure.
	settledAfter = time.Second
)

// link keeps one session open, whatever happens to nodes. Its fields belong to
// the goroutine of run.
type link struct {
	w        *Worker
	cursor   int
	learnt   []string      // addresses that nodes have told
	dead     string        // where the last session was lost, while there is none
	failures int           // since a session lasted
	longest  time.Duration // pause between two tries
	sessions sync.WaitGroup
}

func newLink(w *Worker) *link {
	// Workers start at different nodes.
	return &link{w: w, cursor: rand.IntN(len(w.o.Addresses)), longest: backoffMax}
}

// run returns after ctx has ended and the last session is closed.
func (l *link) run(ctx context.Context) {
	defer l.sessions.Wait()
	life, end := context.WithCancelCause(context.WithoutCancel(ctx))
	defer end(errClosed)
	s := l.connect(ctx, life, nil)
	for s != nil {
		select {
		case <-ctx.Done():
			s.close()
			<-s.done
			return
		case <-s.done:
			if !l.sentAway(s) {
				l.lost(s)
				l.pause(ctx, nil)
			}
			s = l.connect(ctx, life, nil)
		case addresses := <-s.drained:
			l.heed(s, addresses)
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

// connect tries nodes until one welcomes the worker or ctx ends. The node of the
// session before is avoided while that stands and others are known, and in the
// first round so is the address where one was lost.
func (l *link) connect(ctx, life context.Context, before *session) *session {
	for tries := 0; ctx.Err() == nil; tries++ {
		address := l.pick(before, tries)
		s, err := l.w.open(ctx, life, address)
		if err == nil {
			l.attach(s)
			return s
		}
		l.failures++
		l.report(address, lookup.Explain(ctx, address, err))
		if l.pause(ctx, before) {
			before = nil
		}
	}
	return nil
}

func (l *link) attach(s *session) {
	l.w.attach(s)
	l.dead = ""
	l.longest = min(backoffMax, s.trustFor()/4)
	if told := s.welcome.GetAddresses(); len(told) > 0 {
		l.learnt = nil // the older ones may be gone
		l.learn(told)
	}
	l.learn([]string{s.address})
	l.sessions.Go(s.run)
	l.w.o.Logger.Info("connected", "node", s.welcome.GetNode(), "address", s.address, "epoch", s.epoch)
}

// report tells of a failed try: the first of a row aloud.
func (l *link) report(address string, err error) {
	err = fmt.Errorf("connect to %s: %w", address, err)
	l.w.mu.Lock()
	l.w.table.linkErr = err
	l.w.mu.Unlock()
	if l.failures == 1 || l.failures%20 == 0 {
		l.w.o.Logger.Warn("cannot reach a node, trying on", "error", err, "tries", l.failures)
	}
}

// lost counts a session that ended by itself. A host that has died is noticed when
// little is left of the leases, and a try at its address, or at one that may still
// lead there, takes longer than that: what the node had told of comes first.
func (l *link) lost(s *session) {
	l.avoid(s.address)
	l.failures++
	if time.Since(s.began) >= settledAfter {
		l.failures = 1
	}
	l.w.o.Logger.Warn("stream ended, reconnecting", "node", s.welcome.GetNode(), "address", s.address, "error", s.err)
}

// avoid has the next round begin elsewhere.
func (l *link) avoid(address string) {
	l.dead, l.cursor = address, 0
	rand.Shuffle(len(l.learnt), func(i, j int) { l.learnt[i], l.learnt[j] = l.learnt[j], l.learnt[i] })
}

// suspect leaves a node that does not acknowledge heartbeats, while there is time to have the
// leases taken over.
func (l *link) suspect(s *session) {
	l.avoid(s.address)
	l.w.o.Logger.Warn("node does not acknowledge heartbeats, going to another one", "node", s.welcome.GetNode(), "address", s.address)
}

// sentAway tells whether the last that an ended session heard was where to go. The node ends
// a stream with nothing to report at once, so that both are there together; the addresses
// may be the only ones that still lead anywhere.
func (l *link) sentAway(s *session) bool {
	select {
	case addresses := <-s.drained:
		l.dead = s.address
		l.heed(s, addresses)
		return true
	default:
		return false
	}
}

// heed goes where a draining node says.
func (l *link) heed(s *session, addresses []string) {
	l.w.o.Logger.Info("node drains, going to another one", "node", s.welcome.GetNode())
	l.prefer(addresses)
}

// pause waits before the next try: 50 to 100 ms in the first round of all
// addresses, twice as long in each further one, up to 5 s, and never so long that
// fewer than four tries fit into the time that leases are kept. It tells whether
// the session before has ended.
func (l *link) pause(ctx context.Context, before *session) (ended bool) {
	round := max(l.failures-1, 0) / len(l.all())
	limit := min(backoffBase<<min(round, 10), l.longest)
	timer := time.NewTimer(limit/2 + rand.N(limit/2))
	defer timer.Stop()
	var done chan struct{}
	if before != nil {
		done = before.done
	}
	select {
	case <-ctx.Done():
	case <-timer.C:
	case <-done:
		return true
	}
	return false
}

// learn remembers addresses, the newest first.
func (l *link) learn(addresses []string) {
	l.learnt = union(addresses, l.learnt)
	l.learnt = l.learnt[:min(len(l.learnt), maxLearnt)]
}

// prefer goes first to the addresses that a draining node names.
func (l *link) prefer(addresses []string) {
	if len(addresses) > 0 {
		l.learn(addresses)
		l.cursor, l.failures = rand.IntN(len(addresses)), 0
	}
}

func union(a, b []string) []string {
	out := make([]string, 0, len(a)+len(b))
	for _, s := range slices.Concat(a, b) {
		if s != "" && !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	return out
}

// all are the addresses that were told and those that were configured.
func (l *link) all() []string { return union(l.learnt, l.w.o.Addresses) }

// pick goes round all addresses. What nodes tell of may lead nowhere from here, and a try
// there can take seconds: each third goes to one that was configured.
func (l *link) pick(before *session, tries int) string {
	if own := l.w.o.Addresses; tries%3 == 2 {
		if address := own[tries/3%len(own)]; before == nil || address != before.address {
			return address
		}
	}
	all := l.all()
	for range all {
		address := all[l.cursor%len(all)]
		l.cursor++
		if tries >= len(all) || address != l.dead && (before == nil || address != before.address) {
			return address
		}
	}
	return all[l.cursor%len(all)]
}
