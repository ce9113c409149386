package codec

import (
	"encoding/hex"
	"slices"
	"strings"

	"github.com/fermata-io/fermata/internal/core/job"
)

// encodeTrace writes trace and span id, one after the other.
func encodeTrace(t *job.Trace) []byte {
	return append(t.TraceID[:len(t.TraceID):len(t.TraceID)], t.SpanID[:]...)
}

// decodeTrace is nil for what is no trace context: a run is not refused for want of
// one.
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

// encodeTraceID writes nothing for none.
func encodeTraceID(t *job.TraceID) []byte {
	if t == nil {
		return nil
	}
	return t[:]
}

// decodeTraceID is nil for what is no trace id.
func decodeTraceID(id []byte) *job.TraceID {
	var t job.TraceID
	if len(id) != len(t) {
		return nil
	}
	copy(t[:], id)
	return &t
}

// encodeCaller writes both ids, the request id and the tracestate, separated by
// spaces. An earlier version carries it on when the run has ended: what it is about
// is told by the request id.
func encodeCaller(c *job.Caller) string {
	return hex.EncodeToString(encodeTrace(&c.Trace)) + " " + c.RequestID + " " + c.Trace.State
}

// maxCallers bounds what is kept of a record: an earlier version may have left some
// that are about nothing any more.
const maxCallers = 4

func (f tailField) storeCaller(s *job.State) error {
	ids, rest, _ := strings.Cut(f.text, " ")
	id, state, ok := strings.Cut(rest, " ")
	raw, err := hex.DecodeString(ids)
	trace := decodeTrace(raw, state)
	if !f.isText || !ok || err != nil || trace == nil {
		return errUnknownField // no run is refused for want of a trace
	}
	s.Callers = append(s.Callers, job.Caller{RequestID: id, Trace: *trace})
	if len(s.Callers) > maxCallers {
		s.Callers = slices.Clone(s.Callers[1:])
	}
	return nil
}
