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

	"github.com/fermata-io/fermata/internal/job"
	"github.com/fermata-io/fermata/internal/shares"
)

// Defaults of [Options].
const (
	DefaultPoll     = 200 * time.Millisecond
	DefaultWatchers = 100

	// window is how many entries of a shard are kept at hand.
	window = 256
	// pageSize is how many entries of a shard are read at once.
	pageSize = 128
	// flushEvery is how long what is announced may wait for a decision to go along with.
	flushEvery = 100 * time.Millisecond
	// keptForAdmins is which part of the places of watchers is kept for administrators of
	// the cluster: one in so many.
	keptForAdmins = 10
)

// Store is what the feed needs of the store.
type Store interface {
	Shards() int
	// RecordsEvents tells whether there is anything to see at all.
	RecordsEvents() bool
	// Events and LastEvents answer beside an error for the shards that could be read; the
	// page of any other has an Err, and its place is not Exact.
	Events(ctx context.Context, asks []job.EventsAsk) ([]job.EventsPage, error)
	LastEvents(ctx context.Context) ([]job.Place, error)
	Announce(...job.Happening)
	// Announced has a token when there is something to flush.
	Announced() <-chan struct{}
	FlushEvents(ctx context.Context) error
}

// Options configure a Feed. Store is required.
type Options struct {
	Store Store
	// Poll is the pause between two looks, while somebody watches. Default 200 ms.
	Poll time.Duration
	// Watchers is how many there may be at once. Default 100. One in ten is for
	// administrators of the cluster only; of the others a namespace may have half, and an
	// identity a quarter.
	Watchers int
	// Logger defaults to one that discards; Registerer nil registers nothing.
	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

// Feed is the one look of a node at the streams.
type Feed struct {
	o       Options
	metrics metrics

	mu       sync.Mutex
	users    int
	watchers *shares.Table
	scans    scans
	// last is what is there; nil until that is known. It is not Exact for shards that have
	// been away ever since.
	last []job.Place
	// away are the shards that could not be read when they were last asked for.
	away    []bool
	windows [][]job.Happening // newest last, without gaps
	changed chan struct{}     // closed when there is news
	wanted  chan struct{}     // tells Run that there is a user
	sought  chan struct{}     // tells seek the same
	done    chan struct{}     // closed when Run has ended
	ended   bool
}

// New makes a feed; Run makes it work.
func New(o Options) (*Feed, error) {
	if o.Store == nil {
		return nil, errors.New("events: Store is required")
	}
	o.Poll, o.Watchers = cmp.Or(o.Poll, DefaultPoll), cmp.Or(o.Watchers, DefaultWatchers)
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	f := &Feed{
		o: o, metrics: newMetrics(), windows: make([][]job.Happening, o.Store.Shards()), away: make([]bool, o.Store.Shards()),
		watchers: shares.New(shares.Limits{Places: o.Watchers, Kept: o.Watchers / keptForAdmins, Namespace: 1, Identity: 3}), scans: scans{},
		changed: make(chan struct{}), wanted: make(chan struct{}, 1), sought: make(chan struct{}, 1), done: make(chan struct{}),
	}
	return f, f.metrics.register(o.Registerer)
}

// Observe takes notices that no decision stores. It does not block.
func (f *Feed) Observe(notices []job.Notice) {
	if !f.o.Store.RecordsEvents() {
		return
	}
	for i := range notices {
		if n := &notices[i]; undecided(n) {
			if h, ok := job.Happened(n, n.Labels); ok {
				f.o.Store.Announce(h)
			}
		}
	}
}

// undecided tells whether a notice is one of an attempt's start, which no decision
// stores.
func undecided(n *job.Notice) bool {
	return n.Kind == job.AttemptStarted
}

// Run looks at the streams while somebody watches, and writes what is announced, until
// ctx ends.
func (f *Feed) Run(ctx context.Context) error {
	defer f.end()
	if !f.o.Store.RecordsEvents() {
		<-ctx.Done()
		return nil
	}
	var seeking sync.WaitGroup
	defer seeking.Wait()
	seeking.Go(func() { f.seek(ctx) })
	seeking.Go(func() { f.flush(ctx) })
	look := time.NewTimer(0)
	defer look.Stop()
	fault := ""
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-f.wanted:
			look.Reset(0)
		case <-look.C:
			if !f.used() {
				continue // the next user begins anew
			}
			more, err := f.look(ctx, false)
			if text := textOf(err); text != fault && ctx.Err() == nil {
				if fault = text; err != nil {
					f.o.Logger.Warn("events cannot be read", "error", err)
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

// seek looks at shards that are away, while there is a user, until ctx ends. What is away
// is slow to say so: the others' looks do not wait for it.
func (f *Feed) seek(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-f.sought:
		}
		for f.used() {
			select {
			case <-ctx.Done():
				return
			case <-time.After(f.o.Poll):
				// That it is away, and why, was told when it was found out.
				_, _ = f.look(ctx, true)
			}
		}
	}
}

// flush writes what is announced until ctx ends. What cannot be written stays in line, and
// its server may be slow to say so: meanwhile others' lines are written, for the store has
// a shard's line in one flush at a time.
func (f *Feed) flush(ctx context.Context) {
	var under sync.WaitGroup
	defer f.lastFlush(ctx)
	defer under.Wait()
	for {
		select {
		case <-ctx.Done():
			return
		case <-f.o.Store.Announced():
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(flushEvery):
			under.Go(func() { _ = f.o.Store.FlushEvents(ctx) })
		}
	}
}

// lastFlush writes what a node that stops has announced.
func (f *Feed) lastFlush(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	if err := f.o.Store.FlushEvents(ctx); err != nil {
		f.o.Logger.Warn("the last events of this node are not recorded", "error", err)
	}
}

func textOf(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func (f *Feed) end() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ended = true
	close(f.done)
}

// Use keeps the feed looking until the returned function is called.
func (f *Feed) Use() (release func()) {
	f.mu.Lock()
	f.users++
	first := f.users == 1
	f.mu.Unlock()
	if first {
		signal(f.wanted)
		signal(f.sought)
	}
	return sync.OnceFunc(func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.users--; f.users == 0 {
			f.last = nil
			clear(f.windows)
		}
	})
}

// signal leaves a token, if there is none.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

func (f *Feed) used() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.users > 0
}

