package events

import (
	"context"
	"time"

	"github.com/fermata-io/fermata/internal/job"
)

// longestRest bounds the rest after a read.
const longestRest = time.Second

// scans are those who read more than is at hand, by the namespace that they watch, or else
// by their identity. Each of them has one turn: one reads at a time, and rests for as long
// as the reading took before the next one reads. So none of them takes more than half of a
// processor, however many streams it opens.
type scans map[string]*scan

type scan struct {
	turn  chan struct{} // full while somebody has the turn
	users int
}

// enterScan waits for the turn of a name; leave gives it back. Nobody is bounded by an empty
// name.
func (f *Feed) enterScan(ctx context.Context, name string) (leave func(), err error) {
	if name == "" {
		return func() {}, nil
	}
	f.mu.Lock()
	s := f.scans[name]
	if s == nil {
		s = &scan{turn: make(chan struct{}, 1)}
		f.scans[name] = s
	}
	s.users++
	f.mu.Unlock()
	forget := func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		if s.users--; s.users == 0 {
			delete(f.scans, name)
		}
	}
	select {
	case s.turn <- struct{}{}:
		return func() { <-s.turn; forget() }, nil
	case <-ctx.Done():
		forget()
		return nil, context.Cause(ctx)
	case <-f.done:
		forget()
		return nil, job.ErrDraining
	}
}

// read reads what was asked for. What is not at hand is read in the turn of whoever watches,
// and charged for.
func (w *watch) read(ctx context.Context, asks []job.EventsAsk) ([]job.EventsPage, error) {
	pages, far := w.f.readAtHand(asks)
	if len(far) == 0 {
		return pages, nil
	}
	if w.q.Charge != nil { // before the turn: who has little rate keeps nobody waiting
		if err := w.q.Charge(len(far)); err != nil {
			return nil, err
		}
	}
	leave, err := w.f.enterScan(ctx, w.scanName())
	if err != nil {
		return nil, err
	}
	defer leave()
	began := time.Now()
	err = w.f.readFar(ctx, asks, far, pages)
	if err == nil && full(asks, pages) {
		w.rest(ctx, time.Since(began))
	}
	return pages, err
}

// scanName is whose turn the watcher's reads are; empty where callers are not authenticated. Administrators of the
// cluster have a turn of their own.
func (w *watch) scanName() string {
	if list := w.q.Filter.Namespaces; len(list) == 1 && w.q.Watcher.Identity != "" && !w.q.Watcher.Admin {
		return "namespace:" + list[0]
	}
	return w.q.Watcher.Identity
}

// full reports whether there is more to read of any shard.
func full(asks []job.EventsAsk, pages []job.EventsPage) bool {
	for i := range pages {
		if pages[i].Read == asks[i].Limit {
			return true
		}
	}
	return false
}

// rest waits for as long as something took, or until the watch ends.
func (w *watch) rest(ctx context.Context, took time.Duration) {
	timer := time.NewTimer(min(took, longestRest))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	case <-w.f.done:
	}
}
