package audittrail

import (
	"crypto/ed25519"
	"fmt"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/unixtime"
)

// linkRecords makes records the next ones of a chain that ends at base: it gives them ids after the
// newest one in the store, sequences, hashes, and the last one a signature by the first key, if there is one.
func linkRecords(records []job.TrailRecord, base job.TrailHead, state job.TrailState,
	keys []job.ChainKey) []job.TrailRecord {
	ms, seq := job.SplitTrailID(state.Newest.ID)
	if now := uint64(max(state.NowMS, 1)); now > ms {
		ms, seq = now, 0
	} else {
		seq++
	}
	out := make([]job.TrailRecord, len(records))
	prev := base.Hash
	for i, r := range records {
		r = r.Clipped()
		r.ID, r.AtMS = fmt.Sprintf("%d-%d", ms, seq+uint64(i)), unixtime.Milli(ms)
		r.Seq, r.Version, r.Prev = base.Seq+int64(i)+1, job.ChainVersion, prev
		r.Hash = r.ChainHash()
		prev, out[i] = r.Hash, r
	}
	if len(keys) > 0 {
		last := &out[len(out)-1]
		last.KeyID, last.Signature = keys[0].ID, ed25519.Sign(keys[0].Key, job.SignedText(last.Hash))
	}
	return out
}

// retention has the limits of what is kept: count, age and bytes.
type retention struct {
	maxRecords int64
	maxAgeMS   int64
	maxBytes   int64 // bytes
}

// planTrim returns what to remove. What an export has not acknowledged yet is removed for want of bytes alone.
func (t retention) planTrim(state job.TrailState) job.TrailTrim {
	count, bytes := countKept(state)
	if bytes > t.maxBytes && count > 0 {
		// A tenth less, so that not each append removes something.
		return job.TrailTrim{Keep: max(1, int64(float64(count)*0.9*float64(t.maxBytes)/float64(bytes)))}
	}
	if before := t.expiredBefore(state); before != "" {
		return job.TrailTrim{Before: before}
	}
	keep := t.maxRecords
	for _, e := range state.Exports {
		keep = max(keep, state.Head.Seq-e.Seq+1)
	}
	return job.TrailTrim{Keep: keep}
}

// expiredBefore returns the id before which records are too old and not held, if there are any.
func (t retention) expiredBefore(state job.TrailState) string {
	if t.maxAgeMS <= 0 || state.OldestID == "" {
		return ""
	}
	before := fmt.Sprintf("%d-0", max(0, int64(state.NowMS-unixtime.Milli(t.maxAgeMS))))
	for _, e := range state.Exports {
		if job.CompareTrailIDs(e.ID, before) < 0 {
			before = e.ID
		}
	}
	if before == "" || job.CompareTrailIDs(state.OldestID, before) >= 0 {
		return ""
	}
	return before
}

// countKept returns how many records there are, and how many bytes they have; 0: that is not known, as
// long as the oldest one is not of the chain.
func countKept(state job.TrailState) (count, bytes int64) {
	if state.OldestSeq == 0 {
		return 0, 0
	}
	return max(0, state.Head.Seq-state.OldestSeq+1), max(0, state.Head.Bytes-state.OldestBytes)
}
