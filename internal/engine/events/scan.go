package events

import (
	"context"
	"slices"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
)

// maxScanRest bounds the rest after a read.
const maxScanRest = time.Second

// scanTable has the readers of entries that are not in memory, by name. Each name has one turn. One stream of an
// identity reads at a time, and pauses for as long as the read took. So no identity takes more than half of a
// processor, however many streams it opens. The identities of a namespace also have one turn in common, which they keep
// for a read, and not for the pause. Each of them waits for it with one stream at most, and the first one comes first:
// a read waits for one of each other identity.
type scanTable map[string]*scanTurn

type scanTurn struct {
	turn  chan struct{} // full while the turn is taken
	users int
}

// enterScan waits for the turn of a name; leave gives it back. An empty name has no limit.
func (f *Feed) enterScan(ctx context.Context, name string) (leave func(), err error) {
	if name == "" {
		return func() {}, nil
	}
	f.mu.Lock()
	s := f.namedScans[name]
	if s == nil {
		s = &scanTurn{turn: make(chan struct{}, 1)}
		f.namedScans[name] = s
	}
	s.users++
	f.mu.Unlock()
	forget := func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		s.users--
		if s.users == 0 {
			delete(f.namedScans, name)
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

// readPages reads the asked entries. Entries that are not in memory are read in the turn of the watcher, and
// charged for.
func (w *watchStream) readPages(ctx context.Context, asks []job.EventsRequest) ([]job.EventsPage, error) {
	pages, fromStore := w.feed.readFromWindows(asks)
	if len(fromStore) == 0 {
		return pages, nil
	}
	if w.query.Charge != nil { // before the turn: a caller without rate left must not delay others
		if err := w.query.Charge(len(fromStore)); err != nil {
			return nil, err
		}
	}
	leave, err := w.feed.enterScan(ctx, w.ownScanName())
	if err != nil {
		return nil, err
	}
	defer leave()
	took, err := w.readInSharedTurn(ctx, asks, fromStore, pages)
	if err == nil && slices.ContainsFunc(pages, func(p job.EventsPage) bool { return p.More }) {
		w.restAfterScan(ctx, took)
	}
	return pages, err
}

// readInSharedTurn reads the asks from the store, and returns how long that took.
func (w *watchStream) readInSharedTurn(ctx context.Context, asks []job.EventsRequest, fromStore []int,
	pages []job.EventsPage) (took time.Duration, err error) {
	leave, err := w.feed.enterScan(ctx, w.sharedScanName())
	if err != nil {
		return 0, err
	}
	defer leave()
	began := time.Now()
	err = w.feed.readFromStore(ctx, asks, fromStore, pages)
	return time.Since(began), err
}

// ownScanName is the name under which the reads of the watcher's identity take turns, in each namespace; empty if
// callers are not authenticated.
func (w *watchStream) ownScanName() string {
	if w.query.Watcher.Identity == "" {
		return ""
	}
	return "identity:" + w.query.Watcher.Identity + " " + w.sharedScanName()
}

// sharedScanName is the name under which the identities of a namespace take turns. It is empty for watchers of several
// namespaces and for administrators of the cluster, who have turns of their own only.
func (w *watchStream) sharedScanName() string {
	list := w.query.Filter.Namespaces
	if len(list) != 1 || w.query.Watcher.Identity == "" || w.query.Watcher.Admin {
		return ""
	}
	return "namespace:" + list[0]
}

// restAfterScan waits for as long as something took, or until the watch ends.
func (w *watchStream) restAfterScan(ctx context.Context, took time.Duration) {
	timer := time.NewTimer(min(took, maxScanRest))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	case <-w.feed.done:
	}
}
