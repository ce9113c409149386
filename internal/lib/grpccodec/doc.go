// Package grpccodec is a gRPC codec with hand-written encoders for a few frequent messages:
// leases, results and acknowledgements on the streams of workers.
//
// A message that implements [Writer] or [Reader] encodes or decodes itself, with package protofield; [Codec] uses
// protobuf for all others. The wire format is the same, so that either end of a stream may use plain protobuf.
// [EstimateDecoded] tells a server what memory a request takes before it decodes it.
package grpccodec
