package audittrail

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/hex"
	"slices"

	"github.com/fermata-io/fermata/internal/core/job"
)

// chainEnd is the last end of the chain that this node has written, or has taken from the store.
type chainEnd struct {
	seen     job.TrailHead
	reported string // end as stored, whose fault was reported
}

// endFault says why the chain must not continue at the end that is stored; empty: it may.
type endFault string

const (
	// endSetBack: a failover lost the newest records, or a write from outside set the end back.
	endSetBack    endFault = "it is before the end that this node has seen"
	endNotNewest  endFault = "the newest record is not the end"
	endChanged    endFault = "the newest record does not have the hash that it carries"
	endUnsigned   endFault = "the newest record is not signed"
	endUnknownKey endFault = "the newest record is signed with a key that is not in the key file of this node"
	endForged     endFault = "the key that the newest record names has not made its signature"
)

// findFault judges the stored end of the chain. A node with keys signs what it links to. So it takes an end that it has
// not seen only from a node that has one of these keys: each write of such a node ends with a signed record.
func (c *chainEnd) findFault(state job.TrailState, keys []job.ChainKey) endFault {
	switch head := state.Head; {
	case head.Seq == c.seen.Seq && bytes.Equal(head.Hash, c.seen.Hash):
		return ""
	case head.Seq <= c.seen.Seq:
		return endSetBack
	case len(keys) == 0:
		return ""
	case state.Newest.Seq != head.Seq || !bytes.Equal(state.Newest.Hash, head.Hash):
		return endNotNewest
	}
	return findRecordFault(state.Newest, keys)
}

// findRecordFault checks hash and signature of the record at the end.
func findRecordFault(newest job.TrailRecord, keys []job.ChainKey) endFault {
	at := slices.IndexFunc(keys, func(k job.ChainKey) bool { return k.ID == newest.KeyID })
	switch {
	case newest.Version != job.ChainVersion || !bytes.Equal(newest.ChainHash(), newest.Hash):
		return endChanged
	case len(newest.Signature) == 0:
		return endUnsigned
	case at < 0:
		return endUnknownKey
	case !ed25519.Verify(keys[at].Key.Public().(ed25519.PublicKey), job.SignedText(newest.Hash), newest.Signature):
		return endForged
	}
	return ""
}

// takeEnd notes the stored end as seen, unless it has a fault.
func (c *chainEnd) takeEnd(state job.TrailState, keys []job.ChainKey) endFault {
	fault := c.findFault(state, keys)
	if fault == "" {
		c.seen = state.Head
	}
	return fault
}

// selectBase returns what the next record follows. After an end with a fault the sequences go on, but the next record
// has the hash of the last end that this node has seen, or none. So it covers nothing that is stored behind that end,
// and the chain shows a break.
func (c *chainEnd) selectBase(head job.TrailHead, fault endFault) job.TrailHead {
	if fault == "" {
		return head
	}
	return job.TrailHead{Seq: max(head.Seq, c.seen.Seq), Hash: c.seen.Hash}
}

// checkEnd notes the stored end of the chain as seen, or reports its fault.
func (r *Recorder) checkEnd(ctx context.Context, state job.TrailState) {
	fault := r.chain.takeEnd(state, r.keys())
	if fault != "" && fault != endSetBack {
		// End and newest record were read one after the other: they fit together only if the end is still the same.
		again, err := r.options.Store.TrailState(ctx)
		if err != nil || again.Head.Raw != state.Head.Raw {
			return // the next check or write judges the new end
		}
	}
	r.reportFault(state.Head, fault)
}

// reportFault counts and logs the fault of a stored end, once for each end.
func (r *Recorder) reportFault(stored job.TrailHead, fault endFault) {
	if fault == "" || r.chain.reported != "" && r.chain.reported == stored.Raw {
		return
	}
	r.chain.reported = stored.Raw
	seen := r.chain.seen
	attributes := []any{"sequence", stored.Seq, "seen", seen.Seq, "seen_hash", hex.EncodeToString(seen.Hash)}
	if fault == endSetBack {
		r.gauges.setBacks.Inc()
		r.options.Logger.Error("audit chain was set back", attributes...)
		return
	}
	r.gauges.unverifiedEnds.Inc()
	r.options.Logger.Error("end of the audit chain is not verified", append(attributes, "reason", string(fault))...)
}
