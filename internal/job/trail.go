package job

// Bounds of a TrailRecord. What is longer is clipped.
const (
	MaxTrailNames  = 20
	MaxTrailFields = 32
	MaxTrailText   = 256 // bytes of one text
)

// TrailRecord is one call that changed something through the API, or may have: who,
// what, from where, and how it ended.
type TrailRecord struct {
	ID   string // grows with time; set by the store
	AtMS int64  // store's clock; set by the store

	Identity string // the subject of an identity, or "anonymous" where nobody is asked who they are
	Peer     string // address that the call came from
	Node     string // that answered
	Method   string // package.Service/Method
	// Resource is what it was about, the parent for calls about many; Names are the
	// first of those, Fields what an update named.
	Resource      string
	Names, Fields []string
	RequestID     string
	Code          int // of gRPC
	// Changed and Refused count what calls about many have done.
	Changed, Refused int64
	// Before and After are SHA-256 digests; empty: nothing was there, or is known.
	Before, After []byte
}

// Clipped is the record within its bounds.
func (r TrailRecord) Clipped() TrailRecord {
	for _, text := range []*string{&r.Identity, &r.Peer, &r.Node, &r.Method, &r.RequestID} {
		*text = Clip(*text, MaxTrailText)
	}
	r.Resource = Clip(r.Resource, 2*MaxTrailText)
	r.Names, r.Fields = clipAll(r.Names, MaxTrailNames), clipAll(r.Fields, MaxTrailFields)
	return r
}

func clipAll(texts []string, most int) []string {
	out := make([]string, 0, min(len(texts), most))
	for _, text := range texts[:cap(out)] {
		out = append(out, Clip(text, MaxTrailText))
	}
	return out
}

// TrailFilter selects records; zero fields select all.
type TrailFilter struct {
	Resource     string // or, with a trailing '/', all below it
	Identity     string
	FromMS, ToMS int64 // inclusive, exclusive; Unix milliseconds
}

// TrailPage is a page of records, newest first. Next is empty on the last one.
type TrailPage struct {
	Records []TrailRecord
	Next    string
}
