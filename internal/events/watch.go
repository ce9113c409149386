package events

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/fermata-io/fermata/internal/job"
	"github.com/fermata-io/fermata/internal/shares"
)

const (
	// batchSize is how many events are sent at once, at most.
	batchSize = 200
	// markEvery is how often a watcher hears how far it is although there was nothing
	// for it: its token must not grow older than what is kept.
	markEvery = 10 * time.Second
	// scanMark is how often it hears so while much is read at once.
	scanMark = time.Second
)

// Watch tells what happens until ctx ends, or send fails. Its errors are those of
// package job.
func (f *Feed) Watch(ctx context.Context, q job.EventQuery, send func(job.EventBatch) error) error {
	if !f.o.Store.RecordsEvents() {
		return job.ErrEventsOff
	}
	if v := q.Filter.Validate(""); len(v) > 0 {
		return &job.InvalidError{Violations: v}
	}
	if err := f.enter(q.Watcher); err != nil {
		return err
	}
	defer f.leave(q.Watcher)
	release := f.Use()
	defer release()
	w := &watch{f: f, q: q, send: send, parts: map[int]*part{}}
	err := w.run(ctx)
	if errors.Is(err, job.ErrEventsGone) {
		f.metrics.gone.Inc()
	}
	return err
}

func (f *Feed) enter(h shares.Holder) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.ended:
		return job.ErrDraining
	case !f.watchers.Take(h):
		f.metrics.refused.Inc()
		return job.ErrTooManyWatchers
	}
	f.metrics.watchers.Inc()
	return nil
}

func (f *Feed) leave(h shares.Holder) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.watchers.Give(h)
	f.metrics.watchers.Dec()
}

// watch is one watcher.
type watch struct {
	f      *Feed
	q      job.EventQuery
	send   func(job.EventBatch) error
	places []job.Place
	// until is where a watch to now ends.
	until []job.Place
	moved bool // since the last token
	told  time.Time
	// begun are shards that have been read, or begin after their last event: what goes
	// missing of others, between the look at their oldest event and the first read, was asked
	// for by an instant and is not kept.
	begun []bool
	// parts are what was read of shards and waits for others, by shard.
	parts map[int]*part
}

// part is what was read at once of a shard and is not told to its end.
type part struct {
	list []job.Happening // selected ones
	last job.Place       // of all that was read
	more bool            // there may be more after it
}

func (w *watch) run(ctx context.Context) error {
	if err := w.begin(ctx); err != nil {
		return err
	}
	// So the watcher can resume before there was anything to tell.
	if err := w.mark(); err != nil {
		return err
	}
	mark := time.NewTicker(markEvery)
	defer mark.Stop()
	for {
		_, changed := w.f.News()
		more, err := w.round(ctx)
		switch {
		case err != nil:
			return err
		case more:
			if err := w.markOften(); err != nil {
				return err
			}
			continue
		case w.q.ToNow:
			return w.mark()
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-w.f.done:
			return job.ErrDraining
		case <-changed:
		case <-mark.C:
			if !w.moved {
				continue
			}
			if err := w.mark(); err != nil {
				return err
			}
		}
	}
}

// begin finds the places to begin at. What there is now is known of all shards or not at
// all; what comes is told of those that are away when they are back.
func (w *watch) begin(ctx context.Context) error {
	shards := w.f.o.Store.Shards()
	last, err := w.f.o.Store.LastEvents(ctx)
	if err != nil && (w.q.ToNow || !slices.ContainsFunc(last, job.Place.Exact)) {
		return err
	}
	w.places, w.begun = slices.Clone(last), make([]bool, shards)
	if w.q.ToNow {
		w.until = slices.Clone(last)
	}
	switch {
	case w.q.Token != "":
		places, ok := job.DecodePlaces(w.q.Token)
		if !ok || len(places) != shards {
			return job.Invalid("resume_token", "is not one that WatchEvents of this cluster gave")
		}
		for shard, p := range places {
			if last[shard].Exact() && p.Exact() && last[shard].Before(p) {
				// Redis lost what it was told of.
				return job.ErrEventsGone
			}
		}
		w.places = places
	case w.q.FromMS > 0:
		for shard, p := range last {
			if !p.Exact() || p.MS >= w.q.FromMS {
				w.places[shard] = job.PlaceBefore(w.q.FromMS)
			}
		}
	default:
		w.beginBeside(last)
	}
	return w.settle(ctx, last)
}

