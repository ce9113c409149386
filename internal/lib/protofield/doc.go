// Package protofield encodes and decodes protobuf fields by hand, for messages that are so
// frequent that reflection is too slow.
//
// The encoding is that of the .proto files, byte for byte as protobuf's own encoder writes
// it, so that the other side need not use this package.
//
// Invariants:
//
//  1. Zero fields are omitted. The encoder of a message writes its fields in the order of
//     their numbers.
//  2. A decoder skips unknown fields, refuses text that is not UTF-8 and truncated input, and
//     keeps no reference to its input.
package protofield
