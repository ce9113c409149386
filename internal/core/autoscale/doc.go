// Package autoscale says how many workers queues ask for, as an autoscaler wants to
// hear it: whether any at all, and numbers to hold against targets.
//
// Model. A [Trigger] is what somebody wrote down for a pool of workers: its queues, how
// much of them one worker may have before it ([Trigger.Backlog]), how late their runs may
// start ([Trigger.Lag]), and from when the pool is needed. A [Size] is how much there is
// to do in the queues. Everything else follows from the two.
//
// Invariants:
//
//  1. A pool is needed as long as anything of its queues runs: it is never scaled to
//     nothing under a run.
//  2. A pool is needed for every job that is due, at the latest after the trigger's
//     ActivationLag: no threshold leaves a job waiting for ever.
//  3. A trigger that is accepted has at least one target, and nothing in it is without
//     an effect: what is misspelt is refused.
package autoscale
