// Package codec encodes and decodes what Redis stores about jobs: states, definitions and ended
// runs.
//
// # Model
//
// The package is pure. It turns values of package job into bytes and back, and imports no Redis
// client. Keys, scripts and everything else that talks to a server belong to packages runner, redisstore and limits.
//
// A state is text: a header of fixed width, which the Lua scripts read and change in place, and
// a tail of fields, which only this package reads. A definition and an ended run are protobuf
// messages of proto/fermata/storage/v1. The [Encoding] selects which fields are omitted. The
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
// One function reads protobuf by hand: [DefinitionDecoder] decodes the definitions that nearly all jobs
// have field by field. The field numbers are in field_numbers.go, which a test generates from
// storage.proto. Tests and a fuzzer compare it with protobuf itself. BenchmarkDecodeDefinition has each
// case twice, by hand and by protobuf (least of 60 runs, on a busy machine):
//
//	interval, schema 3     283 ns   4 allocs     by protobuf   550 ns   6 allocs
//	cron with retries      589 ns   6 allocs     by protobuf   991 ns  12 allocs
//	with a lock           1722 ns  21 allocs     by protobuf  1137 ns  16 allocs
//
// The last case is rare: it is decoded by protobuf after the attempt by hand has failed.
//
// Memory reuse, for 64 records: [ArgumentBuffer] 11 us and no allocation instead of 23 us and 128
// (BenchmarkArguments).
package codec
