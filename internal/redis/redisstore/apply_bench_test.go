package redisstore

import (
	"fmt"
	"testing"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/redis/codec"
)

// BenchmarkApplyItems shows what the pool of [applyMemory] saves, for 64 runs that are settled by one
// call: its twin makes the memory anew.
func BenchmarkApplyItems(b *testing.B) {
	writes := make([]job.Write, 64)
	lane := job.Lane{Namespace: "ns", Queue: "default", Priority: 5}
	for i := range writes {
		key := job.Key{Namespace: "ns", ID: fmt.Sprint("job-", i)}
		state := job.State{Revision: 2, Lane: lane, Generation: 1, Nominal: 1_800_000_000_000, Due: 1_800_000_000_000, Runs: 1}
		writes[i] = job.Write{
			Record: key.Record(), Token: 1_800_000_000_000_000 + uint64(i), Revision: 1, From: lane,
			Current: &job.Definition{Key: key, HistoryLimit: 10},
			Decision: &job.Decision{
				State: state, IndexMS: state.Due,
				Ended: &job.Run{ID: "1-1800000000000", NominalMS: state.Nominal, Attempts: 1, Outcome: job.OutcomeSucceeded},
			},
		}
	}
	makeCalls := func(b *testing.B, memory *applyMemory) {
		groups, err := memory.planGroups(codec.EncodingSparse, unsuccessfulBounds{}, false, writes)
		if err != nil {
			b.Fatal(err)
		}
		if calls := memory.cutCalls(0, groups); len(calls) != 1 {
			b.Fatalf("%d calls", len(calls))
		}
	}
	b.Run("pooled", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			memory := acquireApplyMemory(len(writes))
			makeCalls(b, memory)
			memory.release()
		}
	})
	b.Run("made anew", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			memory := newApplyMemory()
			memory.resize(len(writes))
			makeCalls(b, memory)
		}
	})
}
