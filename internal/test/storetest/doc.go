// Package storetest is the suite that a store of records has to pass, whatever
// kind of Redis is below it.
//
// [Run] opens a store for each of its tests through the caller, drives it through
// the calls that engines make, and reads what is in Redis directly to see whether
// it is right. The keyspaces have virtual clocks, so that tests set what time it
// is and nothing waits.
//
// After each test the keyspace is audited:
//
//  1. Every record is in exactly one lane, the one that its state names, in the
//     region that its state names.
//  2. State and definition exist together, except that a run that is a record of its
//     own has none, and the history has no runs of records that do not exist.
//  3. The index of lanes names the lanes that are not empty, each with its first
//     due time.
//  4. Every run that is a record of its own has its bit in the state of its job, and
//     every bit its run.
//
// The package is test support: no product package imports it.
package storetest
