// Package acceptance holds the tests that show what Fermata promises: real
// scheduler processes, real worker processes and real Redis servers, killed,
// frozen, cut off and restarted, judged by what the handlers recorded.
//
// The tests build cmd/scheduler once. Workers are the test binary itself, started
// again in another role, with handlers that append what they do to a file of
// evidence; package historycheck reads those files. Nodes with a virtual clock are the
// test binary in a third role.
//
// There is nothing in this package for others to import.
package acceptance
