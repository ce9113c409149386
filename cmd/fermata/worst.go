package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fermata-io/fermata/client"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

func (a *app) lateCommand() *cobra.Command {
	return a.worstCommand(fermatav1.TopJobsRequest_KIND_LATE, "late", "Show the latest jobs",
		`Show the latest jobs, the worst first: those whose run has waited longer than their
max_lag (a second where none is set) after it was due, and those whose last run broke
max_lag. What they wait for: fermata jobs explain.`, a.lateTable)
}

func (a *app) failingCommand() *cobra.Command {
	return a.worstCommand(fermatav1.TopJobsRequest_KIND_FAILING, "failing", "Show the jobs that fail longest",
		`Show the jobs that fail longest, the worst first, by failed runs in a row. Jobs that
have ended are not among them: fermata dead list.`, a.failingTable)
}

// worstCommand lists jobs by one of the orders that TopJobs knows.
func (a *app) worstCommand(kind fermatav1.TopJobsRequest_Kind, use, short, long string, asTable func([]*fermatav1.TopJob) error) *cobra.Command {
	var all bool
	var limit int
	cmd := &cobra.Command{
		Use: use, Short: short, Long: long, Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if limit < 1 || limit > 100 {
				return usagef("--limit %d: want 1 to 100", limit)
			}
			return a.with(cmd, func(ctx context.Context, c *client.Client) error {
				jobs, err := c.Top(ctx, kind, all, limit)
				if err != nil {
					return err
				}
				return printAll(a, jobs, asTable)
			})
		},
	}
	allNamespacesFlag(cmd, &all, false, "of all namespaces")
	cmd.Flags().IntVar(&limit, "limit", 20, "at most so many, 1 to 100")
	return withNames(cmd)
}

func (a *app) lateTable(jobs []*fermatav1.TopJob) error {
	t := table{heading: []string{"NAMESPACE", "NAME", "QUEUE", "LATE BY", "MAX LAG", "RUN", "HELD", "LAST ERROR"}, empty: "no late jobs",
		first: []string{"MAX LAG", "LAST ERROR", "QUEUE", "RUN", "HELD", "NAMESPACE"}}
	for _, j := range jobs {
		run := "has started"
		if j.GetWaiting() {
			run = "waits"
		}
		namespace, id := jobParts(j.GetJob())
		t.add(namespace, printable(id), j.GetJob().GetQueue(), shortPB(j.GetLag()), shortPB(j.GetJob().GetMaxLag()), run,
			clip(a.holdText(j.GetJob().GetStatus().GetHold()), 48), clip(j.GetJob().GetStatus().GetLastError(), 48))
	}
	return a.printTable(t)
}

func (a *app) failingTable(jobs []*fermatav1.TopJob) error {
	t := table{heading: []string{"NAMESPACE", "NAME", "QUEUE", "FAILURES", "ATTEMPT", "NEXT RUN", "BACKOFF", "LAST ERROR"}, empty: "no failing jobs",
		first: []string{"BACKOFF", "ATTEMPT", "QUEUE", "LAST ERROR", "NAMESPACE", "NEXT RUN"}}
	for _, j := range jobs {
		s := j.GetJob().GetStatus()
		namespace, id := jobParts(j.GetJob())
		t.add(namespace, printable(id), j.GetJob().GetQueue(), fmt.Sprint(s.GetConsecutiveFailures()), fmt.Sprint(s.GetCurrentAttempt()),
			a.nextRun(j.GetJob()), backoffText(j.GetJob()), clip(s.GetLastError(), 64))
	}
	return a.printTable(t)
}

// jobParts splits namespaces/{namespace}/jobs/{job}.
func jobParts(j *client.Job) (namespace, id string) {
	namespace, id, _ = strings.Cut(strings.TrimPrefix(j.GetName(), "namespaces/"), "/jobs/")
	return namespace, id
}
