package main

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/fermata-io/fermata/client"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
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

// forEachJob returns a command that calls do for each named job or queue.
func (a *app) forEachJob(cmd *cobra.Command, do func(ctx context.Context, c *client.Client,
	name string) error) *cobra.Command {
	cmd.Args = atLeastOneArg
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return a.withSession(cmd, func(ctx context.Context, c *client.Client) error {
			return a.forEachName(args, func(i int) error { return do(ctx, c, args[i]) })
		})
	}
	return cmd
}

func (a *app) deleteCommand() *cobra.Command {
	var etag string
	var ifExists bool
	cmd := a.forEachJob(&cobra.Command{
		Use: "delete (ID... | --filter F)", Short: "Delete jobs", Aliases: []string{"rm"},
		Long: "Delete jobs. A live run finishes; until then the id cannot be used again.",
	}, func(ctx context.Context, c *client.Client, job string) error {
		err := c.DeleteJob(ctx, job, client.DeleteOptions{Etag: etag})
		if ifExists && client.IsNotFound(err) {
			return a.printResult("no job "+printableText(job), resultFact{"job", job}, resultFact{"deleted", false})
		}
		if err != nil {
			return err
		}
		return a.printResult("deleted "+printableText(job), resultFact{"job", job}, resultFact{"deleted", true})
	})
	cmd.Flags().StringVar(&etag, "etag", "", "refuse unless the job still has this etag")
	cmd.Flags().BoolVar(&ifExists, "if-exists", false, "a missing job is not an error")
	a.addFilterFlags(cmd, &filterAction{
		bulkAction: bulkAction{verb: "delete", noun: "job", nouns: "jobs"}, done: "deleted",
		change: client.BulkChange{Action: client.BulkDeleteJobs},
	})
	return cmd
}

func (a *app) pauseCommand() *cobra.Command {
	var note string
	var which client.Selection
	cmd := a.forEachJob(&cobra.Command{
		SuggestFor: []string{"stop", "disable"},
		Use:        "pause (ID... | --all [--queue Q] [--prefix P] [--label K=V] | --filter F)",
		Short:      "Pause jobs until they are resumed",
		Long: "Pause jobs until they are resumed. A live run continues; manual runs are possible. With --all those " +
			"that are\n" +
			"held already keep their note, so that resuming by --note brings back no others.",
		Example: "  fermata jobs pause ping --note \"until the disk is replaced\"\n  fermata jobs pause --all " +
			"--label team=billing --note outage-17",
	}, func(ctx context.Context, c *client.Client, job string) error {
		j, err := c.PauseJob(ctx, job, client.PauseOptions{Note: note})
		if err != nil {
			return err
		}
		return printMessage(a, j, func(j *client.Job) error { return a.println("paused " + client.JobID(j)) })
	})
	cmd.Flags().StringVar(&note, "note", "", "why, for people")
	selectFlags(cmd, &which)
	a.addBulkFlags(cmd, &bulkAction{
		verb: "pause", noun: "job", nouns: "jobs",
		list: func(ctx context.Context, c *client.Client) ([]string, error) {
			return collectIDs(ctx, c, which, func(j *client.Job) bool { return !isPaused(j) })
		},
		do: func(ctx context.Context, c *client.Client) error {
			why := note
			if why == "" { // to distinguish them from jobs paused for another reason
				why = "pause --all at " + a.now().UTC().Format(time.RFC3339)
			}
			n, err := c.PauseJobs(ctx, which, client.PauseOptions{Note: why})
			if n > 0 && note == "" {
				fmt.Fprintf(a.err, "resume just these with: fermata jobs resume --all --note '%s'\n", why)
			}
			return a.reportCount(n, err, "paused")
		},
	})
	a.addFilterFlags(cmd, &filterAction{
		bulkAction: bulkAction{verb: "pause", noun: "job", nouns: "jobs"}, done: "paused",
		change: client.BulkChange{Action: client.BulkPauseJobs}, options: []string{"note"},
		prepare: func(c *client.BulkChange) error { c.Note = note; return nil },
	})
	return cmd
}

func (a *app) resumeCommand() *cobra.Command {
	var o client.ResumeOptions
	var anyNote bool
	var which client.PausedSelection
	cmd := a.forEachJob(&cobra.Command{
		Use:   "resume (ID... | --all [--queue Q] [--prefix P] [--label K=V] [--note N] | --filter F [--pause-id ID])",
		Short: "Resume paused jobs",
		Long: "Resume paused jobs. With --all and without --note, all that are selected must have been paused with\n" +
			"the same note: what was paused for another reason stays paused, unless --any-note is set. What was " +
			"due meanwhile is skipped, or with --catch-up handed to the job's\n" +
			"misfire policy; a one-time job runs at once. Many that are overdue start paced by the recovery rate of\n" +
			"their queue.",
		Example: "  fermata jobs resume ping\n  fermata jobs resume --all --label team=billing --catch-up\n  " +
			"fermata jobs resume --all --note outage-17",
	}, func(ctx context.Context, c *client.Client, job string) error {
		j, err := c.ResumeJob(ctx, job, o)
		if err != nil {
			return err
		}
		return printMessage(a, j, func(j *client.Job) error {
			return a.println(fmt.Sprintf("resumed %s, %s", client.JobID(j), a.nextText(j)))
		})
	})
	cmd.Flags().BoolVar(&o.CatchUp, "catch-up", false, "run missed times by the job's misfire policy")
	cmd.Flags().StringVar(&which.Note, "note", "", "of --all, only those that were paused with exactly this note")
	selectFlags(cmd, &which.Selection)
	cmd.Flags().BoolVar(&anyNote, "any-note", false,
		"with --all: resume jobs regardless of the note they were paused with")
	cmd.MarkFlagsMutuallyExclusive("note", "any-note")
	a.addBulkFlags(cmd, &bulkAction{
		verb: "resume", noun: "job", nouns: "jobs",
		list: func(ctx context.Context, c *client.Client) ([]string, error) {
			return collectIDs(ctx, c, which.Selection, func(j *client.Job) bool {
				return isPaused(j) && (which.Note == "" || j.GetStatus().GetPauseNote() == which.Note)
			})
		},
		do: func(ctx context.Context, c *client.Client) error {
			paused := which
			if !anyNote && paused.Note == "" {
				notes, err := pauseNotes(ctx, c, which.Selection)
				if err != nil {
					return err
				}
				paused.Note, err = commonNote(notes)
				if err != nil {
					return err
				}
			}
			n, err := c.ResumeJobs(ctx, paused, o)
			return a.reportCount(n, err, "resumed")
		},
	}, "note", "any-note")
	var pauseID string
	cmd.Flags().StringVar(&pauseID, "pause-id", "",
		"with --filter: only jobs that are still paused by the jobs pause --filter that showed this id")
	a.addFilterFlags(cmd, &filterAction{
		bulkAction: bulkAction{verb: "resume", noun: "job", nouns: "jobs"}, done: "resumed",
		change: client.BulkChange{Action: client.BulkResumeJobs}, options: []string{"catch-up", "pause-id"},
		prepare: func(c *client.BulkChange) error { c.CatchUp, c.PauseID = o.CatchUp, pauseID; return nil },
	})
	return cmd
}

