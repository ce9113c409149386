// Package backoff computes how long to wait after a failure: retry delays with jitter, backoff of
// failing recurring jobs, and circuit breakers of targets.
//
// There are three kinds of waits, and one job may use all of them. Package job calls [Retry] after a failed
// attempt (plan.go, planRetry) and [Recurring] after a failed run (plan.go, nextDelay):
//
//   - [Retry] is the wait between the attempts of one run. Before attempt k+1,
//     after k failed ones, it is
//
//     fixed          base
//     linear         base * k
//     exponential    base * multiplier^(k-1+offset)
//     decorrelated   a random walk: uniform in [base, 3 * previous wait]
//
//     bounded by MaxDelay, MaxAttempts and MaxElapsed. With MaxDoublings = d
//     the exponential curve goes on in equal steps after the d-th growth.
//
//   - [Recurring] is the interval between the runs of a failing recurring job.
//     After f failed runs in a row it is
//
//     base * multiplier^min(f, max_exponent)
//
//     under up to three further caps: absolute (never below base), relative to
//     base, and the job's own largest interval.
//
//   - [Circuit] is the wait of all jobs that need the same target: a failure of
//     one holds all of them back, and one probe tests the target for all.
//
// [Jitter] spreads a wait. It is a hash, not a random number: [Seed] hashes job, run and
// attempt, so that every node, every version, every replay and every explanation computes
// the same instant.
//
// Everything here is a pure function of its arguments. Invariants:
//
//  1. No wait is negative, and none overflows: arithmetic saturates at the
//     largest time.Duration, for any base and any count of failures.
//  2. No wait passes its cap. The one exception is [JitterProportional], which
//     by its definition is drawn around the capped value and stays within
//     cap + round(cap * fraction). A bound of the exponent is no cap of the wait:
//     [JitterSpread] may draw up to half more than the curve's last step.
//  3. Before jitter a wait never shrinks as failures grow (decorrelated waits,
//     random by nature, are exempt).
//  4. The default jitter is drawn downward from the capped value, so that waits
//     which have reached their cap still differ.
//  5. The same arguments give the same result on every architecture: the only
//     floating-point operations are single multiplications, which IEEE 754
//     defines to the bit, and roundings.
//  6. Values that Validate refuses are taken as the nearest one that it
//     accepts; no function panics.
package backoff
