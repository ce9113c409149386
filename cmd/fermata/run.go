package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/fermata-io/fermata/client"
	"github.com/fermata-io/fermata/internal/cli/config"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

func (a *app) runCommand() *cobra.Command {
	var backoff, payload, payloadFile string
	var wait, ignore bool
	var patience time.Duration
	cmd := &cobra.Command{
		SuggestFor: []string{"trigger"},
		Use:        "run (ID... | --filter F)", Short: "Run jobs now",
		Long: "Run jobs now. If a run is live, exactly one manual run follows it. --backoff sets what happens to " +
			"the\n" +
			"failures in a row: reset clears them now, keep leaves them and the planned run unchanged,\n" +
			"reset-on-success clears them if the run succeeds. At a time that the schedule of a job excludes, the " +
			"run is\n" +
			"refused. With --ignore-exclusions it starts anyway, with its retries.\n\n" +
			"With --payload or --payload-file the run, with its retries, has this payload in place of that of the job, " +
			"which stays as\n" +
			"it is. Such a run joins no other and waits for its turn; its outcome does not count for the failures in a " +
			"row.\n\n" +
			"With --wait the command shows each run with its output when it has ended, retries included, and exits " +
			"with 1 unless\n" +
			"all have succeeded. The job must keep a history for that. If the command is interrupted, the runs " +
			"continue: the message\n" +
			"names the run, and the exit code is 8. With -o json one id gives an object and several an array. An " +
			"output\n" +
			"that is text is output_text there, beside the base64 of output; in scripts:\n" +
			"jq -r 'if type == \"array\" then .[] else . end | .output_text'. With -o yaml it is output_text alone.",
		Example: "  fermata jobs run report --wait --wait-timeout 10m\n  fermata jobs run report --wait -o json | " +
			"jq -r .output_text\n  fermata jobs run digest --payload '{\"date\":\"2026-11-01\"}' --wait",
		Args: atLeastOneArg,
	}
	cmd.Flags().StringVar(&backoff, "backoff", "", "reset, keep or reset-on-success (default reset)")
	cmd.Flags().BoolVar(&ignore, "ignore-exclusions", false, "run although the schedule excludes this time")
	cmd.Flags().StringVar(&payload, "payload", "", "payload of this run alone, as text")
	cmd.Flags().StringVar(&payloadFile, "payload-file", "", "file with the payload of this run alone; - is standard input")
	cmd.Flags().BoolVar(&wait, "wait", false, "wait until the runs have ended")
	config.DurationVar(cmd.Flags(), &patience, "wait-timeout", 0, "longest wait (default: no limit)")
	cmd.RunE = func(cmd *cobra.Command, jobs []string) error {
		mode, err := enumValue(fermatav1.RunJobRequest_Backoff_value, "BACKOFF_", "--backoff", backoff)
		switch {
		case err != nil:
			return err
		case patience < 0 || patience > 0 && !wait:
			return usageErrorf("--wait-timeout %v: want a positive duration, and --wait", patience)
		}
		own, err := readRunPayload(cmd, payload, payloadFile)
		if err != nil {
			return err
		}
		started := make([]*client.Run, len(jobs))
		err = a.withSession(cmd, func(ctx context.Context, c *client.Client) error {
			ctx = a.withRequestID(ctx)
			return a.forEachName(jobs, func(i int) (err error) {
				how := client.RunOptions{Backoff: fermatav1.RunJobRequest_Backoff(mode), IgnoreExclusions: ignore}
				started[i], err = a.runJob(ctx, c, jobs[i], own, how, !wait)
				return err
			})
		})
		if !wait {
			return err
		}
		ctx, cancel := cmd.Context(), context.CancelFunc(func() {})
		if patience > 0 {
			ctx, cancel = context.WithTimeout(ctx, patience)
		}
		defer cancel()
		return cmp.Or(err, a.awaitRuns(ctx, jobs, started))
	}
	a.requestIDFlag(cmd)
	a.addFilterFlags(cmd, &filterAction{
		bulkAction: bulkAction{verb: "run", noun: "job", nouns: "jobs"}, done: "started",
		change: client.BulkChange{Action: client.BulkRunJobs}, options: []string{"backoff", "ignore-exclusions"},
		prepare: func(c *client.BulkChange) error {
			mode, err := enumValue(fermatav1.RunJobRequest_Backoff_value, "BACKOFF_", "--backoff", backoff)
			c.Backoff, c.IgnoreExclusions = fermatav1.RunJobRequest_Backoff(mode), ignore
			return err
		},
	})
	return cmd
}

