package node

import "github.com/fermata-io/fermata/internal/cluster/membership"

// nodesWithoutRunPayloads lists the nodes that would run a run with its job's payload although it has one of its own:
// those of an earlier version. What a node has sent over an open link counts more than what gossip says in its name.
func (n *Node) nodesWithoutRunPayloads() (names []string) {
	for _, m := range n.knownMembers() {
		features := m.Features
		if sent, ok := n.peers.Features(m.Name); ok {
			features = membership.Feature(sent)
		}
		if features&membership.FeatureRunPayloads == 0 {
			names = append(names, m.Name)
		}
	}
	return names
}
