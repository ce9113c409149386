package limits

import (
	"context"
	"fmt"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/unixtime"
)

// maxUnitTTL bounds how long a unit may be held without being kept.
const maxUnitTTL = 24 * time.Hour

// maxRank is the greatest rank that a sorted set keeps exactly.
const maxRank = 1 << 53

// unitKeys are the suffixes of the keys of limit_units.lua, in its order.
var unitKeys = []string{"u:", "s:", "w:", "q:"}

// AcquireUnits asks for units of limits, each for a holder. A holder that has one
// keeps it and has it prolonged, so that asking may be repeated. A unit that is not
// kept lapses after its TTL (1 ms to 24 h), and never is more than Limit (at least
// 1) held by holders that have not.
//
// A waiter that is denied gets in line, first the smallest rank (within 2^53), then
// by name. A release reserves each free unit for the first in line for two seconds,
// during which only that waiter gets it; the reservation lapses by itself. Apart
// from that, the first caller is served, in line or not. A waiter that has not
// asked for a minute is removed, and a line has at most 10,000 waiters: a waiter has to
// ask again every few seconds, and a wake-up only lets it ask earlier. The first in line,
// as many as there are units, are woken when a unit lapses that was not prolonged.
//
// A grant whose Err is job.ErrDurability is complete, but a failover may lose it;
// any other Err leaves it empty, and the call may be repeated.
func (s *Store) AcquireUnits(ctx context.Context, asks []job.UnitRequest) []job.UnitGrant {
	grants := make([]job.UnitGrant, len(asks))
	s.units(ctx, "a", asks, func(places []int, a limitReply) {
		digits, by, since, free, held := a.TextAt(0), a.TextAt(1), a.IntAt(2), a.IntAt(3), 4
		for i, place := range places {
			g := &grants[place]
			g.Err = a.err
			if !a.complete() || i >= len(digits) {
				continue
			}
			switch g.NowMS = unixtime.Milli(a.nowMS); digits[i] {
			case '1':
				g.Granted, g.SinceMS = true, unixtime.Milli(a.nowMS)
			case '2':
				g.Granted, g.SinceMS = true, unixtime.Milli(a.IntAt(held))
				held++
			case '3':
				g.By, g.SinceMS, g.FreeMS = by, unixtime.Milli(since), unixtime.Milli(free)
			default:
				g.By, g.SinceMS = by, unixtime.Milli(since)
			}
		}
	})
	return grants
}

// ReleaseUnits gives units back, held or not, and lists the waiters that are to be
// woken: those for which a unit is reserved now, at most a hundred a release. Those of
// several releases of one name come with the first of them. Releasing what is not held
// lists those again for which units are still reserved, because the answer to the first
// release may have been lost.
func (s *Store) ReleaseUnits(ctx context.Context, releases []job.UnitRelease) []job.UnitReleased {
	asks := make([]job.UnitRequest, len(releases))
	for i, r := range releases {
		asks[i] = job.UnitRequest{Name: r.Name, Limit: r.Limit, Holder: r.Holder, Waiter: r.Waiter}
	}
	out := make([]job.UnitReleased, len(releases))
	s.units(ctx, "r", asks, func(places []int, a limitReply) {
		for _, place := range places {
			out[place].Err = a.err
		}
		if a.complete() {
			out[places[0]].Woken = a.RecordIDs()
		}
	})
	return out
}

// RenewUnits prolongs units to a TTL from now; it never shortens, as long as no holder
// is named twice for a unit. It returns those that are no longer held: they lapsed, and
// another holder may have them by now. After a failed call the state of its units is
// unknown.
func (s *Store) RenewUnits(ctx context.Context, keeps []job.UnitRenewal) (lost []job.UnitRenewal, err error) {
	asks := make([]job.UnitRequest, len(keeps))
	for i, k := range keeps {
		asks[i] = job.UnitRequest{Name: k.Name, Limit: 1, Holder: k.Holder, TTL: k.TTL}
	}
	kept := make([]bool, len(keeps))
	s.units(ctx, "k", asks, func(places []int, a limitReply) {
		if err == nil {
			err = a.err
		}
		digits := a.TextAt(0)
		for i, place := range places {
			kept[place] = !a.complete() || i < len(digits) && digits[i] == '1'
		}
	})
	for i, k := range keeps {
		if !kept[i] {
			lost = append(lost, k)
		}
	}
	return lost, err
}

// FreeUnits is how many units of a limit are not held, at least 0. Units that are
// reserved for waiters count as free. By the time of the answer it may be another
// number.
func (s *Store) FreeUnits(ctx context.Context, name string, limit int) (int, error) {
	rooms, err := s.FreeUnitsOf(ctx, []job.UnitRequest{{Name: name, Limit: limit}})
	return rooms[0], err
}

// FreeUnitsOf is Room for many limits in one round trip; it reads Name and Limit of the
// asks. With an error, limits that could not be asked have no room.
func (s *Store) FreeUnitsOf(ctx context.Context, asks []job.UnitRequest) ([]int, error) {
	items := make([]limitItem, len(asks))
	for i, a := range asks {
		items[i] = limitItem{name: a.Name, argv: []any{"n", a.Limit, 0}, err: validateLimitNames(a.Name)}
	}
	rooms := make([]int, len(asks))
	var failed error
	for i, a := range s.runLimitItems(ctx, s.scripts.count, items, unitKeys...) {
		switch {
		case a.err == nil:
			rooms[i] = max(0, asks[i].Limit-int(a.IntAt(0)))
		case failed == nil:
			failed = a.err
		}
	}
	return rooms, failed
}

// units does one thing about each unit. Those of one limit go together, in their order, a
// hundred at most; each is called with the answer to some of the asks.
func (s *Store) units(ctx context.Context, verb string, asks []job.UnitRequest, each func(places []int, a limitReply)) {
	type limit struct {
		name string
		max  int
	}
	var items []limitItem
	var places [][]int
	latest := make(map[limit]int, len(asks)) // the group of each that still has room
	for i, ask := range asks {
		if err := validateUnitAsk(verb, ask); err != nil {
			each([]int{i}, limitReply{err: err})
			continue
		}
		l := limit{ask.Name, ask.Limit}
		g, known := latest[l]
		if !known || len(places[g]) == maxAsksPerCall {
			g = len(items)
			latest[l] = g
			items = append(items, limitItem{name: ask.Name, argv: []any{verb, ask.Limit, 0}})
			places = append(places, nil)
		}
		rank := max(-maxRank, min(ask.Rank, maxRank))
		items[g].argv = append(items[g].argv, ask.Holder, string(ask.Waiter), rank, ask.TTL.Milliseconds())
		places[g] = append(places[g], i)
		items[g].size = len(places[g])
		items[g].argv[2] = len(places[g])
	}
	for g, a := range s.runLimitItems(ctx, s.scripts.units, items, unitKeys...) {
		each(places[g], a)
	}
}

// validateUnitAsk refuses what cannot be an ask.
func validateUnitAsk(verb string, a job.UnitRequest) error {
	if err := validateLimitNames(a.Name, a.Holder, string(a.Waiter)); err != nil {
		return err
	}
	if verb != "r" && (a.Holder == "" || a.Limit < 1 || a.TTL < time.Millisecond || a.TTL > maxUnitTTL) {
		return fmt.Errorf("limit %.64q: %d units, holder %q, TTL %v: want at least 1, a name, 1ms to %v",
			a.Name, a.Limit, a.Holder, a.TTL, maxUnitTTL)
	}
	return nil
}
