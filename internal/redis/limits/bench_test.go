package limits

import (
	"fmt"
	"testing"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/test/redistest"
)

// BenchmarkUnits takes units and gives them back, some names a call.
func BenchmarkUnits(b *testing.B) {
	w := limitWorld{url: redistest.Start(b).URL()}
	for _, names := range []int{1, 100} {
		b.Run(fmt.Sprint("names=", names), func(b *testing.B) {
			s := w.store(b)
			asks, releases := make([]job.UnitRequest, names), make([]job.UnitRelease, names)
			for i := range names {
				name := fmt.Sprint("lock/ns/", i)
				asks[i] = job.UnitRequest{Name: name, Limit: 1, Holder: "1@ns/job", Waiter: "ns/job", TTL: time.Minute}
				releases[i] = job.UnitRelease{Name: name, Limit: 1, Holder: "1@ns/job"}
			}
			for b.Loop() {
				if g := s.AcquireUnits(b.Context(), asks)[names-1]; !g.Granted {
					b.Fatalf("%+v", g)
				}
				if r := s.ReleaseUnits(b.Context(), releases)[names-1]; r.Err != nil {
					b.Fatal(r.Err)
				}
			}
			b.ReportMetric(float64(b.N*names)/b.Elapsed().Seconds(), "units/s")
		})
	}
}

// BenchmarkRate takes a start of each of some queues.
func BenchmarkRate(b *testing.B) {
	s := limitWorld{url: redistest.Start(b).URL()}.store(b)
	asks := make([]job.RateRequest, 100)
	for i := range asks {
		asks[i] = job.RateRequest{Name: fmt.Sprint("rate/ns/", i), N: 1, Interval: time.Microsecond, Burst: 100}
	}
	for b.Loop() {
		if g := s.TakeRate(b.Context(), asks)[0]; g.Err != nil {
			b.Fatal(g.Err)
		}
	}
}
