package node

import (
	"maps"
	"slices"

	"github.com/fermata-io/fermata/internal/cluster/membership"
)

// nodesWithoutRunPayloads lists the nodes that would run a run with its job's payload although it has one of its own:
// those of an earlier version that may hold shards. Redis says which processes these are. What a process has sent over a
// link counts more than what gossip says about it. One about which neither says anything counts as earlier.
func (n *Node) nodesWithoutRunPayloads() []string {
	processes, ok := n.locks.EligibleOwners()
	members := map[string]membership.MemberState{}
	for _, m := range n.gossip.Members() {
		if m.State == membership.StateAlive {
			members[m.Name] = m
		}
	}
	if !ok { // until heartbeats have been read for a while, all members count
		processes = map[string]string{}
		for name, m := range members {
			processes[name] = m.Process
		}
	}
	old := map[string]bool{}
	for name, process := range processes {
		var features membership.Feature
		if m := members[name]; m.Process == process {
			features = m.Features
		}
		if sent, ok := n.peers.Features(name, process); ok {
			features = membership.Feature(sent)
		}
		if name != n.cfg.Name && features&membership.FeatureRunPayloads == 0 {
			old[name] = true
		}
	}
	return slices.Sorted(maps.Keys(old))
}
