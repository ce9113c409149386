// Package logs makes the loggers of the commands: lines of text or JSON, with a level
// that can be changed while the process runs, and a bound on lines that repeat.
//
// A job that fails every second should be seen, not drown the rest. Of lines with one
// message about one job (the attributes job and record) [Options.Limit] are written in
// each [Window], of lines with one message ten times as many; at the end of the window
// one line says how many were left out.
//
// Invariants:
//
//  1. Whatever is left out is counted, and the count is written, though nothing more
//     is logged.
//  2. Memory is bounded: what is counted is forgotten with its window, and beyond a
//     number of jobs they are counted together.
//  3. Audit lines are never left out.
//
// docs/logs.md lists the names of attributes.
package logs
