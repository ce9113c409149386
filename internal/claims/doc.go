// Package claims holds the test that keeps the documents honest about tests: a
// test that a document names as proof has to exist, in the package that the
// document says.
//
// Two forms are read. `internal/lease`: TestOne, TestTwo names a package. A name
// anywhere else in the text means a test of any package. And each control in
// SECURITY.md has to name at least one test. How many simulated lives make test plays
// has to be what the Makefile says, and what the race detector leaves out has to exist.
package claims
