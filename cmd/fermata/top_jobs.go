package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fermata-io/fermata/client"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

func (a *app) lateCommand() *cobra.Command {
	return a.topJobsCommand(fermatav1.TopJobsRequest_KIND_LATE, "late", "Show the most overdue jobs",
		`Show the most overdue jobs, the worst first: those whose run has waited longer than their
max_lag (a second where none is set) after it was due, and those whose last run broke
max_lag. What they wait for: fermata jobs explain.`, a.lateTable)
}

func (a *app) failingCommand() *cobra.Command {
	return a.topJobsCommand(fermatav1.TopJobsRequest_KIND_FAILING, "failing",
		"Show the jobs with the most failed runs in a row",
		`Show the jobs with the most failed runs in a row, the worst first. Jobs that have
ended are not among them: fermata dead-letters list.`, a.failingTable)
}

// topJobsCommand lists jobs by one of the orders that TopJobs knows.
func (a *app) topJobsCommand(kind fermatav1.TopJobsRequest_Kind, use, short, long string,
	table func([]*fermatav1.TopJob) outputTable) *cobra.Command {
	var all bool
	var limit int
	shown := func(jobs []*fermatav1.TopJob) outputTable { return table(jobs).dropNamespaceFirst(!all) }
	cmd := &cobra.Command{
		Use: use, Short: short, Long: long, Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if limit < 1 || limit > 100 {
				return usageErrorf("--limit %d: want 1 to 100", limit)
			}
			return a.withSession(cmd, func(ctx context.Context, c *client.Client) error {
				jobs, err := a.topJobs(ctx, c, kind, all, limit)
				if err != nil {
					return err
				}
				return printList(a, jobs, shown)
			})
		},
	}
	allNamespacesFlag(cmd, &all, false, "of all namespaces")
	cmd.Flags().IntVar(&limit, "limit", 20, "maximum number, 1 to 100")
	return registerList(a, cmd, shown)
}

// topJobs are the worst jobs of a kind, the worst first.
func (a *app) topJobs(ctx context.Context, c *client.Client, kind fermatav1.TopJobsRequest_Kind, all bool,
	limit int) ([]*fermatav1.TopJob, error) {
	jobs, err := askOnce(ctx, a, c, all, func(ctx context.Context, c *client.Client, all bool) ([]*fermatav1.TopJob,
		error) {
		list, err := c.TopJobs(ctx, kind, client.TopOptions{AllNamespaces: all, Limit: limit})
		if list.GetIncomplete() {
			fmt.Fprintln(a.err, "warning: the list may be incomplete: a node reads a bounded number of jobs for it")
		}
		return list.GetJobs(), err
	})
	return sortTopJobs(kind, jobs, limit), err
}

// sortTopJobs merges the sorted lists of several namespaces.
func sortTopJobs(kind fermatav1.TopJobsRequest_Kind, jobs []*fermatav1.TopJob, limit int) []*fermatav1.TopJob {
	slices.SortStableFunc(jobs, func(x, y *fermatav1.TopJob) int {
		if kind == fermatav1.TopJobsRequest_KIND_LATE {
			return cmp.Compare(y.GetLag().AsDuration(), x.GetLag().AsDuration())
		}
		a, b := x.GetJob().GetStatus(), y.GetJob().GetStatus()
		return cmp.Or(cmp.Compare(b.GetConsecutiveFailures(), a.GetConsecutiveFailures()),
			cmp.Compare(b.GetCurrentAttempt(), a.GetCurrentAttempt()))
	})
	return jobs[:min(limit, len(jobs))]
}

func (a *app) lateTable(jobs []*fermatav1.TopJob) outputTable {
	t := outputTable{heading: []string{"NAMESPACE", "NAME", "QUEUE", "LATE BY", "MAX LAG", "RUN", "HELD",
		"LAST ERROR"}, empty: "no late jobs",
		leadingColumns: []string{"MAX LAG", "QUEUE", "LAST ERROR", "RUN", "HELD", "NAMESPACE"}}
	for _, j := range jobs {
		run := "has started"
		if j.GetWaiting() {
			run = "waits"
		}
		namespace, id := splitJobName(j.GetJob())
		t.addRow(namespace, printableText(id), j.GetJob().GetQueue(), durationPBText(j.GetLag()),
			durationPBText(j.GetJob().GetMaxLag()), run,
			fullText(a.holdText(j.GetJob().GetStatus().GetHold())), fullText(j.GetJob().GetStatus().GetLastError()))
	}
	return t
}

func (a *app) failingTable(jobs []*fermatav1.TopJob) outputTable {
	t := outputTable{heading: []string{"NAMESPACE", "NAME", "QUEUE", "FAILURES", "ATTEMPT", "NEXT RUN", "BACKOFF",
		"LAST ERROR"}, empty: "no failing jobs",
		leadingColumns: []string{"BACKOFF", "ATTEMPT", "QUEUE", "LAST ERROR", "NAMESPACE", "NEXT RUN"}}
	for _, j := range jobs {
		s := j.GetJob().GetStatus()
		namespace, id := splitJobName(j.GetJob())
		t.addRow(namespace, printableText(id), j.GetJob().GetQueue(), fmt.Sprint(s.GetConsecutiveFailures()),
			fmt.Sprint(s.GetCurrentAttempt()),
			a.nextRun(j.GetJob()), backoffText(j.GetJob()), fullText(s.GetLastError()))
	}
	return t
}

// splitJobName splits namespaces/{namespace}/jobs/{job}.
func splitJobName(j *client.Job) (namespace, id string) {
	namespace, id, _ = strings.Cut(strings.TrimPrefix(j.GetName(), "namespaces/"), "/jobs/")
	return namespace, id
}
