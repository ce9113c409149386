// Package grpccodec is the codec of connections on which a few messages are written and read
// by hand, with package protofield: leases, results and acknowledgements on the streams of
// workers.
//
// A message that knows how is a [Writer] or a [Reader]; [Codec] takes any other message
// the general way. Both look the same on the wire, so that either end of a stream may do
// without this package.
package grpccodec
