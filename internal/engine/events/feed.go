package events

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/lib/fairshare"
)

// Defaults of [Options].
const (
	DefaultPoll        = 200 * time.Millisecond
	DefaultMaxWatchers = 100

	// windowSize is how many entries of a shard are kept at hand, and windowBytes about the memory that those of all
	// shards take.
	windowSize  = 256
	windowBytes = 32 << 20
	// pageSize is how many entries of a shard are read at once.
	pageSize = 128
	// flushEvery is how long an announced event may wait for a decision to be written with.
	flushEvery = 100 * time.Millisecond
	// adminShare is which part of the places of watchers is kept for administrators of
	// the cluster: one in so many.
	adminShare = 10
)

// Store has the methods of the store that the feed needs.
type Store interface {
	Shards() int
	// RecordsEvents reports whether events are recorded at all.
	RecordsEvents() bool
	// With an error, Events and LastEvents still return the shards that could be read; the page of any other has
	// an Err, and its place is not Exact.
	Events(ctx context.Context, asks []job.EventsRequest) ([]job.EventsPage, error)
	LastEvents(ctx context.Context) ([]job.Place, error)
	Announce(...job.Event)
	// AnnouncedSignal has a token when there is something to flush.
	AnnouncedSignal() <-chan struct{}
	FlushEvents(ctx context.Context) error
}

// Options configure a Feed. Store is required.
type Options struct {
	Store Store
	// Poll is the pause between two polls while there is a watcher. Default 200 ms.
	Poll time.Duration
	// MaxWatchers is how many there may be at once. Default 100. One in ten is for
	// administrators of the cluster only; of the others a namespace may have half, and an
	// identity a quarter.
	MaxWatchers int
	// Logger defaults to one that discards; Registerer nil registers nothing.
	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

// Feed is the one look of a node at the streams.
type Feed struct {
	o       Options
	metrics metrics

	mu            sync.Mutex
	userCount     int
	watcherShares *fairshare.Table
	namedScans    scanTable
	// lastPlaces are the places of the last entries; nil until known. They are not Exact for shards that have
	// been unreachable ever since.
	lastPlaces []job.Place
	// awayShards are the shards that could not be read when they were last asked for.
	awayShards []bool
	windows    []window
	changed    chan struct{} // closed when there are new entries
	runWake    chan struct{} // wakes Run for a new user
	retryWake  chan struct{} // wakes retryAwayLoop for a new user
	done       chan struct{} // closed when Run has ended
	ended      bool
}

// New makes a feed; Run makes it work.
func New(o Options) (*Feed, error) {
	if o.Store == nil {
		return nil, errors.New("events: Store is required")
	}
	o.Poll, o.MaxWatchers = cmp.Or(o.Poll, DefaultPoll), cmp.Or(o.MaxWatchers, DefaultMaxWatchers)
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	f := &Feed{
		o: o, metrics: newMetrics(), windows: make([]window, o.Store.Shards()),
		awayShards: make([]bool, o.Store.Shards()),
		watcherShares: fairshare.New(fairshare.Limits{
			Places: o.MaxWatchers, Kept: o.MaxWatchers / adminShare, Namespace: 1, Identity: 3,
		}),
		namedScans: scanTable{},
		changed:    make(chan struct{}), runWake: make(chan struct{}, 1), retryWake: make(chan struct{}, 1),
		done: make(chan struct{}),
	}
	return f, f.metrics.registerWith(o.Registerer)
}

// Observe takes notices that no decision stores. It does not block.
func (f *Feed) Observe(notices []job.Notice) {
	if !f.o.Store.RecordsEvents() {
		return
	}
	for i := range notices {
		if n := &notices[i]; isAttemptStart(n) {
			if h, ok := job.NewEvent(n, n.Queue, n.Labels); ok {
				f.o.Store.Announce(h)
			}
		}
	}
}

// isAttemptStart reports whether a notice is the start of an attempt, which no decision stores.
func isAttemptStart(n *job.Notice) bool {
	return n.Kind == job.AttemptStarted
}

// Run polls the streams while there is a watcher, and writes announced events, until ctx ends.
func (f *Feed) Run(ctx context.Context) error {
	defer f.markEnded()
	if !f.o.Store.RecordsEvents() {
		<-ctx.Done()
		return nil
	}
	var seeking sync.WaitGroup
	defer seeking.Wait()
	seeking.Go(func() { f.retryAwayLoop(ctx) })
	seeking.Go(func() { f.flushLoop(ctx) })
	look := time.NewTimer(0)
	defer look.Stop()
	fault := ""
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-f.runWake:
			look.Reset(0)
		case <-look.C:
			if !f.hasUsers() {
				continue // the next user begins anew
			}
			more, err := f.pollStreams(ctx, false)
			if text := errorText(err); text != fault && ctx.Err() == nil {
				fault = text
				if err != nil {
					f.o.Logger.Warn("failed to read events", "error", err)
				}
			}
			pause := f.o.Poll
			if more {
				pause = 0
			}
			look.Reset(pause)
		}
	}
}

