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

// maxDeparted and departedRetention bound what is kept about departed nodes.
const (
	maxDeparted       = 64
	departedRetention = 10 * time.Minute
)

// State of a member.
type State string

const (
	// StateAlive is a member of the view, also while it is suspected.
	StateAlive State = "alive"
	// StateDeparted is a node that died or left within the last ten minutes.
	StateDeparted State = "departed"
)

// MemberState is a member with the details that only gossip has.
type MemberState struct {
	sharding.Member
	// Addr is its gossip address, host:port.
	Addr  string
	State State
	// Version of its program; empty if the node does not publish it.
	Version string
	// EventsKeep is its configured number of events to keep; -1 if the node does not publish it.
	EventsKeep int
	// Defaults is the fingerprint of its configured policy defaults; empty if the node does not publish it.
	Defaults string
	// Features that it publishes; a node of an earlier version publishes none.
	Features Feature
	// LostAt is when this node noticed that it departed without leaving: it died, or the network separates it. Zero
	// for all others, and for nodes of earlier builds, which do not announce that they leave.
	LostAt time.Time
	// Latency of its calls to Redis; 0 if the node does not publish it. It is not part of the view, because a
	// new view may move shards.
	Latency time.Duration
}

type nodeEntry struct {
	info  MemberState
	meta  string // as received
	since time.Time
	// isLeaving: its process has announced that it leaves.
	isLeaving bool
}

// delegate receives memberlist's callbacks. It copies every node, because memberlist keeps writing to its own.
// It never blocks: its callers hold memberlist's lock.
type delegate struct {
	self     string
	allowsIP func(net.IP) bool
	meta     atomic.Pointer[[]byte]
	onEvent  func()
	log      func(msg string, args ...any)

	mu struct {
		sync.Mutex
		nodes map[string]nodeEntry
		// names are the names that memberlist may list, except this node's own, with the time at which the node
		// departed; zero: it has not.
		names map[string]time.Time
	}
}

func newDelegate(o Options, onEvent func()) *delegate {
	d := &delegate{self: o.Name, allowsIP: o.allowsIP, onEvent: onEvent, log: o.Logger.Error}
	d.setMetadata(o.nodeMeta())
	d.mu.nodes, d.mu.names = map[string]nodeEntry{}, map[string]time.Time{}
	return d
}

// NodeMeta returns the metadata with which this node announces itself.
func (d *delegate) NodeMeta(limit int) []byte {
	meta := *d.meta.Load()
	return meta[:min(limit, len(meta))]
}

// setMetadata sets the result of NodeMeta.
func (d *delegate) setMetadata(m nodeMeta) {
	text := encodeMeta(m)
	d.meta.Store(&text)
}

// hasAnnounced reports whether memberlist has the current metadata of this node, which it sends to the others.
func (d *delegate) hasAnnounced() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.mu.nodes[d.self].meta == string(d.NodeMeta(memberlist.MetaMaxSize))
}

// NotifyMsg does nothing: nodes send no messages of their own.
func (d *delegate) NotifyMsg([]byte) {}

// GetBroadcasts returns nothing: nodes send no messages of their own.
func (d *delegate) GetBroadcasts(int, int) [][]byte { return nil }

// LocalState adds nothing to a full exchange.
func (d *delegate) LocalState(bool) []byte { return nil }

// MergeRemoteState reads nothing from a full exchange.
func (d *delegate) MergeRemoteState([]byte, bool) {}

// NotifyJoin is called for a node that is new or has returned.
func (d *delegate) NotifyJoin(n *memberlist.Node) { d.storeNode(n, StateAlive) }

// NotifyUpdate is called for a node whose metadata changed.
func (d *delegate) NotifyUpdate(n *memberlist.Node) { d.storeNode(n, StateAlive) }

// NotifyLeave is called for a node that left or was declared dead.
func (d *delegate) NotifyLeave(n *memberlist.Node) { d.storeNode(n, StateDeparted) }

// NotifyConflict is called when a second node uses the name of a live one.
func (d *delegate) NotifyConflict(existing, other *memberlist.Node) {
	d.log("duplicate node name, the second node is refused",
		"name", existing.Name, "first", existing.Address(), "second", other.Address())
}

func (d *delegate) storeNode(n *memberlist.Node, state State) {
	about, err := decodeMeta(n.Meta)
	if err != nil {
		d.log("failed to decode metadata of node", "name", n.Name, "error", err)
	}
	e := nodeEntry{since: time.Now(), meta: string(n.Meta), info: MemberState{
		Member: sharding.Member{Name: n.Name, GRPCAddr: about.GRPC, PeerAddr: about.Peer, Process: about.Process,
			Withdrawn: about.Aside, UnreachablePrimaries: max(-1, about.Blind-1)},
		Addr:  n.Address(),
		State: state, Version: about.Version, EventsKeep: max(-1, about.Events-1), Defaults: about.Defaults,
		Latency: time.Duration(max(0, about.Latency)) * time.Millisecond, Features: about.Features,
	}}
	d.mu.Lock()
	old := d.mu.nodes[n.Name]
	e.isLeaving = old.isLeaving && old.info.Process == e.info.Process
	d.mu.nodes[n.Name] = e
	d.recordName(n.Name, state, e.since)
	d.pruneDeparted(e.since)
	d.mu.Unlock()
	d.onEvent()
}

// recordLeaving records that the process of a node has announced that it leaves. Gossip may report its departure before
// or after that.
func (d *delegate) recordLeaving(name string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	e, ok := d.mu.nodes[name]
	if ok {
		e.isLeaving = true
		d.mu.nodes[name] = e
	}
}

// lostAt is when a node departed without leaving; zero: it has not.
func (e nodeEntry) lostAt() time.Time {
	if e.info.State != StateDeparted || e.isLeaving || e.info.Features&FeatureAnnouncesLeave == 0 {
		return time.Time{}
	}
	return e.since
}

// pruneDeparted removes departed nodes, the oldest first. The caller holds the mutex.
func (d *delegate) pruneDeparted(now time.Time) {
	var departed []nodeEntry
	for _, e := range d.mu.nodes {
		if e.info.State == StateDeparted {
			departed = append(departed, e)
		}
	}
	slices.SortFunc(departed, func(a, b nodeEntry) int { return b.since.Compare(a.since) })
	for i, e := range departed {
		if i >= maxDeparted || now.Sub(e.since) > departedRetention {
			delete(d.mu.nodes, e.info.Name)
		}
	}
}

// listNodes returns all known nodes, by name.
func (d *delegate) listNodes(now time.Time) []MemberState {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.pruneDeparted(now)
	infos := make([]MemberState, 0, len(d.mu.nodes))
	for e := range maps.Values(d.mu.nodes) {
		e.info.LostAt = e.lostAt()
		infos = append(infos, e.info)
	}
	slices.SortFunc(infos, func(a, b MemberState) int { return strings.Compare(a.Name, b.Name) })
	return infos
}

// aliveMembers returns the members of the view, by name.
func (d *delegate) aliveMembers(now time.Time) []sharding.Member {
	var members []sharding.Member
	for _, info := range d.listNodes(now) {
		if info.State == StateAlive {
			members = append(members, info.Member)
		}
	}
	return members
}
