package node

import (
	"maps"

	"github.com/fermata-io/fermata/internal/core/backoff"
	"github.com/fermata-io/fermata/internal/engine/defaults"
)

// DefaultFlags are the fields of [Config].Defaults, with the flags that errors name.
func DefaultFlags() map[backoff.Field]string { return maps.Clone(defaults.Flags) }

// compareDefaults logs nodes whose policy defaults differ from this node's, once for each change: a job gets the
// defaults of the node that registers it. It is not called concurrently.
func (n *Node) compareDefaults() {
	own := n.defaults.Fingerprint()
	var others []string
	for _, m := range n.knownMembers() {
		if m.Defaults != "" && m.Defaults != own {
			others = append(others, m.Name+"="+m.Defaults)
		}
	}
	g := n.gauges
	g.defaultsMismatches.Set(float64(len(others)))
	text := listNodes(others)
	if text == g.loggedDeviants {
		return
	}
	g.loggedDeviants = text
	if text == "" {
		n.cfg.Logger.Info("all nodes have the same defaults of retry and backoff", "defaults", own)
		return
	}
	n.cfg.Logger.Warn("nodes have different defaults of retry and backoff, a job gets those of the node that "+
		"registers it",
		"defaults", own, "others", text)
}
