package main

import (
	"context"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/fermata-io/fermata/client"
)

func (a *app) renameCommand() *cobra.Command {
	var o client.RenameOptions
	cmd := &cobra.Command{
		Use: "rename OLD NEW", Short: "Give a job another id", Aliases: []string{"mv", "move"},
		Long: "Give a job another id in its namespace. It keeps its definition, failures, backoff, next run, pause, " +
			"history,\ndead letters and revisions. Runs that are live, or wait beside the schedule, have to end before. " +
			"Nothing else\nthat names the job is changed: files of fermata apply, filters of webhooks, dashboards.",
		Example: "  fermata jobs rename ping ping-eu",
		Args:    exactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withSession(cmd, func(ctx context.Context, c *client.Client) error {
				j, err := c.RenameJob(ctx, args[0], args[1], o)
				switch {
				case status.Code(err) == codes.AlreadyExists && reasonOf(err) != "ID_OF_OTHER_QUEUE":
					return &codedError{
						err: err, code: exitConflict,
						hint: "the id " + printableText(args[1]) + " is taken: choose another one; the job that has it is " +
							"shown by: fermata jobs get " + printableText(args[1]),
					}
				case err != nil:
					return err
				}
				return printMessage(a, j, func(j *client.Job) error {
					return a.println("renamed " + printableText(args[0]) + " to " + client.JobID(j) + ", " + a.nextText(j))
				})
			})
		},
	}
	cmd.Flags().StringVar(&o.Etag, "etag", "", "refuse unless the job still has this etag")
	return cmd
}
