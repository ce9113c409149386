package ledger

import (
	"sync/atomic"

	"github.com/fermata-io/fermata/internal/core/job"
)

const (
	// A round reads at most maxUnknown records, and as many as have readBytes of payloads in all by the mean size of
	// those that were read before, but at least minUnknown. All committers together so have a bounded part of the memory,
	// whatever records callers and workers name.
	maxUnknown = 64
	minUnknown = 8
	readBytes  = 4 << 20
)

// definitionSizes estimates the size of the definitions that rounds read.
type definitionSizes struct{ mean atomic.Int64 }

// note takes records that a round has read into the mean. It rises at once, and falls by an eighth with each round.
func (s *definitionSizes) note(records []*job.Record) {
	bytes, found := 0, 0
	for _, r := range records {
		if r != nil {
			bytes += len(r.Definition.Payload)
			found++
		}
	}
	if found == 0 {
		return
	}
	before := s.mean.Load()
	s.mean.Store(max(int64(bytes/found), before-before/8))
}

// mostUnknown returns how many records a round may read.
func (s *definitionSizes) mostUnknown() int {
	return int(max(minUnknown, min(maxUnknown, readBytes/max(1, s.mean.Load()))))
}
