package codec

import (
	"encoding/hex"
	"slices"
	"strings"

	"github.com/fermata-io/fermata/internal/core/job"
)

// encodeTrace encodes the trace id followed by the span id.
func encodeTrace(t *job.Trace) []byte {
	return append(t.TraceID[:len(t.TraceID):len(t.TraceID)], t.SpanID[:]...)
}

// decodeTrace returns nil for an invalid trace context: a run must not fail for lack of one.
func decodeTrace(ids []byte, state string) *job.Trace {
	var t job.Trace
	if len(ids) != len(t.TraceID)+len(t.SpanID) {
		return nil
	}
	copy(t.TraceID[:], ids)
	copy(t.SpanID[:], ids[len(t.TraceID):])
	t.State = state
	return &t
}

// encodeTraceID returns nil for nil.
func encodeTraceID(t *job.TraceID) []byte {
	if t == nil {
		return nil
	}
	return t[:]
}

// decodeTraceID returns nil for an invalid trace id.
func decodeTraceID(id []byte) *job.TraceID {
	var t job.TraceID
	if len(id) != len(t) {
		return nil
	}
	copy(t[:], id)
	return &t
}

// encodeCaller encodes both ids, the request id and the tracestate, separated by spaces. An earlier
// version keeps it after the run has ended; the request id says which run it belongs to.
func encodeCaller(c *job.Caller) string {
	return hex.EncodeToString(encodeTrace(&c.Trace)) + " " + c.RequestID + " " + c.Trace.State
}

// maxCallers bounds the callers of a record: an earlier version may have kept some whose runs have
// ended.
const maxCallers = 4

func (f tailField) storeCaller(s *job.State) error {
	ids, rest, _ := strings.Cut(f.text, " ")
	id, state, ok := strings.Cut(rest, " ")
	raw, err := hex.DecodeString(ids)
	trace := decodeTrace(raw, state)
	if !f.isText || !ok || err != nil || trace == nil {
		return errUnknownField // a run must not fail for lack of a trace
	}
	s.Callers = append(s.Callers, job.Caller{RequestID: id, Trace: *trace})
	if len(s.Callers) > maxCallers {
		s.Callers = slices.Clone(s.Callers[1:])
	}
	return nil
}
