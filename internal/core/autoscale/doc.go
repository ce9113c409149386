// Package autoscale computes how many workers queues need, in the form that an autoscaler
// (KEDA) asks for: whether any worker is needed, and metric values with their targets.
//
// Model. A [Trigger] is the configuration of a pool of workers: its queues, the backlog that
// one worker may have ([Trigger.Backlog]), how late runs may start ([Trigger.Lag]), and the
// thresholds from which the pool is needed. A [Demand] is the amount of work in the queues. The
// results depend on nothing else.
//
// Invariants:
//
//  1. A pool is needed while a run of its queues is live: it is never scaled to zero
//     under a run.
//  2. A pool is needed for every job that is due, at the latest after the trigger's
//     ActivationLag: no threshold lets a job starve.
//  3. An accepted trigger has at least one target, and each of its keys has an effect: an
//     unknown key is refused.
package autoscale
