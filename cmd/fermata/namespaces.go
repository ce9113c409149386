package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fermata-io/fermata/client"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

func (a *app) namespacesCommand() *cobra.Command {
	namespaces := &cobra.Command{Use: "namespaces", Short: "Show namespaces with their sizes and quotas",
		Aliases: []string{"namespace", "ns"}, Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() }}
	list := listCommand(a, "list", "Show the namespaces that you may see: jobs, dead letters and quotas",
		func(ctx context.Context, c *client.Client) ([]*client.Namespace, error) {
			return c.Admin().Namespaces(ctx)
		},
		a.namespaceTable)
	list.Aliases = []string{"ls"}
	list.Example = "  fermata namespaces list\n  fermata namespaces list -o name"
	namespaces.AddCommand(list)
	return namespaces
}

func (a *app) namespaceTable(namespaces []*client.Namespace) outputTable {
	t := outputTable{
		heading: []string{"NAMESPACE", "JOBS", "RUNNING", "FAILING", "PAUSED", "DEAD", "QUEUES", "JOBS QUOTA",
			"BYTES QUOTA"},
		empty: "no namespaces", leadingColumns: []string{"BYTES QUOTA", "JOBS QUOTA", "QUEUES", "RUNNING"},
	}
	for _, n := range namespaces {
		failing := noValue
		if n.Failing != nil {
			failing = fmt.Sprint(n.GetFailing())
		}
		t.addRow(nameText(strings.TrimPrefix(n.GetName(), "namespaces/")), fmt.Sprint(n.GetJobs()),
			fmt.Sprint(n.GetRunning()), failing, fmt.Sprint(n.GetPaused()), fmt.Sprint(n.GetDead()),
			fmt.Sprint(n.GetQueues()), quotaText(n.GetJobsQuota()), quotaText(n.GetJobBytesQuota()))
	}
	return t
}

// quotaText is how much of a quota is used: 3 of 10.
func quotaText(q *fermatav1.Quota) string {
	switch {
	case q == nil:
		return noValue
	case q.Used == nil:
		return fmt.Sprintf("at most %d", q.GetLimit())
	}
	return fmt.Sprintf("%d of %d", q.GetUsed(), q.GetLimit())
}
