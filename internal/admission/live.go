package admission

import "github.com/fermata-io/fermata/internal/job"

// attemptKey names an attempt.
type attemptKey struct {
	record string
	token  uint64
}

// live is what an attempt of this node holds. It is guarded by the mutex until the attempt
// has ended, and does not change any more then.
type live struct {
	holder string
	units  []unit
	target string // name of the cell; "" is none
	// probe: the attempt may be the one that finds out about the target.
	probe bool
	ended bool
	// over: its lease had ended by then.
	over bool
}

// keep notes what runs hold that are about to be delivered.
func (a *Admission) keep(items []*item) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, it := range items {
		if len(it.have) > 0 || it.target != "" {
			a.add(attemptKey{it.Record, it.Known.State.Token}, &live{
				holder: it.holder, units: it.have, target: it.target, probe: it.probe,
			})
		}
	}
}

// add makes what an attempt holds known. The caller holds mu.
func (a *Admission) add(key attemptKey, l *live) {
	if a.mu.live[key] == nil {
		a.mu.live[key] = l
		a.living.Add(1)
	}
}

// Adopted hears of an attempt that goes on at this node. What it holds is kept
// from now on under the name that it has it by.
func (a *Admission) Adopted(l job.Leased) {
	queue := job.QueueKey{Namespace: l.Known.State.Lane.Namespace, Queue: l.Known.State.Lane.Queue}
	held := heldBy(l.Record, l.Known.State.Token, l.Known.Definition, queue, a.queue(queue))
	if len(held.units) == 0 && held.target == "" {
		return
	}
	held.probe = held.target != ""
	for i := range held.units {
		held.units[i].unsure = true
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.add(attemptKey{l.Record, l.Known.State.Token}, held)
	signal(a.keepWake) // nobody may have kept it for a while
}

// heldBy is what an attempt must hold by its definition.
func heldBy(record string, token uint64, d *job.Definition, queue job.QueueKey, limits job.QueueSettings) *live {
	key, _, _ := job.ParseRecord(record)
	l := &live{holder: job.LeaseID(key.Record(), token), units: unitsOf(d, queue, limits)}
	if d.Target != "" {
		l.target = job.TargetName(key.Namespace, d.Target)
	}
	return l
}

// Ended hears that an attempt is gone from this node. What it held goes back if its
// lease has ended, and its target hears of the result.
func (a *Admission) Ended(e job.Ending) {
	l := a.end(e)
	if l == nil || !e.Over {
		return // whoever has the attempt now keeps the rest
	}
	var out errands
	for _, u := range l.units {
		out.releases = append(out.releases, release{unit: u, holder: l.holder})
	}
	if r, ok := a.reportOf(e, l); ok {
		out.reports = append(out.reports, r)
	}
	a.send(out)
}

// end forgets an attempt and returns what it held; nil if that is nothing.
func (a *Admission) end(e job.Ending) *live {
	if a.living.Load() > 0 {
		a.mu.Lock()
		defer a.mu.Unlock()
		if l := a.mu.live[attemptKey{e.Record, e.Token}]; l != nil {
			l.ended, l.over = true, e.Over
			delete(a.mu.live, attemptKey{e.Record, e.Token})
			a.living.Add(-1)
			return l
		}
	}
	if !e.Over || e.Definition == nil {
		return nil
	}
	queue := job.QueueKey{Namespace: e.Definition.Namespace, Queue: e.Definition.Queue}
	limits := a.queue(queue)
	if len(e.Definition.Locks) == 0 && e.Definition.Target == "" && limits.MaxConcurrency == 0 {
		return nil
	}
	// The end of an attempt that was another node's, or that began without limits.
	l := heldBy(e.Record, e.Token, e.Definition, queue, limits)
	l.probe = l.target != ""
	return l
}