// retryAwayLoop polls unreachable shards while there is a user, until ctx ends. Their calls may take long to
// fail, so the polls of other shards do not wait for them.
func (f *Feed) retryAwayLoop(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-f.retryWake:
		}
		for f.hasUsers() {
			select {
			case <-ctx.Done():
				return
			case <-time.After(f.o.Poll):
				// The failure was logged when it was first seen.
				_, _ = f.pollStreams(ctx, true)
			}
		}
	}
}

// flushLoop writes announced events until ctx ends. Events that cannot be written stay queued, and their server
// may take long to fail. Other shards are flushed meanwhile: the store allows one flush of a shard at a time.
func (f *Feed) flushLoop(ctx context.Context) {
	var flushes sync.WaitGroup
	defer f.flushOnStop(ctx)
	defer flushes.Wait()
	for {
		select {
		case <-ctx.Done():
			return
		case <-f.o.Store.AnnouncedSignal():
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(flushEvery):
			flushes.Go(func() { _ = f.o.Store.FlushEvents(ctx) })
		}
	}
}

// flushOnStop writes the announced events of a node that stops.
func (f *Feed) flushOnStop(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	if err := f.o.Store.FlushEvents(ctx); err != nil {
		f.o.Logger.Warn("failed to record the last events of this node", "error", err)
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func (f *Feed) markEnded() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ended = true
	close(f.done)
}

// Acquire keeps the feed looking until the returned function is called.
func (f *Feed) Acquire() (release func()) {
	f.mu.Lock()
	f.userCount++
	first := f.userCount == 1
	f.mu.Unlock()
	if first {
		wakeUp(f.runWake)
		wakeUp(f.retryWake)
	}
	return sync.OnceFunc(func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.userCount--
		if f.userCount == 0 {
			f.lastPlaces = nil
			clear(f.windows)
		}
	})
}

// wakeUp leaves a token, if there is none.
func wakeUp(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

func (f *Feed) hasUsers() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.userCount > 0
}

// pollStreams reads new entries of the reachable shards, or of the unreachable ones; more reports whether there
// are further entries already.
func (f *Feed) pollStreams(ctx context.Context, away bool) (more bool, err error) {
	asks, unknown := f.collectAsks(away)
	if unknown {
		err = f.findLast(ctx)
	}
	if len(asks) == 0 {
		return false, err
	}
	pages, err := f.o.Store.Events(ctx, asks)
	if ctx.Err() != nil {
		return false, err
	}
	return f.storePages(asks, pages), err
}

// collectAsks are those of a look. unknown: where some shards end is to be found first.
func (f *Feed) collectAsks(away bool) (asks []job.EventsRequest, unknown bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.lastPlaces == nil {
		return nil, !away
	}
	for shard, place := range f.lastPlaces {
		switch {
		case f.awayShards[shard] != away:
		case place.Exact():
			asks = append(asks, job.EventsRequest{Shard: shard, After: place, Limit: pageSize})
		default:
			unknown = true
		}
	}
	return asks, unknown
}

