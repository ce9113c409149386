package convert

import (
	"fmt"

	"github.com/fermata-io/fermata/internal/core/job"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

func attemptToPB(a job.Attempt) *fermatav1.RunAttempt {
	return &fermatav1.RunAttempt{
		Attempt: int32(a.Number), Outcome: outcomes.ToPB(a.Outcome), DelaySource: delaySources.ToPB(a.Source),
		DueTime: MillisToPB(a.DueMS), StartTime: MillisToPB(a.StartedMS), FinishTime: MillisToPB(a.FinishedMS),
		Worker: a.Worker,
	}
}

// attempts reads the attempts of a dead letter in a backup.
func (r *Reader) attempts(field string, list []*fermatav1.RunAttempt) []job.Attempt {
	if len(list) > job.MaxLoggedAttempts {
		r.Reject(field, fmt.Sprintf("has %d entries, at most %d are allowed", len(list), job.MaxLoggedAttempts))
		return nil
	}
	var attempts []job.Attempt
	for i, p := range list {
		at := fmt.Sprintf("%s[%d]", field, i)
		attempts = append(attempts, job.Attempt{
			Number: r.uint32Counter(at+".attempt", int64(p.GetAttempt())), Outcome: outcomes.FromPB(p.GetOutcome()),
			Source: delaySources.FromPB(p.GetDelaySource()), DueMS: r.Millis(at+".due_time", p.GetDueTime()),
			StartedMS: r.Millis(at+".start_time", p.GetStartTime()), FinishedMS: r.Millis(at+".finish_time", p.GetFinishTime()),
			Worker: job.Clip(p.GetWorker(), job.MaxID),
		})
	}
	return attempts
}
