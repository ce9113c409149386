package playground

import (
	"context"
	"errors"
	"time"
)

const (
	refresh  = 250 * time.Millisecond // of the view and of what it shows
	askLimit = time.Second            // for one listing
	// stopLimit bounds the end of what does not depend on handlers.
	stopLimit = 10 * time.Second
	// jobsShown bounds what a listing reads, so that somebody's million jobs do not
	// turn the view into the load.
	jobsShown = 500
)

// Run starts everything, shows what happens, and stops everything when ctx ends,
// when Options.For has passed, or when a part fails. It returns nil after a stop
// that was asked for.
func Run(ctx context.Context, o Options) error {
	o = o.withDefaults()
	p := &playground{o: o, commands: make(chan mode, 8)}
	err := p.start(ctx)
	switch {
	case err == nil:
		err = p.play(ctx)
	case ctx.Err() != nil:
		err = nil // stopped before it had begun
	}
	return errors.Join(err, p.stop(err))
}

// play shows what happens until the worker has drained.
func (p *playground) play(ctx context.Context) error {
	s := &show{p: p, out: outputFor(p.o), watcher: newWatcher(sampleNames()), began: time.Now()}
	asked := context.WithoutCancel(ctx)
	s.take(p.list(asked))
	s.out.begin(s.frame())
	defer func() { s.out.end(s.frame()) }()

	listings := make(chan listing)
	askCtx, stopAsking := context.WithCancel(asked)
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		p.ask(askCtx, listings)
	}()
	defer func() { <-stopped }()
	defer stopAsking()

	var enough <-chan time.Time
	if p.o.For > 0 {
		t := time.NewTimer(p.o.For)
		defer t.Stop()
		enough = t.C
	}
	stop, abort := ctx.Done(), p.o.Abort
	draw := time.NewTicker(refresh)
	defer draw.Stop()
	for {
		select {
		case l := <-listings:
			s.take(l)
		case m := <-p.commands:
			s.command(m)
		case <-draw.C:
			s.update()
		case <-stop:
			stop, enough = nil, nil
			s.drain()
		case <-enough:
			stop, enough = nil, nil
			s.drain()
		case <-abort:
			stop, enough, abort = nil, nil, nil
			s.abort()
		case <-p.workerEnded:
			s.take(p.list(asked)) // with the results of what has just ended
			s.update()
			return s.farewell(p.workerErr)
		}
	}
}

// listing is one answer to the question for all jobs.
type listing struct {
	at       time.Time
	rows     []row
	complete bool
	err      error
}

// ask lists the jobs again and again, and gives the answers to whoever waits.
func (p *playground) ask(ctx context.Context, to chan<- listing) {
	t := time.NewTicker(refresh)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		l := p.list(ctx)
		select {
		case <-ctx.Done():
			return
		case to <- l:
		}
	}
}

func (p *playground) list(ctx context.Context) listing {
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	l := listing{complete: true}
	for j, err := range p.client.Jobs(ctx, everyJob) {
		if err != nil {
			return listing{at: time.Now(), err: err}
		}
		if len(l.rows) == jobsShown {
			l.complete = false
			break
		}
		l.rows = append(l.rows, rowOf(j))
	}
	l.at = time.Now()
	return l
}
