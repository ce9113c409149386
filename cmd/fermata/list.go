package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/fermata-io/fermata/client"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

func (a *app) listCommand() *cobra.Command {
	var f client.Filter
	var state string
	var limit int
	var all bool
	table := func(jobs []*client.Job) outputTable { return a.jobTable(jobs, all) }
	cmd := &cobra.Command{
		Use: "list", Short: "List jobs", Aliases: []string{"ls"}, Args: noArgs,
		Long: "List jobs. Where the output goes to a terminal, the table fits it: columns that matter least are " +
			"left out. A\n" +
			"pipe or a file gets all columns, and ids in full.\n\n" +
			"--filter takes fields such as id, queue, handler, labels.KEY, state, failing, last_error and next_due_time\n" +
			"with =, !=, <, >, : (contains), AND, OR and NOT. A word alone is searched for in ids and handlers. All fields:\n" +
			"docs/how-to/find-jobs.md.",
		Example: `  fermata jobs list --failing 1
  fermata jobs list --state paused --label team=ops
  fermata jobs list --filter 'handler = http AND last_error:timeout'
  fermata jobs list -A --filter 'report AND last_run_time < -24h' --order-by next_due_time
  fermata jobs list --all-namespaces -o name
  fermata jobs list --columns name,queue,last-error`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			n, err := enumValue(fermatav1.JobStatus_State_value, "STATE_", "--state", state)
			if err != nil {
				return err
			}
			f.State = fermatav1.JobStatus_State(n)
			return a.withSession(cmd, func(ctx context.Context, c *client.Client) error {
				// One call serves all namespaces in an order, and so that a filter is sent once.
				f.AllNamespaces = all && (f.Expression != "" || f.OrderBy != "")
				jobs, err := inNamespaces(ctx, a, c, all && !f.AllNamespaces,
					func(ctx context.Context, c *client.Client) ([]*client.Job, error) {
						return collectJobs(ctx, c, f, limit)
					})
				if err != nil {
					return err
				}
				if limit > 0 {
					jobs = jobs[:min(limit, len(jobs))]
				}
				return printList(a, jobs, table)
			})
		},
	}
	selectFlags(cmd, &f.Selection)
	eachNamespaceFlag(cmd, &all)
	cmd.Flags().StringVar(&state, "state", "", "only in this state: scheduled, running, paused, dead or done")
	cmd.Flags().Int64Var(&f.MinFailures, "failing", 0, "only with at least this many failed runs in a row")
	cmd.Flags().StringVar(&f.Expression, "filter", "",
		"only jobs that match, such as 'failing = true AND last_error:timeout'")
	cmd.Flags().StringVar(&f.OrderBy, "order-by", "",
		"id, next_due_time, 'consecutive_failures desc' or 'last_run_time desc' (default by name)")
	cmd.Flags().IntVar(&limit, "limit", 0, "maximum number (default all)")
	return registerList(a, cmd, table)
}

// selectFlags adds the flags that select jobs.
func selectFlags(cmd *cobra.Command, s *client.Selection) {
	cmd.Flags().StringVar(&s.Queue, "queue", "", "only of this queue")
	cmd.Flags().StringVar(&s.IDPrefix, "prefix", "", "only ids that begin like this")
	cmd.Flags().StringToStringVar(&s.Labels, "label", nil, "only with this label, key=value; may be repeated")
}

// collectJobs gathers jobs in the order of the filter, without one by their names.
func collectJobs(ctx context.Context, c *client.Client, f client.Filter, limit int) ([]*client.Job, error) {
	f.PageSize = 1000
	if limit > 0 {
		f.PageSize = int32(min(limit, 1000))
	}
	var jobs []*client.Job
	for j, err := range c.Jobs(ctx, f) {
		if err != nil {
			return nil, err
		}
		jobs = append(jobs, j)
		if len(jobs) == limit {
			break
		}
	}
	if f.OrderBy == "" {
		slices.SortFunc(jobs, func(x, y *client.Job) int { return cmp.Compare(x.GetName(), y.GetName()) })
	}
	return jobs, nil
}

// jobTable lists jobs, of several namespaces with theirs.
func (a *app) jobTable(jobs []*client.Job, namespaces bool) outputTable {
	t := outputTable{
		heading: []string{"NAMESPACE", "NAME", "QUEUE", "SCHEDULE", "STATE", "NEXT RUN", "FAILURES", "BACKOFF",
			"MAX LAG", "LAST", "AGE", "LAST ERROR"},
		empty: "no jobs",
		leadingColumns: []string{"AGE", "MAX LAG", "BACKOFF", "LAST", "SCHEDULE", "QUEUE", "LAST ERROR", "FAILURES",
			"NEXT RUN", "STATE"},
	}
	for _, j := range jobs {
		s := j.GetStatus()
		last := noValue
		if s.GetLastOutcome() != 0 {
			last = enumName(s.GetLastOutcome()) + " " + a.agoText(s.GetLastFinishTime())
		}
		namespace, id := splitJobName(j)
		t.addRow(nameText(namespace), nameText(id), j.GetQueue(), printableText(scheduleText(j.GetSchedule())),
			enumName(s.GetState()),
			a.nextRun(j), fmt.Sprint(s.GetConsecutiveFailures()), backoffText(j), durationPBText(j.GetMaxLag()), last,
			a.ageText(j.GetCreateTime()),
			fullText(s.GetLastError()))
	}
	if !namespaces {
		t = t.withoutColumn("NAMESPACE")
	}
	return t
}

func (a *app) getCommand() *cobra.Command {
	return &cobra.Command{
		SuggestFor: []string{"describe", "show"},
		Use:        "get ID", Short: "Show a job", Args: exactArgs(1),
		Long: "Show a job. With -o yaml it has the form that create and update take with -f: a payload of plain\n" +
			"text is written as payload_text.",
		RunE: printFetched(a, a.describeJob, func(ctx context.Context, c *client.Client, args []string) (*client.Job, error) {
			return c.GetJob(ctx, args[0])
		}),
	}
}
