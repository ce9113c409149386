// Package playground runs a complete Fermata system in one process for demonstration: an
// in-memory Redis, one node, one worker, an HTTP target that fails on command, a few sample
// jobs, and a live view. The view shows how a failing job backs off while a healthy one runs on
// time.
//
// # Model
//
// [Run] starts the parts and registers the sample jobs through the public client. Then it only
// watches: four times a second it lists the jobs like any client and compares them with the
// previous listing. So the view shows the state of the cluster, including jobs that others
// register. Rendering is a pure function of one [frame]; the screen writes its result.
//
// # Invariants
//
//  1. Nothing is kept: neither jobs nor files exist after Run, except a named log file, and the
//     directory of a run that ended with an error.
//  2. The end of the context drains: the worker takes no more attempts, and running ones may
//     finish within DrainTimeout. Abort cuts that short.
//  3. When Run returns, everything it started has ended: goroutines, listeners, its own
//     redis-server. The terminal is restored before the draining begins, so that it is in order
//     if the process is killed meanwhile.
//  4. The live view never writes more lines or columns than the terminal has. Output to
//     anything else than a terminal has no control codes.
package playground
