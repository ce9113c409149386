package node

import "github.com/fermata-io/fermata/internal/cluster/membership"

// nodesWithoutRunPayloads lists the members that would run a run with its job's payload although it has one of its
// own: nodes of an earlier version.
func (n *Node) nodesWithoutRunPayloads() (names []string) {
	for _, m := range n.gossip.Members() {
		if m.State == membership.StateAlive && m.Features&membership.FeatureRunPayloads == 0 {
			names = append(names, m.Name)
		}
	}
	return names
}
