package main

import (
	"context"
	"fmt"
	"iter"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/fermata-io/fermata/client"
)

// localFlags names the flags that belong to the command itself.
func localFlags(cmd *cobra.Command) iter.Seq[string] {
	return func(yield func(string) bool) {
		stopped := false
		cmd.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) {
			stopped = stopped || !yield(f.Name)
		})
	}
}

// onEach makes a command that does the same to each job that is named.
func (a *app) onEach(cmd *cobra.Command, do func(ctx context.Context, c *client.Client, job string) error) *cobra.Command {
	cmd.Args = someArgs
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return a.with(cmd, func(ctx context.Context, c *client.Client) error {
			return a.each(args, func(i int) error { return do(ctx, c, args[i]) })
		})
	}
	return cmd
}

func (a *app) deleteCommand() *cobra.Command {
	var etag string
	var ifExists bool
	cmd := a.onEach(&cobra.Command{
		Use: "delete ID...", Short: "Delete jobs", Aliases: []string{"rm"},
		Long: "Delete jobs. A run that is live is left to finish; until then the id is not free.",
	}, func(ctx context.Context, c *client.Client, job string) error {
		err := c.DeleteJob(ctx, job, etag)
		if ifExists && client.IsNotFound(err) {
			return a.println("no job " + printable(job))
		}
		if err != nil {
			return err
		}
		return a.println("deleted " + printable(job))
	})
	cmd.Flags().StringVar(&etag, "etag", "", "refuse unless the job still has this etag")
	cmd.Flags().BoolVar(&ifExists, "if-exists", false, "it is no error when there is no such job")
	return cmd
}

func (a *app) pauseCommand() *cobra.Command {
	var note string
	cmd := a.onEach(&cobra.Command{
		Use: "pause ID...", Short: "Hold jobs until they are resumed",
		Long: "Hold jobs until they are resumed. A live run goes on; manual runs are possible.",
	}, func(ctx context.Context, c *client.Client, job string) error {
		j, err := c.PauseJob(ctx, job, note)
		if err != nil {
			return err
		}
		return printOne(a, j, func(j *client.Job) error { return a.println("paused " + client.JobID(j)) })
	})
	cmd.Flags().StringVar(&note, "note", "", "why, for people")
	return cmd
}

func (a *app) resumeCommand() *cobra.Command {
	return a.onEach(&cobra.Command{
		Use: "resume ID...", Short: "Let paused jobs run again",
		Long: "Let paused jobs run again. What was due meanwhile is skipped; a one-time job runs at once.",
	}, func(ctx context.Context, c *client.Client, job string) error {
		j, err := c.ResumeJob(ctx, job)
		if err != nil {
			return err
		}
		return printOne(a, j, func(j *client.Job) error {
			return a.println(fmt.Sprintf("resumed %s, %s", client.JobID(j), a.nextText(j)))
		})
	})
}

func (a *app) runCommand() *cobra.Command {
	return a.onEach(&cobra.Command{
		Use: "run ID...", Short: "Run jobs now",
		Long: "Run jobs now and forget their failures. If a run is live, exactly one manual run follows it.",
	}, func(ctx context.Context, c *client.Client, job string) error {
		run, joined, err := c.RunJob(ctx, job)
		if err != nil {
			return err
		}
		return printOne(a, run, func(r *client.Run) error {
			text := fmt.Sprintf("run %s of %s", client.RunID(r), printable(job))
			if joined {
				text += ", which was asked for before"
			}
			return a.println(text)
		})
	})
}

func (a *app) cancelCommand() *cobra.Command {
	return &cobra.Command{
		Use: "cancel ID [RUN]", Short: "Cancel a run",
		Long: "Cancel a run, the current one unless another is named. A waiting run ends at once; a live one when its\n" +
			"handler gives up. The job goes on with its schedule.",
		Args: rangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.with(cmd, func(ctx context.Context, c *client.Client) error {
				run, err := a.whichRun(ctx, c, args)
				if err != nil {
					return err
				}
				cancelled, err := c.CancelRun(ctx, args[0], run)
				if err != nil {
					return err
				}
				return printOne(a, cancelled, func(r *client.Run) error {
					if r.GetFinishTime() == nil && r.GetOutcome() == 0 {
						return a.println("cancelling " + client.RunID(r) + ": its handler has been told")
					}
					return a.println(fmt.Sprintf("run %s is %s", client.RunID(r), enumName(r.GetOutcome())))
				})
			})
		},
	}
}

func (a *app) whichRun(ctx context.Context, c *client.Client, args []string) (string, error) {
	if len(args) == 2 {
		return args[1], nil
	}
	j, err := c.GetJob(ctx, args[0])
	if err != nil {
		return "", err
	}
	if j.GetStatus().GetCurrentRun() == "" {
		return "", status.Errorf(codes.NotFound, "job %s has no current run", printable(args[0]))
	}
	return j.GetStatus().GetCurrentRun(), nil
}
