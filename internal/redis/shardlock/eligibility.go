package shardlock

import (
	"slices"
	"time"

	"github.com/fermata-io/fermata/internal/core/sharding"
)

const (
	// readingsAtOnce bounds the heartbeats of other processes that are read together, of
	// those that own shards and of those that do not, so that neither can starve the other.
	readingsAtOnce = 32
	// missedReadings is how many readings in a row a heartbeat has to be missing in.
	missedReadings = 3
	// maxHold bounds, in lives of a lock, the time for which an unsteady heartbeat must be present before its
	// process owns shards again.
	maxHold = 16
)

// eligibility decides which members may own shards: those whose heartbeat is in this keyspace. Gossip lists the
// nodes that have the gossip key; only a process that can write here can keep a lock here. It is pure:
// heartbeats and time are arguments.
type eligibility struct {
	self     string // this node
	process  string // and its process
	grace    time.Duration
	settling time.Duration
	hold     time.Duration // of the first return

	presences map[string]*presence // by member
	claimedBy map[string]string    // process -> the first member that named it
	firstRead time.Time            // the first reading that succeeded
	lastRead  time.Time            // the last one
	turn      int
}

// presence is what the readings have shown of one member's heartbeat.
type presence struct {
	process           string
	address           string // from its heartbeats
	owns              bool
	seen              bool          // at least one heartbeat was read
	missedInRow       int           // readings in a row without a heartbeat
	contradictedSince time.Time     // the first of a row of readings that contradict owns
	hold              time.Duration // how long the heartbeat must be present; 0: one reading is enough
	ownerSince        time.Time     // when it last became an owner
}

func newEligibility(o Options, process string) *eligibility {
	return &eligibility{
		self: o.Node, process: process, grace: o.withdrawalDelay(), settling: missedBeats * o.beatEvery(),
		hold:      o.TTL / 3,
		presences: map[string]*presence{}, claimedBy: map[string]string{},
	}
}

// processesToRead chooses the processes whose heartbeats are read now, in turn if there are many.
func (r *eligibility) processesToRead(v sharding.View) []string {
	var owners, others []string
	for _, m := range v.Members {
		switch p := r.presences[m.Name]; {
		case m.Name == r.self || m.Process == "" || m.Process == r.process:
		case p != nil && p.process == m.Process && p.owns:
			owners = append(owners, m.Process)
		default:
			others = append(others, m.Process)
		}
	}
	r.turn++
	chosen := append(turnOf(owners, r.turn), turnOf(others, r.turn)...)
	slices.Sort(chosen)
	return slices.Compact(chosen)
}

// turnOf returns the part of a list that is read in a turn.
func turnOf(all []string, turn int) []string {
	if len(all) <= readingsAtOnce {
		return all
	}
	start := turn * readingsAtOnce % len(all)
	rotated := slices.Concat(all[start:], all[:start])
	return rotated[:readingsAtOnce]
}

// applyReadings applies a successful reading. A process that was read and is not in the map has no heartbeat.
func (r *eligibility) applyReadings(v sharding.View, read []string, beats map[string]heartbeat, now time.Time) {
	r.dropRemoved(v)
	interrupted := now.Sub(r.lastRead) > r.grace
	for _, m := range v.Members {
		if m.Name == r.self || !slices.Contains(read, m.Process) {
			continue
		}
		p := r.presences[m.Name]
		if p == nil || p.process != m.Process {
			p = &presence{process: m.Process}
			r.presences[m.Name] = p
		}
		if interrupted {
			// Redis did not answer this node for a while, so others may have had no time for a heartbeat since.
			p.missedInRow, p.contradictedSince = 0, time.Time{}
		}
		there := r.belongsTo(beats[m.Process], m)
		if there {
			p.seen, p.address = true, beats[m.Process].address
		}
		p.applyReading(there, now, r.grace, r.hold)
	}
	r.lastRead = now
	if r.firstRead.IsZero() {
		r.firstRead = now
	}
}

// isSettled is true once nodes that start together with this one have had time for their first heartbeat. Until
// then no member is left out: shards would move twice.
func (r *eligibility) isSettled(now time.Time) bool { return now.Sub(r.firstRead) >= r.settling }

// belongsTo is true if a fresh heartbeat is the member's own.
func (r *eligibility) belongsTo(l heartbeat, m sharding.Member) bool {
	if !l.isFresh() {
		return false
	}
	if l.node != "" {
		return l.node == m.Name
	}
	// The previous build writes no name: the heartbeat counts for the first member that named the process.
	if r.claimedBy[m.Process] == "" {
		r.claimedBy[m.Process] = m.Name
	}
	return r.claimedBy[m.Process] == m.Name
}

// applyReading applies one reading.
func (p *presence) applyReading(there bool, now time.Time, grace, hold time.Duration) {
	if there == p.owns {
		p.missedInRow, p.contradictedSince = 0, time.Time{}
		return
	}
	if p.contradictedSince.IsZero() {
		p.contradictedSince = now
	}
	if there {
		if now.Sub(p.contradictedSince) >= p.hold {
			p.owns, p.missedInRow, p.contradictedSince, p.ownerSince = true, 0, time.Time{}, now
		}
		return
	}
	p.missedInRow++
	if p.missedInRow < missedReadings || now.Sub(p.contradictedSince) < grace {
		return
	}
	// After a long steady presence earlier interruptions no longer count.
	if now.Sub(p.ownerSince) > 4*max(hold, p.hold) {
		p.hold = 0
	}
	p.hold = min(max(hold, 2*p.hold), maxHold*3*hold)
	p.owns, p.missedInRow, p.contradictedSince = false, 0, time.Time{}
}

// dropRemoved drops the members that the view no longer has. It is called after a successful reading: while
// Redis cannot be read, the last answer stays.
func (r *eligibility) dropRemoved(v sharding.View) {
	for name := range r.presences {
		if _, is := v.Member(name); !is {
			delete(r.presences, name)
		}
	}
	for process, name := range r.claimedBy {
		if m, is := v.Member(name); !is || m.Process != process {
			delete(r.claimedBy, process)
		}
	}
}

// clientAddresses returns the addresses for clients in the heartbeats of other members.
func (r *eligibility) clientAddresses() map[string]clientAddress {
	all := map[string]clientAddress{}
	for name, p := range r.presences {
		if p.address != "" {
			all[name] = clientAddress{p.process, p.address}
		}
	}
	return all
}

// eligibleOwners returns the processes that may own shards, by member; this node is always one.
func (r *eligibility) eligibleOwners() map[string]string {
	all := map[string]string{r.self: r.process}
	for name, p := range r.presences {
		if p.owns {
			all[name] = p.process
		}
	}
	return all
}

// seenProcesses returns the processes of which a heartbeat has been read, by member, whether or not they may own
// shards now; this node is always one.
func (r *eligibility) seenProcesses() map[string]string {
	all := map[string]string{r.self: r.process}
	for name, p := range r.presences {
		if p.seen {
			all[name] = p.process
		}
	}
	return all
}
