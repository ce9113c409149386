package client

import (
	"context"
	"iter"

	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// DeadLetters returns the stored dead runs of the selected jobs, in no particular order. It requests pages as
// they are needed, and ends after the first error.
func (c *Client) DeadLetters(ctx context.Context, s Selection) iter.Seq2[*DeadLetter, error] {
	return func(yield func(*DeadLetter, error) bool) {
		for token := ""; ; {
			r, err := callWithRetry(ctx, c, c.jobs.ListDeadLetters, &fermatav1.ListDeadLettersRequest{
				Parent: c.namespaceName(), PageSize: 1000, PageToken: token, Queue: s.Queue, IdPrefix: s.IDPrefix,
				Labels: s.Labels,
			})
			if err != nil {
				yield(nil, err)
				return
			}
			for _, letter := range r.GetDeadLetters() {
				if !yield(letter, nil) {
					return
				}
			}
			token = r.GetNextPageToken()
			if token == "" {
				return
			}
		}
	}
}

// RedriveResult counts the results of a redrive.
type RedriveResult struct {
	// Redriven is the number of runs that were started again, or would be in a dry run.
	Redriven int
	// Refused is the number of runs that no longer exist, whose job has no room for another run, or that kept
	// changing.
	Refused int
}

// maxLetterNames is the maximum number of names in one RedriveDeadLetters call.
const maxLetterNames = 1000

// RedriveOptions configure [Client.RedriveDeadLetters] and [Client.RedriveSelected].
type RedriveOptions struct {
	// DryRun counts the runs without starting them.
	DryRun bool
	// IgnoreExclusions starts runs also at times that their schedules exclude. Otherwise they wait until the
	// excluded time is over.
	IgnoreExclusions bool
}

// RedriveDeadLetters starts dead runs again, by their full names. If the call is repeated after an error, the runs that
// were started before count as refused.
func (c *Client) RedriveDeadLetters(ctx context.Context, names []string,
	o RedriveOptions) (sum RedriveResult, err error) {
	for len(names) > 0 && err == nil {
		n := min(maxLetterNames, len(names))
		err = c.redriveBatch(ctx, &fermatav1.RedriveDeadLettersRequest{
			Parent: c.namespaceName(), Names: names[:n], DryRun: o.DryRun, IgnoreExclusions: o.IgnoreExclusions,
		}, &sum)
		names = names[n:]
	}
	return sum, err
}

// RedriveSelected starts all dead runs of the selected jobs again.
func (c *Client) RedriveSelected(ctx context.Context, s Selection, o RedriveOptions) (sum RedriveResult, err error) {
	err = c.redriveBatch(ctx, &fermatav1.RedriveDeadLettersRequest{
		Parent: c.namespaceName(), Queue: s.Queue, IdPrefix: s.IDPrefix, Labels: s.Labels, DryRun: o.DryRun,
		IgnoreExclusions: o.IgnoreExclusions,
	}, &sum)
	return sum, err
}

func (c *Client) redriveBatch(ctx context.Context, q *fermatav1.RedriveDeadLettersRequest, sum *RedriveResult) error {
	for {
		r, err := callWithRetry(ctx, c, c.jobs.RedriveDeadLetters, q)
		sum.Redriven += int(r.GetRedriven())
		sum.Refused += int(r.GetRefused())
		q.PageToken = r.GetNextPageToken()
		if err != nil || q.PageToken == "" {
			return err
		}
	}
}

// DiscardDeadLetter deletes a dead letter for good, as it was read: if its slot has another run by now, the call fails
// with [ErrNotFound]. The dead letter of a one-time job is the job itself, which is deleted.
func (c *Client) DiscardDeadLetter(ctx context.Context, letter *DeadLetter) error {
	return c.retryCall(ctx, func(attempt int) error {
		_, err := c.jobs.DiscardDeadLetter(ctx, &fermatav1.DiscardDeadLetterRequest{
			Name: letter.GetName(), RunId: RunID(letter.GetRun()),
		})
		if attempt > 1 && IsNotFound(err) {
			return nil // the first attempt succeeded, and its response was lost
		}
		return err
	})
}