// beginBeside has shards that are away begin with what comes after the newest of the
// others: rather too early than too late.
func (w *watch) beginBeside(last []job.Place) {
	newest := int64(0)
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

// settle makes exact what places were made of instants, where their shards can be read:
// what goes missing after a token is noticed by its number.
func (w *watch) settle(ctx context.Context, last []job.Place) error {
	var next, first []job.EventsAsk
	for shard, p := range w.places {
		switch {
		case !last[shard].Exact():
		case p.Exact():
			w.begun[shard] = true
		case last[shard].Before(p):
			w.places[shard], w.begun[shard] = last[shard], true
		default:
			next = append(next, job.EventsAsk{Shard: shard, After: p, Limit: 1})
			first = append(first, job.EventsAsk{Shard: shard, After: job.PlaceBefore(0), Limit: 1})
		}
	}
	if len(next) == 0 {
		return nil
	}
	// Of shards that have just gone away the places stay as they are.
	pages, _ := w.f.o.Store.Events(ctx, append(next, first...))
	for i := range next {
		after, kept := pages[i].Happenings, pages[len(next)+i].Happenings
		if len(after) == 0 || len(kept) == 0 {
			continue
		}
		shard := next[i].Shard
		if w.q.Token != "" && kept[0].Place.Seq > 1 && w.places[shard].Before(kept[0].Place) {
			return job.ErrEventsGone // or it may be
		}
		w.places[shard] = job.Place{MS: after[0].Place.MS, Seq: after[0].Place.Seq - 1}
	}
	return nil
}

// round tells what there is at once. more: there is more of it. Shards that cannot be read
// hold up no others, as long as there are others.
func (w *watch) round(ctx context.Context) (more bool, err error) {
	asks := w.asks()
	if len(asks) > 0 {
		pages, err := w.read(ctx, asks)
		if err != nil && (w.until != nil || !slices.ContainsFunc(pages, func(p job.EventsPage) bool { return p.Err == nil })) {
			return false, err
		}
		for i := range pages {
			if err := w.keep(asks[i], &pages[i]); err != nil {
				return false, err
			}
		}
	}
	return w.tellParts()
}

// keep takes over what was read of a shard.
func (w *watch) keep(ask job.EventsAsk, page *job.EventsPage) error {
	begun := &w.begun[ask.Shard]
	if page.Gap && (w.q.FromMS == 0 || w.q.Token != "" || *begun) {
		return job.ErrEventsGone
	}
	*begun = *begun || page.Err == nil
	if page.Read == 0 {
		if w.until != nil {
			return job.ErrEventsGone // which were there when the watch began
		}
		return nil
	}
	w.parts[ask.Shard] = &part{
		list: page.Happenings, last: page.Last,
		more: page.Read == ask.Limit || w.until != nil && page.Last.Before(w.until[ask.Shard]),
	}
	return nil
}

// tellParts tells what is known to come before all that is not read yet: of shards with
// more to come nothing is known after their part, so that what others have later waits.
func (w *watch) tellParts() (more bool, err error) {
	bound := int64(1<<63 - 1)
	for _, p := range w.parts {
		if p.more {
			more, bound = true, min(bound, p.last.MS)
		}
	}
	var all []*job.Happening
	var ended []int
	for shard, p := range w.parts {
		n := 0
		for n < len(p.list) && p.list[n].Place.MS <= bound {
			all = append(all, &p.list[n])
			n++
		}
		if p.list = p.list[n:]; p.last.MS <= bound {
			ended = append(ended, shard)
		}
	}
	slices.SortFunc(all, func(a, b *job.Happening) int {
		return cmp.Or(cmp.Compare(a.Place.MS, b.Place.MS), cmp.Compare(a.Shard, b.Shard), cmp.Compare(a.Place.Seq, b.Place.Seq))
	})
	if err := w.tell(all); err != nil {
		return false, err
	}
	for _, shard := range ended {
		w.move(shard, w.parts[shard].last)
		delete(w.parts, shard)
	}
	return more, nil
}

// move notes that everything up to a place of a shard was told, or was not to be.
func (w *watch) move(shard int, to job.Place) {
	if w.until != nil && w.until[shard].Before(to) {
		to = w.until[shard]
	}
	w.places[shard], w.moved = to, true
}

// asks are those for shards that may have something.
func (w *watch) asks() []job.EventsAsk {
	var asks []job.EventsAsk
	for _, shard := range w.behind() {
		if w.parts[shard] == nil {
			asks = append(asks, job.EventsAsk{Shard: shard, After: w.places[shard], Limit: pageSize, Filter: &w.q.Filter})
		}
	}
	return asks
}

func (w *watch) behind() (shards []int) {
	if w.until == nil {
		return w.f.behind(w.places)
	}
	for shard, place := range w.places {
		if place.Before(w.until[shard]) {
			shards = append(shards, shard)
		}
	}
	return shards
}

// tell sends what was selected, in order.
func (w *watch) tell(all []*job.Happening) error {
	var batch []job.Happening
	for _, h := range all {
		if w.until != nil && w.until[h.Shard].Before(h.Place) {
			continue
		}
		w.move(h.Shard, h.Place)
		if h.Kind == "" { // somebody else put it there
			continue
		}
		if batch = append(batch, *h); len(batch) == batchSize {
			if err := w.give(batch); err != nil {
				return err
			}
			batch = nil
		}
	}
	if len(batch) == 0 {
		return nil
	}
	return w.give(batch)
}

func (w *watch) give(batch []job.Happening) error {
	w.f.metrics.sent.Add(float64(len(batch)))
	return w.sendOff(batch)
}

// mark tells how far the watcher is.
func (w *watch) mark() error { return w.sendOff(nil) }

// markOften does so for a watcher that reads what is of no interest to it: who loses its
// stream need not read all of it again.
func (w *watch) markOften() error {
	if !w.moved || time.Since(w.told) < scanMark {
		return nil
	}
	return w.mark()
}

func (w *watch) sendOff(batch []job.Happening) error {
	w.moved, w.told = false, time.Now()
	return w.send(job.EventBatch{Happenings: batch, Token: job.EncodePlaces(w.places)})
}
