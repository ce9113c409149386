package scheduler

import (
	"cmp"
	"slices"
	"time"

	"github.com/fermata-io/fermata/internal/job"
)

// candidate is a due lane of a shard that somebody may have slots for.
type candidate struct {
	shard *shard
	lane  job.Lane
	state *lane
}

// call is one leasing call for a shard, with the slots reserved for it.
type call struct {
	shard     *shard
	lockValue string
	lanes     []job.LaneQuota
	slots     []Reservation // by lane
}

const (
	// maxWant bounds what is asked for in one lane at once.
	maxWant = job.MaxLeasesPerCall
	// maxShardsPerCall bounds the shards of one pipeline.
	maxShardsPerCall = 16
)

// pick reserves slots for due lanes and returns the calls to make; permits for
// peers are sent on the way. With nothing to do it returns the instant of the
// next due time. The caller holds mu.
func (s *Scheduler) pick(now time.Time) (calls []call, next time.Time) {
	if ready := s.pace.ready(); now.Before(ready) {
		return nil, ready
	}
	due, next := s.dueLanes(now)
	byShard := make(map[int]*call)
	for len(due) > 0 && len(byShard) < maxShardsPerCall {
		l, ok := s.fair.least(due)
		if !ok {
			break
		}
		c := due[l][0]
		if due[l] = due[l][1:]; len(due[l]) == 0 {
			delete(due, l)
		}
		n := s.serve(c, byShard, now)
		if n == 0 {
			delete(due, l) // no slots anywhere for this queue
			continue
		}
		s.fair.took(l, n)
	}
	for _, c := range byShard {
		c.shard.busy = true
		calls = append(calls, *c)
	}
	if len(calls) > 0 {
		s.pace.called(now)
	}
	return calls, next
}

// dueLanes groups what is due by lane, oldest first, and finds the next instant
// at which something will be.
func (s *Scheduler) dueLanes(now time.Time) (due map[job.Lane][]candidate, next time.Time) {
	due = make(map[job.Lane][]candidate)
	for _, sh := range s.shards {
		if sh.busy || sh.first == job.NeverMS || sh.clock.at.IsZero() {
			continue
		}
		if now.Before(sh.notBefore) {
			next = earlier(next, sh.notBefore)
			continue
		}
		nowMS := sh.nowMS(now)
		for l, state := range sh.lanes {
			switch {
			case state.due == job.NeverMS:
			case state.due > nowMS:
				next = earlier(next, sh.when(state.due))
			case state.permit != nil && now.Before(state.permit.expires):
				next = earlier(next, state.permit.expires)
			default:
				due[l] = append(due[l], candidate{sh, l, state})
			}
		}
	}
	for _, candidates := range due {
		slices.SortFunc(candidates, func(a, b candidate) int {
			return cmp.Compare(a.state.due, b.state.due)
		})
	}
	return due, next
}

func earlier(a, b time.Time) time.Time {
	if a.IsZero() || b.Before(a) {
		return b
	}
	return a
}

// serve finds slots for a candidate, here or with a peer, and returns how many
// leases it was promised.
func (s *Scheduler) serve(c candidate, byShard map[int]*call, now time.Time) int {
	lockValue, held := s.o.Held(c.shard.id)
	if !held {
		c.shard.notBefore = now.Add(heldRetry)
		return 1 // not for want of slots: let the lane's other shards go on
	}
	if known := byShard[c.shard.id]; known != nil && (len(known.lanes) >= job.MaxLanesPerCall || known.total() >= job.MaxLeasesPerCall) {
		return 1
	}
	if r := s.o.Slots.Reserve(c.lane.Namespace, c.lane.Queue, c.state.want); r != nil && r.Count() > 0 {
		k := byShard[c.shard.id]
		if k == nil {
			k = &call{shard: c.shard, lockValue: lockValue}
			byShard[c.shard.id] = k
		}
		k.lanes = append(k.lanes, job.LaneQuota{Lane: c.lane, N: r.Count()})
		k.slots = append(k.slots, r)
		return r.Count()
	}
	return s.permit(c, lockValue, now)
}

// heldRetry is how long a shard rests whose lock cannot be trusted just now.
const heldRetry = 100 * time.Millisecond

func (c *call) total() int {
	n := 0
	for _, q := range c.lanes {
		n += q.N
	}
	return n
}
