package job

import (
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"

	"github.com/fermata-io/fermata/internal/core/unixtime"
)

// ChainVersion is how the hash of a TrailRecord is made today. Another list of fields, or
// another order, is another version.
const ChainVersion = 1

// Domains keep hashes and signatures of the chain apart from any others.
const (
	chainDomain     = "fermata audit record 1\n"
	signatureDomain = "fermata audit head 1\n"
)

// ChainHash returns the SHA-256 of a record: of all its fields, its id and sequence, and the hash of the record
// before. Each field is preceded by its length, so that no two records have the same bytes.
func (r TrailRecord) ChainHash() []byte {
	h := sha256.New()
	text := func(s string) {
		_ = binary.Write(h, binary.BigEndian, uint32(len(s))) // a hash takes everything
		h.Write([]byte(s))
	}
	number := func(n int64) { _ = binary.Write(h, binary.BigEndian, n) }
	list := func(texts []string) {
		number(int64(len(texts)))
		for _, t := range texts {
			text(t)
		}
	}
	text(chainDomain)
	number(r.Seq)
	text(string(r.Prev))
	for _, s := range []string{r.ID, r.Identity, r.Peer, r.Node, r.Method, r.Resource, r.RequestID} {
		text(s)
	}
	list(r.Names)
	list(r.Fields)
	for _, n := range []int64{int64(r.Code), r.Changed, r.Refused} {
		number(n)
	}
	text(string(r.Before))
	text(string(r.After))
	return h.Sum(nil)
}

// SignedText returns what the signature of a record's hash signs.
func SignedText(hash []byte) []byte { return append([]byte(signatureDomain), hash...) }

// ChainFault is a kind of break in a chain.
type ChainFault uint8

// Faults of a chain.
const (
	// ChainUnchained: a record that is not part of the chain, after one that is, or anywhere if there are keys.
	ChainUnchained ChainFault = iota + 1
	// ChainChanged: a record does not match its hash.
	ChainChanged
	// ChainMissing: records are missing before this one.
	ChainMissing
	// ChainRepeated: the sequence was used before, or decreases.
	ChainRepeated
	// ChainUnlinked: a record does not carry the hash of the one before.
	ChainUnlinked
	// ChainUnknown: a version, or a key, that is not known here.
	ChainUnknown
	// ChainSignature: a signature that the key has not made.
	ChainSignature
	// ChainUnsigned: no signature covers the last records.
	ChainUnsigned
)

// ChainBreak is a place where a chain does not hold.
type ChainBreak struct {
	Fault  ChainFault
	ID     string // of the record at which it shows
	Seq    int64
	Detail string // for people
}

// ChainCheck reads a chain in order. With Keys, Ed25519 public keys by id, every record has to be
// covered by a signature, and so has to be part of the chain. The zero value is ready.
type ChainCheck struct {
	Keys map[string]ed25519.PublicKey

	Records, Unchained, Signed int64
	First, Last                TrailRecord // of the chain
	signedUpTo                 int64       // sequence up to which signatures hold
}

