package main

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fermata-io/fermata/client"
)

func (a *app) upcomingCommand() *cobra.Command {
	var o client.UpcomingOptions
	table := func(runs []*client.UpcomingRun) outputTable { return a.upcomingTable(runs, o.AllNamespaces) }
	cmd := &cobra.Command{
		SuggestFor: []string{"next", "due"},
		Use:        "upcoming", Short: "Show the runs that are due next", Args: noArgs,
		Long: "Show the planned runs that are due next, the first one first: of jobs, and of runs beside them such as\n" +
			"backfills. Paused jobs have no planned run. WAITS FOR is what holds a run back until then. Later runs of one " +
			"job:\nfermata preview JOB.",
		Example: `  fermata jobs upcoming
  fermata jobs upcoming -A --limit 100
  fermata jobs upcoming --filter 'queue = mail AND next_due_time < 1h'`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.Limit < 1 || o.Limit > 1000 {
				return usageErrorf("--limit %d: want 1 to 1000", o.Limit)
			}
			return a.withSession(cmd, func(ctx context.Context, c *client.Client) error {
				runs, err := c.UpcomingRuns(ctx, o)
				if err != nil {
					return err
				}
				return printList(a, runs, table)
			})
		},
	}
	eachNamespaceFlag(cmd, &o.AllNamespaces)
	cmd.Flags().StringVar(&o.Expression, "filter", "", "only of jobs that match, as for fermata jobs list")
	cmd.Flags().BoolVar(&o.ExcludeHeld, "exclude-held", false, "leave out runs that something holds back")
	cmd.Flags().IntVar(&o.Limit, "limit", 20, "maximum number, 1 to 1000")
	return registerList(a, cmd, table)
}

func (a *app) upcomingTable(runs []*client.UpcomingRun, namespaces bool) outputTable {
	t := outputTable{
		heading: []string{"NAMESPACE", "NAME", "DUE", "SCHEDULED", "ZONE", "QUEUE", "HANDLER", "ATTEMPT", "WAITS FOR"},
		empty:   "no planned runs", leadingColumns: []string{"ATTEMPT", "HANDLER", "ZONE", "QUEUE", "NAMESPACE", "SCHEDULED"},
	}
	for _, r := range runs {
		namespace, id, _ := strings.Cut(strings.TrimPrefix(r.GetName(), "namespaces/"), "/jobs/")
		id, _, _ = strings.Cut(id, "/runs/")
		held := a.holdText(r.GetHold())
		if r.GetQueuePaused() {
			held = "the queue is paused"
		}
		t.addRow(nameText(namespace), nameText(id), a.untilText(r.GetDueTime()), formatTime(r.GetNominalTime()),
			printableText(cmp.Or(r.GetTimeZone(), noValue)), r.GetQueue(),
			printableText(r.GetHandler()), fmt.Sprint(r.GetAttempt()),
			fullText(held))
	}
	if !namespaces {
		t = t.withoutColumn("NAMESPACE")
	}
	return t
}
