package codec

import (
	"testing"

	"github.com/fermata-io/fermata/internal/core/job"
)

// BenchmarkArguments shows what [ArgumentBuffer] saves, for 64 runs that are settled together.
func BenchmarkArguments(b *testing.B) {
	const records = 64
	w := job.Write{Record: "ns/job", Token: 1_800_000_000_000_123, Revision: 7}
	s := job.State{Token: w.Token, Revision: 8, Lane: job.Lane{Namespace: "ns", Queue: "default", Priority: 5}, Generation: 1, Nominal: 1_800_000_000_000}
	b.Run("shared", func(b *testing.B) {
		b.ReportAllocs()
		buffer := ArgumentBuffer{Encoding: EncodingSparse}
		for b.Loop() {
			buffer.Free = buffer.Free[:0]
			for i := range records {
				room := buffer.Reserve(records - i)
				guard := room.AppendGuard(&w)
				state, err := room.AppendState(&s, 10)
				if err != nil {
					b.Fatal(err)
				}
				field := room.AppendHistoryField(w.Record, i)
				if len(guard)+len(state)+len(field) == 0 {
					b.Fatal("empty arguments")
				}
			}
		}
	})
	b.Run("separate", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			for i := range records {
				guard := GuardPattern(w.Token, w.Revision)
				state, err := EncodingSparse.EncodeState(&s)
				if err != nil {
					b.Fatal(err)
				}
				if field := HistoryField(w.Record, i); len(guard)+len(state)+len(field) == 0 {
					b.Fatal("empty arguments")
				}
			}
		}
	})
}
