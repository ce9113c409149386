package admission

import (
	"context"
	"errors"
	"time"

	"github.com/fermata-io/fermata/internal/core/backoff"
	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/lease"
	"github.com/fermata-io/fermata/internal/core/unixtime"
)

// swapTries bounds how often the change of a circuit is decided again because another node changed it in
// between.
const swapTries = 5

// How long a closed circuit is trusted to stay closed: by a run that is about to start, and by one that has
// succeeded and then sends no report.
const (
	closedForStart   = 100 * time.Millisecond
	closedForSuccess = time.Second
)

// errContended: a circuit kept changing.
var errContended = errors.New("circuit kept changing")

// closedSight is when a circuit was seen closed.
type closedSight struct{ at time.Time }

// maxClosedCircuits bounds the remembered circuits.
const maxClosedCircuits = 10_000

// wasClosedWithin reports whether a circuit was seen closed within life.
func (a *Admission) wasClosedWithin(name string, life time.Duration) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	r, known := a.mu.closedCircuits[name]
	return known && time.Since(r.at) < life
}

// noteCircuit remembers the state of a circuit as of then.
func (a *Admission) noteCircuit(name, text string, then time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case text != "":
		delete(a.mu.closedCircuits, name)
	default:
		if len(a.mu.closedCircuits) >= maxClosedCircuits {
			clear(a.mu.closedCircuits)
		}
		a.mu.closedCircuits[name] = closedSight{then}
	}
}

// forgetCircuit makes the circuit be read again before the next run starts.
func (a *Admission) forgetCircuit(name string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.mu.closedCircuits, name)
}

// parseCircuit parses a circuit. One that cannot be parsed counts as closed: its next failure overwrites it.
func (a *Admission) parseCircuit(name, text string) backoff.Circuit {
	c, err := backoff.ParseCircuit(text)
	if err != nil {
		a.o.Logger.Error("failed to parse stored circuit, treating it as closed", "name", name, "error", err)
		return backoff.Circuit{}
	}
	return c
}

// circuitChange is a compare-and-set of one circuit: next computes the new one, again for each stored text.
type circuitChange struct {
	name string
	next func(c backoff.Circuit, nowMS unixtime.Milli) backoff.Circuit
	// done is called with the circuits before and after.
	done func(before, after backoff.Circuit, nowMS unixtime.Milli, err error)
}

// changeCircuits makes changes of circuits, all of them in the same calls.
func (a *Admission) changeCircuits(ctx context.Context, changes []circuitChange) {
	if len(changes) == 0 {
		return
	}
	names := make([]string, len(changes))
	for i, c := range changes {
		names[i] = c.name
	}
	replies := a.o.Limits.ReadCells(ctx, names)
	a.changeCircuitsFrom(ctx, changes, replies, time.Now())
}

// changeCircuitsFrom makes changes of circuits that were read then. A circuit that has changed since is not set,
// but decided again.
func (a *Admission) changeCircuitsFrom(ctx context.Context, changes []circuitChange, replies []job.CellReply,
	then time.Time) {
	for range swapTries {
		var swaps []job.CellSwap
		var open []circuitChange
		var afters, befores []backoff.Circuit
		for i, c := range changes {
			r := replies[i]
			if r.Err != nil {
				c.done(backoff.Circuit{}, backoff.Circuit{}, 0, r.Err)
				continue
			}
			before := a.parseCircuit(c.name, r.Text)
			after := delayForFastClock(before, c.next(before, r.NowMS), r)
			text := after.Encode()
			if text == r.Text {
				a.noteCircuit(c.name, text, then)
				c.done(before, after, r.NowMS, nil)
				continue
			}
			swaps = append(swaps, job.CellSwap{Name: c.name, Old: r.Text, New: text})
			open, befores, afters = append(open, c), append(befores, before), append(afters, after)
		}
		if len(swaps) == 0 {
			return
		}
		answers := a.o.Limits.SwapCells(ctx, swaps)
		then = time.Now()
		changes, replies = nil, nil
		for i, c := range open {
			if answers[i].Err == nil && answers[i].Swapped {
				a.noteCircuit(c.name, swaps[i].New, then)
				c.done(befores[i], afters[i], answers[i].NowMS, nil)
				continue
			}
			changes, replies = append(changes, c), append(replies, answers[i])
		}
	}
	for _, c := range changes {
		c.done(backoff.Circuit{}, backoff.Circuit{}, 0, errContended)
	}
}

// readAheadLatency is the latency from which on the circuits of targets are read while units are asked for.
// Below it, reading for runs that are then denied a unit costs more than it saves.
const readAheadLatency = 20 * time.Millisecond