// findLast finds the last entry of the shards whose last entry is unknown.
func (f *Feed) findLast(ctx context.Context) error {
	found, err := f.o.Store.LastEvents(ctx)
	if !slices.ContainsFunc(found, job.Place.Exact) {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.userCount == 0 {
		return err // or the next user would begin with places of long ago
	}
	last, hasNews := slices.Clone(f.lastPlaces), f.lastPlaces == nil
	if last == nil {
		last = slices.Repeat([]job.Place{job.PlaceBefore(0)}, len(found))
	}
	for shard, place := range found {
		if !last[shard].Exact() {
			last[shard], f.awayShards[shard] = place, !place.Exact()
			hasNews = hasNews || place.Exact()
		}
	}
	f.lastPlaces = last
	if hasNews {
		f.notifyWatchersLocked()
	}
	return err
}

// storePages stores the pages of a poll.
func (f *Feed) storePages(asks []job.EventsRequest, pages []job.EventsPage) (more bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	last, hasNews := slices.Clone(f.lastPlaces), false
	for i, page := range pages {
		shard, n := asks[i].Shard, len(page.Events)
		if last == nil || last[shard] != asks[i].After {
			continue // the feed has begun anew meanwhile, or another look was first
		}
		// Watchers that wait for a shard must learn that it is reachable again.
		hasNews = hasNews || n > 0 || f.awayShards[shard] && page.Err == nil
		f.awayShards[shard] = page.Err != nil
		if n == 0 {
			continue
		}
		more = more || page.More
		last[shard] = page.Events[n-1].Place
		if page.Gap {
			f.windows[shard] = window{}
		}
		f.windows[shard].add(page.Events, windowBytes/len(f.windows))
	}
	f.lastPlaces = last
	if hasNews {
		f.notifyWatchersLocked()
	}
	return more
}

func (f *Feed) notifyWatchersLocked() {
	close(f.changed)
	f.changed = make(chan struct{})
}

// LastPlaces returns the place of the newest entry of each shard, nil until some are known, and a channel that is
// closed when there is a newer one. The place of a shard that has been unreachable ever since is not Exact.
// Callers must not modify the places.
func (f *Feed) LastPlaces() (last []job.Place, changed <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.lastPlaces, f.changed
}

// shardsBehind lists the shards that can be read and may have something after these places.
func (f *Feed) shardsBehind(places []job.Place) (shards []int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for shard, place := range places {
		if f.lastPlaces == nil || !f.awayShards[shard] && place.Before(f.lastPlaces[shard]) {
			shards = append(shards, shard)
		}
	}
	return shards
}

// Read reads the asked entries, from memory where possible. With an error it still returns the pages of the
// shards that could be read.
func (f *Feed) Read(ctx context.Context, asks []job.EventsRequest) ([]job.EventsPage, error) {
	pages, fromStore := f.readFromWindows(asks)
	if len(fromStore) == 0 {
		return pages, nil
	}
	return pages, f.readFromStore(ctx, asks, fromStore, pages)
}

// readFromWindows answers asks from memory; missing are the indices of the others. Filters are evaluated
// without the lock, because they may look up what a watcher may see.
func (f *Feed) readFromWindows(asks []job.EventsRequest) (pages []job.EventsPage, missing []int) {
	windows := f.windowsAfter(asks)
	pages = make([]job.EventsPage, len(asks))
	for i, list := range windows {
		if list == nil {
			missing = append(missing, i)
			continue
		}
		pages[i] = job.EventsPage{Events: filterEvents(list, asks[i].Filter), Read: len(list),
			Last: list[len(list)-1].Place, More: len(list) == asks[i].Limit}
	}
	return pages, missing
}

// windowsAfter returns the parts of the windows that answer asks, and nil for the others. The entries of a
// window are never modified.
func (f *Feed) windowsAfter(asks []job.EventsRequest) [][]job.Event {
	windows := make([][]job.Event, len(asks))
	f.mu.Lock()
	defer f.mu.Unlock()
	for i, a := range asks {
		list, ok := f.windowAfterLocked(a)
		if ok {
			windows[i] = list
		}
	}
	return windows
}

// filterEvents returns the events that a filter selects. It does not modify the list.
func filterEvents(list []job.Event, filter *job.EventFilter) []job.Event {
	if filter == nil {
		return list
	}
	var out []job.Event
	for i := range list {
		if filter.Matches(&list[i]) {
			out = append(out, list[i])
		}
	}
	return out
}

// readFromStore reads the rest of asks from the store.
func (f *Feed) readFromStore(ctx context.Context, asks []job.EventsRequest, missing []int,
	pages []job.EventsPage) error {
	rest := make([]job.EventsRequest, len(missing))
	for k, i := range missing {
		rest[k] = asks[i]
	}
	read, err := f.o.Store.Events(ctx, rest)
	for k, page := range read {
		pages[missing[k]] = page
	}
	if ctx.Err() == nil {
		f.markAway(rest, read)
	}
	return err
}

// markAway notes which shards could not be read: the next one need not wait for them.
func (f *Feed) markAway(asks []job.EventsRequest, pages []job.EventsPage) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i, page := range pages {
		if page.Err != nil && f.lastPlaces != nil {
			f.awayShards[asks[i].Shard] = true
		}
	}
}

func (f *Feed) windowAfterLocked(a job.EventsRequest) ([]job.Event, bool) {
	w := f.windows[a.Shard].events
	if f.lastPlaces == nil || !a.After.Exact() || len(w) == 0 || a.After.Seq+1 < w[0].Place.Seq {
		return nil, false
	}
	from := a.After.Seq + 1 - w[0].Place.Seq
	// At the end of the window nothing is known of later entries: the poll was a while ago.
	if from >= uint64(len(w)) || from > 0 && w[from-1].Place != a.After {
		return nil, false
	}
	if from == 0 && !a.After.Before(w[0].Place) {
		return nil, false
	}
	w = w[from:]
	return w[:min(len(w), a.Limit)], true
}
