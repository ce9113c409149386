package workerstream

import (
	"bytes"
	"testing"

	"github.com/fermata-io/fermata/internal/core/job"
)

// TestNoTracesCostNothing: a lease of a run that is not traced is the same on the wire,
// to the byte, and takes no allocation more, whether its node traces or not.
func TestNoTracesCostNothing(t *testing.T) {
	m := job.Assignments{{LeaseID: "l", Record: &job.Record{
		Definition: &job.Definition{Key: job.Key{Namespace: "ns", ID: "j"}, Handler: "h"}, State: job.State{Nominal: 1, Due: 1, Token: 1},
	}}}
	wire := func(tracer LeaseTracer) []byte { return (&leaseFrame{leases: m, trace: tracer}).AppendFrame(nil) }
	none := wire(nil)
	untraced := LeaseTracer(func(*job.Record) (string, string) { return "", "" })
	if have := wire(untraced); !bytes.Equal(have, none) {
		t.Errorf("%d bytes, want %d", len(have), len(none))
	}
	buf := make([]byte, 0, 1024)
	allocs := func(tracer LeaseTracer) float64 {
		f := &leaseFrame{leases: m, trace: tracer}
		return testing.AllocsPerRun(100, func() { buf = f.AppendFrame(buf[:0]) })
	}
	if with, without := allocs(untraced), allocs(nil); with != without {
		t.Errorf("%v allocations, want %v", with, without)
	}
	if have := wire(func(*job.Record) (string, string) { return "00-1-2-01", "" }); len(have) <= len(none) {
		t.Error("a traced run's lease says nothing of it")
	}
}
