package worker

import "slices"

// Leases that this process has given up are reported to a node as lost, because the network ended them and not
// the handler. Reports are repeated on each session until a node acknowledges them.

// giveUpAttempt forgets an ended attempt whose lease is lost, and reports the loss.
func (w *Worker) giveUpAttempt(a *attempt) {
	w.forgetAttempt(a)
	w.reportLost(a.id)
}

// reportLost stores reports and sends them if there is a session. Their number is bounded by the number of
// leases that a worker may have: older nodes do not acknowledge reports, so the oldest are dropped.
func (w *Worker) reportLost(ids ...string) {
	t := &w.table
	ids = slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return slices.Contains(t.pendingLosses, id) })
	t.pendingLosses = append(t.pendingLosses, ids...)
	if over := len(t.pendingLosses) - (2*w.options.Slots + 1024); over > 0 {
		t.pendingLosses = slices.Delete(t.pendingLosses, 0, over)
	}
	if s := t.current; s != nil && len(ids) > 0 {
		s.out.lost = append(s.out.lost, ids...)
		s.wakeUp()
	}
}

// stopReportingLost removes an acknowledged report.
func (w *Worker) stopReportingLost(id string) {
	if i := slices.Index(w.table.pendingLosses, id); i >= 0 {
		w.table.pendingLosses = slices.Delete(w.table.pendingLosses, i, i+1)
	}
}
