package worker

import "slices"

// Leases that this process has given up are reported to a node: it was the network that ended
// them, or the store, and not the handler, which would have ended the process. So their loss
// does not count against the run, and where the lease has not ended yet, the run goes on
// elsewhere at once. A report waits until the handler has ended, and is repeated on each
// stream until a node has acknowledged it.

// giveUp forgets an attempt whose lease is lost and which has ended, and reports that.
func (w *Worker) giveUp(a *attempt) {
	w.forget(a)
	w.reportLost(a.id)
}

// reportLost keeps reports, and sends them if there is a stream. There are no more than leases
// that a worker may have; nodes of an earlier version acknowledge none, so that the oldest go.
func (w *Worker) reportLost(ids ...string) {
	t := &w.table
	ids = slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return slices.Contains(t.lost, id) })
	t.lost = append(t.lost, ids...)
	if over := len(t.lost) - (2*w.o.Slots + 1024); over > 0 {
		t.lost = slices.Delete(t.lost, 0, over)
	}
	if s := t.current; s != nil && len(ids) > 0 {
		s.out.lost = append(s.out.lost, ids...)
		s.wakeUp()
	}
}

// lossAcknowledged ends the repetition of a report.
func (w *Worker) lossAcknowledged(id string) {
	if i := slices.Index(w.table.lost, id); i >= 0 {
		w.table.lost = slices.Delete(w.table.lost, i, i+1)
	}
}
