// Command witness is what the trial of a real Kubernetes cluster judges Fermata by:
// a pod beside the release that knows only what its clients and its handlers see.
//
// # Model
//
// It registers jobs through the release's service ([load]). Their handler is the
// ready-made http, in the worker pods of the chart, and their address is the witness
// itself, which records when each attempt starts, is told to stop, and ends
// ([recorder]): the evidence of package historycheck. Worker pods are identified by their
// addresses. All the time it also registers new jobs that are due once, some seconds
// later, through the same service: how long these calls take is how the trial sees
// clients fare.
//
// Who runs the trial tells it of each disturbance ([stage]): that it begins, when it
// has been done, what it may cost. At its end the witness waits until every job is on
// time again, and holds the longest that any job waited against what is documented.
// In the very end package historycheck judges the whole history.
//
// # Invariants
//
//  1. What is recorded is what happened: a start is recorded before the attempt is
//     answered, an end before the worker can know of it.
//  2. A disturbance excuses only what it was said to cost. A planned one excuses
//     nothing.
//  3. Times in which the machine itself stood still are measured beside ([pulse]),
//     told, and excused.
//  4. Nothing is kept but in memory: a witness that was restarted knows no jobs, and
//     its verdict fails.
//
// The same binary, as "witness tell PATH", asks the one that runs beside it.
package main
