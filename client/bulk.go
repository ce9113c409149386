package client

import (
	"context"

	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// BulkAction is what a [BulkChange] does to each match.
type BulkAction uint8

// Actions.
const (
	BulkPauseJobs BulkAction = iota
	BulkResumeJobs
	BulkRunJobs
	BulkCancelRuns
	BulkDeleteJobs
	BulkRedriveDeadLetters
	BulkDiscardDeadLetters
)

// BulkChange changes all jobs, or dead letters, that match a filter.
type BulkChange struct {
	Action BulkAction
	// Filter is in the language of AIP-160, as in [Filter]. Required: "id:*" selects all.
	Filter string
	// RequestID identifies the change: the same change with the same id is continued, and changes nothing twice.
	// Required for [Client.ChangeMatches]; see [NewRequestID].
	RequestID string

	// Note explains a pause to people.
	Note string
	// PauseID has BulkResumeJobs resume only jobs that are paused since the BulkPauseJobs with this RequestID.
	PauseID string
	// CatchUp is as in [ResumeOptions].
	CatchUp bool
	// Backoff is as in [RunOptions], for BulkRunJobs.
	Backoff fermatav1.RunJobRequest_Backoff
	// IgnoreExclusions is as in [RunOptions] and [RedriveOptions].
	IgnoreExclusions bool
}

// MatchCount is the result of a dry run.
type MatchCount struct {
	Matches int64
	// First has the resource names of the first matches, at most 20: of jobs, dead letters, or for BulkCancelRuns
	// runs.
	First []string
	// Confirmation is the token for [Client.ChangeMatches]. It expires after 15 minutes.
	Confirmation string
}

// maxBulkNames is how many names of a kind are kept.
const maxBulkNames = 20

// BulkRefusal counts matches that were not changed for one reason.
type BulkRefusal struct {
	// Reason is for programs, and Message for people.
	Reason, Message string
	Count           int
	// Names has the resource names of the first 20.
	Names []string
}

// BulkResult is how far a change has got.
type BulkResult struct {
	Matched, Changed, Refused int64
	// Refusals has the reasons of the pages that this call has got. Pages of earlier calls are only in the counts.
	Refusals []BulkRefusal
}

// CountMatches counts what a change would change, and changes nothing.
func (c *Client) CountMatches(ctx context.Context, b BulkChange) (count MatchCount, err error) {
	page := bulkPage{dryRun: true}
	for {
		r, err := c.callBulk(ctx, b, page)
		if err != nil {
			return count, err
		}
		count.Matches, count.Confirmation = r.GetTotalMatched(), r.GetConfirmation()
		count.First = appendNames(count.First, r.GetNames())
		page.token = r.GetNextPageToken()
		if page.token == "" {
			return count, nil
		}
	}
}

// ChangeMatches makes the change, page by page. More than 100 matches need a confirmation from [Client.CountMatches];
// if many more match than were confirmed, the change stops with an error. onPage, if set, is called after each page.
// After an error, call again with the same change to continue it.
func (c *Client) ChangeMatches(ctx context.Context, b BulkChange, confirmation string,
	onPage func(BulkResult)) (result BulkResult, err error) {
	page := bulkPage{confirmation: confirmation}
	for {
		r, err := c.callBulk(ctx, b, page)
		if err != nil {
			return result, err
		}
		result.Matched, result.Changed, result.Refused = r.GetTotalMatched(), r.GetTotalChanged(), r.GetTotalRefused()
		for _, refusal := range r.GetRefusals() {
			result.addRefusal(refusal)
		}
		if onPage != nil {
			onPage(result)
		}
		page.token = r.GetNextPageToken()
		if page.token == "" {
			return result, nil
		}
	}
}

func (r *BulkResult) addRefusal(more *fermatav1.BulkChangeResponse_Refusal) {
	for i := range r.Refusals {
		if old := &r.Refusals[i]; old.Reason == more.GetReason() {
			old.Count += int(more.GetCount())
			old.Names = appendNames(old.Names, more.GetNames())
			return
		}
	}
	r.Refusals = append(r.Refusals, BulkRefusal{Reason: more.GetReason(), Message: more.GetMessage(),
		Count: int(more.GetCount()), Names: appendNames(nil, more.GetNames())})
}

func appendNames(names, more []string) []string {
	return append(names, more[:max(0, min(len(more), maxBulkNames-len(names)))]...)
}

// bulkPage is what the calls of one change differ in.
type bulkPage struct {
	dryRun              bool
	confirmation, token string
}

// callBulk calls the method of the action.
func (c *Client) callBulk(ctx context.Context, b BulkChange, p bulkPage) (*fermatav1.BulkChangeResponse, error) {
	parent, id := c.namespaceName(), b.RequestID
	switch b.Action {
	case BulkPauseJobs:
		return callWithRetry(ctx, c, c.jobs.BulkPauseJobs, &fermatav1.BulkPauseJobsRequest{Parent: parent, Filter: b.Filter,
			DryRun: p.dryRun, Confirmation: p.confirmation, RequestId: id, PageToken: p.token, Note: b.Note})
	case BulkResumeJobs:
		return callWithRetry(ctx, c, c.jobs.BulkResumeJobs, &fermatav1.BulkResumeJobsRequest{Parent: parent, Filter: b.Filter,
			DryRun: p.dryRun, Confirmation: p.confirmation, RequestId: id, PageToken: p.token, PauseId: b.PauseID,
			CatchUp: b.CatchUp})
	case BulkRunJobs:
		return callWithRetry(ctx, c, c.jobs.BulkRunJobs, &fermatav1.BulkRunJobsRequest{Parent: parent, Filter: b.Filter,
			DryRun: p.dryRun, Confirmation: p.confirmation, RequestId: id, PageToken: p.token, Backoff: b.Backoff,
			IgnoreExclusions: b.IgnoreExclusions})
	case BulkCancelRuns:
		return callWithRetry(ctx, c, c.jobs.BulkCancelRuns, &fermatav1.BulkCancelRunsRequest{Parent: parent, Filter: b.Filter,
			DryRun: p.dryRun, Confirmation: p.confirmation, RequestId: id, PageToken: p.token})
	case BulkDeleteJobs:
		return callWithRetry(ctx, c, c.jobs.BulkDeleteJobs, &fermatav1.BulkDeleteJobsRequest{Parent: parent, Filter: b.Filter,
			DryRun: p.dryRun, Confirmation: p.confirmation, RequestId: id, PageToken: p.token})
	case BulkRedriveDeadLetters:
		return callWithRetry(ctx, c, c.jobs.BulkRedriveDeadLetters, &fermatav1.BulkRedriveDeadLettersRequest{Parent: parent,
			Filter: b.Filter, DryRun: p.dryRun, Confirmation: p.confirmation, RequestId: id, PageToken: p.token,
			IgnoreExclusions: b.IgnoreExclusions})
	default:
		return callWithRetry(ctx, c, c.jobs.BulkDiscardDeadLetters, &fermatav1.BulkDiscardDeadLettersRequest{Parent: parent,
			Filter: b.Filter, DryRun: p.dryRun, Confirmation: p.confirmation, RequestId: id, PageToken: p.token})
	}
}
