package client

import (
	"context"
	"iter"

	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// DeadLetters lists the dead runs that are kept of the jobs that are selected, in
// no particular order, page by page as they are asked for. It ends after the first
// error.
func (c *Client) DeadLetters(ctx context.Context, s Selection) iter.Seq2[*DeadLetter, error] {
	return func(yield func(*DeadLetter, error) bool) {
		for token := ""; ; {
			r, err := callWithRetry(ctx, c, c.jobs.ListDeadLetters, &fermatav1.ListDeadLettersRequest{
				Parent: c.namespaceName(), PageSize: 1000, PageToken: token, Queue: s.Queue, IdPrefix: s.IDPrefix, Labels: s.Labels,
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
			if token = r.GetNextPageToken(); token == "" {
				return
			}
		}
	}
}

// RedriveResult counts what became of dead letters.
type RedriveResult struct {
	// Redriven are tried again, or would be in a dry run.
	Redriven int
	// Refused had gone, their job has no room for another run, or kept changing.
	Refused int
}

// maxLetterNames bounds one call of RedriveDeadLetters.
const maxLetterNames = 1000

// Redrive tries dead runs again by their names. A repetition after an error finds
// those that were redriven gone and counts them as refused.
func (c *Client) Redrive(ctx context.Context, names ...string) (sum RedriveResult, err error) {
	return c.RedriveWith(ctx, RedriveOptions{}, names...)
}

// RedriveSelected tries all dead runs of the selected jobs again; a dry run only
// counts them.
func (c *Client) RedriveSelected(ctx context.Context, s Selection, dry bool) (sum RedriveResult, err error) {
	return c.RedriveSelectedWith(ctx, RedriveOptions{DryRun: dry}, s)
}

// RedriveOptions say how dead runs are tried again; the zero value is good.
type RedriveOptions struct {
	// DryRun only counts them.
	DryRun bool
	// IgnoreExclusions has runs start also at times that their schedules exclude. Else
	// they wait until those are over.
	IgnoreExclusions bool
}

// RedriveWith is [Client.Redrive] with options.
func (c *Client) RedriveWith(ctx context.Context, o RedriveOptions, names ...string) (sum RedriveResult, err error) {
	for len(names) > 0 && err == nil {
		n := min(maxLetterNames, len(names))
		err = c.redriveBatch(ctx, &fermatav1.RedriveDeadLettersRequest{
			Parent: c.namespaceName(), Names: names[:n], DryRun: o.DryRun, IgnoreExclusions: o.IgnoreExclusions,
		}, &sum)
		names = names[n:]
	}
	return sum, err
}

// RedriveSelectedWith is [Client.RedriveSelected] with options.
func (c *Client) RedriveSelectedWith(ctx context.Context, o RedriveOptions, s Selection) (sum RedriveResult, err error) {
	err = c.redriveBatch(ctx, &fermatav1.RedriveDeadLettersRequest{
		Parent: c.namespaceName(), Queue: s.Queue, IdPrefix: s.IDPrefix, Labels: s.Labels, DryRun: o.DryRun, IgnoreExclusions: o.IgnoreExclusions,
	}, &sum)
	return sum, err
}

func (c *Client) redriveBatch(ctx context.Context, q *fermatav1.RedriveDeadLettersRequest, sum *RedriveResult) error {
	for {
		r, err := callWithRetry(ctx, c, c.jobs.RedriveDeadLetters, q)
		sum.Redriven += int(r.GetRedriven())
		sum.Refused += int(r.GetRefused())
		if q.PageToken = r.GetNextPageToken(); err != nil || q.PageToken == "" {
			return err
		}
	}
}
