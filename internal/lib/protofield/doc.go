// Package protofield writes and reads fields of protobuf messages by hand, for those places
// where there are so many messages that the general way is dear.
//
// What is written is what the .proto files say, byte for byte as protobuf's own encoder
// writes it, so that whoever reads or writes it may do without this package.
//
// Invariants:
//
//  1. Fields are left out where they are zero. Whoever writes a message writes them in the
//     order of their numbers.
//  2. A reader passes over fields that it does not know, refuses text that is not UTF-8
//     and anything that is cut off, and keeps nothing of the bytes it is given.
package protofield
