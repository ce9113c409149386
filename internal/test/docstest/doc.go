// Package docstest holds the test that keeps the documents true about tests: a test
// that a document names as proof has to exist, in the package that the document names.
//
// Two forms are read. `internal/core/lease`: TestOne, TestTwo names a package. A name
// anywhere else in the text means a test of any package. And each control in
// SECURITY.md has to name at least one test. The number of simulation seeds in the documents
// must match the Makefile, and the packages that the race detector leaves out must exist.
// Relative links lead to files and headings that exist. Commands and flags are in docs/reference, and so are the
// durations that documents state as the defaults of flags. The table "Where is ..." in docs/architecture.md names
// files and identifiers that exist.
package docstest
