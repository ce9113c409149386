package client

import (
	"cmp"
	"context"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// EndedRunsOptions configure [Client.EndedRuns]. The zero value selects the last 100 runs of the client's namespace
// that ended without success.
type EndedRunsOptions struct {
	// From and To bound the end of the runs: From is inclusive, To exclusive. Zero: no bound.
	From, To time.Time
	// Outcomes are those of runs. OutcomeFailed, OutcomeTimedOut and OutcomeLost select dead and quarantined runs whose
	// last attempt ended so. OutcomeSucceeded needs nodes that keep events. Default: all but OutcomeSucceeded.
	Outcomes []Outcome
	// Queue is that of the runs. Default: all.
	Queue string
	// Expression selects jobs as they are now, as in [Filter].
	Expression string
	// AllNamespaces selects runs of all namespaces that the caller may see, instead of the client's namespace.
	AllNamespaces bool
	// Limit is the maximum number of runs. Default 100.
	Limit int
}

// EndedRuns returns runs of all jobs that ended, the last end first, also those that their jobs no longer keep. They
// have no output, and at most 128 bytes of the error: [Client.GetRun] returns the whole run while its job keeps it.
// more reports whether there are more than Limit.
func (c *Client) EndedRuns(ctx context.Context, o EndedRunsOptions) (runs []*Run, more bool, err error) {
	limit := cmp.Or(o.Limit, 100)
	q := &fermatav1.ListRunsRequest{
		Parent: c.spanningParent(o.AllNamespaces) + "/jobs/-", Outcomes: o.Outcomes, Queue: o.Queue, Filter: o.Expression,
		StartTime: optionalTime(o.From), EndTime: optionalTime(o.To),
	}
	for {
		q.PageSize = int32(min(limit-len(runs), 1000))
		r, err := callWithRetry(ctx, c, c.jobs.ListRuns, q)
		runs = append(runs, r.GetRuns()...)
		q.PageToken = r.GetNextPageToken()
		if err != nil || q.PageToken == "" || len(runs) >= limit {
			return runs, q.PageToken != "", err
		}
	}
}

func optionalTime(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}
