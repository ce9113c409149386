package node

import (
	"maps"
	"slices"

	"github.com/fermata-io/fermata/internal/cluster/membership"
)

// nodeProcess is a process of a node.
type nodeProcess struct{ node, process string }

// nodesWithoutRunPayloads lists the nodes that would run a run with its job's payload although it has one of its own:
// those of an earlier version that hold shards, or may. Redis says which processes these are. What a process has sent
// over a link counts more than what gossip says about it. One about which neither says anything counts as earlier.
func (n *Node) nodesWithoutRunPayloads() []string {
	gossip := map[nodeProcess]membership.Feature{}
	for _, m := range n.gossip.Members() {
		if m.State == membership.StateAlive {
			gossip[nodeProcess{m.Name, m.Process}] = m.Features
		}
	}
	old := map[string]bool{}
	for p := range n.otherProcesses(gossip) {
		features := gossip[p]
		if sent, ok := n.peers.Features(p.node, p.process); ok {
			features = membership.Feature(sent)
		}
		if features&membership.FeatureRunPayloads == 0 {
			old[p.node] = true
		}
	}
	return slices.Sorted(maps.Keys(old))
}

// otherProcesses are the processes that hold a lock of a shard, or whose heartbeat lets them, but for this one. Until
// heartbeats have been read for a while, all members count.
func (n *Node) otherProcesses(members map[nodeProcess]membership.Feature) map[nodeProcess]bool {
	all := map[nodeProcess]bool{}
	if holders := n.shardHolders.Load(); holders != nil {
		for _, h := range *holders {
			if h.Node != "" && h.Process != n.locks.Process() {
				all[nodeProcess{h.Node, h.Process}] = true
			}
		}
	}
	owners, ok := n.locks.EligibleOwners()
	for node, process := range owners {
		all[nodeProcess{node, process}] = true
	}
	if !ok {
		for p := range members {
			all[p] = true
		}
	}
	delete(all, nodeProcess{n.cfg.Name, n.locks.Process()})
	return all
}
