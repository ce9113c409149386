package autoscale

import "time"

// Names of the metrics that a trigger may have.
const (
	// Backlog is in runs.
	Backlog = "fermata-backlog"
	// Lag is in seconds.
	Lag = "fermata-lag-seconds"
)

// Trigger is the scaling configuration of a pool of workers.
type Trigger struct {
	Namespace string
	// Queues that the workers of the pool serve.
	Queues []string
	// Backlog is how many runs there should be for each worker, those that it has
	// included if CountRunning. 0: this is not looked at.
	Backlog float64
	// Lag is how late runs may be. 0: this is not looked at.
	Lag time.Duration
	// CountRunning adds the runs that workers have to those that wait for one.
	CountRunning bool
	// ActivationBacklog is how many runs may wait without a worker being there,
	// until one is late by ActivationLag.
	ActivationBacklog int64
	ActivationLag     time.Duration
	// Horizon is how long before the next job is due the pool is needed.
	Horizon time.Duration
}

// Demand is how much there is to do in a queue, or in several.
type Demand struct {
	// Waiting runs are due, Running ones are with a worker. Of a queue that is paused
	// nothing waits: a worker could not have it.
	Waiting, Running int64
	// Lag is how long the first of those that wait is due.
	Lag time.Duration
	// Next is how long it is until another run is due; meaningless unless Ahead.
	Next  time.Duration
	Ahead bool
}

// And returns the size of both together.
func (s Demand) And(o Demand) Demand {
	if !s.Ahead || o.Ahead && o.Next < s.Next {
		s.Next, s.Ahead = o.Next, o.Ahead
	}
	s.Waiting += o.Waiting
	s.Running += o.Running
	s.Lag = max(s.Lag, o.Lag)
	return s
}

// Metric is a value and its target.
type Metric struct {
	Name          string
	Value, Target float64
}

// Active reports whether any worker is needed.
func (t Trigger) Active(s Demand) bool {
	switch {
	case s.Running > 0, s.Waiting > t.ActivationBacklog:
		return true
	case s.Waiting > 0 && s.Lag >= t.ActivationLag:
		return true
	}
	return s.Ahead && s.Next <= t.Horizon && t.Horizon > 0
}

// Metrics returns the numbers for which the trigger has targets.
func (t Trigger) Metrics(s Demand) []Metric {
	var all []Metric
	if t.Backlog > 0 {
		runs := s.Waiting
		if t.CountRunning {
			runs += s.Running
		}
		all = append(all, Metric{Name: Backlog, Value: float64(runs), Target: t.Backlog})
	}
	if t.Lag > 0 {
		all = append(all, Metric{Name: Lag, Value: s.Lag.Seconds(), Target: t.Lag.Seconds()})
	}
	return all
}
