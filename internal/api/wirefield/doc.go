// Package wirefield has the protobuf field numbers of the messages that the server and the worker encode and
// decode by hand, generated from their descriptors.
//
// Invariant: each constant Message_Field has the number of that field in proto/fermata/v1. A test compares them.
package wirefield
