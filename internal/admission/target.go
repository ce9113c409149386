package admission

import (
	"context"
	"errors"
	"time"

	"github.com/fermata-io/fermata/internal/backoff"
	"github.com/fermata-io/fermata/internal/job"
	"github.com/fermata-io/fermata/internal/lease"
)

// swapTries bounds how often a circuit is decided on anew because another node
// changed it in between.
const swapTries = 5

// How long a circuit that was seen closed is believed to be so: by a run that wants
// to start, and by one that has succeeded and need not tell.
const (
	readingStart   = 100 * time.Millisecond
	readingSuccess = time.Second
)

// errContended: a circuit kept changing.
var errContended = errors.New("circuit kept changing")

// reading is a sight of a circuit that was closed.
type reading struct{ at time.Time }

// maxReadings bounds what is remembered.
const maxReadings = 10_000

// closedLately tells whether a circuit was seen closed no longer ago than life.
func (a *Admission) closedLately(name string, life time.Duration) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	r, known := a.mu.readings[name]
	return known && time.Since(r.at) < life
}

// saw remembers a sight of a circuit, as it was then.
func (a *Admission) saw(name, text string, then time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case text != "":
		delete(a.mu.readings, name)
	default:
		if len(a.mu.readings) >= maxReadings {
			clear(a.mu.readings)
		}
		a.mu.readings[name] = reading{then}
	}
}

// forget has the circuit read again before the next run starts.
func (a *Admission) forget(name string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.mu.readings, name)
}

// parse reads a circuit. One that cannot be read counts as closed: its next failure
// writes it anew.
func (a *Admission) parse(name, text string) backoff.Circuit {
	c, err := backoff.ParseCircuit(text)
	if err != nil {
		a.o.Logger.Error("stored circuit cannot be read and counts as closed", "name", name, "error", err)
		return backoff.Circuit{}
	}
	return c
}

// change is a compare and set of one circuit: next is asked for the new one, again
// with each text that is stored.
type change struct {
	name string
	next func(c backoff.Circuit, nowMS int64) backoff.Circuit
	// done hears how it ended, with the circuits before and after.
	done func(before, after backoff.Circuit, nowMS int64, err error)
}

// change makes changes of circuits, all of them in the same calls.
func (a *Admission) change(ctx context.Context, changes []change) {
	if len(changes) == 0 {
		return
	}
	names := make([]string, len(changes))
	for i, c := range changes {
		names[i] = c.name
	}
	replies := a.o.Limits.ReadCells(ctx, names)
	a.changeFrom(ctx, changes, replies, time.Now())
}

// changeFrom makes changes of circuits that were read then. A circuit that is not as it was read
// is not set, but decided on anew.
func (a *Admission) changeFrom(ctx context.Context, changes []change, replies []job.CellReply, then time.Time) {
	for range swapTries {
		var swaps []job.CellSwap
		var open []change
		var afters, befores []backoff.Circuit
		for i, c := range changes {
			r := replies[i]
			if r.Err != nil {
				c.done(backoff.Circuit{}, backoff.Circuit{}, 0, r.Err)
				continue
			}
			before := a.parse(c.name, r.Text)
			after := stretched(before, c.next(before, r.NowMS), r)
			text := after.Encode()
			if text == r.Text {
				a.saw(c.name, text, then)
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
				a.saw(c.name, swaps[i].New, then)
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

// lateAnswers is from which latency on the circuits of targets are read while units are asked for.
// Below it the time is not worth the reads for runs that are denied a unit.
const lateAnswers = 20 * time.Millisecond

// circuits are those of a group's targets, read ahead of their gate. done is closed
// when they have been.
type circuits struct {
	replies map[string]job.CellReply
	then    time.Time
	done    chan struct{}
}

// readTargets begins to read the circuits of targets where Redis answers late. Who waits for
// units decides on what they were before: one that opens meanwhile is found open by the next run.
func (a *Admission) readTargets(ctx context.Context, g *group) {
	if a.o.Latency() < lateAnswers || g.mostUnits() == 0 {
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
	c := &circuits{replies: replies, done: make(chan struct{})}
	g.circuits = c
	go func() { // the group waits for it
		defer close(c.done)
		for i, r := range a.o.Limits.ReadCells(ctx, names) {
			replies[names[i]] = r
		}
		c.then = time.Now()
	}()
}

// changeTargets makes changes of circuits, from what was read ahead if they were.
func (a *Admission) changeTargets(ctx context.Context, g *group, changes []change) {
	if g.circuits == nil {
		a.change(ctx, changes)
		return
	}
	<-g.circuits.done
	replies := make([]job.CellReply, len(changes))
	for i, c := range changes {
		replies[i] = g.circuits.replies[c.name]
	}
	a.changeFrom(ctx, changes, replies, g.circuits.then)
}

// targets asks the circuits of the runs' targets. Runs of the same target are
// decided on together: of those that find it half open, one is the probe.
func (a *Admission) targets(ctx context.Context, g *group) {
	byName := make(map[string][]*item)
	var changes []change
	for _, it := range g.items {
		if it.target == "" || a.closedLately(it.target, readingStart) {
			continue
		}
		if byName[it.target] == nil {
			changes = append(changes, change{name: it.target})
		}
		byName[it.target] = append(byName[it.target], it)
	}
	verdicts := make(map[*item]backoff.CircuitVerdict)
	answers := make(map[string]answered)
	for i := range changes {
		name := changes[i].name
		changes[i].next = func(c backoff.Circuit, nowMS int64) backoff.Circuit {
			for _, it := range byName[name] {
				c, verdicts[it] = c.Admit(nowMS, it.holder, a.o.LeaseTTL)
				it.probe = it.probe || verdicts[it].Probe
			}
			return c
		}
		changes[i].done = func(_, after backoff.Circuit, nowMS int64, err error) {
			answers[name] = answered{after, nowMS, err}
		}
	}
	a.changeTargets(ctx, g, changes)
	g.filter(func(it *item) bool {
		answer, asked := answers[it.target]
		if !asked {
			return true
		}
		if answer.err != nil {
			a.broke(g, it, "target", answer.err)
			return false
		}
		v := verdicts[it]
		it.probe = v.Probe
		if v.OK {
			a.worked()
			if v.Probe {
				a.metrics.probes.Inc()
				a.o.Logger.Info("run finds out whether a target has recovered", "record", it.Record, "target", it.Known.Definition.Target)
			}
			return true
		}
		until := it.latest.After(max(0, v.UntilMS-answer.nowMS))
		if answer.circuit.Probe != "" {
			until = min(until, it.pollMS(it.heldSince(job.HeldTarget, it.Known.Definition.Target), pollTarget)) // the probe may be done long before
		}
		a.hold(g, it, job.HoldBack{
			Reason: job.HeldTarget, Key: it.Known.Definition.Target, By: answer.circuit.By, UntilMS: until,
		})
		return false
	})
}

// stretched is a circuit whose new instants do not come early if the clock they were reckoned
// from runs ahead of passing time.
func stretched(before, after backoff.Circuit, r job.CellReply) backoff.Circuit {
	stretch := func(old int64, new *int64) {
		if *new > max(old, r.NowMS) {
			*new = lease.Latest{MS: r.NowMS, LagMS: r.LagMS}.After(*new - r.NowMS)
		}
	}
	stretch(before.OpenUntilMS, &after.OpenUntilMS)
	stretch(before.ProbeUntilMS, &after.ProbeUntilMS)
	return after
}

// answered is how a change of a circuit ended.
type answered struct {
	circuit backoff.Circuit
	nowMS   int64
	err     error
}
