package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	"github.com/fermata-io/fermata/client"
)

func (a *app) jobsCommand() *cobra.Command {
	jobs := &cobra.Command{Use: "jobs", Short: "Register, show and change jobs", Aliases: []string{"job"}, Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() }}
	jobs.AddCommand(
		withNames(a.createCommand()), withNames(a.getCommand()), a.listCommand(), a.upcomingCommand(),
		withNames(a.updateCommand()), withNames(a.renameCommand()), a.deleteCommand(),
		withNames(a.pauseCommand()), withNames(a.resumeCommand()), withNames(a.runCommand()),
		a.runsCommand(), withNames(a.cancelCommand()),
		a.revisionsCommand(), a.diffRevisionsCommand(), withNames(a.restoreRevisionCommand()),
		a.refreshDefaultsCommand(), a.hintCommand(), a.explainCommand(), a.backfillCommand(), a.cancelBackfillCommand(),
	)
	return jobs
}

func (a *app) createCommand() *cobra.Command {
	var flags jobFlags
	var file string
	cmd := &cobra.Command{
		Use: "create [ID] [--every 30s | --cron EXPR | --calendar '2 weeks' --time 09:00 | --at TIME | --in 10m] " +
			"(--http URL | --exec ARGV | --handler NAME) [flags]\n  fermata jobs create -f FILE",
		Short: "Register jobs",
		Long: "Register a job from flags, or jobs from a file. Without a schedule a job runs on request only.\n" +
			"Registering the same job twice is no error; another job under the same id is.\n\n" + fileHelp,
		Example: `  fermata jobs create ping --every 30s --http https://example.com/health
  fermata jobs create report --cron '30 2 * * *' --tz Europe/Berlin --exec '["/usr/bin/report","--all"]' --timeout 10m
  fermata jobs create later --in 10m --handler mail --payload '{"to":"you"}' --max-attempts 5 --retry-base 10s
  fermata jobs create hook --handler deliver --preset webhook --max-attempts 8
  fermata jobs create close --cron 'H 1 * * *' --exclude-window Sat,Sun --lock ledger --misfire run-all --handler close
  fermata jobs create review --calendar '2 weeks' --on MON --time 09:00 --tz Europe/Berlin --handler review
  fermata jobs create -f jobs.yaml`,
		Args: rangeArgs(0, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if file != "" {
				if len(args) > 0 || hasChangedFlag(cmd, "file", "request-id") {
					return usageErrorf("--file takes neither an id nor flags that describe a job")
				}
				return a.createFromFile(cmd, file)
			}
			if err := a.findPreset(cmd, &flags.policy); err != nil {
				return err
			}
			job, _, err := flags.buildJob(cmd.Flags(), a.in, a.now())
			if err != nil {
				return err
			}
			flags.read.writeRemarks(a.err)
			if err := checkComplete(job.GetSchedule()); err != nil {
				return err
			}
			if job.GetHandler() == "" {
				return usageErrorf("a handler is required: --http, --exec or --handler")
			}
			id := ""
			if len(args) == 1 {
				id = args[0]
			}
			return a.withSession(cmd, func(ctx context.Context, c *client.Client) error {
				var before *client.Job
				if id != "" && a.output == "table" {
					before, _ = c.GetJob(ctx, id) // only for the message
				}
				created, err := c.CreateJob(a.withRequestID(ctx), id, job)
				if err != nil {
					return err
				}
				return printMessage(a, created, func(j *client.Job) error {
					if before != nil && proto.Equal(before.GetCreateTime(), j.GetCreateTime()) {
						return a.println(fmt.Sprintf("%s is there already, unchanged, %s", client.JobID(j),
							a.nextText(j)))
					}
					return a.println(fmt.Sprintf("created %s, %s", client.JobID(j), a.nextText(j)))
				})
			})
		},
	}
	flags.registerFlags(cmd.Flags())
	cmd.Flags().StringVarP(&file, "file", "f", "", "YAML file with jobs; - is standard input")
	return a.requestIDFlag(cmd)
}

// hasChangedFlag reports whether a local flag of the command is set, except those in but.
func hasChangedFlag(cmd *cobra.Command, but ...string) bool {
	changed := false
	for name := range localFlags(cmd) {
		changed = changed || (!slices.Contains(but, name) && cmd.Flags().Changed(name))
	}
	return changed
}

func (a *app) createFromFile(cmd *cobra.Command, path string) error {
	jobs, err := a.readJobs(path)
	if err != nil {
		return err
	}
	if a.requestID != "" && len(jobs) > 1 && slices.Contains(jobNames(jobs), "") {
		return usageErrorf("--request-id needs an id for each of several jobs: the id of a job without one is made of it")
	}
	return a.withSession(cmd, func(ctx context.Context, c *client.Client) error {
		results, err := c.CreateJobs(a.withRequestID(ctx), jobs, client.CreateJobsOptions{})
		var created []*client.Job
		var failed []error
		for i, r := range results {
			if r.Err != nil {
				failed = append(failed, a.failedItem(jobs[i].ID, i, r.Err))
				continue
			}
			created = append(created, r.Job)
		}
		if err != nil {
			failed = append(failed, err)
		}
		return errors.Join(printMessages(a, created, func(list []*client.Job) error {
			for _, j := range list {
				if err := a.println(fmt.Sprintf("created %s, %s", client.JobID(j), a.nextText(j))); err != nil {
					return err
				}
			}
			return nil
		}), highestCodeError(failed))
	})
}

