package dispatch

import (
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
)

// attemptReport is a report for Attempts: an adoption, or an end.
type attemptReport struct {
	adopted *job.Leased
	ended   job.Ending
}

// reportAdopted reports that an attempt which started elsewhere continues here.
func (d *Dispatcher) reportAdopted(a *attempt, fx *pendingEffects) {
	if d.o.Attempts == nil || !a.unknownToAttempts || a.endReported || a.known == nil {
		return
	}
	a.unknownToAttempts = false
	d.mu.reports = append(d.mu.reports, attemptReport{adopted: &job.Leased{Shard: a.shard, Record: a.record,
		Known: a.known}})
	fx.hasReports = true
}

// reportEnded reports that this node has given up an attempt; only the first report counts.
func (d *Dispatcher) reportEnded(a *attempt, settle job.Input, over bool, fx *pendingEffects) {
	if d.o.Attempts == nil || a.endReported {
		return
	}
	a.endReported = true
	if a.unknownToAttempts && (!over || a.known == nil) {
		return // it was never reported as being here, and what it holds is unknown
	}
	n := attemptReport{ended: job.Ending{Record: a.record, Token: a.token, Settle: settle, Over: over}}
	if a.known != nil {
		n.ended.Definition = a.known.Definition
	}
	d.mu.reports = append(d.mu.reports, n)
	fx.hasReports = true
}

// deliverReports passes all reports to Attempts. A caller that waited here may find that another one has
// delivered its reports.
func (d *Dispatcher) deliverReports() {
	d.reporting.Lock()
	defer d.reporting.Unlock()
	d.mu.Lock()
	list := d.mu.reports
	d.mu.reports = d.spareReports[:0]
	d.mu.Unlock()
	for i := range list {
		if l := list[i].adopted; l != nil {
			d.o.Attempts.Adopted(*l)
			continue
		}
		d.o.Attempts.Ended(list[i].ended)
	}
	clear(list)
	d.spareReports = list
}

// ReturnLeases gives leases back that reached this node and are not to be delivered. It does not block; a return that
// cannot be stored at once is submitted again until it is.
func (d *Dispatcher) ReturnLeases(leases []job.Leased) {
	if len(leases) == 0 {
		return
	}
	var fx pendingEffects
	d.mu.Lock()
	for i := range leases {
		if a := newAttempt(&leases[i], time.Now()); d.mu.attempts[a.id] == nil {
			d.addAttempt(a, nil)
			d.returnLease(a, "gated", &fx)
		}
	}
	d.mu.Unlock()
	d.runEffects(&fx)
}
