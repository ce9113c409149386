package codec

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/fermata-io/fermata/internal/core/job"
)

func drawTrace(t *rapid.T) job.Trace {
	ids := rapid.SliceOfN(rapid.Byte(), 24, 24).Draw(t, "ids")
	return job.Trace{
		TraceID: job.TraceID(ids[:16]), SpanID: job.SpanID(ids[16:]),
		State: rapid.SampledFrom([]string{"", "vendor=x", "a=1, b=2"}).Draw(t, "tracestate"),
	}
}

// TestTraceThatCannotBeReadHarmsNoRun: a record stays usable whatever is stored where
// trace contexts are, and carries it on.
func TestTraceThatCannotBeReadHarmsNoRun(t *testing.T) {
	s := job.State{Revision: 1, Lane: job.Lane{Namespace: "ns", Queue: "q"}}
	text, err := EncodingFull.EncodeState(&s)
	if err != nil {
		t.Fatal(err)
	}
	for _, field := range []string{"Z7", "Z0:", "Z3:zz ", "Z7:1122 id", "Z55:" + strings.Repeat("1", 50) + " id x"} {
		got, err := DecodeState("ns/job", text+field)
		if err != nil || len(got.Callers) != 0 || got.Unknown != field {
			t.Errorf("%s: %+v (%v)", field, got, err)
		}
	}
	if trace := decodeTrace(make([]byte, 23), ""); trace != nil {
		t.Errorf("23 bytes are %+v", trace)
	}
}

// TestCallersDoNotPileUp: an earlier version carries on what it does not know.
func TestCallersDoNotPileUp(t *testing.T) {
	s := job.State{Revision: 1, Lane: job.Lane{Namespace: "ns", Queue: "q"}}
	for range 2 * maxCallers {
		s.Callers = append(s.Callers, job.Caller{RequestID: "r"})
	}
	text, err := EncodingCompact.EncodeState(&s)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := DecodeState("ns/job", text); err != nil || len(got.Callers) != maxCallers {
		t.Errorf("%d callers (%v)", len(got.Callers), err)
	}
}
