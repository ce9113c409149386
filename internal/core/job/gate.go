package job

import (
	"github.com/fermata-io/fermata/internal/core/schedule"
	"github.com/fermata-io/fermata/internal/core/unixtime"
)

// Gates are the checks that a leased run has to pass before it is delivered.
type Gates uint8

// Gates, in the order in which they are passed, but for GateSeal and GateQueue, which are the first.
const (
	GateArrival Gates = 1 << iota // exclusions, overlap and misfire policy: see Arrives
	GatePace                      // the queue's recovery budget
	GateLocks                     // Definition.Locks
	GateTarget                    // the circuit of Definition.Target
	GateSeal                      // the payload is sealed, or the run's own: it has to be opened
	GateQueue                     // the run was leased from a queue other than its job's: it has to go back
)

// GatesOf returns the gates that the run of a record has to pass which was leased from a queue; 0 for most. The
// limits of the queue apply in addition.
func GatesOf(d *Definition, s *State, record RecordID, from QueueKey, nowMS unixtime.Milli) Gates {
	var g Gates
	if d.QueueKey() != from {
		g |= GateQueue
	}
	if !d.Schedule.Exclude.Empty() {
		g |= GateArrival
	}
	switch {
	case !record.IsJob():
		if s.Started == 0 {
			g |= GateArrival
		}
	case s.Started != 0, d.Overlap.spawnsChildren() && d.Schedule.Kind != schedule.KindOnce, isLate(d, s, nowMS):
		g |= GateArrival
	}
	if s.Recovery && !s.Paced {
		g |= GatePace
	}
	if len(d.Locks) > 0 {
		g |= GateLocks
	}
	if d.Target != "" {
		g |= GateTarget
	}
	if d.PayloadKey != "" || s.OwnPayload != nil {
		g |= GateSeal
	}
	return g
}

// isLate reports whether a scheduled run that has not begun is past its misfire window. The window counts from
// the due time: a delay by backoff, jitter or a hint is not lateness.
func isLate(d *Definition, s *State, nowMS unixtime.Milli) bool {
	window := d.Misfire.effectiveWindow()
	if window <= 0 || s.Trigger != TriggerSchedule || s.Attempt > 0 {
		return false
	}
	due := s.expectedStartMS()
	if due == 0 && s.Source == DelayHeld {
		due = s.Nominal
	}
	return due != 0 && int64(nowMS-due) > window.Milliseconds()
}

// Arrives returns what Decide would answer to RunLeased for the parent record, or for a
// child whose parent is given.
func Arrives(c *Compiled, s State, parent *State, now unixtime.Milli) Arrival {
	if parent == nil {
		return Decide(c, s, RunLeased{Token: s.Token}, now).Arrival
	}
	return DecideChild(c, *parent, s, RunLeased{Token: s.Token}, now).Child.Arrival
}
