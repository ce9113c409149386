package admission

import (
	"context"
	"errors"

	"github.com/fermata-io/fermata/internal/core/job"
)

// errNoParent: the job of a child record is gone.
var errNoParent = errors.New("no parent record")

// decideArrivals applies exclusions, and the overlap and misfire policy. Starts are stored last, when all other
// gates are passed; other outcomes are stored now.
func (a *Admission) decideArrivals(ctx context.Context, g *gateGroup) {
	var changes []job.Change
	var asked []*gatedRun
	g.keepPassed(func(it *gatedRun) bool {
		if it.gates&job.GateArrival == 0 {
			return true
		}
		compiled, err := a.o.Ledger.CompiledDefinition(it.key.Record(), it.Known.Definition)
		if err != nil {
			a.removeFailed(g, it, "policy", err)
			return false
		}
		switch job.Arrives(compiled, it.Known.State, it.parent, it.nowMS) {
		case job.ArrivalStart:
			it.storesStart = !it.Record.IsJob() && it.Known.State.Started == 0
			return true
		case job.ArrivalSpawn:
			it.storesStart = true
			return true
		}
		changes = append(changes, job.Change{Record: it.Record, Input: job.RunLeased{Token: it.Known.State.Token},
			Known: it.Known})
		asked = append(asked, it)
		return false
	})
	if len(changes) > 0 {
		a.storeArrivals(ctx, g, asked, changes)
	}
}

// storeStarts stores the start of the runs that need it, last of all.
func (a *Admission) storeStarts(ctx context.Context, g *gateGroup) {
	var changes []job.Change
	var asked []*gatedRun
	g.keepPassed(func(it *gatedRun) bool {
		if it.storesStart {
			changes = append(changes, job.Change{Record: it.Record, Input: job.RunLeased{Token: it.Known.State.Token},
				Known: it.Known})
			asked = append(asked, it)
		}
		return !it.storesStart
	})
	if len(changes) > 0 {
		a.storeArrivals(ctx, g, asked, changes)
	}
}

// storeArrivals stores arrivals and puts the runs that start back into the group, with their records as stored.
// Others lose what they hold.
func (a *Admission) storeArrivals(ctx context.Context, g *gateGroup, asked []*gatedRun, changes []job.Change) {
	var stops []runStop
	for i, r := range a.submitAndWait(ctx, changes) {
		it := asked[i]
		parent := it.key.Record()
		for _, slot := range r.CancelChildren {
			stops = append(stops, runStop{shard: it.Shard, record: parent.Run(slot)})
		}
		for _, slot := range r.TerminateChildren {
			stops = append(stops, runStop{shard: it.Shard, record: parent.Run(slot), terminate: true})
		}
		spawned := r.Answer == job.Applied && r.Arrival == job.ArrivalSpawn && r.Spawn != nil
		if spawned {
			it.Record = parent.Run(r.Spawn.Slot)
			it.setState(r.Spawn.State)
		}
		switch {
		case r.Err != nil:
			// It may be stored, but not confirmed.
			a.removeFailed(g, it, "ledger", r.Err)
			continue
		case spawned:
		case r.Answer == job.Applied && r.Arrival == job.ArrivalStart:
			it.setState(r.Record.State)
		default:
			switch r.Arrival {
			case job.ArrivalHeld:
				a.metrics.held.WithLabelValues(job.HeldOverlap.String()).Inc()
			case job.ArrivalExcluded:
				a.metrics.held.WithLabelValues(job.HeldExclusion).Inc()
			}
			a.releaseHeld(g, it)
			continue
		}
		it.storesStart = false
		g.items = append(g.items, it)
	}
	a.stopRuns(ctx, stops)
}

// readParents reads the parents of child records, on which overlap depends.
func (a *Admission) readParents(ctx context.Context, g *gateGroup) {
	parents := make(map[int][]job.RecordID)
	for _, it := range g.items {
		if !it.Record.IsJob() && it.gates&job.GateArrival != 0 {
			parents[it.Shard] = append(parents[it.Shard], it.Record.Job())
		}
	}
	if len(parents) == 0 {
		return
	}
	found := make(map[job.RecordID]*job.Record)
	failures := make(map[int]error)
	for shard, records := range parents {
		list, err := a.o.Store.GetRecords(ctx, shard, records)
		failures[shard] = err
		for i := range list {
			found[records[i]] = list[i]
		}
	}
	g.keepPassed(func(it *gatedRun) bool {
		if it.Record.IsJob() || it.gates&job.GateArrival == 0 {
			return true
		}
		rec, err := found[it.key.Record()], failures[it.Shard]
		if rec == nil {
			if err == nil {
				err = errNoParent
			}
			a.removeFailed(g, it, "parent", err)
			return false
		}
		it.parent = &rec.State
		it.Known = &job.Record{Definition: rec.Definition, State: it.Known.State, IndexMS: it.Known.IndexMS}
		return true
	})
}

// runStop is a run that is replaced by another one.
type runStop struct {
	shard     int
	record    job.RecordID
	terminate bool
}

// stopRuns cancels or terminates runs that a new one replaces, and notifies the workers of the live ones. Failed
// stops are repeated at the next arrival.
func (a *Admission) stopRuns(ctx context.Context, stops []runStop) {
	byShard := make(map[int][]runStop)
	for _, s := range stops {
		byShard[s.shard] = append(byShard[s.shard], s)
	}
	var changes []job.Change
	var running []job.State
	for shard, list := range byShard {
		records := make([]job.RecordID, len(list))
		for i, s := range list {
			records[i] = s.record
		}
		found, err := a.o.Store.GetRecords(ctx, shard, records)
		if err != nil {
			a.o.Logger.Warn("failed to read runs to be replaced", "records", records, "error", err)
			continue
		}
		for i, rec := range found {
			if rec == nil {
				continue // it has ended meanwhile
			}
			var event job.Input = job.CancelRun{RunID: rec.State.RunID()}
			if list[i].terminate {
				event = job.Terminate{}
			}
			changes = append(changes, job.Change{Record: list[i].record, Input: event})
			running = append(running, rec.State)
		}
	}
	for i, r := range a.submitAndWait(ctx, changes) {
		if r.Err != nil && !errors.Is(r.Err, job.ErrNotFound) {
			a.o.Logger.Warn("failed to stop run to be replaced", "record", changes[i].Record, "error", r.Err)
			continue
		}
		if running[i].Live() {
			a.o.Canceller.CancelAttempt(changes[i].Record, running[i].Token)
		}
	}
}
