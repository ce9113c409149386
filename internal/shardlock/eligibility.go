package shardlock

import (
	"slices"
	"time"

	"github.com/fermata-io/fermata/internal/ring"
)

const (
	// readingsAtOnce bounds the heartbeats of other processes that are read together, of
	// those that own shards and of those that do not, so that neither can starve the other.
	readingsAtOnce = 32
	// missedReadings is how many readings in a row a heartbeat has to be missing in.
	missedReadings = 3
	// longestHold bounds how long, in lives of a lock, a heartbeat that comes and goes has
	// to be there before its process owns shards again.
	longestHold = 16
)

// eligibility decides which members may own shards: those whose heartbeat is in this keyspace.
// Gossip lists who has the gossip key; only a process that can write here can keep a lock
// here. It is pure: heartbeats and time are arguments.
type eligibility struct {
	self     string // this node
	process  string // and its process
	grace    time.Duration
	settling time.Duration
	hold     time.Duration // of the first return

	seen   map[string]*presence // by member
	claims map[string]string    // process -> the member that named it first
	first  time.Time            // the first reading that succeeded
	read   time.Time            // the last one
	turn   int
}

// presence is what the readings have shown of one member's heartbeat.
type presence struct {
	process string
	address string // as its heartbeats have said
	owns    bool
	missed  int           // readings in a row without a heartbeat
	since   time.Time     // the first of a row of readings that contradict owns
	hold    time.Duration // how long the heartbeat has to be there; 0: one reading is enough
	back    time.Time     // when it last became an owner
}

func newEligibility(o Options, process string) *eligibility {
	return &eligibility{
		self: o.Node, process: process, grace: o.damping(), settling: beats * o.beatEvery(), hold: o.TTL / 3,
		seen: map[string]*presence{}, claims: map[string]string{},
	}
}

// next chooses the processes whose heartbeats are read now, in turn where there are many.
func (r *eligibility) next(v ring.View) []string {
	var owners, others []string
	for _, m := range v.Members {
		switch p := r.seen[m.Name]; {
		case m.Name == r.self || m.Process == "" || m.Process == r.process:
		case p != nil && p.process == m.Process && p.owns:
			owners = append(owners, m.Process)
		default:
			others = append(others, m.Process)
		}
	}
	r.turn++
	chosen := append(inTurn(owners, r.turn), inTurn(others, r.turn)...)
	slices.Sort(chosen)
	return slices.Compact(chosen)
}

// inTurn is the part of a list whose turn it is.
func inTurn(all []string, turn int) []string {
	if len(all) <= readingsAtOnce {
		return all
	}
	start := turn * readingsAtOnce % len(all)
	rotated := slices.Concat(all[start:], all[:start])
	return rotated[:readingsAtOnce]
}

// take learns from a reading that has succeeded. A process that was read and is not in the
// map has no heartbeat.
func (r *eligibility) take(v ring.View, read []string, beats map[string]life, now time.Time) {
	r.forget(v)
	interrupted := now.Sub(r.read) > r.grace
	for _, m := range v.Members {
		if m.Name == r.self || !slices.Contains(read, m.Process) {
			continue
		}
		p := r.seen[m.Name]
		if p == nil || p.process != m.Process {
			p = &presence{process: m.Process}
			r.seen[m.Name] = p
		}
		if interrupted {
			// Redis did not answer this node for a while: others may have had no time to
			// give their heartbeats since.
			p.missed, p.since = 0, time.Time{}
		}
		there := r.belongs(beats[m.Process], m)
		if there {
			p.address = beats[m.Process].address
		}
		p.judge(there, now, r.grace, r.hold)
	}
	if r.read = now; r.first.IsZero() {
		r.first = now
	}
}

// complete is true when those who begin together with this node have had time for their first
// heartbeat. Until then nobody is left out: shards would move twice.
func (r *eligibility) complete(now time.Time) bool { return now.Sub(r.first) >= r.settling }

// belongs is true of a fresh heartbeat that is the member's own.
func (r *eligibility) belongs(l life, m ring.Member) bool {
	if !l.fresh() {
		return false
	}
	if l.node != "" {
		return l.node == m.Name
	}
	// The previous build writes no name: the heartbeat is that of who named the process first.
	if r.claims[m.Process] == "" {
		r.claims[m.Process] = m.Name
	}
	return r.claims[m.Process] == m.Name
}

// judge takes over one reading.
func (p *presence) judge(there bool, now time.Time, grace, hold time.Duration) {
	if there == p.owns {
		p.missed, p.since = 0, time.Time{}
		return
	}
	if p.since.IsZero() {
		p.since = now
	}
	if there {
		if now.Sub(p.since) >= p.hold {
			p.owns, p.missed, p.since, p.back = true, 0, time.Time{}, now
		}
		return
	}
	if p.missed++; p.missed < missedReadings || now.Sub(p.since) < grace {
		return
	}
	// What was there for long enough is not held against a process.
	if now.Sub(p.back) > 4*max(hold, p.hold) {
		p.hold = 0
	}
	p.hold = min(max(hold, 2*p.hold), longestHold*3*hold)
	p.owns, p.missed, p.since = false, 0, time.Time{}
}

// forget drops what is known of members that the view has no more. It is called when a
// reading has succeeded: as long as Redis cannot be read, the last answer stays.
func (r *eligibility) forget(v ring.View) {
	for name := range r.seen {
		if _, is := v.Member(name); !is {
			delete(r.seen, name)
		}
	}
	for process, name := range r.claims {
		if m, is := v.Member(name); !is || m.Process != process {
			delete(r.claims, process)
		}
	}
}

// addresses are where clients reach other members, as their own heartbeats have said.
func (r *eligibility) addresses() map[string]clientAddress {
	all := map[string]clientAddress{}
	for name, p := range r.seen {
		if p.address != "" {
			all[name] = clientAddress{p.process, p.address}
		}
	}
	return all
}

// owners are the processes that may own shards, by member; this node is always one.
func (r *eligibility) owners() map[string]string {
	all := map[string]string{r.self: r.process}
	for name, p := range r.seen {
		if p.owns {
			all[name] = p.process
		}
	}
	return all
}
