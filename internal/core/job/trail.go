package job

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"github.com/fermata-io/fermata/internal/core/unixtime"
)

// Bounds of a TrailRecord. Longer values are clipped, and say so: see [ClipWithDigest] and [ClipList].
const (
	MaxTrailNames  = 20
	MaxTrailFields = 32
	MaxTrailText   = 256 // bytes of one text
)

// TrailRecord records one call through the API that changed something, or may have: caller, change, origin and
// outcome.
type TrailRecord struct {
	ID   string         // grows with time; set by the store
	AtMS unixtime.Milli // store's clock; set by the store

	Identity string // the subject of an identity, or "anonymous" where nobody is asked who they are
	Peer     string // address that the call came from
	Node     string // that answered
	Method   string // package.Service/Method
	// Resource is the resource of the call, the parent for calls about many. Names are the first of those,
	// Fields the fields that an update changed.
	Resource      string
	Names, Fields []string
	RequestID     string
	Code          int // of gRPC
	// Changed and Refused count the results of a call about many resources.
	Changed, Refused int64
	// Before and After are SHA-256 digests; empty: nothing was there, or is known.
	Before, After []byte

	// The chain; zero in records of nodes that had none. Seq counts the records of the cluster
	// from 1 on, Hash is the ChainHash by Version, Prev that of the record before, Signature one of Hash
	// by the key KeyID.
	Seq        int64
	Version    int
	Hash, Prev []byte
	KeyID      string
	Signature  []byte
}

// TrailPlace is a place in line for the record that a call may leave. Not Held: the call has none, because no records
// can be stored at present.
type TrailPlace struct {
	Holder string // whose share of the places it is of; "": of nobody's
	Held   bool
}

// ErrAuditQueueFull means that as many audit records wait to be stored as may, or as many of the caller as its share is.
var ErrAuditQueueFull = errors.New("too many audit records wait to be stored")

// Size is about how many bytes the record takes.
func (r TrailRecord) Size() int {
	const fixed = 512 // digests, signature and names of fields
	n := fixed + len(r.Identity) + len(r.Peer) + len(r.Node) + len(r.Method) + len(r.Resource) + len(r.RequestID)
	for _, list := range [][]string{r.Names, r.Fields} {
		for _, text := range list {
			n += len(text)
		}
	}
	return n
}

// Clipped returns the record within its bounds. A record within them stays as it is, so that its hash does.
func (r TrailRecord) Clipped() TrailRecord {
	for _, text := range []*string{&r.Identity, &r.Peer, &r.Node, &r.Method, &r.RequestID} {
		*text = ClipWithDigest(*text, MaxTrailText)
	}
	r.Resource = ClipWithDigest(r.Resource, 2*MaxTrailText)
	r.Names, r.Fields = clipTexts(r.Names, MaxTrailNames), clipTexts(r.Fields, MaxTrailFields)
	return r
}

func clipTexts(texts []string, most int) []string {
	out := make([]string, 0, len(texts))
	for _, text := range texts {
		// Stores join lists by line breaks and drop empty entries.
		text = strings.ReplaceAll(ClipWithDigest(text, MaxTrailText), "\n", " ")
		if text != "" {
			out = append(out, text)
		}
	}
	return ClipList(out, len(out), most)
}

// ClipList returns the first entries of a list that has total of them. If not all are there, or they are more than
// most, the last entry of the result says how many are left out: "+3 more".
func ClipList(texts []string, total, most int) []string {
	if total <= len(texts) && len(texts) <= most {
		return texts
	}
	shown := texts[:min(len(texts), most-1)]
	return append(shown[:len(shown):len(shown)], fmt.Sprintf("+%d more", max(total, len(texts))-len(shown)))
}

// ClipWithDigest shortens a text to n bytes, like [Clip]. What it leaves out of a long one is replaced by a digest of
// the whole text, so that two texts with the same beginning remain different.
func ClipWithDigest(text string, n int) string {
	if len(text) <= n {
		return Clip(text, n)
	}
	sum := sha256.Sum256([]byte(text))
	end := "~sha256:" + hex.EncodeToString(sum[:clippedDigest])
	return Clip(text, n-len(end)) + end
}

// clippedDigest is how many bytes of a digest stand for what was cut. Nobody finds two texts that agree in them.
const clippedDigest = 20

// TrailFilter selects records; zero fields select all.
type TrailFilter struct {
	Resource     string // or, with a trailing '/', all below it
	Identity     string
	FromMS, ToMS unixtime.Milli // inclusive, exclusive; Unix milliseconds
}

// Clipped returns the filter with its texts as records have them. That of a prefix remains.
func (f TrailFilter) Clipped() TrailFilter {
	f.Identity = ClipWithDigest(f.Identity, MaxTrailText)
	return f
}

// TrailPage is a page of records, newest first. Next is empty on the last one.
type TrailPage struct {
	Records []TrailRecord
	Next    string
}

// TrailPart is a part of the records, oldest first. More: it ends early, and others follow.
type TrailPart struct {
	Records []TrailRecord
	Head    TrailHead
	More    bool
}

// TrailHead is the end of the chain, as the store has it. The zero value is that of a chain that
// has not begun.
type TrailHead struct {
	Seq   int64
	Hash  []byte
	Bytes int64  // of all records so far, those that are gone included
	Raw   string // as stored, for a comparison
}

// TrailState is the state that appending and trimming depend on.
type TrailState struct {
	NowMS unixtime.Milli
	Head  TrailHead
	// Newest and OldestID are of the records that are kept; empty: there are none. OldestSeq and
	// OldestBytes are 0 if the oldest one is not part of the chain. Another node may have written
	// between the reads of Head and Newest.
	Newest                 TrailRecord
	OldestID               string
	OldestSeq, OldestBytes int64
	Exports                []TrailExport
}

// TrailTrim is what to remove with an append. At most one field is set.
type TrailTrim struct {
	Keep   int64  // about how many of the newest records stay
	Before string // records before this id go
}

// TrailExport is a consumer that acknowledges records.
type TrailExport struct {
	Name      string
	ID        string // of the last record acknowledged; empty: none
	Seq       int64
	UpdatedMS unixtime.Milli
	// Identity opened it last, and may acknowledge; empty: not known, because a node of an earlier build stored it.
	Identity string
	// Waiting is how many records are not acknowledged, SinceMS the time of the oldest of them.
	Waiting int64
	SinceMS unixtime.Milli
}

// MaxTrailExports is how many there may be.
const MaxTrailExports = 16

// TrailAcknowledgement is what an identity says about an export: it has delivered all records from the position of the
// export up to one. Without a RecordID it opens the export.
type TrailAcknowledgement struct {
	Export, Identity string
	RecordID         string
	Seq              int64
	// Previous is the position that the records were read from; nil: unknown.
	Previous *string
}

// Refusals of acknowledgements.
var (
	ErrNoTrailExport      = errors.New("there is no such export of audit records")
	ErrTrailExportChanged = errors.New("the export of audit records changed")
)
