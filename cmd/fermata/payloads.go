package main

import (
	"context"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/fermata-io/fermata/client"
)

func (a *app) payloadsCommand() *cobra.Command {
	payloads := &cobra.Command{Use: "payloads", Short: "Care for payloads that are stored sealed", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() }}
	payloads.AddCommand(a.resealCommand())
	return payloads
}

func (a *app) resealCommand() *cobra.Command {
	var which client.Selection
	cmd := &cobra.Command{
		Use: "reseal", Short: "Seal payloads with the present key", Args: noArgs,
		Long: "Seal the payloads of the jobs of a namespace with the key that is first in the nodes' key file: those that\n" +
			"another key or version sealed, and those that were never sealed, empty ones too. It is an edit of each job that\n" +
			"changes nothing else, and may be repeated; what is sealed already as it should be is left alone.\n" +
			"It takes what Redis holds for right. Nodes with --payload-require-sealed therefore refuse to seal what they would\n" +
			"not hand out: give those jobs their payloads anew.\n" +
			"Give --request-timeout time for many jobs.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.with(cmd, func(ctx context.Context, c *client.Client) error { return a.reseal(ctx, c, which) })
		},
	}
	selectFlags(cmd, &which)
	return cmd
}

func (a *app) reseal(ctx context.Context, c *client.Client, which client.Selection) error {
	var failed []error
	resealed, same := 0, 0
	for j, err := range c.Jobs(ctx, client.Filter{Selection: which, PageSize: 1000}) {
		if err != nil {
			return err
		}
		after, err := c.UpdateJob(ctx, &client.Job{Name: client.JobID(j)}, "payload_key_id")
		switch {
		case client.IsNotFound(err): // deleted since it was listed
		case refusesKeys(err):
			return err
		case err != nil:
			failed = append(failed, a.failedItem(client.JobID(j), resealed+same, err))
		case after.GetEtag() == j.GetEtag(): // no edit
			same++
		default:
			resealed++
		}
	}
	if err := worst(failed); err != nil {
		return err
	}
	return a.did(fmt.Sprintf("sealed %s anew, left %d as they are", plural(resealed, "payload", "payloads"), same),
		fact{"resealed", resealed}, fact{"unchanged", same})
}

// refusesKeys tells that the node has no keys, which it would say of every job.
func refusesKeys(err error) bool {
	return slices.ContainsFunc(client.Violations(err), func(v client.Violation) bool { return v.Field == "update_mask" })
}
