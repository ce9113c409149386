package redisstore

import (
	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/schedule"
	"github.com/fermata-io/fermata/internal/redis/codec"
)

// Most one-time jobs have one run, which succeeds. Their state keeps it until another run ends, and the history has no
// field for it: see [job.State.KeptRun]. A run in the history takes Redis a fifth of the time of a settlement, and a
// tenth of that of a deletion.

// setKeptRun has the state of a finished job keep its run. The decision may have been planned before.
func setKeptRun(w *job.Write, keepsRuns bool) error {
	d := w.Decision
	if d.Definition != nil && historyLimit(d.Definition) == 0 {
		d.State.KeptRun = ""
	}
	if d.Ended == nil || !w.Record.IsJob() {
		return nil
	}
	d.State.KeptRun = ""
	if !keepsRuns || w.Bare || !isOnlyRun(d) || w.Current.Schedule.Kind != schedule.KindOnce || historyAfter(w) == 0 {
		return nil
	}
	var err error
	d.State.KeptRun, err = codec.EncodeKeptRun(d.Ended)
	return err
}

// isOnlyRun reports whether the run that ended is the first one of the job, which has no other.
func isOnlyRun(d *job.Decision) bool {
	return d.State.Runs == 1 && d.State.Region == job.RegionDone && d.State.Children == 0 && !d.Delete &&
		d.Ended.Outcome == job.OutcomeSucceeded
}

// addEarlierRun writes the first run of the job into the history, if the state has kept it until now and the run that
// ended does not take its slot. A run that cannot be read is dropped.
func (i *applyItem) addEarlierRun(w *job.Write, limit int) error {
	text := w.Decision.EarlierRun
	if text == "" || (w.Decision.State.Runs-1)%uint64(limit) == 0 {
		return nil
	}
	run, err := codec.DecodeKeptRun(text)
	if err != nil {
		return nil // the next run has to end all the same
	}
	encoded, err := codec.EncodeRun(&run)
	if err != nil {
		return err
	}
	i.addStep(stepEarlierRun, codec.HistoryField(w.Record, 0), encoded)
	return nil
}

// addKeptRun adds the run that a state keeps to those that the history has. The state was read before the history, so
// that a run which was moved meanwhile is in both.
func (s *Store) addKeptRun(shard int, record job.RecordID, state *job.State, history []job.Run) []job.Run {
	if state.KeptRun == "" {
		return history
	}
	run, err := codec.DecodeKeptRun(state.KeptRun)
	if err != nil {
		s.runner.ReportCorrupt(shard, "runs", err, string(record))
		return history
	}
	for i := range history {
		if history[i].ID == run.ID && history[i].FinishedMS == run.FinishedMS {
			return history
		}
	}
	return append(history, run)
}
