package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/fermata-io/fermata/client"
	"github.com/fermata-io/fermata/internal/core/authz"
)

func (a *app) payloadsCommand() *cobra.Command {
	payloads := &cobra.Command{Use: "payloads", Short: "Manage sealed payloads", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() }}
	payloads.AddCommand(a.resealCommand())
	return payloads
}

func (a *app) resealCommand() *cobra.Command {
	var which client.Selection
	cmd := &cobra.Command{
		Use: "reseal", Short: "Seal payloads with the current key", Args: noArgs,
		Long: "Seal the payloads of the jobs of a namespace with the key that is first in the nodes' key file: " +
			"those that\n" +
			"another key or version sealed, and those that were never sealed, also empty ones. Nothing else of a " +
			"job is changed.\n" +
			"The command can be repeated; payloads sealed with that key are skipped.\n" +
			"It trusts the content of Redis. Therefore nodes with --payload-require-sealed refuse to seal payloads " +
			"that they would\n" +
			"not deliver: set the payloads of those jobs again.\n" +
			"With roles limited to queues, select one of them with --queue; skipped jobs are an error (exit code " +
			"1).\n" +
			"Give --request-timeout time for many jobs.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withSession(cmd, func(ctx context.Context,
				c *client.Client) error {
				return a.resealJobs(ctx, c, which)
			})
		},
	}
	selectFlags(cmd, &which)
	return a.requestIDFlag(cmd)
}

func (a *app) resealJobs(ctx context.Context, c *client.Client, which client.Selection) error {
	switch queues, err := limitedQueues(ctx, c, authz.EditJobs, which); {
	case err != nil:
		return err
	case len(queues) > 0:
		return &codedError{
			err: fmt.Errorf("payloads of other queues than %s would stay as they are: your roles are for these "+
				"queues", printableText(strings.Join(queues, ", "))),
			code: exitFailed, hint: "name one of your queues by --queue, or have it done by a role for all queues " +
				"of the namespace",
		}
	}
	var failed []error
	resealed, same := 0, 0
	for j, err := range c.Jobs(ctx, client.Filter{Selection: which, PageSize: 1000}) {
		if err != nil {
			return err
		}
		after, err := c.UpdateJob(a.withRequestID(ctx), &client.Job{Name: client.JobID(j)}, "payload_key_id")
		switch {
		case client.IsNotFound(err):
			if err := a.hiddenJob(ctx, c, j, resealed+same); err != nil {
				failed = append(failed, err)
			}
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
	if err := highestCodeError(failed); err != nil {
		return err
	}
	return a.printResult(fmt.Sprintf("sealed %s again, left %d unchanged", countText(resealed, "payload", "payloads"),
		same),
		resultFact{"resealed", resealed}, resultFact{"unchanged", same})
}

// hiddenJob is the error of a job that was listed and cannot be found for an edit; nil if it was
// deleted since.
func (a *app) hiddenJob(ctx context.Context, c *client.Client, j *client.Job, i int) error {
	_, err := c.GetJob(ctx, client.JobID(j))
	switch {
	case client.IsNotFound(err):
		return nil
	case err == nil:
		err = fmt.Errorf("your roles do not let you edit jobs of queue %s", printableText(j.GetQueue()))
	}
	return a.failedItem(client.JobID(j), i, err)
}

// limitedQueues are the queues that the roles of the caller are limited to which have a permission in
// the namespace, unless one of them is for all queues or the selection names a queue: nodes
// refuse one of others.
func limitedQueues(ctx context.Context, c *client.Client, want authz.Permission,
	which client.Selection) (queues []string, err error) {
	if which.Queue != "" {
		return nil, nil
	}
	who, err := c.WhoAmI(ctx)
	if status.Code(err) == codes.Unimplemented {
		return nil, nil // a node from before there were such roles
	} else if err != nil {
		return nil, err
	}
	for _, g := range who.GetGrants() {
		here := slices.ContainsFunc(g.GetNamespaces(),
			func(pattern string) bool { return authz.Match(pattern, c.Namespace()) })
		if !here || !authz.Role(g.GetRole()).Has(want) {
			continue
		}
		if len(g.GetQueues()) == 0 {
			return nil, nil
		}
		queues = append(queues, g.GetQueues()...)
	}
	slices.Sort(queues)
	return slices.Compact(queues), nil
}

// refusesKeys reports whether the node has no keys, which fails all jobs.
func refusesKeys(err error) bool {
	return slices.ContainsFunc(client.Violations(err),
		func(v client.Violation) bool { return v.Field == "update_mask" })
}
