package events

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/unixtime"
	"github.com/fermata-io/fermata/internal/lib/fairshare"
)

const (
	// batchSize is how many events are sent at once, at most.
	batchSize = 200
	// batchBytes is about how much memory the events of a batch take, at most. Each watcher may have a batch that its
	// client does not read.
	batchBytes = 64 << 10
	// tokenPeriod is how often a watcher is sent a token when there are no events for it: its token must not
	// grow older than the retention of events.
	tokenPeriod = 10 * time.Second
	// scanTokenPeriod is the same while a watcher reads many entries at once.
	scanTokenPeriod = time.Second
)

// Watch sends events until ctx ends or send fails. Its errors are those of package job.
func (f *Feed) Watch(ctx context.Context, q job.EventQuery, send func(job.EventBatch) error) error {
	if !f.o.Store.RecordsEvents() {
		return job.ErrEventsOff
	}
	if v := q.Filter.Validate(""); len(v) > 0 {
		return &job.InvalidError{Violations: v}
	}
	if err := f.takeWatcherPlace(q.Watcher); err != nil {
		return err
	}
	defer f.returnWatcherPlace(q.Watcher)
	release := f.Acquire()
	defer release()
	w := &watchStream{feed: f, query: q, send: send, pendingParts: map[int]*shardPart{}, pageLimit: pageSize}
	defer w.dropParts()
	err := w.run(ctx)
	if errors.Is(err, job.ErrEventsGone) {
		f.metrics.goneTotal.Inc()
	}
	return err
}

func (f *Feed) takeWatcherPlace(h fairshare.Holder) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.ended:
		return job.ErrDraining
	case !f.watcherShares.Acquire(h):
		f.metrics.refused.Inc()
		return job.ErrTooManyWatchers
	}
	f.metrics.watchers.Inc()
	return nil
}

func (f *Feed) returnWatcherPlace(h fairshare.Holder) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.watcherShares.Release(h)
	f.metrics.watchers.Dec()
}

// watchStream is one watcher.
type watchStream struct {
	feed   *Feed
	query  job.EventQuery
	send   func(job.EventBatch) error
	places []job.Place
	// endPlaces is where a watch to now ends.
	endPlaces       []job.Place
	movedSinceToken bool // since the last token
	lastSentAt      time.Time
	// startedShards are shards that have been read, or that begin after their last event. Entries of others that
	// are trimmed between the first look and the first read were not promised: the watch asked for an instant.
	startedShards []bool
	// pendingParts are the read parts of shards that wait for others, by shard.
	pendingParts map[int]*shardPart
	// pageLimit is how many entries of a shard are read at once: fewer than pageSize while memory is short.
	pageLimit int
}

// shardPart is what was read of a shard in one go and is not yet sent completely.
type shardPart struct {
	selected []job.Event // selected ones
	last     job.Place   // of all that was read
	more     bool        // there may be more after it
	bytes    int         // that were taken of the watcher's memory
}

func (w *watchStream) run(ctx context.Context) error {
	if err := w.findStart(ctx); err != nil {
		return err
	}
	// With this token the watcher can resume before the first event.
	if err := w.sendToken(); err != nil {
		return err
	}
	mark := time.NewTicker(tokenPeriod)
	defer mark.Stop()
	for {
		_, changed := w.feed.LastPlaces()
		more, err := w.readAndSend(ctx)
		switch {
		case err != nil:
			return err
		case more:
			if err := w.sendTokenIfDue(); err != nil {
				return err
			}
			continue
		case w.query.StopAtEnd:
			return w.sendToken()
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-w.feed.done:
			return job.ErrDraining
		case <-changed:
		case <-mark.C:
			if !w.movedSinceToken {
				continue
			}
			if err := w.sendToken(); err != nil {
				return err
			}
		}
	}
}

// shardsPerCharge is how many shards may be asked for their last events for what one call costs.
const shardsPerCharge = 4

