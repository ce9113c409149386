package redisstore

import (
	"context"

	"github.com/fermata-io/fermata/internal/job"
)

// Events reads what was asked for, all of it in one round trip to each server. With an
// error come the pages of those shards that could be read: a server that is away must not
// hide the others'.
func (s *Store) Events(ctx context.Context, asks []job.EventsAsk) ([]job.EventsPage, error) {
	if s.events == nil {
		return nil, job.ErrEventsOff
	}
	ops := make([]*op, len(asks))
	for i, a := range asks {
		key := s.shards[a.Shard].events
		ops[i] = command("events", key, "xrange", key, "("+placeText(a.After), "+", "count", a.Limit)
	}
	err := s.perform(ctx, ops...)
	pages := make([]job.EventsPage, len(asks))
	for i, o := range ops {
		if pages[i].Err = o.err; o.err != nil {
			continue
		}
		for k := range o.reply {
			entry := o.reply.list(k)
			pages[i].Happenings = append(pages[i].Happenings, decodeHappening(asks[i].Shard, entry.text(0), entry.list(1).text(1)))
		}
		if list := pages[i].Happenings; len(list) > 0 && asks[i].After.Exact() {
			pages[i].Gap = list[0].Place.Seq != asks[i].After.Seq+1
		}
	}
	return pages, err
}

// LastEvents returns the place of the last event of each shard; zero where none is
// kept. With an error come the places of those shards that could be read; that of any
// other is not Exact.
func (s *Store) LastEvents(ctx context.Context) ([]job.Place, error) {
	if s.events == nil {
		return nil, job.ErrEventsOff
	}
	ops := make([]*op, len(s.shards))
	for i, k := range s.shards {
		ops[i] = command("events", k.events, "xrevrange", k.events, "+", "-", "count", 1)
	}
	err := s.perform(ctx, ops...)
	places := make([]job.Place, len(ops))
	for i, o := range ops {
		switch {
		case o.err != nil:
			places[i] = job.PlaceBefore(0)
		case len(o.reply) > 0:
			places[i], _ = parsePlace(o.reply.list(0).text(0)) // Redis made it
		}
	}
	return places, err
}
