// Package job is the state machine of jobs: the model of a job, the states of a record, and the
// one pure function that moves a record from state to state.
//
// A [Definition] has the work, the schedule, and the policies for failures. A [State] is the
// current state of a record. [Decide] takes both with an [Input] and the shard's clock and
// returns a [Decision]: the new state, and what to write and to report. It does no IO, reads no
// clock and draws no random number, so that any node, any replay and any explanation computes
// the same decision.
//
// The unit is a record. Each job has one parent record, whose id is
// "namespace/job". A run that is live while time goes on for its job's schedule
// (overlap by choice, backfill, redriven run) is a child record
// "namespace/job#r<slot>"; [DecideChild] decides on it together with its parent.
// A dead run of a job that continues is kept as "namespace/job#d<slot>", a copy
// that a user may redrive or delete.
//
// A leased run may have to pass gates before it is delivered ([GatesOf]): overlap and misfire
// policy ([RunLeased]), the recovery budget, locks, its target. A gate that is shut puts the run
// back with a reason ([HoldBack]), which is not a failure.
//
// Files of further rules: run_payload.go has runs with a payload of their own; attempt.go has what a result or a lost
// lease does to a run; arrival.go and child.go, whether a leased run starts beside others; missed_times.go, nominal
// times that passed without a run; plan.go, when the next one is due; explain.go, why a job does not run; lag.go, how
// late a run is, and the ranking of the worst jobs; exclude.go, how exclusions move due times; project.go, when the
// next runs would be due if all of them failed.
//
// A record is in exactly one region of its lane's index:
//
//	           lease                    settle, lost, returned
//	due ----------------> leased --------------------------------> due
//	 ^  \                   |  \                                    |
//	 |   \ pause            |   \ one-time run out of attempts      | schedule
//	 |    v                 |    v                                  | has ended
//	 |   paused <-----------+   dead                                v
//	 +-----/  resume      (pause was                               done
//	 +--------------------  asked while live)
//	    run, update
//
// Invariants (held by Decide, checked by [State.Check]):
//
//  1. A token only grows. A settlement, a loss or a return with another token
//     than the state's changes nothing.
//  2. A revision grows by one with each decision that changes the state. The
//     store compares token and revision before it writes, so that of two
//     concurrent decisions at most one succeeds.
//  3. Nominal <= Due for every planned run.
//  4. The nominal times of the scheduled runs of one generation strictly grow.
//  5. Handler failures and timeouts use up attempts and count as failures.
//     Losses, returns and holds never do. Only losses in a row of workers that have
//     not come back quarantine a run ([ForgiveLoss]). The outcome of a backfill, a
//     redriven run, or a manual run that requests it, leaves the failure count
//     unchanged.
//  6. Success resets the failure count. Otherwise only an operator (manual run, edit),
//     a hint in force, or the staleness rule shortens a backoff.
//  7. A live record keeps its lane; an edit moves it when the run has ended.
//  8. Decide is idempotent: the same event again gives the first answer. The state
//     keeps the settled token and the request ids of manual runs for that.
//  9. The bits of State.Children are the child records that exist; those of
//     State.Started the ones that have begun. No run starts beside another one of
//     its job, except by the overlap policy or a backfill.
//  10. A backlog of missed runs of any length is one instant in the state, and no
//     decision takes more steps through the missed times than the policy's bound.
package job
