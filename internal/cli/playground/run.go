package playground

import (
	"context"
	"errors"
	"time"
)

const (
	refreshInterval = 250 * time.Millisecond // of the view and of what it shows
	listTimeout     = time.Second            // for one listing
	// stopTimeout bounds the end of what does not depend on handlers.
	stopTimeout = 10 * time.Second
	// maxJobsShown bounds a listing, so that the view does not load a cluster with many jobs.
	maxJobsShown = 500
)

// Run starts everything, shows what happens, and stops everything when ctx ends,
// when Options.For has passed, or when a part fails. It returns nil after a stop
// that was asked for.
func Run(ctx context.Context, o Options) error {
	o = o.withDefaults()
	p := &playground{options: o, commands: make(chan targetMode, 8)}
	err := p.startAll(ctx)
	switch {
	case err == nil:
		err = p.runLoop(ctx)
	case ctx.Err() != nil:
		err = nil // stopped before it had begun
	}
	return errors.Join(err, p.stopAll(err))
}

// runLoop shows what happens until the worker has drained.
func (p *playground) runLoop(ctx context.Context) error {
	s := &session{p: p, out: outputFor(p.options), watcher: newWatcher(sampleNames()), began: time.Now()}
	asked := context.WithoutCancel(ctx)
	s.applyListing(p.listJobs(asked))
	s.out.showFirst(s.currentFrame())
	defer func() { s.out.showLast(s.currentFrame()) }()

	listings := make(chan listing)
	askCtx, stopAsking := context.WithCancel(asked)
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		p.requestListing(askCtx, listings)
	}()
	defer func() { <-stopped }()
	defer stopAsking()

	var enough <-chan time.Time
	if p.options.For > 0 {
		t := time.NewTimer(p.options.For)
		defer t.Stop()
		enough = t.C
	}
	stop, abort := ctx.Done(), p.options.Abort
	draw := time.NewTicker(refreshInterval)
	defer draw.Stop()
	for {
		select {
		case l := <-listings:
			s.applyListing(l)
		case m := <-p.commands:
			s.setMode(m)
		case <-draw.C:
			s.updateDisplay()
		case <-stop:
			stop, enough = nil, nil
			s.beginDrain()
		case <-enough:
			stop, enough = nil, nil
			s.beginDrain()
		case <-abort:
			stop, enough, abort = nil, nil, nil
			s.abortDrain()
		case <-p.workerEnded:
			s.applyListing(p.listJobs(asked)) // with the results of what has just ended
			s.updateDisplay()
			if !s.draining.IsZero() && !s.aborted && p.workerErr == nil {
				p.foreignRuns = p.findForeignRuns(asked)
			}
			return s.endSession(p.workerErr)
		}
	}
}

// listing is one answer to the question for all jobs.
type listing struct {
	at       time.Time
	rows     []jobRow
	complete bool
	err      error
}

// requestListing lists the jobs repeatedly and sends the answers to the view.
func (p *playground) requestListing(ctx context.Context, to chan<- listing) {
	t := time.NewTicker(refreshInterval)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		l := p.listJobs(ctx)
		select {
		case <-ctx.Done():
			return
		case to <- l:
		}
	}
}

func (p *playground) listJobs(ctx context.Context) listing {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	l := listing{complete: true}
	for j, err := range p.client.Jobs(ctx, allJobs) {
		if err != nil {
			return listing{at: time.Now(), err: err}
		}
		if len(l.rows) == maxJobsShown {
			l.complete = false
			break
		}
		l.rows = append(l.rows, rowOf(j))
	}
	l.at = time.Now()
	return l
}
