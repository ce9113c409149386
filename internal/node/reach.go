package node

import (
	"maps"
	"slices"
	"time"
)

// reach tells whether somebody still answers this node. An answer counts whenever it
// comes: one that is slow is there.
type reach struct {
	patience time.Duration // without an answer until it is given up
	answered time.Time     // last
	since    time.Time     // the first of a row of answers without a gap
	lost     bool
}

// answers tells whether it has answered without a gap for longer than one.
func (r *reach) answers() bool { return !r.since.IsZero() && r.answered.Sub(r.since) >= r.gap() }

// gap is a silence that ends a row of answers: longer than a question that was lost.
func (r *reach) gap() time.Duration { return r.patience * 3 / 4 }

// heard takes over that Redis has answered.
func (r *reach) heard(now time.Time) {
	if now.Sub(r.answered) >= r.gap() || r.since.IsZero() {
		r.since = now
	}
	r.answered = now
}

// look tells whether it is given up, and whether it is out of reach just now. It is back
// after having answered for as long as there was patience, so that a link that comes and
// goes does not move shards about.
func (r *reach) look(now time.Time) (lost, dark bool) {
	silent := now.Sub(r.answered)
	switch {
	case silent >= r.patience:
		r.lost, r.since = true, time.Time{}
	case silent < r.gap() && !r.since.IsZero() && r.answered.Sub(r.since) >= r.patience:
		r.lost = false
	}
	return r.lost, r.lost && silent >= r.gap()
}

// sight decides whether this node stands aside: a node that cannot reach Redis keeps no
// lock alive, and as long as gossip shows it among the living, the others would leave its
// shards to it. One whose Redis is slow must not, nor one that misses a primary of a Redis
// Cluster that nobody reaches: its shards would be nobody's, or move for nothing. So a
// node stands aside when nothing of Redis answers it, and when another node has reached
// more primaries than it does, for as long as it had patience: what is wrong with Redis
// itself shows everywhere by then.
type sight struct {
	patience  time.Duration
	redis     reach             // whoever of it answers
	primaries map[string]*reach // by address
	// worse is since when another node reaches more of them, or later by as long as it was not
	// clear meanwhile; zero: none does.
	worse  time.Time
	looked time.Time // last
}

func newSight(patience time.Duration, now time.Time) *sight {
	return &sight{patience: patience, redis: reach{patience: patience, answered: now}, primaries: map[string]*reach{}, looked: now}
}

// take takes over when each of today's primaries last answered; zero is never.
func (s *sight) take(answers map[string]time.Time, now time.Time) {
	maps.DeleteFunc(s.primaries, func(name string, _ *reach) bool { _, is := answers[name]; return !is })
	for name, at := range answers {
		p := s.primaries[name]
		if p == nil {
			p = &reach{patience: s.patience, answered: now}
			s.primaries[name] = p
		}
		if at.After(p.answered) {
			p.heard(at)
		}
		if at.After(s.redis.answered) {
			s.redis.heard(at)
		}
	}
}

// stance is what the others are told.
type stance struct {
	aside bool
	slow  bool // aside because Redis answers it much later than its peers
	// blind is how many primaries do not answer; -1 while that is not known.
	blind int
}

// look tells where this node stands now that the others see so much, and whether nothing
// of Redis is in reach. A number below 0 is of a node that does not say.
func (s *sight) look(others []int, now time.Time) (is stance, dark bool) {
	is.aside, dark = s.redis.look(now)
	unsure, silent, back := len(s.primaries) == 0, false, true
	for _, p := range s.primaries {
		if lost, dark := p.look(now); lost {
			is.blind++
			silent, back = silent || dark, back && p.answers()
		} else if p.since.IsZero() {
			unsure = true // it has had neither an answer nor all its time
		}
	}
	if unsure {
		is.blind = -1
	}
	others = slices.DeleteFunc(slices.Clone(others), func(n int) bool { return n < 0 })
	stands := !s.worse.IsZero() && now.Sub(s.worse) >= s.patience
	switch {
	case len(others) == 0 || is.blind <= slices.Min(others):
		s.worse = time.Time{}
	case silent || stands:
		if s.worse.IsZero() {
			s.worse = now
		}
	// A primary that answers again keeps a node aside for a while, but puts none there: of a
	// stall that is over some nodes have given it up, and some have not.
	case back:
		s.worse = time.Time{}
	// Nor does one answer after a long silence prove that it is back.
	case !s.worse.IsZero():
		s.worse = s.worse.Add(now.Sub(s.looked))
	}
	s.looked = now
	if !s.worse.IsZero() && now.Sub(s.worse) >= s.patience {
		is.aside = true
	}
	return is, dark
}

// lost are the primaries that do not answer, sorted.
func (s *sight) lost() []string {
	var names []string
	for name, p := range s.primaries {
		if p.lost {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}
