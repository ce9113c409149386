package convert

import (
	"github.com/fermata-io/fermata/internal/core/job"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// TargetToPB converts a target with its circuit.
func TargetToPB(t job.Target) *fermatav1.Target {
	c := t.Circuit
	p := &fermatav1.Target{
		Parent: NamespaceName(t.Namespace), Target: t.Name, State: targetState(t), Jobs: int32(t.Jobs),
		HeldJobs: int32(t.Held), FailedJob: jobNameOrNone(t.FailedJob), Error: c.Error,
	}
	if !c.Open() {
		return p
	}
	p.Failures, p.SinceTime, p.OpenUntilTime = c.Failures, MillisToPB(c.SinceMS), MillisToPB(c.OpenUntilMS)
	if p.State == fermatav1.Target_STATE_PROBING {
		p.ProbeJob, p.ProbeUntilTime = jobNameOrNone(t.ProbeJob), MillisToPB(c.ProbeUntilMS)
	}
	return p
}

// targetState is the state of a circuit by its clock.
func targetState(t job.Target) fermatav1.Target_State {
	switch c := t.Circuit; {
	case !c.Open():
		return fermatav1.Target_STATE_CLOSED
	case c.Probe != "" && t.NowMS < c.ProbeUntilMS:
		return fermatav1.Target_STATE_PROBING
	case t.NowMS < c.OpenUntilMS:
		return fermatav1.Target_STATE_OPEN
	}
	return fermatav1.Target_STATE_HALF_OPEN
}

// LockToPB converts a lock with its holders and waiters.
func LockToPB(l job.LockStatus) *fermatav1.LockStatus {
	return &fermatav1.LockStatus{
		Parent: NamespaceName(l.Namespace), Key: l.Key, Capacity: int32(l.Capacity), Held: int32(l.Held),
		Holders: Map(l.Holders, lockHolderToPB), Waiting: int32(l.Waiting), Waiters: Map(l.Waiters, lockWaiterToPB),
		Jobs: int32(l.Jobs),
	}
}

func lockHolderToPB(h job.LockHolder) *fermatav1.LockHolder {
	p := &fermatav1.LockHolder{
		Job: jobNameOrNone(h.Job), SinceTime: MillisToPB(h.SinceMS), LeaseEndTime: MillisToPB(h.EndMS),
		Worker: h.Worker,
	}
	if h.RunID != "" {
		p.Run = RunName(h.Job, h.RunID)
	}
	return p
}

func lockWaiterToPB(w job.LockWaiter) *fermatav1.LockWaiter {
	return &fermatav1.LockWaiter{
		Job: jobNameOrNone(w.Job), SinceTime: MillisToPB(w.SinceMS), ReservedUntilTime: MillisToPB(w.ReservedMS),
	}
}

// jobNameOrNone returns the name of a job; "" for none.
func jobNameOrNone(key job.Key) string {
	if key == (job.Key{}) {
		return ""
	}
	return JobName(key)
}