// findStart finds the places to begin at. For a watch to now, the last places of all shards must be known.
// Otherwise unreachable shards are followed when they are reachable again.
func (w *watchStream) findStart(ctx context.Context) error {
	shards := w.feed.o.Store.Shards()
	if w.query.Charge != nil {
		if err := w.query.Charge(1 + shards/shardsPerCharge); err != nil {
			return err
		}
	}
	last, err := w.feed.o.Store.LastEvents(ctx)
	if err != nil && (w.query.StopAtEnd || !slices.ContainsFunc(last, job.Place.Exact)) {
		return err
	}
	w.places, w.startedShards = slices.Clone(last), make([]bool, shards)
	if w.query.StopAtEnd {
		w.endPlaces = slices.Clone(last)
	}
	switch {
	case w.query.Token != "":
		places, ok := job.DecodePlaces(w.query.Token)
		if !ok || len(places) != shards {
			return job.Invalid("resume_token", "is not a token of WatchEvents of this cluster")
		}
		for shard, p := range places {
			if last[shard].Exact() && p.Exact() && last[shard].Before(p) {
				// Redis has lost entries that were sent.
				return job.ErrEventsGone
			}
		}
		w.places = places
	case w.query.FromMS > 0:
		for shard, p := range last {
			if !p.Exact() || p.MS >= w.query.FromMS {
				w.places[shard] = job.PlaceBefore(w.query.FromMS)
			}
		}
	default:
		w.startAwayShards(last)
	}
	return w.makeStartsExact(ctx, last)
}

// startAwayShards makes unreachable shards start after the newest entry of the others: rather too early than too
// late.
func (w *watchStream) startAwayShards(last []job.Place) {
	newest := unixtime.Milli(0)
	for _, p := range last {
		if p.Exact() {
			newest = max(newest, p.MS)
		}
	}
	for shard, p := range last {
		if !p.Exact() {
			w.places[shard] = job.PlaceBefore(newest)
		}
	}
}

// makeStartsExact replaces places made of instants by exact ones, where their shards can be read: a gap after a
// token is detected by its number.
func (w *watchStream) makeStartsExact(ctx context.Context, last []job.Place) error {
	var next, first []job.EventsRequest
	for shard, p := range w.places {
		switch {
		case !last[shard].Exact():
		case p.Exact():
			w.startedShards[shard] = true
		case last[shard].Before(p):
			w.places[shard], w.startedShards[shard] = last[shard], true
		default:
			next = append(next, job.EventsRequest{Shard: shard, After: p, Limit: 1})
			first = append(first, job.EventsRequest{Shard: shard, After: job.PlaceBefore(0), Limit: 1})
		}
	}
	if len(next) == 0 {
		return nil
	}
	// Shards that have just become unreachable keep their places.
	pages, _ := w.feed.o.Store.Events(ctx, append(next, first...))
	for i := range next {
		after, kept := pages[i].Events, pages[len(next)+i].Events
		if len(after) == 0 || len(kept) == 0 {
			continue
		}
		shard := next[i].Shard
		if w.query.Token != "" && kept[0].Place.Seq > 1 && w.places[shard].Before(kept[0].Place) {
			return job.ErrEventsGone // or it may be
		}
		w.places[shard] = job.Place{MS: after[0].Place.MS, Seq: after[0].Place.Seq - 1}
	}
	return nil
}

// readAndSend sends the events that are available; more reports whether there are further ones. Unreachable
// shards delay no others, as long as there are others.
func (w *watchStream) readAndSend(ctx context.Context) (more bool, err error) {
	asks := w.collectAsks()
	if len(asks) > 0 {
		pages, err := w.readPages(ctx, asks)
		if err != nil && (w.endPlaces != nil ||
			!slices.ContainsFunc(pages, func(p job.EventsPage) bool { return p.Err == nil })) {
			return false, err
		}
		for i := range pages {
			if err := w.storePage(asks[i], &pages[i]); err != nil {
				return false, err
			}
		}
		if !w.takeMemory(asks) {
			return true, w.shrinkPages()
		}
		w.pageLimit = min(2*w.pageLimit, pageSize)
	}
	return w.sendOrdered()
}

// storePage stores a page of a shard.
func (w *watchStream) storePage(ask job.EventsRequest, page *job.EventsPage) error {
	begun := &w.startedShards[ask.Shard]
	if page.Gap && (w.query.FromMS == 0 || w.query.Token != "" || *begun) {
		return job.ErrEventsGone
	}
	*begun = *begun || page.Err == nil
	if page.Read == 0 {
		if w.endPlaces != nil {
			return job.ErrEventsGone // which were there when the watch began
		}
		return nil
	}
	w.pendingParts[ask.Shard] = &shardPart{
		selected: page.Events, last: page.Last,
		more: page.More || w.endPlaces != nil && page.Last.Before(w.endPlaces[ask.Shard]),
	}
	return nil
}

// takeMemory takes memory for the parts that were read; false: the watcher may not have so much now.
func (w *watchStream) takeMemory(asks []job.EventsRequest) bool {
	if w.query.Memory == nil {
		return true
	}
	for _, a := range asks {
		p := w.pendingParts[a.Shard]
		if p == nil {
			continue
		}
		n := memorySize(p.selected)
		if !w.query.Memory.TryTake(n) {
			return false
		}
		p.bytes = n
	}
	return true
}

