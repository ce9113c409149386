package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/fermata-io/fermata/client"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

func (a *app) checkCommand() *cobra.Command {
	var repair bool
	cmd := &cobra.Command{
		Use: "check", Short: "Check the stored data for consistency, and repair the indexes",
		Long: "Check the stored data of all namespaces, shard by shard, while the cluster works: each job is in " +
			"exactly one\n" +
			"place, nothing is left over, and jobs and their runs refer to each other. --repair rebuilds the " +
			"indexes from the\n" +
			"records, removes ended runs and revisions of jobs that do not exist, and frees names that are kept for\n" +
			"renames which are over; it changes nothing else. The exit code is 1 if a finding is left. Set a longer\n" +
			"--request-timeout for millions of jobs.",
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withSession(cmd, func(ctx context.Context,
				c *client.Client) error {
				return a.checkCluster(ctx, c, repair)
			})
		},
	}
	cmd.Flags().BoolVar(&repair, "repair", false, "repair what can be repaired without loss")
	return cmd
}

// remainingFindings is the error of a check that left findings.
type remainingFindings int

func (n remainingFindings) Error() string { return countText(int(n), "finding", "findings") + " left" }

func (a *app) checkCluster(ctx context.Context, c *client.Client, repair bool) error {
	shards, err := c.Admin().Shards(ctx)
	if err != nil {
		return err
	}
	var findings []*fermatav1.Finding
	records, more := int64(0), false
	for _, s := range shards {
		r, err := c.Admin().CheckShard(ctx, int(s.GetShard()), client.CheckShardOptions{Repair: repair})
		if err != nil {
			return fmt.Errorf("shard %d: %w", s.GetShard(), err)
		}
		findings, records, more = append(findings, r.GetFindings()...), records+r.GetRecords(), more || r.GetMore()
	}
	left := 0
	for _, f := range findings {
		if !f.GetRepaired() {
			left++
		}
	}
	err = printMessages(a, findings, func(list []*fermatav1.Finding) error {
		if err := a.println(fmt.Sprintf("%d shards, %s, %s", len(shards),
			countText(int(records), "record", "records"), countText(len(list), "finding", "findings"))); err != nil ||
			len(list) == 0 {
			return err
		}
		if more {
			if err := a.println("There are more: check again after these are repaired."); err != nil {
				return err
			}
		}
		return a.findingTable(list)
	})
	if err == nil && left > 0 {
		return remainingFindings(left)
	}
	return err
}

func (a *app) findingTable(findings []*fermatav1.Finding) error {
	t := outputTable{heading: []string{"FAULT", "RECORD", "LANE", "REPAIR", "DETAIL"}, leadingColumns: []string{"LANE"}}
	for _, f := range findings {
		repair := "by hand"
		switch {
		case f.GetRepaired():
			repair = "done"
		case f.GetRepairable():
			repair = "--repair"
		}
		t.addRow(enumName(f.GetFault()), nameText(f.GetRecord()), nameText(f.GetLane()), repair,
			fullText(f.GetDetail()))
	}
	return a.printNext(t)
}
