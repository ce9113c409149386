package job

import "fmt"

// Check returns the first invariant that a stored state violates, if any.
func (s State) Check() error {
	switch {
	case s.Region > RegionDone:
		return fmt.Errorf("region %d does not exist", s.Region)
	case s.Lane.Namespace == "" || s.Lane.Queue == "":
		return fmt.Errorf("no lane")
	case s.Revision == 0:
		return fmt.Errorf("no revision")
	case s.Region == RegionLeased && s.Token == 0:
		return fmt.Errorf("leased without a token")
	case s.SettledToken > s.Token:
		return fmt.Errorf("settled token %d was never leased (last %d)", s.SettledToken, s.Token)
	case s.LastLoss.Token > s.Token:
		return fmt.Errorf("lost token %d was never leased (last %d)", s.LastLoss.Token, s.Token)
	case s.Region == RegionPaused && !s.Paused:
		return fmt.Errorf("in the paused region without a pause")
	case s.Region == RegionDue && s.Paused && s.Trigger != TriggerManual:
		return fmt.Errorf("due while paused")
	case s.HasRun() && s.Nominal > s.Due:
		return fmt.Errorf("nominal time %d after due time %d", s.Nominal, s.Due)
	case s.HasRun() && s.Trigger == TriggerManual && s.ManualID == "":
		return fmt.Errorf("manual run without a request id")
	case !s.HasRun() && (s.Attempt != 0 || s.Losses != 0 || (s.Pending != "" && s.Waiting == 0)):
		return fmt.Errorf("remains of a run in region %s", s.Region)
	case !s.Live() && (s.Cancel || s.Acked || (s.Deleting && s.Children == 0 && s.Rename == nil)):
		return fmt.Errorf("marks of a live run in region %s", s.Region)
	case s.Rename != nil && (s.Region != RegionDone || !s.Deleting):
		return fmt.Errorf("keeps a name for a rename, and is not deleted")
	case s.Started&^s.Children != 0:
		return fmt.Errorf("runs have begun in slots that are free: %b of %b", s.Started, s.Children)
	case s.Waiting > 0 && s.Children&(1<<(s.Waiting-1)) == 0:
		return fmt.Errorf("the waiting manual run has no record in slot %d", s.Waiting-1)
	case s.OwnPayload != nil && s.Trigger != TriggerManual:
		return fmt.Errorf("a run of trigger %s with a payload of its own", s.Trigger)
	case s.OwnBytes > 0 && s.Children == 0:
		return fmt.Errorf("%d bytes of payloads of runs, and no such run", s.OwnBytes)
	case len(s.Backfills) > MaxBackfills:
		return fmt.Errorf("%d backfills", len(s.Backfills))
	case len(s.Recent) > MaxRecent:
		return fmt.Errorf("%d recent request ids", len(s.Recent))
	}
	return nil
}
