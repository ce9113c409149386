package job

import (
	"crypto/sha256"
	"encoding/binary"
	"math"
	"strconv"
)

// TraceID and SpanID are those of W3C trace contexts; zero is none.
type (
	TraceID [16]byte
	SpanID  [8]byte
)

// Trace is the sampled trace context of a call: the parent span of what the call causes. Contexts that are not
// sampled are not kept.
type Trace struct {
	TraceID TraceID
	SpanID  SpanID
	// State is the tracestate, at most MaxTraceState bytes.
	State string
}

// MaxTraceState bounds Trace.State in bytes; a longer one is dropped, as the
// standard allows.
const MaxTraceState = 512

// Caller is the trace context of the call that requested a manual run.
type Caller struct {
	RequestID string
	Trace     Trace
}

// CallerOf returns the trace context of the call that requested the current run.
func (s *State) CallerOf() (Trace, bool) {
	if s.Trigger != TriggerManual {
		return Trace{}, false
	}
	return s.traceOfRequest(s.ManualID)
}

// traceOfRequest returns the trace context of the call that made this request.
func (s *State) traceOfRequest(requestID string) (Trace, bool) {
	for i := range s.Callers {
		if s.Callers[i].RequestID == requestID {
			return s.Callers[i].Trace, true
		}
	}
	return Trace{}, false
}

// findCallerTrace returns the trace of CallerOf; nil if there is none.
func (s *State) findCallerTrace() *TraceID {
	if s.Trigger != TriggerManual {
		return nil
	}
	return s.traceIDOfRequest(s.ManualID)
}

func (s *State) traceIDOfRequest(requestID string) *TraceID {
	caller, ok := s.traceOfRequest(requestID)
	if !ok {
		return nil
	}
	id := caller.TraceID // so that only who traces pays for it
	return &id
}

// recordCaller stores the caller of a manual run. The list is never modified in place, because states share it.
func (s *State) recordCaller(id string, trace *Trace) {
	if trace == nil {
		return
	}
	s.Callers = append(s.Callers[:len(s.Callers):len(s.Callers)], Caller{RequestID: id, Trace: *trace})
}

// dropOtherCallers drops the callers of runs other than the one that waits.
func (s *State) dropOtherCallers() {
	if len(s.Callers) == 0 {
		return
	}
	s.Callers = selectCallers(s.Callers, s.Pending)
}

// selectCallers returns the part of a list that is about one request.
func selectCallers(list []Caller, id string) (kept []Caller) {
	for _, c := range list {
		if c.RequestID == id && id != "" {
			kept = append(kept, c)
		}
	}
	return kept
}

// removeCallers returns the rest of it.
func removeCallers(list []Caller, id string) (kept []Caller) {
	for _, c := range list {
		if c.RequestID != id {
			kept = append(kept, c)
		}
	}
	return kept
}

// Sampling decides which runs are traced, and under which ids. Both follow from
// the run alone, so that every node and every attempt comes to the same answer
// without anything being stored.
type Sampling struct{ threshold uint64 }

// NewSampling traces this share of the runs that no sampled call asked for, 0 to 1.
func NewSampling(share float64) Sampling {
	if share >= 1 {
		return Sampling{threshold: math.MaxUint64}
	}
	return Sampling{threshold: uint64(max(0, share) * (1 << 63) * 2)}
}

// RunTrace names the spans of a traced run.
type RunTrace struct {
	TraceID TraceID
	// Run is the span of the run as a whole, Parent the one that it is a child of:
	// that of the call which asked for a manual run, else zero.
	Run, Parent SpanID
	State       string // tracestate
	// Link is the context of the call that registered the job; nil: not sampled.
	Link *Trace
}

// Of returns the trace of the state's current run; false if it is not traced.
//
// A run that a sampled call asked for, by RunJob or by creating a one-time job, is.
// Of the others the share is. A manual run belongs to the trace of its caller; every
// other run is a trace of its own, linked to its registration, for a job may run for
// years.
func (s Sampling) Of(d *Definition, state *State) (RunTrace, bool) {
	t, sampled := s.newRunTrace(d, state.RunID(), state.Trigger)
	if caller, ok := state.CallerOf(); ok {
		t.TraceID, t.Parent, t.State = caller.TraceID, caller.SpanID, caller.State
		return t, true
	}
	return t, sampled
}

// OfRun returns the trace of a run as people see it, which may have ended; false if it is not
// traced.
func (s Sampling) OfRun(d *Definition, r *Run) (TraceID, bool) {
	if r.Caller != nil {
		return *r.Caller, true
	}
	t, sampled := s.newRunTrace(d, r.ID, r.Trigger)
	return t.TraceID, sampled
}

// newRunTrace returns the trace that a run has unless its caller has one.
func (s Sampling) newRunTrace(d *Definition, runID string, trigger Trigger) (RunTrace, bool) {
	var buf [160]byte
	seed := append(buf[:0], d.Namespace...)
	seed = append(append(seed, '/'), d.ID...)
	seed = append(append(seed, '@'), runID...)
	seed = strconv.AppendInt(append(seed, ' '), int64(d.CreatedMS), 10)
	sum := sha256.Sum256(seed)
	t := RunTrace{TraceID: TraceID(sum[:16]), Run: SpanID(sum[16:24]), Link: d.Trace}
	t.TraceID[0], t.Run[0] = t.TraceID[0]|1, t.Run[0]|1 // never zero, which is invalid
	asked := d.Trace != nil && !d.Recurring() && trigger == TriggerSchedule
	return t, asked || binary.BigEndian.Uint64(sum[8:16]) < s.threshold || s.threshold == math.MaxUint64
}

// Attempt returns the span of the attempt with this token.
func (t *RunTrace) Attempt(token uint64) SpanID {
	var seed [16]byte
	copy(seed[:8], t.Run[:])
	binary.BigEndian.PutUint64(seed[8:], token)
	sum := sha256.Sum256(seed[:])
	id := SpanID(sum[:8])
	id[0] |= 1
	return id
}

// Traceparent writes a sampled context as the header of that name.
func Traceparent(trace TraceID, span SpanID) string {
	const digits = "0123456789abcdef"
	b := make([]byte, 0, 55)
	b = append(b, "00-"...)
	for _, c := range trace {
		b = append(b, digits[c>>4], digits[c&15])
	}
	b = append(b, '-')
	for _, c := range span {
		b = append(b, digits[c>>4], digits[c&15])
	}
	return string(append(b, "-01"...))
}
