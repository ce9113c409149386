// Package job is the model: what a job is, the states of a record, and the one
// pure function that moves a record from state to state.
//
// A [Definition] says what to do, when, and what happens on failure. A [State]
// says where a record stands. [Decide] takes both with an [Event] and the
// shard's clock and returns a [Decision]: the new state and what must be written
// or told besides. It does no IO, reads no clock and rolls no dice, so that any
// node, any replay and any explanation comes to the same decision.
//
// The unit is a record. Each job has one parent record, whose id is
// "namespace/job". A run that is live while time goes on for its job's schedule
// (overlap by choice, backfill, redriven run) is a child record
// "namespace/job#r<slot>", decided on together with its parent by [DecideChild].
// A dead run of a job that goes on is kept as "namespace/job#d<slot>", a copy
// that waits for people.
//
// A run that has been leased may have to pass gates before it is delivered
// ([GatesOf]): overlap and misfire policy ([Arrive]), the recovery budget, locks,
// its target. A gate that is shut puts it back with a reason ([HoldBack]), which
// is no failure. What becomes of nominal times that passed without a run is in
// missed.go; when the next one is due, in plan.go; why a job does not run, in
// explain.go; how late a run is, and which jobs are the worst, in lag.go; what exclusions
// do to due times, in exclude.go; when runs would be due that all fail, in project.go.
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
//  1. A token only grows. A settlement, a loss or a return that carries another
//     token than the state's changes nothing.
//  2. A revision grows by one with each decision that changes the state. The
//     store compares token and revision before it writes, so that two deciders
//     never both win.
//  3. Nominal <= Due for every planned run.
//  4. The nominal times of the scheduled runs of one generation strictly grow.
//  5. Handler failures and timeouts use up attempts and count as failures.
//     Losses, returns and holds never do. Losses in a row that quarantine a run are
//     those of workers that have not come back ([ForgiveLoss]). The outcome of a backfill, a redriven
//     run, or a manual run that says so, leaves the failure count alone.
//  6. Success resets the failure count; nothing else shortens a backoff but an
//     operator (manual run, edit), a hint in force, or the staleness rule.
//  7. A live record keeps its lane; an edit moves it when the run has ended.
//  8. Deciding twice on the same event gives the first answer: a settled token
//     is remembered, request ids of manual runs too.
//  9. The bits of State.Children are the child records there are; those of
//     State.Started the ones that have begun. Unless the overlap policy or a
//     backfill says so, no run starts beside another one of its job.
//  10. Whatever its length, a backlog of missed runs is one instant in the state,
//     and no decision steps through what was missed by more than the policy's
//     bound.
package job
