package job

import "github.com/fermata-io/fermata/internal/core/unixtime"

// ProjectFailures returns the due times of at most n next runs of a job, the planned or live one first, under the
// assumption that each attempt fails as soon as it is due. [Decide] decides on each attempt, so the result is
// what would happen. Manual runs that leave the plan unchanged are left out, and a paused job is treated as if
// it were not paused. The projection continues while more returns true: schedules that exclude nearly everything
// are expensive.
func ProjectFailures(c *Compiled, s State, now unixtime.Milli, n int, more func() bool) []unixtime.Milli {
	p := projection{c: c, parent: s, children: map[int]State{}, now: now}
	p.parent.Children, p.parent.Started, p.parent.Backfills = 0, 0, nil
	p.parent.Pending, p.parent.Waiting, p.parent.Paused, p.parent.Cancel = "", 0, false, false
	if p.parent.Region == RegionPaused {
		p.parent.Region = RegionDue
	}
	for len(p.due) < n && p.simulateAttempt() && more() {
		continue
	}
	return p.due
}

// projection is a job with its runs, as a node would drive them.
type projection struct {
	c          *Compiled
	parent     State
	children   map[int]State
	now        unixtime.Milli
	token      uint64
	lastListed string // the run that was listed last
	due        []unixtime.Milli
}

// simulateAttempt has the next attempt begin and fail. It reports whether there was one.
func (p *projection) simulateAttempt() bool {
	slot, at := -1, NeverMS
	if p.parent.Region == RegionDue || p.parent.Live() {
		at = p.parent.Due
	}
	for i, child := range p.children {
		if child.Due < at || child.Due == at && i < slot {
			slot, at = i, child.Due
		}
	}
	if at >= NeverMS {
		return false
	}
	p.now = max(p.now, at)
	p.token = max(p.token, p.parent.Token) + 1
	if slot >= 0 {
		p.children[slot] = p.children[slot].Leased(p.token)
		p.decideChild(slot, RunLeased{Token: p.token})
		p.failChild(slot)
		return true
	}
	p.startPlannedRun()
	return true
}

// startPlannedRun has the planned run begin, and fail at once.
func (p *projection) startPlannedRun() {
	run, due := p.parent.RunID(), p.parent.Due
	var d Decision // of a live run, that it has started
	if !p.parent.Live() {
		p.parent = p.parent.Leased(p.token)
		d = Decide(p.c, p.parent, RunLeased{Token: p.token}, p.now)
		p.applyDecision(&d)
	}
	for _, slot := range d.CancelChildren {
		child := p.children[slot]
		p.decideChild(slot, CancelRun{RunID: child.RunID()})
	}
	for _, slot := range d.TerminateChildren {
		p.decideChild(slot, Terminate{})
	}
	if d.Arrival != ArrivalStart && d.Arrival != ArrivalSpawn {
		return
	}
	if run != p.lastListed {
		p.lastListed, p.due = run, append(p.due, due)
	}
	if d.Arrival == ArrivalSpawn {
		p.failChild(d.Spawn.Slot)
		return
	}
	failed := Decide(p.c, p.parent, p.newFailure(p.parent.Token), p.now)
	p.applyDecision(&failed)
}

func (p *projection) newFailure(token uint64) FinishAttempt {
	return FinishAttempt{Token: token, Outcome: OutcomeFailed, StartedMS: p.now}
}

func (p *projection) failChild(slot int) {
	if child, there := p.children[slot]; there && child.Live() {
		p.decideChild(slot, p.newFailure(child.Token))
	}
}

func (p *projection) decideChild(slot int, ev Input) {
	child, there := p.children[slot]
	if !there {
		return
	}
	pair := DecideChild(p.c, p.parent, child, ev, p.now)
	if pair.Child.Changed {
		p.children[slot] = pair.Child.State
	}
	if pair.Child.Delete {
		delete(p.children, slot)
	}
	p.applyDecision(&pair.Parent)
}

// applyDecision takes a decision on the job's own record.
func (p *projection) applyDecision(d *Decision) {
	if !d.Changed {
		return
	}
	p.parent = d.State
	if d.Spawn != nil {
		p.children[d.Spawn.Slot] = d.Spawn.State
	}
}
