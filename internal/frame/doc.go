// Package frame lets messages of protobuf be written and read by hand where there are
// so many that the general way is dear: leases, results and acknowledgements on the
// streams of workers.
//
// What is on the wire stays what the .proto files say, byte for byte as protobuf's own
// encoder writes it, so that either end of a stream may do without this package. A
// message that knows how is a [Writer] or a [Reader]; [Codec] takes any other message
// the general way.
//
// Invariants:
//
//  1. Fields are written in the order of their numbers, and left out where they are
//     zero.
//  2. A reader passes over fields that it does not know, refuses text that is not UTF-8
//     and anything that is cut off, and keeps nothing of the bytes it is given.
package frame
