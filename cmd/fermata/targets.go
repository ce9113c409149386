package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fermata-io/fermata/client"
)

func (a *app) targetsCommand() *cobra.Command {
	targets := &cobra.Command{Use: "targets", Aliases: []string{"target"},
		Short: "Show the targets that jobs share, probe them, and end their waits", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() }}
	targets.AddCommand(a.listTargetsCommand(), a.probeTargetCommand(), a.resetTargetCommand())
	return targets
}

func (a *app) listTargetsCommand() *cobra.Command {
	var all, open bool
	table := func(targets []*client.Target) outputTable { return a.targetTable(targets, all) }
	cmd := &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List the targets that jobs name, with their waits", Args: noArgs,
		Example: "  fermata targets list --open\n  fermata targets list --all-namespaces",
		RunE: printFetchedList(a, table, func(ctx context.Context, c *client.Client) ([]*client.Target, error) {
			targets, err := c.Targets(ctx, all)
			if open {
				targets = openTargets(targets)
			}
			return targets, err
		}),
	}
	eachNamespaceFlag(cmd, &all)
	cmd.Flags().BoolVar(&open, "open", false, "only those that hold runs back")
	return registerList(a, cmd, table)
}

func openTargets(targets []*client.Target) (open []*client.Target) {
	for _, t := range targets {
		if t.GetFailures() > 0 {
			open = append(open, t)
		}
	}
	return open
}

func (a *app) targetTable(targets []*client.Target, namespaces bool) outputTable {
	t := outputTable{
		heading: []string{"NAMESPACE", "TARGET", "STATE", "FAILURES", "WAITS", "JOBS", "HELD", "PROBE", "FAILED JOB",
			"ERROR"},
		empty:          "no targets",
		leadingColumns: []string{"FAILED JOB", "PROBE", "JOBS", "FAILURES", "ERROR"},
	}
	for _, g := range targets {
		t.addRow(nameText(strings.TrimPrefix(g.GetParent(), "namespaces/")), nameText(g.GetTarget()),
			enumName(g.GetState()), fmt.Sprint(g.GetFailures()), a.untilText(g.GetOpenUntilTime()),
			fmt.Sprint(g.GetJobs()), fmt.Sprint(g.GetHeldJobs()), shortJobName(g.GetProbeJob()),
			shortJobName(g.GetFailedJob()), fullText(g.GetError()))
	}
	if !namespaces {
		t = t.withoutColumn("NAMESPACE")
	}
	return t
}

// shortJobName returns the id in the name of a job.
func shortJobName(name string) string {
	_, id, _ := strings.Cut(name, "/jobs/")
	return nameText(id)
}

func (a *app) probeTargetCommand() *cobra.Command {
	return a.forEachJob(&cobra.Command{
		Use: "probe TARGET...", Short: "Let one run try a target now",
		Long: "End the wait of a target, and make one of the runs due that it holds back. If that run succeeds, all " +
			"others\n" +
			"start; if it fails, the wait doubles. While a run probes the target already, nothing changes. It needs a " +
			"role\n" +
			"for all queues of the namespace.",
		Example: "  fermata targets probe api.example.com",
	}, func(ctx context.Context, c *client.Client, target string) error {
		after, job, err := c.ProbeTarget(ctx, target)
		if err != nil {
			return err
		}
		text := "a run of " + shortJobName(job) + " probes target " + printableText(target)
		switch {
		case after.GetFailures() == 0:
			text = "target " + printableText(target) + " holds no run back"
		case job == "":
			text = "the next run that is due probes target " + printableText(target)
		}
		return a.printResult(text, resultFact{"target", target}, resultFact{"state", enumName(after.GetState())},
			resultFact{"job", job})
	})
}

func (a *app) resetTargetCommand() *cobra.Command {
	return a.forEachJob(&cobra.Command{
		Use: "reset TARGET...", Short: "End the wait of a target for all runs",
		Long: "Forget the failures of a target, and make all runs due that it holds back. The next failure makes runs " +
			"wait\n" +
			"again. Where many runs wait, probe the target first. It needs a role for all queues of the namespace.",
		Example: "  fermata targets reset api.example.com",
	}, func(ctx context.Context, c *client.Client, target string) error {
		_, released, err := c.ResetTarget(ctx, target)
		if err != nil {
			return err
		}
		return a.printResult(fmt.Sprintf("reset target %s, %s", printableText(target),
			countText(released, "run is due", "runs are due")),
			resultFact{"target", target}, resultFact{"released", released})
	})
}
