package redisstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fermata-io/fermata/internal/job"
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
// from that, whoever comes first is served, in line or not. A waiter that has not
// asked for a minute is forgotten, and beyond 10,000 in a line nobody is remembered:
// a waiter has to ask again every few seconds, and being woken only spares it that.
//
// A grant whose Err is job.ErrDurability is complete, but a failover may lose it;
// any other Err leaves it empty, and the call may be repeated.
func (s *Store) AcquireUnits(ctx context.Context, asks []job.UnitAsk) []job.UnitGrant {
	items := make([]limitItem, len(asks))
	for i, a := range asks {
		rank := max(-maxRank, min(a.Rank, maxRank))
		items[i] = unitItem("a", a.Name, a.Limit, a.Holder, a.Waiter, rank, a.TTL)
		items[i].err = errors.Join(items[i].err, checkUnit(a.Name, a.Holder, a.Limit, a.TTL))
	}
	grants := make([]job.UnitGrant, len(asks))
	for i, a := range s.limits(ctx, s.scripts.limits.units, items, unitKeys...) {
		grants[i].Err = a.err
		if a.good() {
			grants[i] = job.UnitGrant{Granted: a.int(0) == 1, By: a.text(1), SinceMS: a.int(2), NowMS: a.nowMS, Err: a.err}
		}
	}
	return grants
}

// ReleaseUnits gives units back, held or not, and lists the waiters that are to be
// woken: those for which a unit is reserved now, at most a hundred a name. Releasing
// what is not held lists those again for which units are still reserved, because the
// answer to the first release may have been lost.
func (s *Store) ReleaseUnits(ctx context.Context, releases []job.UnitRelease) []job.UnitReleased {
	items := make([]limitItem, len(releases))
	for i, r := range releases {
		items[i] = unitItem("r", r.Name, r.Limit, r.Holder, r.Waiter, 0, 0)
	}
	out := make([]job.UnitReleased, len(releases))
	for i, a := range s.limits(ctx, s.scripts.limits.units, items, unitKeys...) {
		out[i].Err = a.err
		if a.good() {
			out[i].Woken = a.texts()
		}
	}
	return out
}

// KeepUnits prolongs units to a TTL from now; it never shortens. Those that are held
// no more are listed by a job.UnitsLostError, which may come joined with the error
// of a call that failed: units of that one are neither kept nor known to be lost.
func (s *Store) KeepUnits(ctx context.Context, keeps []job.UnitKeep) error {
	items := make([]limitItem, len(keeps))
	for i, k := range keeps {
		items[i] = unitItem("k", k.Name, 0, k.Holder, "", 0, k.TTL)
		items[i].err = errors.Join(items[i].err, checkUnit(k.Name, k.Holder, 1, k.TTL))
	}
	var lost job.UnitsLostError
	var failed error
	for i, a := range s.limits(ctx, s.scripts.limits.units, items, unitKeys...) {
		if a.err != nil && failed == nil {
			failed = a.err
		}
		if a.good() && a.int(0) == 0 {
			lost.Units = append(lost.Units, keeps[i])
		}
	}
	if len(lost.Units) == 0 {
		return failed
	}
	return errors.Join(&lost, failed)
}

// Room is how many units of a limit are not held, at least 0. Units that are
// reserved for waiters count as free. By the time of the answer it may be another
// number.
func (s *Store) Room(ctx context.Context, name string, limit int) (int, error) {
	rooms, err := s.Rooms(ctx, []job.UnitAsk{{Name: name, Limit: limit}})
	return rooms[0], err
}

// Rooms is Room for many limits in one round trip; it reads Name and Limit of the
// asks. With an error, limits that could not be asked have no room.
func (s *Store) Rooms(ctx context.Context, asks []job.UnitAsk) ([]int, error) {
	items := make([]limitItem, len(asks))
	for i, a := range asks {
		items[i] = unitItem("n", a.Name, a.Limit, "", "", 0, 0)
	}
	rooms := make([]int, len(asks))
	var failed error
	for i, a := range s.limits(ctx, s.scripts.limits.count, items, unitKeys...) {
		switch {
		case a.err == nil:
			rooms[i] = max(0, asks[i].Limit-int(a.int(0)))
		case failed == nil:
			failed = a.err
		}
	}
	return rooms, failed
}

func unitItem(verb, name string, limit int, holder, waiter string, rank int64, ttl time.Duration) limitItem {
	return limitItem{
		name: name,
		argv: []any{verb, limit, holder, waiter, rank, ttl.Milliseconds()},
		err:  checkLimitNames(name, holder, waiter),
	}
}

func checkUnit(name, holder string, limit int, ttl time.Duration) error {
	if holder == "" || limit < 1 || ttl < time.Millisecond || ttl > maxUnitTTL {
		return fmt.Errorf("limit %.64q: %d units, holder %q, TTL %v: want at least 1, a name, 1ms to %v", name, limit, holder, ttl, maxUnitTTL)
	}
	return nil
}