// targetCircuits are the circuits of a group's targets, read ahead of their gate. done is closed when they have
// been read.
type targetCircuits struct {
	replies map[string]job.CellReply
	then    time.Time
	done    chan struct{}
}

// readTargets starts to read the circuits of targets where Redis answers late. Runs that wait for units decide
// on circuits read before; a circuit that opens meanwhile stops the next run.
func (a *Admission) readTargets(ctx context.Context, g *gateGroup) {
	if a.o.Latency() < readAheadLatency || g.maxUnits() == 0 {
		return
	}
	replies := make(map[string]job.CellReply)
	var names []string
	for _, it := range g.items {
		if _, known := replies[it.target]; !known && it.target != "" {
			replies[it.target] = job.CellReply{}
			names = append(names, it.target)
		}
	}
	if len(names) == 0 {
		return
	}
	c := &targetCircuits{replies: replies, done: make(chan struct{})}
	g.circuits = c
	go func() { // the group waits for it
		defer close(c.done)
		for i, r := range a.o.Limits.ReadCells(ctx, names) {
			replies[names[i]] = r
		}
		c.then = time.Now()
	}()
}

// changeTargets makes changes of circuits, from what was read ahead if there is any.
func (a *Admission) changeTargets(ctx context.Context, g *gateGroup, changes []circuitChange) {
	if g.circuits == nil {
		a.changeCircuits(ctx, changes)
		return
	}
	<-g.circuits.done
	replies := make([]job.CellReply, len(changes))
	for i, c := range changes {
		replies[i] = g.circuits.replies[c.name]
	}
	a.changeCircuitsFrom(ctx, changes, replies, g.circuits.then)
}

// askTargets applies the circuits of the runs' targets. Runs of the same target are decided together: if it is
// half open, one of them is the probe.
func (a *Admission) askTargets(ctx context.Context, g *gateGroup) {
	byName := make(map[string][]*gatedRun)
	var changes []circuitChange
	for _, it := range g.items {
		if it.target == "" || a.wasClosedWithin(it.target, closedForStart) {
			continue
		}
		if byName[it.target] == nil {
			changes = append(changes, circuitChange{name: it.target})
		}
		byName[it.target] = append(byName[it.target], it)
	}
	verdicts := make(map[*gatedRun]backoff.CircuitVerdict)
	answers := make(map[string]changeResult)
	for i := range changes {
		name := changes[i].name
		changes[i].next = func(c backoff.Circuit, nowMS unixtime.Milli) backoff.Circuit {
			for _, it := range byName[name] {
				c, verdicts[it] = c.Admit(nowMS, it.holder, a.o.LeaseTTL)
				it.mayProbe = it.mayProbe || verdicts[it].Probe
			}
			return c
		}
		changes[i].done = func(_, after backoff.Circuit, nowMS unixtime.Milli, err error) {
			answers[name] = changeResult{after, nowMS, err}
		}
	}
	a.changeTargets(ctx, g, changes)
	g.keepPassed(func(it *gatedRun) bool {
		answer, asked := answers[it.target]
		if !asked {
			return true
		}
		if answer.err != nil {
			a.removeFailed(g, it, "target", answer.err)
			return false
		}
		v := verdicts[it]
		it.mayProbe = v.Probe
		if v.OK {
			a.logRecovery()
			if v.Probe {
				a.metrics.probes.Inc()
				a.o.Logger.Info("probing target", "record", it.Record, "target", it.Known.Definition.Target)
			}
			return true
		}
		until := it.latest.After(max(0, int64(v.UntilMS-answer.nowMS)))
		if answer.circuit.Probe != "" {
			until = min(until, it.nextPollMS(it.heldSince(job.HeldTarget, it.Known.Definition.Target),
				pollTarget)) // the probe may be done long before
		}
		a.holdBack(g, it, job.HoldBack{
			Reason: job.HeldTarget, Key: it.Known.Definition.Target, By: answer.circuit.FailedJob, UntilMS: until,
		})
		return false
	})
}

// delayForFastClock delays the new instants of a circuit if the clock that they were computed from runs ahead of
// passing time.
func delayForFastClock(before, after backoff.Circuit, r job.CellReply) backoff.Circuit {
	stretch := func(old unixtime.Milli, new *unixtime.Milli) {
		if *new > max(old, r.NowMS) {
			*new = lease.ClockBound{MS: r.NowMS, LagMS: r.LagMS}.After(int64(*new - r.NowMS))
		}
	}
	stretch(before.OpenUntilMS, &after.OpenUntilMS)
	stretch(before.ProbeUntilMS, &after.ProbeUntilMS)
	return after
}

// changeResult is the result of a circuit's change.
type changeResult struct {
	circuit backoff.Circuit
	nowMS   unixtime.Milli
	err     error
}
