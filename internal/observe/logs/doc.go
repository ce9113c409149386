// Package logs makes the loggers of the commands: records as text or JSON, a level that can be
// changed while the process runs, and a rate limit on repeated records.
//
// A job that fails every second should be visible without hiding other records. Of records with one
// message about one job (the attributes job and record) [Options.Limit] are written in each
// [Window], of records with one message ten times as many. At the end of the window one record has
// the number of omitted ones.
//
// Invariants:
//
//  1. Omitted records are counted, and the count is written even if nothing else is logged.
//  2. Memory is bounded: counts are dropped at the end of their window, and jobs and messages beyond a
//     number are counted together, by their first bytes.
//  3. Audit records are never omitted.
//
// docs/logs.md lists the names of attributes.
package logs
