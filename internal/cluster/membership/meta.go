package membership

import "encoding/json"

// nodeMeta is what a node publishes about itself. Names are short because gossip packets are. Unknown names are
// ignored, so that versions can mix.
type nodeMeta struct {
	GRPC string `json:"g,omitempty"`
	Peer string `json:"p,omitempty"`
	// Process is the name of its process in locks.
	Process string `json:"i,omitempty"`
	// Version of its program.
	Version string `json:"v,omitempty"`
	// Events is the configured number of events to keep, plus one; 0: not published.
	Events int `json:"k,omitempty"`
	// Defaults is the fingerprint of the configured policy defaults; empty: not published.
	Defaults string `json:"d,omitempty"`
	// Features that it has: one bit each.
	Features Feature `json:"f,omitempty"`
	// Aside: the node should own no shards.
	Aside bool `json:"a,omitempty"`
	// Blind is the number of Redis primaries that it cannot reach, plus one; 0: not published.
	Blind int `json:"b,omitempty"`
	// Latency of its calls to Redis in milliseconds; 0: not published.
	Latency int `json:"l,omitempty"`
}

// Feature is something that a node of an earlier version cannot do, and that others must know of it.
type Feature uint32

// Features. A bit is never used again.
const (
	// FeatureRunPayloads: the node delivers the payload that a run has of its own.
	FeatureRunPayloads Feature = 1 << iota
	// FeatureAnnouncesLeave: the node announces over its links that it leaves. If it departs without, it is lost.
	FeatureAnnouncesLeave
)

// AllFeatures are those of this version.
const AllFeatures = FeatureRunPayloads | FeatureAnnouncesLeave

func encodeMeta(m nodeMeta) []byte {
	b, _ := json.Marshal(m) // strings, numbers and a bool cannot fail
	return b
}

// decodeMeta returns empty addresses if it cannot decode: such a node is a member that cannot be reached.
func decodeMeta(b []byte) (m nodeMeta, err error) {
	err = json.Unmarshal(b, &m)
	return m, err
}
