package membership

import "encoding/json"

// meta is what a node tells about itself. Names are short because gossip
// packets are; unknown ones are ignored, so that versions can mix.
type meta struct {
	GRPC string `json:"g,omitempty"`
	Peer string `json:"p,omitempty"`
	// Process is the name of its process in locks.
	Process string `json:"i,omitempty"`
	// Version of its program.
	Version string `json:"v,omitempty"`
	// Events that it is told to keep, and one more; 0: it does not say.
	Events int `json:"k,omitempty"`
	// Defaults of policies that it is told, by their fingerprint; empty: it does not say.
	Defaults string `json:"d,omitempty"`
	// Aside: it should hold no shards.
	Aside bool `json:"a,omitempty"`
	// Blind is how many primaries of Redis do not answer it, and one more; 0: it does not say.
	Blind int `json:"b,omitempty"`
	// Latency of its calls to Redis in milliseconds; 0: it does not say.
	Latency int `json:"l,omitempty"`
}

func encodeMeta(m meta) []byte {
	b, _ := json.Marshal(m) // strings, numbers and a bool cannot fail
	return b
}

// decodeMeta returns empty addresses for what it cannot read: such a node is a
// member that cannot be talked to.
func decodeMeta(b []byte) (m meta, err error) {
	err = json.Unmarshal(b, &m)
	return m, err
}
