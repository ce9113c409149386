package ledger

import (
	"sync/atomic"

	"github.com/fermata-io/fermata/internal/core/job"
)

const (
	// A round reads between minUnknown and maxUnknown records. Within these bounds it reads as many as have readBytes of
	// payloads, estimated by the mean size of earlier rounds. This bounds the memory of all committers, whatever records
	// callers and workers name.
	maxUnknown = 64
	minUnknown = 8
	readBytes  = 4 << 20
)

// definitionSizes estimates the size of the definitions that rounds read.
type definitionSizes struct{ mean atomic.Int64 }

// note updates the mean by the records that a round has read. The mean rises at once, and falls by at most an eighth with
// each round. Concurrent rounds may overwrite each other's mean: it is an estimate.
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