// look reads what is new in the shards that could be read when they were last asked for,
// or in those that are away; more tells that there is more of it already.
func (f *Feed) look(ctx context.Context, away bool) (more bool, err error) {
	asks, unknown := f.asks(away)
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
	return f.takeOver(asks, pages), err
}

// asks are those of a look. unknown: where some shards end is to be found first.
func (f *Feed) asks(away bool) (asks []job.EventsAsk, unknown bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.last == nil {
		return nil, !away
	}
	for shard, place := range f.last {
		switch {
		case f.away[shard] != away:
		case place.Exact():
			asks = append(asks, job.EventsAsk{Shard: shard, After: place, Limit: pageSize})
		default:
			unknown = true
		}
	}
	return asks, unknown
}

// findLast finds where the shards end of which that is unknown.
func (f *Feed) findLast(ctx context.Context) error {
	found, err := f.o.Store.LastEvents(ctx)
	if !slices.ContainsFunc(found, job.Place.Exact) {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.users == 0 {
		return err // or the next user would begin with places of long ago
	}
	last, news := slices.Clone(f.last), f.last == nil
	if last == nil {
		last = slices.Repeat([]job.Place{job.PlaceBefore(0)}, len(found))
	}
	for shard, place := range found {
		if !last[shard].Exact() {
			last[shard], f.away[shard] = place, !place.Exact()
			news = news || place.Exact()
		}
	}
	f.last = last
	if news {
		f.announceLocked()
	}
	return err
}

// takeOver takes over what a look has read.
func (f *Feed) takeOver(asks []job.EventsAsk, pages []job.EventsPage) (more bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	last, news := slices.Clone(f.last), false
	for i, page := range pages {
		shard, n := asks[i].Shard, len(page.Happenings)
		if last == nil || last[shard] != asks[i].After {
			continue // the feed has begun anew meanwhile, or another look was first
		}
		// Who waits for a shard that is back has to hear of that.
		news = news || n > 0 || f.away[shard] && page.Err == nil
		f.away[shard] = page.Err != nil
		if n == 0 {
			continue
		}
		more = more || n == pageSize
		last[shard] = page.Happenings[n-1].Place
		w := f.windows[shard]
		if page.Gap {
			w = nil
		}
		w = append(w, page.Happenings...)
		if len(w) > 2*window {
			w = append([]job.Happening(nil), w[len(w)-window:]...)
		}
		f.windows[shard] = w
	}
	f.last = last
	if news {
		f.announceLocked()
	}
	return more
}

func (f *Feed) announceLocked() {
	close(f.changed)
	f.changed = make(chan struct{})
}

// News returns the place of the newest entry of each shard, nil until some are known, and
// a channel that is closed when there is something newer. That of a shard that has been
// away ever since is not Exact. Nobody may write to the places.
func (f *Feed) News() (last []job.Place, changed <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.last, f.changed
}

// behind lists the shards that can be read and may have something after these places.
func (f *Feed) behind(places []job.Place) (shards []int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for shard, place := range places {
		if f.last == nil || !f.away[shard] && place.Before(f.last[shard]) {
			shards = append(shards, shard)
		}
	}
	return shards
}

// Read reads what was asked for, from what is at hand where that will do. With an error
// come the pages of those shards that could be read.
func (f *Feed) Read(ctx context.Context, asks []job.EventsAsk) ([]job.EventsPage, error) {
	pages, far := f.readAtHand(asks)
	if len(far) == 0 {
		return pages, nil
	}
	return pages, f.readFar(ctx, asks, far, pages)
}

// readAtHand answers what it can without the store; far are the asks that are left. Filters are
// asked outside of the lock: they may look up what a watcher may see.
func (f *Feed) readAtHand(asks []job.EventsAsk) (pages []job.EventsPage, far []int) {
	lists := f.listsAtHand(asks)
	pages = make([]job.EventsPage, len(asks))
	for i, list := range lists {
		if list == nil {
			far = append(far, i)
			continue
		}
		pages[i] = job.EventsPage{Happenings: selected(list, asks[i].Filter), Read: len(list), Last: list[len(list)-1].Place}
	}
	return pages, far
}

// listsAtHand are the windows' parts that answer asks; nil where the store has to. What is in a
// window is not written again.
func (f *Feed) listsAtHand(asks []job.EventsAsk) [][]job.Happening {
	lists := make([][]job.Happening, len(asks))
	f.mu.Lock()
	defer f.mu.Unlock()
	for i, a := range asks {
		if list, ok := f.atHandLocked(a); ok {
			lists[i] = list
		}
	}
	return lists
}

// selected are those that a filter selects; nobody may write to the list given.
func selected(list []job.Happening, filter *job.HappeningFilter) []job.Happening {
	if filter == nil {
		return list
	}
	var out []job.Happening
	for i := range list {
		if filter.Matches(&list[i]) {
			out = append(out, list[i])
		}
	}
	return out
}

// readFar reads the rest of asks from the store.
func (f *Feed) readFar(ctx context.Context, asks []job.EventsAsk, far []int, pages []job.EventsPage) error {
	rest := make([]job.EventsAsk, len(far))
	for k, i := range far {
		rest[k] = asks[i]
	}
	read, err := f.o.Store.Events(ctx, rest)
	for k, page := range read {
		pages[far[k]] = page
	}
	if ctx.Err() == nil {
		f.missed(rest, read)
	}
	return err
}

// missed notes which shards could not be read: the next one need not wait for them.
func (f *Feed) missed(asks []job.EventsAsk, pages []job.EventsPage) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i, page := range pages {
		if page.Err != nil && f.last != nil {
			f.away[asks[i].Shard] = true
		}
	}
}

func (f *Feed) atHandLocked(a job.EventsAsk) ([]job.Happening, bool) {
	w := f.windows[a.Shard]
	if f.last == nil || !a.After.Exact() || len(w) == 0 || a.After.Seq+1 < w[0].Place.Seq {
		return nil, false
	}
	from := a.After.Seq + 1 - w[0].Place.Seq
	// At the end of the window nothing is known of what follows: the look is of a while ago.
	if from >= uint64(len(w)) || from > 0 && w[from-1].Place != a.After {
		return nil, false
	}
	if from == 0 && !a.After.Before(w[0].Place) {
		return nil, false
	}
	w = w[from:]
	return w[:min(len(w), a.Limit)], true
}
