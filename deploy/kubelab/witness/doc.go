// Command witness judges Fermata in the trial on a real Kubernetes cluster. It runs in
// a pod beside the release and knows only what its clients and its handlers see.
//
// # Model
//
// It registers jobs through the release's service ([load]). Their handler is the
// ready-made http, in the worker pods of the chart, and their address is the witness
// itself, which records when each attempt starts, is cancelled, and ends ([recorder]).
// Package historycheck judges these records. Worker pods are identified by their
// addresses. Throughout the trial the witness also registers new one-time jobs that are
// due some seconds later, through the same service: the duration of these calls shows
// how the trial affects clients.
//
// The script that runs the trial announces each disturbance ([stage]): its beginning,
// its end, and what it may cost. At the end the witness waits until every job is on
// time again, and compares the longest wait of a job with the documented bound.
// After the last disturbance package historycheck judges the whole history.
//
// # Invariants
//
//  1. What is recorded is what happened: a start is recorded before the attempt is
//     answered, an end before the worker can know of it.
//  2. A disturbance excuses only its announced cost. A planned one excuses nothing.
//  3. Stalls of the machine itself are measured ([stallWatch]), reported, and excused.
//  4. Nothing is kept but in memory: a witness that was restarted knows no jobs, and
//     its verdict fails.
//
// The same binary, as "witness tell PATH", asks the one that runs beside it.
package main
