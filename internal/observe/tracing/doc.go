// Package tracing exports spans to an OpenTelemetry collector, by OTLP over gRPC, and makes the
// spans of runs.
//
// A run is one trace. Its root span lasts from the due time to the end of the run. Each
// attempt is a child span, and the handler's span, which the worker sends, is a child of the
// attempt. [job.Sampling] derives the ids of trace and spans from the run, so that nodes that
// never communicated make one trace, and none of it has to be stored.
//
// Invariants:
//
//  1. Tracing does not delay runs: spans are made of stored decisions, and put into a
//     bounded queue that drops what does not fit.
//  2. A node without an endpoint has no [Tracer]: its callers skip it.
//  3. Only contexts that their callers sampled are continued; other runs are sampled at the
//     node's share.
//  4. Spans contain names, ids, times and the stored error text; never payloads or outputs.
package tracing
