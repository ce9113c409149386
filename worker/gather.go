package worker

import (
	"time"

	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// While results are frequent, they are gathered for gatherTime before they are sent. At a thousand results a second
// a message, a settlement and an acknowledgement for each of them cost several times what they cost for three
// together. A result is gathered only where nobody waits for it:
//
//   - It is a success. The next attempt after a failure may be due within milliseconds.
//   - At least half of the slots have neither an attempt nor a result that is not sent, and no attempt waits for a
//     slot. The node counts the slot of an unsent result as taken, and leases in advance only to workers that have
//     half of their slots free.
//   - The worker and its node do not drain.
//
// The price: results are stored up to gatherTime later, and the attempts of a worker that dies are repeated if they
// ended within that time.
const (
	gatherTime = 3 * time.Millisecond
	// gatherRate is the number of results a second on a stream from which on they are gathered.
	gatherRate = 250
)

// mayGather reports whether starts and results that are not sent yet may wait for gatherTime. ended is the attempt
// that has just ended; nil: none has.
func (w *Worker) mayGather(s *session, ended *attempt) bool {
	t := &w.table
	return s.resultRate.PerSecond() >= gatherRate &&
		(ended == nil || ended.result.outcome == fermatav1.Result_OUTCOME_SUCCEEDED) &&
		2*(t.slotsTaken+len(s.out.results)) <= w.options.Slots && t.waiting.isEmpty() &&
		!t.draining && !s.closedToLeases
}