// itemError is the error of one of several items. It was printed already.
type itemError struct {
	err error
	// of all items, how many failed
	failed int
}

func (e *itemError) Error() string {
	if e.failed == 1 {
		return "one item failed"
	}
	return fmt.Sprintf("%d items failed", e.failed)
}

func (e *itemError) Unwrap() error { return e.err }

// failedItem prints the error of one item and returns it.
func (a *app) failedItem(id string, i int, err error) error {
	if id == "" {
		id = fmt.Sprintf("job %d", i+1)
	}
	lines := []string{fmt.Sprintf("%s: %s", printableText(id), a.errorMessage(err))}
	for _, v := range client.Violations(err) {
		lines = append(lines, fmt.Sprintf("  %s: %s", printableText(v.Field), printableText(v.Description)))
	}
	fmt.Fprintln(a.err, strings.Join(lines, "\n"))
	return err
}

func (a *app) updateCommand() *cobra.Command {
	var flags jobFlags
	var file, etag string
	var manual bool
	cmd := &cobra.Command{
		SuggestFor: []string{"edit", "change", "modify"},
		Use:        "update ID [flags]\n  fermata jobs update -f FILE",
		Short:      "Change jobs",
		Long: "Change what the flags name and leave the rest. With --file the whole definition is replaced;\n" +
			"an etag in the file prevents that after a concurrent change. A live run keeps its settings.",
		Example: `  fermata jobs update ping --every 1m --backoff-max-delay 10m
  fermata jobs get ping -o yaml > ping.yaml; $EDITOR ping.yaml; fermata jobs update -f ping.yaml`,
		Args: rangeArgs(0, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if file != "" {
				if len(args) > 0 || hasChangedFlag(cmd, "file", "request-id") {
					return usageErrorf("--file takes neither an id nor flags that describe a job")
				}
				return a.updateFromFile(cmd, file)
			}
			if len(args) == 0 {
				return usageErrorf("a job is required, or a file with -f")
			}
			if err := a.findPreset(cmd, &flags.policy); err != nil {
				return err
			}
			job, paths, err := flags.buildJob(cmd.Flags(), a.in, a.now())
			if err != nil {
				return err
			}
			flags.read.writeRemarks(a.err)
			if manual && job.Schedule != nil {
				return usageErrorf("--manual excludes a schedule")
			}
			if manual {
				paths = append(paths, "schedule")
			}
			if len(paths) == 0 {
				return usageErrorf("nothing to change: give at least one flag")
			}
			job.Name, job.Etag = args[0], etag
			return a.withSession(cmd, func(ctx context.Context,
				c *client.Client) error {
				return a.updateJob(ctx, c, job, paths...)
			})
		},
	}
	flags.registerFlags(cmd.Flags())
	cmd.Flags().StringVarP(&file, "file", "f", "", "YAML file with jobs; - is standard input")
	cmd.Flags().StringVar(&etag, "etag", "", "refuse unless the job still has this etag")
	cmd.Flags().BoolVar(&manual, "manual", false, "remove the schedule: run on request only")
	return a.requestIDFlag(cmd)
}

func (a *app) updateJob(ctx context.Context, c *client.Client, job *client.Job, paths ...string) error {
	updated, err := c.UpdateJob(a.withRequestID(ctx), job, paths...)
	if err != nil {
		return err
	}
	return printMessage(a, updated, func(j *client.Job) error {
		return a.println(fmt.Sprintf("updated %s, %s", client.JobID(j), a.nextText(j)))
	})
}

func (a *app) updateFromFile(cmd *cobra.Command, path string) error {
	jobs, err := a.readJobs(path)
	if err != nil {
		return err
	}
	return a.withSession(cmd, func(ctx context.Context, c *client.Client) error {
		return a.forEachName(jobNames(jobs), func(i int) error {
			jobs[i].Job.Name = jobs[i].ID
			return a.updateJob(ctx, c, jobs[i].Job, "*")
		})
	})
}

func jobNames(jobs []client.NewJob) []string {
	names := make([]string, len(jobs))
	for i, j := range jobs {
		names[i] = j.ID
	}
	return names
}

// forEachName calls do for each name and continues after errors. With one name its error is the command's; with
// several, the results are printed as one list.
func (a *app) forEachName(names []string, do func(i int) error) error {
	if len(names) == 1 {
		return do(0)
	}
	var texts []string
	a.severalFlags = &texts
	defer func() { a.severalFlags = nil }()
	var failed []error
	for i, name := range names {
		if err := do(i); err != nil {
			failed = append(failed, a.failedItem(name, i, err))
		}
	}
	if len(texts) > 0 || len(failed) == len(names) { // a list in any case, if an empty one
		if err := a.printTexts(texts); err != nil {
			failed = append(failed, err)
		}
	}
	return highestCodeError(failed)
}
