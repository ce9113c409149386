package dispatch

import (
	"time"

	"github.com/fermata-io/fermata/internal/job"
)

// news is what Attempts is to hear: of an adoption, or else of an end.
type news struct {
	adopted *job.Leased
	ended   job.Ending
}

// adopted notes that an attempt which began elsewhere goes on here.
func (d *Dispatcher) adopted(a *attempt, fx *effects) {
	if d.o.Attempts == nil || !a.foreign || a.told || a.rec == nil {
		return
	}
	a.foreign = false
	d.mu.news = append(d.mu.news, news{adopted: &job.Leased{Shard: a.shard, Record: a.record, Known: a.rec}})
	fx.news = true
}

// ended notes that this node's part in an attempt is over; only the first word
// counts.
func (d *Dispatcher) ended(a *attempt, settle job.Event, over bool, fx *effects) {
	if d.o.Attempts == nil || a.told {
		return
	}
	a.told = true
	if a.foreign && (!over || a.rec == nil) {
		return // nobody was told that it is here, and what it may hold is not known
	}
	n := news{ended: job.Ending{Record: a.record, Token: a.token, Settle: settle, Over: over}}
	if a.rec != nil {
		n.ended.Definition = a.rec.Definition
	}
	d.mu.news = append(d.mu.news, n)
	fx.news = true
}

// tell tells Attempts all that is new. Whoever waits for its turn here may find
// that its news was told by another.
func (d *Dispatcher) tell() {
	d.telling.Lock()
	defer d.telling.Unlock()
	d.mu.Lock()
	list := d.mu.news
	d.mu.news = d.spareNews[:0]
	d.mu.Unlock()
	for i := range list {
		if l := list[i].adopted; l != nil {
			d.o.Attempts.Adopted(*l)
			continue
		}
		d.o.Attempts.Ended(list[i].ended)
	}
	clear(list)
	d.spareNews = list
}

// Return gives leases back that reached this node and are not to be delivered.
// It does not block; what cannot be stored at once is submitted again until it
// can.
func (d *Dispatcher) Return(leases []job.Leased) {
	if len(leases) == 0 {
		return
	}
	var fx effects
	d.mu.Lock()
	for i := range leases {
		if a := attemptOf(&leases[i], time.Now()); d.mu.attempts[a.id] == nil {
			d.add(a, nil)
			d.giveBack(a, "gated", &fx)
		}
	}
	d.mu.Unlock()
	d.finish(&fx)
}
