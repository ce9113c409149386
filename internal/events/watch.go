package events

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/fermata-io/fermata/internal/job"
)

const (
	// batchSize is how many events are sent at once, at most.
	batchSize = 200
	// markEvery is how often a watcher hears how far it is although there was nothing
	// for it: its token must not grow older than what is kept.
	markEvery = 10 * time.Second
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
	if err := f.enter(); err != nil {
		return err
	}
	defer f.leave()
	release := f.Use()
	defer release()
	w := &watch{f: f, q: q, send: send}
	err := w.run(ctx)
	if errors.Is(err, job.ErrEventsGone) {
		f.metrics.gone.Inc()
	}
	return err
}

func (f *Feed) enter() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.ended:
		return job.ErrDraining
	case f.watchers >= f.o.Watchers:
		return job.ErrTooManyWatchers
	}
	f.watchers++
	f.metrics.watchers.Inc()
	return nil
}

func (f *Feed) leave() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.watchers--
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
	// begun are shards that have been read, or begin after their last event: what goes
	// missing of others, between the look at their oldest event and the first read, was asked
	// for by an instant and is not kept.
	begun []bool
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
	if len(asks) == 0 {
		return false, nil
	}
	pages, err := w.f.Read(ctx, asks)
	if err != nil && (w.until != nil || !slices.ContainsFunc(pages, func(p job.EventsPage) bool { return p.Err == nil })) {
		return false, err
	}
	// Of shards with more to come nothing is known after the end of their page, so that
	// others wait there for them.
	bound := int64(1<<63 - 1)
	var all []job.Happening
	for i, page := range pages {
		if page.Gap && (w.q.FromMS == 0 || w.q.Token != "" || w.begun[asks[i].Shard]) {
			return false, job.ErrEventsGone
		}
		w.begun[asks[i].Shard] = w.begun[asks[i].Shard] || page.Err == nil
		n := len(page.Happenings)
		switch {
		case n == 0 && w.until != nil:
			return false, job.ErrEventsGone // which were there when the watch began
		case n == asks[i].Limit, w.until != nil && page.Happenings[n-1].Place.Before(w.until[asks[i].Shard]):
			more, bound = true, min(bound, page.Happenings[n-1].Place.MS)
		}
		all = append(all, page.Happenings...)
	}
	all = slices.DeleteFunc(all, func(h job.Happening) bool { return h.Place.MS > bound })
	slices.SortStableFunc(all, func(a, b job.Happening) int {
		return cmp.Or(cmp.Compare(a.Place.MS, b.Place.MS), cmp.Compare(a.Shard, b.Shard), cmp.Compare(a.Place.Seq, b.Place.Seq))
	})
	return more, w.tell(all)
}

// asks are those for shards that may have something.
func (w *watch) asks() []job.EventsAsk {
	var asks []job.EventsAsk
	for _, shard := range w.behind() {
		asks = append(asks, job.EventsAsk{Shard: shard, After: w.places[shard], Limit: pageSize})
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

// tell sends what the filter selects.
func (w *watch) tell(all []job.Happening) error {
	var batch []job.Happening
	for i := range all {
		h := &all[i]
		if w.until != nil && w.until[h.Shard].Before(h.Place) {
			w.places[h.Shard] = w.until[h.Shard]
			continue
		}
		w.places[h.Shard], w.moved = h.Place, true
		if h.Kind == "" || !w.q.Filter.Matches(h) {
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
	w.moved = false
	w.f.metrics.sent.Add(float64(len(batch)))
	return w.send(job.EventBatch{Happenings: batch, Token: job.EncodePlaces(w.places)})
}

// mark tells how far the watcher is.
func (w *watch) mark() error {
	w.moved = false
	return w.send(job.EventBatch{Token: job.EncodePlaces(w.places)})
}
