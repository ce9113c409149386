// Package playground runs a whole Fermata in one process, for trying it out: an
// in-memory Redis, one node, one worker, an HTTP target that fails on command,
// a handful of sample jobs, and a live view in which one watches a failing job
// back off while a healthy one runs on time.
//
// # Model
//
// [Run] builds the parts, registers the samples through the public client, and
// then only watches: four times a second it lists the jobs as any client would
// and compares them with what it saw before. What it shows is therefore what
// the cluster says, and jobs that somebody else registers show up too. Rendering
// is a pure function of one [frame]; the screen only writes what it returns.
//
// # Invariants
//
//  1. Nothing is kept: neither jobs nor files outlive Run, but a log file that
//     was named, and the directory of a run that ended in an error.
//  2. A context that ends drains: the worker takes nothing new and what runs may
//     finish, within DrainTimeout. Abort cuts that short.
//  3. When Run returns, everything it started has ended: goroutines, listeners,
//     the redis-server of its own. The terminal is as it was before the draining
//     begins, so that a process that is ended meanwhile leaves it in order.
//  4. The live view never writes more lines or columns than the terminal has.
//     Output that is no terminal carries no control codes at all.
package playground
