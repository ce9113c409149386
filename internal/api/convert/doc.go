// Package convert translates between the API's protobuf messages and the types of the core: jobs,
// schedules, policies, runs, events, resource names and update masks. It is pure: it reads no clock
// and calls nobody.
//
// A [Reader] translates a message to the core and collects what it cannot translate, by field. A value
// that can be translated but is out of bounds is left to the validation of package job, so that a client
// gets all problems of a request in one answer. Functions that end in ToPB write messages. An [Enum] pairs
// the values of an enum of the API with those of the core, and serves both directions.
//
// Invariants:
//
//  1. A definition that is written and read again is the same definition: a client can send back
//     unchanged what it has read.
//  2. A policy is written with every field that has a default, zeros included. A reader takes a missing field
//     for its default, and a delay without an upper bound is not one with the default bound.
//  3. Each value of a core enum has one API value, and each API value except UNSPECIFIED has one core value.
//  4. A start is rounded up and an end is rounded down to the stored precision of one millisecond, so that a
//     job never runs outside the times that a client gave.
//  5. Every error names the field of the request that caused it.
package convert
