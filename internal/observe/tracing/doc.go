// Package tracing sends spans to an OpenTelemetry collector, by OTLP over gRPC, and
// makes those of runs.
//
// A run is one trace: its span from when it was due until it ended, below it one for
// each attempt, below that the handler's own, which the worker sends. Trace and spans
// are named by [job.Sampling], from what a run is, so that nodes which never spoke to
// one another make one trace, and none of it has to be stored.
//
// Invariants:
//
//  1. Nothing here is on the way of a run: spans are made of decisions that are
//     stored, and put into a bounded queue that drops what does not fit.
//  2. A node without an endpoint has no [Tracer]: whoever would call it does not.
//  3. Only contexts that their callers sampled go on; who asks for no trace gets the
//     node's share.
//  4. Spans carry names, ids, times and the stored error text; never payloads or
//     outputs.
package tracing
