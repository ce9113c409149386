// Package jobfilter is the language of filters for jobs: it parses a filter, evaluates it for a job, and derives what
// an index can serve of it. It is pure.
//
// The grammar is that of AIP-160, https://google.aip.dev/160, parsed by go.einride.tech/aip/filtering:
//
//	queue = mail AND (failing = true OR state = dead) AND NOT labels.team = "web-*" report
//
// OR binds tighter than AND. Terms without an operator between them are joined by AND. A word alone matches jobs whose
// id or handler contains it. Fields are listed by [Fields].
//
// Values need no quotes unless they contain a space, a parenthesis or a quote: rewrite quotes them before the library
// parses the filter, because its grammar ends a word at a dash, a colon or a dot.
//
// Invariants:
//
//  1. A filter has at most [MaxLength] bytes, [MaxTerms] terms and [MaxDepth] levels of parentheses. Its evaluation
//     takes time in proportion to its length and the length of the texts of the job.
//  2. A filter that does not parse gives an [Error] with the position of the fault, counted in characters from 1.
//  3. Every job that matches a filter is within its [Plan]. The reverse does not hold.
package jobfilter