// runPayload is the payload of a run, if it has one of its own.
type runPayload struct {
	isSet bool
	bytes []byte
}

// readRunPayload reads the payload that the flags give to a run.
func readRunPayload(cmd *cobra.Command, text, file string) (p runPayload, err error) {
	changed := cmd.Flags().Changed
	switch {
	case !changed("payload") && !changed("payload-file"):
		return p, nil
	case changed("payload") && changed("payload-file"):
		return p, usageErrorf("--payload and --payload-file exclude each other")
	case changed("backoff"):
		return p, usageErrorf("a run with another payload leaves the failures in a row unchanged: leave out --backoff")
	case changed("payload"):
		return runPayload{true, []byte(text)}, nil
	}
	p.isSet = true
	p.bytes, err = readInput(file, cmd.InOrStdin())
	return p, err
}

// runJob asks for a run of one job.
func (a *app) runJob(ctx context.Context, c *client.Client, job string, own runPayload, how client.RunOptions,
	tell bool) (run *client.Run, err error) {
	joined := false
	if own.isSet {
		run, err = c.RunJobWithPayload(ctx, job, own.bytes, how)
	} else {
		run, joined, err = c.RunJob(ctx, job, how)
	}
	if err != nil || !tell {
		return run, err
	}
	return run, printMessage(a, run, func(r *client.Run) error {
		text := fmt.Sprintf("run %s of %s", client.RunID(r), printableText(job))
		if joined {
			text += ", which was asked for before"
		}
		return a.println(text)
	})
}

// awaitRuns shows the runs that have started when they have ended.
func (a *app) awaitRuns(ctx context.Context, jobs []string, started []*client.Run) error {
	type end struct {
		run *client.Run
		err error
	}
	return a.withClient(ctx, func(c *client.Client) error {
		// All at once: one that takes long must not eat the others' time.
		ends := make([]chan end, len(jobs))
		for i, r := range started {
			ends[i] = make(chan end, 1)
			if r != nil {
				go func() {
					ended, err := c.WaitRun(ctx, r.GetName())
					ends[i] <- end{ended, err}
				}()
			}
		}
		return a.forEachName(jobs, func(i int) error {
			if started[i] == nil {
				return nil // printed already
			}
			run, e := client.RunID(started[i]), <-ends[i]
			ended, err := e.run, e.err
			switch {
			case client.IsNotFound(err):
				return missingRunError(ctx, c, jobs[i], run)
			case errors.Is(err, context.DeadlineExceeded):
				return fmt.Errorf("run %s has not ended in time and continues; see fermata jobs runs %s", run,
					printableText(jobs[i]))
			case errors.Is(ctx.Err(), context.Canceled):
				return &codedError{
					err:  fmt.Errorf("interrupted: run %s of %s continues", run, printableText(jobs[i])),
					code: exitRunContinues,
					hint: fmt.Sprintf("see it with: fermata jobs runs %s %s; end it with: fermata jobs cancel %s %s",
						printableText(jobs[i]), run, printableText(jobs[i]), run),
				}
			case err != nil:
				return err
			}
			if err := printMessage(a, ended, a.describeRun); err != nil {
				return err
			}
			if ended.GetOutcome() != fermatav1.Outcome_OUTCOME_SUCCEEDED {
				return fmt.Errorf("run %s is %s", run, enumName(ended.GetOutcome()))
			}
			return nil
		})
	})
}

// missingRunError returns why the end of a run is unknown.
func missingRunError(ctx context.Context, c *client.Client, job, run string) error {
	j, err := c.GetJob(ctx, job)
	switch {
	case client.IsNotFound(err):
		return fmt.Errorf("job %s was deleted while its run %s was waited for", printableText(job), run)
	case err != nil:
		return fmt.Errorf("run %s is no longer kept: its outcome is unknown", run)
	case j.GetHistoryLimit() == 0:
		return fmt.Errorf("run %s has ended, but job %s keeps no history with its outcome: fermata jobs update %s "+
			"--history 10", run, printableText(job), printableText(job))
	}
	return fmt.Errorf("run %s has ended, and %s have since: job %s keeps no more, see --history of fermata jobs update",
		run, countText(int(j.GetHistoryLimit()), "other", "others"), printableText(job))
}