// shrinkPages drops what was read, which is read again in smaller pages.
func (w *watchStream) shrinkPages() error {
	if w.pageLimit == 1 {
		return job.ErrWatchersTooSlow
	}
	w.dropParts()
	w.pageLimit = max(1, w.pageLimit/8)
	return nil
}

func (w *watchStream) dropParts() {
	for shard := range w.pendingParts {
		w.dropPart(shard)
	}
}

func (w *watchStream) dropPart(shard int) {
	if n := w.pendingParts[shard].bytes; n > 0 {
		w.query.Memory.Give(n)
	}
	delete(w.pendingParts, shard)
}

// sendOrdered sends the events that precede everything unread. Where a shard has more entries, nothing is known
// after its part, so later events of other shards wait.
func (w *watchStream) sendOrdered() (more bool, err error) {
	bound := unixtime.Milli(1<<63 - 1)
	for _, p := range w.pendingParts {
		if p.more {
			more, bound = true, min(bound, p.last.MS)
		}
	}
	var all []*job.Event
	var ended []int
	for shard, p := range w.pendingParts {
		n := 0
		for n < len(p.selected) && p.selected[n].Place.MS <= bound {
			all = append(all, &p.selected[n])
			n++
		}
		p.selected = p.selected[n:]
		if p.last.MS <= bound {
			ended = append(ended, shard)
		}
	}
	slices.SortFunc(all, func(a, b *job.Event) int {
		return cmp.Or(cmp.Compare(a.Place.MS, b.Place.MS), cmp.Compare(a.Shard, b.Shard),
			cmp.Compare(a.Place.Seq, b.Place.Seq))
	})
	if err := w.sendInBatches(all); err != nil {
		return false, err
	}
	for _, shard := range ended {
		w.advanceTo(shard, w.pendingParts[shard].last)
		w.dropPart(shard)
	}
	return more, nil
}

// advanceTo notes that all events of a shard up to a place were sent or filtered out.
func (w *watchStream) advanceTo(shard int, to job.Place) {
	if w.endPlaces != nil && w.endPlaces[shard].Before(to) {
		to = w.endPlaces[shard]
	}
	w.places[shard], w.movedSinceToken = to, true
}

// collectAsks are those for shards that may have something.
func (w *watchStream) collectAsks() []job.EventsRequest {
	var asks []job.EventsRequest
	for _, shard := range w.shardsBehind() {
		if w.pendingParts[shard] == nil {
			asks = append(asks, job.EventsRequest{Shard: shard, After: w.places[shard], Limit: w.pageLimit,
				Filter: &w.query.Filter})
		}
	}
	return asks
}

func (w *watchStream) shardsBehind() (shards []int) {
	if w.endPlaces == nil {
		return w.feed.shardsBehind(w.places)
	}
	for shard, place := range w.places {
		if place.Before(w.endPlaces[shard]) {
			shards = append(shards, shard)
		}
	}
	return shards
}

// sendInBatches sends the events in order.
func (w *watchStream) sendInBatches(all []*job.Event) error {
	var batch []job.Event
	bytes := 0
	for _, h := range all {
		if w.endPlaces != nil && w.endPlaces[h.Shard].Before(h.Place) {
			continue
		}
		w.advanceTo(h.Shard, h.Place)
		if h.Kind == "" { // written by another program
			continue
		}
		batch, bytes = append(batch, *h), bytes+h.MemorySize()
		if len(batch) == batchSize || bytes >= batchBytes {
			if err := w.sendBatch(batch); err != nil {
				return err
			}
			batch, bytes = nil, 0
		}
	}
	if len(batch) == 0 {
		return nil
	}
	return w.sendBatch(batch)
}

func (w *watchStream) sendBatch(batch []job.Event) error {
	w.feed.metrics.sent.Add(float64(len(batch)))
	return w.sendWithToken(batch)
}

// sendToken sends the watcher its current places.
func (w *watchStream) sendToken() error { return w.sendWithToken(nil) }

// sendTokenIfDue does so for a watcher that reads many entries that it filters out: after a reconnect it need
// not read them again.
func (w *watchStream) sendTokenIfDue() error {
	if !w.movedSinceToken || time.Since(w.lastSentAt) < scanTokenPeriod {
		return nil
	}
	return w.sendToken()
}

func (w *watchStream) sendWithToken(batch []job.Event) error {
	w.movedSinceToken, w.lastSentAt = false, time.Now()
	return w.send(job.EventBatch{Events: batch, Token: job.EncodePlaces(w.places)})
}