// Next checks the next record and returns its break, if there is one. It continues from there, so that each
// break is reported once.
func (c *ChainCheck) Next(r TrailRecord) *ChainBreak {
	c.Records++
	at := func(fault ChainFault, format string, args ...any) *ChainBreak {
		return &ChainBreak{Fault: fault, ID: r.ID, Seq: r.Seq, Detail: fmt.Sprintf(format, args...)}
	}
	if r.Seq == 0 {
		c.Unchained++
		if c.Last.Seq == 0 && c.Keys == nil {
			return nil // perhaps from before there was a chain
		}
		return at(ChainUnchained, "is not part of the chain: a node of an earlier version wrote it, or somebody else")
	}
	last := c.Last
	c.Last = r
	if last.Seq == 0 {
		c.First, c.signedUpTo = r, r.Seq-1
	}
	switch {
	case r.Version != ChainVersion:
		return at(ChainUnknown, "has a hash of version %d, which is not known here", r.Version)
	case r.AtMS != TrailTime(r.ID):
		return at(ChainChanged, "was changed: its time is not that of its id")
	case string(r.ChainHash()) != string(r.Hash):
		return at(ChainChanged, "was changed: it does not have the hash that it carries")
	case last.Seq != 0 && r.Seq <= last.Seq:
		return at(ChainRepeated, "has sequence %d after %d: records were put back, or the newest ones were lost "+
			"and written again", r.Seq, last.Seq)
	case last.Seq != 0 && r.Seq > last.Seq+1:
		return at(ChainMissing, "%d records are missing before it (sequences %d to %d)", r.Seq-last.Seq-1, last.Seq+1,
			r.Seq-1)
	case last.Seq != 0 && len(r.Prev) == 0:
		return at(ChainUnlinked, "begins a new chain: its node found none that a key of its file had signed, so that it "+
			"covers no record before it. This is expected where nodes got their first key")
	case last.Seq != 0 && string(r.Prev) != string(last.Hash):
		return at(ChainUnlinked, "does not carry the hash of the record before it")
	}
	return c.checkSignature(r, at)
}

// TrailTime returns the time of a record by its id, "milliseconds-sequence" of a stream; 0 if the id has none. The hash
// of a record covers the id, and so the time.
func TrailTime(id string) unixtime.Milli {
	text, _, _ := strings.Cut(id, "-")
	ms, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0
	}
	return unixtime.Milli(ms)
}

// SplitTrailID takes the id of a record apart; "" is before all others.
func SplitTrailID(id string) (ms, seq uint64) {
	first, second, _ := strings.Cut(id, "-")
	ms, _ = strconv.ParseUint(first, 10, 64)
	seq, _ = strconv.ParseUint(second, 10, 64)
	return ms, seq
}

// NormalizeTrailID returns the id in the form in which Redis writes it, without leading zeros; "" if it is that of no
// record.
func NormalizeTrailID(id string) string {
	ms, seq := SplitTrailID(id)
	if ms == 0 && seq == 0 {
		return ""
	}
	return fmt.Sprintf("%d-%d", ms, seq)
}

// CompareTrailIDs returns -1, 0 or 1 as the record a is before, the same as or after b.
func CompareTrailIDs(a, b string) int {
	aMS, aSeq := SplitTrailID(a)
	bMS, bSeq := SplitTrailID(b)
	switch {
	case aMS < bMS || aMS == bMS && aSeq < bSeq:
		return -1
	case aMS == bMS && aSeq == bSeq:
		return 0
	}
	return 1
}

func (c *ChainCheck) checkSignature(r TrailRecord, at func(ChainFault, string, ...any) *ChainBreak) *ChainBreak {
	if len(r.Signature) == 0 || c.Keys == nil {
		return nil
	}
	key, known := c.Keys[r.KeyID]
	switch {
	case !known:
		return at(ChainUnknown, "is signed with the key %q, which was not given", Clip(r.KeyID, MaxTrailText))
	case !ed25519.Verify(key, SignedText(r.Hash), r.Signature):
		return at(ChainSignature, "has a signature that the key %q has not made", Clip(r.KeyID, MaxTrailText))
	}
	c.Signed++
	c.signedUpTo = r.Seq
	return nil
}

// End returns a break at the end of the chain, if there is one.
func (c *ChainCheck) End() *ChainBreak {
	if c.Keys == nil || c.Last.Seq <= c.signedUpTo {
		return nil
	}
	return &ChainBreak{Fault: ChainUnsigned, ID: c.Last.ID, Seq: c.Last.Seq,
		Detail: fmt.Sprintf("no signature covers the last %d records (sequences %d to %d)", c.Last.Seq-c.signedUpTo,
			c.signedUpTo+1, c.Last.Seq)}
}
