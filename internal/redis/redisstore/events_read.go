package redisstore

import (
	"cmp"
	"context"
	"sync/atomic"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/redis/runner"
)

const (
	// maxPageBytes is about how many bytes of memory the events of one page take, and maxEventsBytes those of one call.
	maxPageBytes   = 128 << 10
	maxEventsBytes = 2 << 20
	// decodedEvent is about what an event takes besides its texts.
	decodedEvent = 512
	// largeEvent is the size of an event with many labels, which reads count with where nothing was read yet.
	largeEvent = 4 << 10
)

// eventSizes has the mean size of the events that were last read, by shard; 0 if none was. The size of the next ones
// is not known before they are read.
type eventSizes []atomic.Int64

func (e eventSizes) of(shard int) int { return cmp.Or(int(e[shard].Load()), largeEvent) }

// note remembers the size of the entries of an answer.
func (e eventSizes) note(shard int, r runner.Reply) {
	bytes := 0
	for k := range r {
		bytes += len(r.ListAt(k).ListAt(1).TextAt(1))
	}
	if len(r) > 0 {
		e[shard].Store(int64(max(1, bytes/len(r))))
	}
}

// Events reads what was asked for, all of it in one round trip to each server, but fewer
// entries where they are large. With an error come the pages of those shards that could
// be read: a server that is away must not hide the others'.
func (s *Store) Events(ctx context.Context, asks []job.EventsRequest) ([]job.EventsPage, error) {
	if s.events == nil {
		return nil, job.ErrEventsOff
	}
	ops, limits := make([]*runner.Op, len(asks)), make([]int, len(asks))
	room := min(maxPageBytes, maxEventsBytes/max(1, len(asks)))
	for i, a := range asks {
		key, size := s.shards[a.Shard].Events, s.events.sizes.of(a.Shard)
		limits[i] = min(a.Limit, max(1, room/(size+decodedEvent)))
		ops[i] = runner.NewCommand("events", key, "xrange", key, "("+placeText(a.After), "+", "count", limits[i])
		ops[i].ReplySize = limits[i] * size
	}
	err := s.runner.Run(ctx, ops...)
	pages := make([]job.EventsPage, len(asks))
	for i, o := range ops {
		if o.Err != nil {
			pages[i].Err = o.Err
			continue
		}
		s.events.sizes.note(asks[i].Shard, o.Reply)
		pages[i] = readPage(o.Reply, asks[i])
		pages[i].More = pages[i].Read == limits[i]
		o.Reply = nil
	}
	return pages, err
}

// readPage decodes those entries of an answer that were asked for.
func readPage(r runner.Reply, ask job.EventsRequest) job.EventsPage {
	page := job.EventsPage{Read: len(r)}
	if page.Read == 0 {
		return page
	}
	page.Last, _ = parsePlace(r.ListAt(page.Read - 1).TextAt(0)) // Redis made it
	if ask.After.Exact() {
		first, _ := parsePlace(r.ListAt(0).TextAt(0))
		page.Gap = first.Seq != ask.After.Seq+1
	}
	if ask.Filter == nil {
		page.Events = make([]job.Event, 0, page.Read)
	}
	for k := range r {
		entry := r.ListAt(k)
		text := entry.ListAt(1).TextAt(1)
		if ask.Filter != nil && !mayMatch(ask.Filter, text) {
			continue
		}
		h := decodeEvent(ask.Shard, entry.TextAt(0), text)
		if ask.Filter == nil || ask.Filter.Matches(&h) {
			page.Events = append(page.Events, h)
		}
	}
	return page
}

// LastEvents returns the place of the last event of each shard; zero where none is
// kept. With an error come the places of those shards that could be read; that of any
// other is not Exact.
func (s *Store) LastEvents(ctx context.Context) ([]job.Place, error) {
	if s.events == nil {
		return nil, job.ErrEventsOff
	}
	ops := make([]*runner.Op, len(s.shards))
	for i, k := range s.shards {
		ops[i] = runner.NewCommand("events", k.Events, "xrevrange", k.Events, "+", "-", "count", 1)
	}
	err := s.runner.Run(ctx, ops...)
	places := make([]job.Place, len(ops))
	for i, o := range ops {
		switch {
		case o.Err != nil:
			places[i] = job.PlaceBefore(0)
		case len(o.Reply) > 0:
			places[i], _ = parsePlace(o.Reply.ListAt(0).TextAt(0)) // Redis made it
		}
	}
	return places, err
}
