package registry

import (
	"fmt"
	"testing"

	"github.com/fermata-io/fermata/internal/core/job"
)

// BenchmarkCreateBatch is what a batch of 100 costs beside the store; divide by 100.
func BenchmarkCreateBatch(b *testing.B) {
	f, r := newFake(b)
	given := make([]job.CreateRequest, 100)
	for i := range given {
		given[i].Definition = definition(fmt.Sprintf("j%03d", i))
	}
	requests := make([]job.CreateRequest, len(given))
	b.ReportAllocs()
	for b.Loop() {
		copy(requests, given)
		clear(f.records)
		for _, a := range r.CreateBatch(b.Context(), requests) {
			if a.Err != nil {
				b.Fatal(a.Err)
			}
		}
	}
}
