package membership

import (
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/fermata-io/fermata/internal/core/sharding"
)

// maxDeparted and departedFor bound what is remembered of nodes that went away.
const (
	maxDeparted = 64
	departedFor = 10 * time.Minute
)

// State of a member.
type State string

const (
	// StateAlive is a member of the view, perhaps under suspicion.
	StateAlive State = "alive"
	// StateDeparted is a node that died or left within the last ten minutes.
	StateDeparted State = "departed"
)

// MemberInfo is a member with what only gossip knows of it.
type MemberInfo struct {
	sharding.Member
	// Addr is its gossip address, host:port.
	Addr  string
	State State
	// Version of its program; empty from a node that does not say.
	Version string
	// EventsKeep is how many events it is told to keep; -1 from a node that does not say.
	EventsKeep int
	// Defaults is the fingerprint of the defaults of policies that it is told; empty from a node
	// that does not say.
	Defaults string
	// Latency of its calls to Redis; 0 from a node that does not say. It is not part of the view,
	// which changes when shards may move.
	Latency time.Duration
}

type entry struct {
	info  MemberInfo
	since time.Time
}

// delegate is what memberlist calls. It keeps a copy of every node, because
// memberlist goes on writing to its own, and never blocks: its callers hold
// memberlist's lock.
type delegate struct {
	self    string
	allows  func(net.IP) bool
	meta    atomic.Pointer[[]byte]
	onEvent func()
	log     func(msg string, args ...any)

	mu struct {
		sync.Mutex
		nodes map[string]entry
		// names are those that memberlist may list, but the own one, with when their nodes departed;
		// zero: they have not.
		names map[string]time.Time
	}
}

func newDelegate(o Options, onEvent func()) *delegate {
	d := &delegate{self: o.Name, allows: o.allows, onEvent: onEvent, log: o.Logger.Error}
	d.tell(o.meta())
	d.mu.nodes, d.mu.names = map[string]entry{}, map[string]time.Time{}
	return d
}

// NodeMeta is asked for when this node announces itself.
func (d *delegate) NodeMeta(limit int) []byte {
	meta := *d.meta.Load()
	return meta[:min(limit, len(meta))]
}

// tell sets what NodeMeta says from now on.
func (d *delegate) tell(m meta) {
	text := encodeMeta(m)
	d.meta.Store(&text)
}

// NotifyMsg has nothing to receive: nodes gossip about nodes only.
func (d *delegate) NotifyMsg([]byte) {}

// GetBroadcasts has nothing to send.
func (d *delegate) GetBroadcasts(int, int) [][]byte { return nil }

// LocalState has nothing to add to a full exchange.
func (d *delegate) LocalState(bool) []byte { return nil }

// MergeRemoteState has nothing to take from a full exchange.
func (d *delegate) MergeRemoteState([]byte, bool) {}

// NotifyJoin is called for a node that is new or has come back.
func (d *delegate) NotifyJoin(n *memberlist.Node) { d.put(n, StateAlive) }

// NotifyUpdate is called for a node whose metadata changed.
func (d *delegate) NotifyUpdate(n *memberlist.Node) { d.put(n, StateAlive) }

// NotifyLeave is called for a node that left or was found dead.
func (d *delegate) NotifyLeave(n *memberlist.Node) { d.put(n, StateDeparted) }

// NotifyConflict is called when a second node uses the name of a live one.
func (d *delegate) NotifyConflict(existing, other *memberlist.Node) {
	d.log("two nodes use one name: the second is not a member",
		"name", existing.Name, "first", existing.Address(), "second", other.Address())
}

func (d *delegate) put(n *memberlist.Node, state State) {
	about, err := decodeMeta(n.Meta)
	if err != nil {
		d.log("metadata of a node is not readable", "name", n.Name, "error", err)
	}
	e := entry{since: time.Now(), info: MemberInfo{
		Member: sharding.Member{Name: n.Name, GRPCAddr: about.GRPC, PeerAddr: about.Peer, Process: about.Process, Aside: about.Aside, Blind: max(-1, about.Blind-1)},
		Addr:   n.Address(),
		State:  state, Version: about.Version, EventsKeep: max(-1, about.Events-1), Defaults: about.Defaults,
		Latency: time.Duration(max(0, about.Latency)) * time.Millisecond,
	}}
	d.mu.Lock()
	d.mu.nodes[n.Name] = e
	d.noteName(n.Name, state, e.since)
	d.prune(e.since)
	d.mu.Unlock()
	d.onEvent()
}

// prune forgets departed nodes, the oldest first. The mutex is held.
func (d *delegate) prune(now time.Time) {
	var departed []entry
	for _, e := range d.mu.nodes {
		if e.info.State == StateDeparted {
			departed = append(departed, e)
		}
	}
	slices.SortFunc(departed, func(a, b entry) int { return b.since.Compare(a.since) })
	for i, e := range departed {
		if i >= maxDeparted || now.Sub(e.since) > departedFor {
			delete(d.mu.nodes, e.info.Name)
		}
	}
}

// list returns all that is known, by name.
func (d *delegate) list(now time.Time) []MemberInfo {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.prune(now)
	infos := make([]MemberInfo, 0, len(d.mu.nodes))
	for e := range maps.Values(d.mu.nodes) {
		infos = append(infos, e.info)
	}
	slices.SortFunc(infos, func(a, b MemberInfo) int { return strings.Compare(a.Name, b.Name) })
	return infos
}

// alive returns the members of the view, by name.
func (d *delegate) alive(now time.Time) []sharding.Member {
	var members []sharding.Member
	for _, info := range d.list(now) {
		if info.State == StateAlive {
			members = append(members, info.Member)
		}
	}
	return members
}
