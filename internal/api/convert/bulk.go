package convert

import (
	"github.com/fermata-io/fermata/internal/core/job"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// BulkPageToPB converts a page of a change of all that matches a filter.
func BulkPageToPB(action job.BulkAction, p job.BulkPage) *fermatav1.BulkChangeResponse {
	r := &fermatav1.BulkChangeResponse{
		Matched: int32(p.Matched), Changed: int32(p.Changed), Names: bulkTargetNames(action, p.Names),
		TotalMatched: p.Total.Matched, TotalChanged: p.Total.Changed, TotalRefused: p.Total.Refused,
		NextPageToken: p.Next, Confirmation: p.Confirmation, ConfirmationExpireTime: MillisToPB(p.ExpireMS),
		Repeat: p.Repeat,
	}
	for _, refusal := range p.Refusals {
		r.Refusals = append(r.Refusals, &fermatav1.BulkChangeResponse_Refusal{
			Reason: refusal.Reason, Message: bulkRefusalText(refusal.Reason), Count: int32(refusal.Count),
			Names: bulkTargetNames(action, refusal.Names),
		})
	}
	return r
}

// bulkRefusalText explains a reason to people.
func bulkRefusalText(reason string) string {
	switch reason {
	case job.RefusedGone:
		return "it no longer existed"
	case job.RefusedChanged:
		return "it was edited, paused or resumed after it was found"
	case job.RefusedTooManyRuns:
		return "the job has no room for another run"
	case job.RefusedExcludedTime:
		return "the schedule of the job excludes this time"
	case job.RefusedUnusable:
		return "what is stored of the job cannot be used"
	}
	return "the job kept changing"
}

// bulkTargetNames returns the resource names of matches.
func bulkTargetNames(action job.BulkAction, targets []job.BulkTarget) []string {
	return Map(targets, func(t job.BulkTarget) string { return BulkTargetName(action, t) })
}

// BulkTargetName returns the resource name of what an action changes: of a job, a run or a dead letter.
func BulkTargetName(action job.BulkAction, t job.BulkTarget) string {
	switch action {
	case job.BulkCancelRuns:
		return RunName(t.Record.Key(), t.RunID)
	case job.BulkRedriveDeadLetters, job.BulkDiscardDeadLetters:
		return DeadLetterName(t.Record)
	}
	return JobName(t.Record.Key())
}
