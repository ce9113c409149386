package job

// IfAllFail are the due times of the next runs of a job, at most n of them, if each failed
// as soon as it is due, with each of its attempts: the planned or live run first. It has
// [Decide] decide on each attempt, so that it is what then happens. Runs that people have
// asked for beside the plan are left out, and a job that is paused is taken for one that is
// not. It goes on while more says so: schedules that exclude nearly everything are expensive.
func IfAllFail(c *Compiled, s State, now int64, n int, more func() bool) []int64 {
	p := projection{c: c, parent: s, children: map[int]State{}, now: now}
	p.parent.Children, p.parent.Started, p.parent.Backfills = 0, 0, nil
	p.parent.Pending, p.parent.Waiting, p.parent.Paused, p.parent.Cancel = "", 0, false, false
	if p.parent.Region == RegionPaused {
		p.parent.Region = RegionDue
	}
	for len(p.due) < n && p.step() && more() {
		continue
	}
	return p.due
}

// projection is a job with its runs, as a node would drive them.
type projection struct {
	c        *Compiled
	parent   State
	children map[int]State
	now      int64
	token    uint64
	counted  string // the run that was listed last
	due      []int64
}

// step has the next attempt begin and fail. It reports whether there was one.
func (p *projection) step() bool {
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
		p.decideChild(slot, Arrive{Token: p.token})
		p.failChild(slot)
		return true
	}
	p.begin()
	return true
}

// begin has the planned run begin, and fail at once.
func (p *projection) begin() {
	run, due := p.parent.RunID(), p.parent.Due
	var d Decision // of a live run, that it has started
	if !p.parent.Live() {
		p.parent = p.parent.Leased(p.token)
		d = Decide(p.c, p.parent, Arrive{Token: p.token}, p.now)
		p.take(&d)
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
	if run != p.counted {
		p.counted, p.due = run, append(p.due, due)
	}
	if d.Arrival == ArrivalSpawn {
		p.failChild(d.Spawn.Slot)
		return
	}
	failed := Decide(p.c, p.parent, p.failure(p.parent.Token), p.now)
	p.take(&failed)
}

func (p *projection) failure(token uint64) Settle {
	return Settle{Token: token, Outcome: OutcomeFailed, StartedMS: p.now}
}

func (p *projection) failChild(slot int) {
	if child, there := p.children[slot]; there && child.Live() {
		p.decideChild(slot, p.failure(child.Token))
	}
}

func (p *projection) decideChild(slot int, ev Event) {
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
	p.take(&pair.Parent)
}

// take takes a decision on the job's own record.
func (p *projection) take(d *Decision) {
	if !d.Changed {
		return
	}
	p.parent = d.State
	if d.Spawn != nil {
		p.children[d.Spawn.Slot] = d.Spawn.State
	}
}
