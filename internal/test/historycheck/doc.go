// Package historycheck judges the history of a cluster by what handlers recorded, not by what the
// scheduler believes.
//
// A [History] holds the events that worker processes wrote to files of their own ([Event]),
// what was acknowledged to clients ([ExpectedSchedule]), and the faults that a test injected, with
// their times ([Fault]). [Check] pairs the events into executions and reports every one of
// these as a [Finding]:
//
//  1. Missed, Late: a scheduled time of an acknowledged schedule had no run inside its
//     window. The window opens at the scheduled time; it is the bound of calm times, or
//     reaches past the end of each fault that touches it. Times that passed while an earlier
//     run was late or live are excused, as the overlap policy demands, and so is the backoff
//     of a job whose last run was given up because its workers died with it. Runs are matched
//     by their label first; earliest deadline first over bare start times cross-checks that
//     the labels are true.
//  2. Lost: an acknowledged job left no trace, or is not stored any more.
//  3. Overlap: two executions of one job ran while both had a live lease, or more runs of
//     several jobs at once than their lock has units ([Shared]). A lease counts as live from
//     its handler's start to its end, or until it may have expired because a fault kept it
//     from being renewed.
//  4. TokenOrder: a token was seen twice, or did not grow from one execution of a job to the
//     next. For workers without heartbeats a fault explains a late start. Expired: a handler
//     began when its lease had ended, by its token's time.
//  5. Early: a handler started before its due time or, to the nanosecond, before the time
//     that was given for its run; or a due time lies before its scheduled time, or that
//     before the one given.
//  6. Repeat: a run was executed again although its last execution did not fail and no fault
//     touched its worker. Attempt: attempts were counted wrongly, for instance a lost worker
//     used one up.
//  7. Unfinished: an execution that neither ended nor was repeated, unless its run was given
//     up.
//  8. Stray: an execution of a job that no client registered.
//  9. Shrunk: a failing job waited less than it had after the failure before, though no run
//     had succeeded.
//  10. Uncalled: a run that no client asked for started after a client was answered that the
//     job is paused, or deleted.
//  11. Hasty: an attempt started sooner after the return of a failed one of its job than that
//     has to wait ([Wait]).
//  12. Dropped: a manual run that was acknowledged to a client never began, although no client
//     asked for its end ([ManualRun]).
//
// All times are Unix nanoseconds of one host's clock, which Redis shares with the workers in
// tests.
//
// The package is test support: no product package imports it.
package historycheck
