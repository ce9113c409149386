package job

import "fmt"

// Check tells which invariant of a stored state is broken, if any.
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
	case s.Region == RegionPaused && !s.Paused:
		return fmt.Errorf("in the paused region without a pause")
	case s.Region == RegionDue && s.Paused && s.Trigger != TriggerManual:
		return fmt.Errorf("due while paused")
	case s.HasRun() && s.Nominal > s.Due:
		return fmt.Errorf("nominal time %d after due time %d", s.Nominal, s.Due)
	case s.HasRun() && s.Trigger == TriggerManual && s.ManualID == "":
		return fmt.Errorf("manual run without a request id")
	case !s.HasRun() && (s.Attempt != 0 || s.Losses != 0 || s.Pending != ""):
		return fmt.Errorf("remains of a run in region %s", s.Region)
	case !s.Live() && (s.Cancel || s.Deleting || s.Pending != "" || s.Acked):
		return fmt.Errorf("marks of a live run in region %s", s.Region)
	case len(s.Recent) > MaxRecent:
		return fmt.Errorf("%d recent request ids", len(s.Recent))
	}
	return nil
}