// addBulkFlags adds --all to a command on named jobs, with the flags that select the jobs, and more of them as
// named.
func (a *app) addBulkFlags(cmd *cobra.Command, b *bulkAction, more ...string) {
	b.registerFlags(cmd)
	named := cmd.RunE
	cmd.Args = nil
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		switch {
		case b.all && len(args) > 0:
			return usageErrorf("--all excludes ids")
		case b.all:
			return a.runBulk(cmd, b)
		case len(args) == 0:
			return usageErrorf("give at least one name, or --all\nusage: %s", cmd.UseLine())
		}
		for _, name := range append([]string{"queue", "prefix", "label", "dry-run", "yes"}, more...) {
			if cmd.Flags().Changed(name) {
				return usageErrorf("--%s needs --all", name)
			}
		}
		return named(cmd, args)
	}
}

// reportCount prints the number of changed jobs, also after an error.
func (a *app) reportCount(n int, err error, done string) error {
	if err != nil && n == 0 {
		return err
	}
	return cmp.Or(err, a.printResult(done+" "+countText(n, "job", "jobs"), resultFact{done, n}))
}

func (a *app) cancelCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "cancel (ID [RUN] | --filter F)", Short: "Cancel a run",
		Long: "Cancel a run, the current one unless another is named. A waiting run ends at once; a live one when " +
			"its\n" +
			"handler gives up. The job continues with its schedule. With --filter the runs of all jobs that match are " +
			"cancelled:\n" +
			"those that are live or wait for their next attempt, and manual runs; planned runs stay.",
		Args: rangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withSession(cmd, func(ctx context.Context, c *client.Client) error {
				run, err := a.selectRun(ctx, c, args)
				if err != nil {
					return err
				}
				cancelled, err := c.CancelRun(ctx, c.RunName(args[0], run))
				if err != nil {
					return err
				}
				return printMessage(a, cancelled, func(r *client.Run) error {
					if r.GetFinishTime() == nil && r.GetOutcome() == 0 {
						return a.println("cancelling " + client.RunID(r) + ": its handler was notified")
					}
					return a.println(fmt.Sprintf("run %s is %s", client.RunID(r), enumName(r.GetOutcome())))
				})
			})
		},
	}
	a.addFilterFlags(cmd, &filterAction{
		bulkAction: bulkAction{verb: "cancel", noun: "run", nouns: "runs"}, done: "cancelled",
		change: client.BulkChange{Action: client.BulkCancelRuns},
	})
	return cmd
}

func (a *app) selectRun(ctx context.Context, c *client.Client, args []string) (string, error) {
	if len(args) == 2 {
		return args[1], nil
	}
	j, err := c.GetJob(ctx, args[0])
	if err != nil {
		return "", err
	}
	if j.GetStatus().GetCurrentRun() == "" {
		return "", noCurrentRunError(ctx, c, args[0])
	}
	return j.GetStatus().GetCurrentRun(), nil
}

// noCurrentRunError is the error of a job without a current run. Its hint names the runs beside the schedule, which
// can be cancelled by their names.
func noCurrentRunError(ctx context.Context, c *client.Client, id string) error {
	job := printableText(id)
	missing := &codedError{
		err: fmt.Errorf("job %s has no current run", job), code: exitNotFound,
		hint: "list its runs with: fermata jobs runs " + job,
	}
	runs, err := c.Runs(ctx, id)
	if err != nil {
		return missing // the hint says how to ask again
	}
	var commands []string
	unfinished := 0
	for _, r := range runs {
		if r.GetState() == fermatav1.Run_STATE_FINISHED {
			continue
		}
		unfinished++
		if unfinished <= maxRunsInHint {
			commands = append(commands, "fermata jobs cancel "+job+" "+printableText(client.RunID(r)))
		}
	}
	if unfinished == 0 {
		return missing
	}
	missing.err = fmt.Errorf("job %s has no current run, but %s beside the schedule", job,
		countText(unfinished, "run", "runs"))
	missing.hint = "name the run: " + strings.Join(commands, "; ")
	if unfinished > maxRunsInHint {
		missing.hint += "; all are listed by: fermata jobs runs " + job
	}
	return missing
}

// maxRunsInHint is how many runs a hint names.
const maxRunsInHint = 3
