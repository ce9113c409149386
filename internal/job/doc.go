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
// "namespace/job". A dead run of a job that goes on is kept as a child record
// "namespace/job#d<slot>", a copy that only people look at.
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
//     Losses and returns never do.
//  6. Success resets the failure count; nothing else shortens a backoff but an
//     operator (manual run, edit) or the staleness rule.
//  7. A live record keeps its lane; an edit moves it when the run has ended.
//  8. Deciding twice on the same event gives the first answer: a settled token
//     is remembered, request ids of manual runs too.
package job
