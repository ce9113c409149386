// Package codec encodes and decodes what Redis stores about jobs: states, definitions and ended
// runs.
//
// # Model
//
// The package is pure. It turns values of package job into bytes and back, and imports no Redis
// client. Keys, scripts and everything else that talks to a server belong to package redisstore.
//
// A state is text: a header of fixed width, which the Lua scripts read and change in place, and
// a tail of fields, which only this package reads. A definition and an ended run are protobuf
// messages of proto/fermata/storage/v1. The [Encoding] says how much is left out of them. The
// schema of the keyspace selects the encoding for writing; every encoding is read at any time.
//
// # Invariants
//
//  1. Every encoding of a value decodes to the same value. Equal definitions have equal bytes, so
//     that a repeated creation can be recognised.
//  2. What a later version has added to a record survives decoding and encoding.
//  3. A value that this version does not know makes the record unreadable ([ErrCorrupt]): a
//     scheduler must not guess. The exceptions are trace contexts and sources of policies.
//  4. Decoded values share no memory with the input.
//
// # Hand-written code
//
// Two functions read or write protobuf by hand, with the field numbers in field_numbers.go, which
// is generated from storage.proto. Each has a benchmark, and a test that compares it with protobuf
// itself. Run `go test -run - -bench 'DecodeDefinition|EncodeRun' ./internal/redis/codec`.
package codec
