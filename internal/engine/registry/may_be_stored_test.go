package registry

import (
	"context"
	"errors"
	"testing"

	"github.com/fermata-io/fermata/internal/core/job"
)

// TestEndedCallsProveNothing: only errors that say so prove that a write is not stored. The end of a call does not.
func TestEndedCallsProveNothing(t *testing.T) {
	for _, c := range []struct {
		err          error
		one, inBatch bool
	}{
		{context.Canceled, true, true},
		{context.DeadlineExceeded, true, true},
		{errors.New("odd"), true, true},
		{job.ErrUnavailable, true, true},
		{job.ErrDurability, true, true},
		{job.ErrNoMemory, false, true},
		{job.ErrCorrupt, false, true},
		{job.ErrNotFound, false, false},
		{job.ErrConflict, false, false},
		{job.Invalid("job.id", "is missing"), false, false},
		{&job.MissingError{}, false, false},
		{&job.ExistsError{}, false, false},
		{&job.BusyError{}, false, false},
	} {
		if one, inBatch := mayBeStored(c.err), mayBeStoredInBatch(c.err); one != c.one || inBatch != c.inBatch {
			t.Errorf("%v: %v, in a batch %v; want %v, %v", c.err, one, inBatch, c.one, c.inBatch)
		}
		for _, shrinks := range []bool{false, true} {
			if got := countsAsStored(job.ChangeResult{}, c.err, shrinks); got != (c.one && !shrinks) {
				t.Errorf("%v: an edit that shrinks the job (%v) counts: %v", c.err, shrinks, got)
			}
		}
	}
}
