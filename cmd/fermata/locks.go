package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fermata-io/fermata/client"
)

func (a *app) locksCommand() *cobra.Command {
	locks := &cobra.Command{Use: "locks", Aliases: []string{"lock"},
		Short: "Show the locks of jobs, who holds them, and who waits", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() }}
	locks.AddCommand(a.listLocksCommand())
	return locks
}

func (a *app) listLocksCommand() *cobra.Command {
	var all, held bool
	table := func(locks []*client.LockStatus) outputTable { return a.lockTable(locks, all) }
	cmd := &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List the locks that jobs name, with holders and waiters",
		Long: "List the locks that jobs name: a line for each lock, one for each of its first 20 holders, and one for " +
			"each\n" +
			"of the first 20 runs that wait for it, in order.",
		Args:    noArgs,
		Example: "  fermata locks list --held\n  fermata locks list --all-namespaces -o json",
		RunE: printFetchedList(a, table, func(ctx context.Context, c *client.Client) ([]*client.LockStatus, error) {
			locks, err := c.Locks(ctx, all)
			if held {
				locks = heldLocks(locks)
			}
			return locks, err
		}),
	}
	eachNamespaceFlag(cmd, &all)
	cmd.Flags().BoolVar(&held, "held", false, "only those that a run holds or waits for")
	return registerList(a, cmd, table)
}

func heldLocks(locks []*client.LockStatus) (held []*client.LockStatus) {
	for _, l := range locks {
		if l.GetHeld()+l.GetWaiting() > 0 {
			held = append(held, l)
		}
	}
	return held
}

func (a *app) lockTable(locks []*client.LockStatus, namespaces bool) outputTable {
	t := outputTable{
		heading: []string{"NAMESPACE", "LOCK", "HELD", "WAITING", "JOBS", "RUN OF", "WORKER", "STATE", "SINCE",
			"UNTIL"},
		empty:          "no locks",
		leadingColumns: []string{"JOBS", "WORKER", "UNTIL", "SINCE"},
	}
	for _, l := range locks {
		namespace, key := nameText(strings.TrimPrefix(l.GetParent(), "namespaces/")), nameText(l.GetKey())
		row := func(cells ...string) { t.addRow(append([]string{namespace, key}, cells...)...) }
		row(fmt.Sprintf("%d of %d", l.GetHeld(), l.GetCapacity()), fmt.Sprint(l.GetWaiting()), fmt.Sprint(l.GetJobs()),
			"", "", "", "", "")
		for _, h := range l.GetHolders() {
			row("", "", "", hiddenOr(h.GetJob()), printableText(h.GetWorker()), "holds it", a.agoText(h.GetSinceTime()),
				a.untilText(h.GetLeaseEndTime()))
		}
		for _, w := range l.GetWaiters() {
			state := "waits"
			if w.GetReservedUntilTime() != nil {
				state = "is next"
			}
			row("", "", "", hiddenOr(w.GetJob()), "", state, a.agoText(w.GetSinceTime()),
				a.untilText(w.GetReservedUntilTime()))
		}
	}
	if !namespaces {
		t = t.withoutColumn("NAMESPACE")
	}
	return t
}

// hiddenOr is the id of a job, or a text for one that the caller may not see.
func hiddenOr(job string) string {
	if job == "" {
		return "(a job of another queue)"
	}
	return shortJobName(job)
}
