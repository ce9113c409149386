package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/fermata-io/fermata/client"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

func (a *app) runsCommand() *cobra.Command {
	return &cobra.Command{
		Use: "runs ID [RUN]", Short: "Show the runs of a job",
		Long: "List the current run, finished runs and dead letters of a job, or show one run with its output.",
		Args: rangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.with(cmd, func(ctx context.Context, c *client.Client) error {
				if len(args) == 2 {
					run, err := c.GetRun(ctx, args[0], args[1])
					if err != nil {
						return err
					}
					return printOne(a, run, a.describeRun)
				}
				runs, err := c.Runs(ctx, args[0])
				if err != nil {
					return err
				}
				return printAll(a, runs, a.runTable)
			})
		},
	}
}

func (a *app) runTable(runs []*client.Run) error {
	t := table{
		heading: []string{"RUN", "STATE", "TRIGGER", "DUE", "TOOK", "ATTEMPTS", "OUTCOME", "WORKER", "ERROR"},
		empty:   "no runs",
		first:   []string{"WORKER", "TRIGGER", "ATTEMPTS", "TOOK", "ERROR", "STATE", "DUE"},
	}
	for _, r := range runs {
		outcome := enumName(r.GetOutcome())
		if r.GetDeadLetter() {
			outcome += " (kept)"
		}
		due := a.ago(r.GetDueTime())
		if r.GetState() == fermatav1.Run_STATE_WAITING {
			due = a.until(r.GetDueTime())
		}
		t.add(nameText(client.RunID(r)), enumName(r.GetState()), enumName(r.GetTrigger()), due, took(r),
			fmt.Sprint(r.GetAttempts()), outcome, nameText(r.GetWorker()), wholeText(r.GetError()))
	}
	return a.printTable(t)
}

// took is the time from the start to the end of a run's last attempt.
func took(r *client.Run) string {
	if r.GetStartTime() == nil || r.GetFinishTime() == nil {
		return none
	}
	d := max(0, r.GetFinishTime().AsTime().Sub(r.GetStartTime().AsTime()))
	if d < time.Minute {
		return d.Round(time.Millisecond).String()
	}
	return short(d)
}

func (a *app) describeRun(r *client.Run) error {
	var t table
	line := func(name, value string) {
		if value != none && value != "" {
			t.add(name+":", value)
		}
	}
	line("Name", r.GetName())
	line("State", enumName(r.GetState()))
	line("Trigger", enumName(r.GetTrigger()))
	line("Nominally", instant(r.GetNominalTime()))
	line("Due", instant(r.GetDueTime()))
	line("Started", instant(r.GetStartTime()))
	line("Finished", instant(r.GetFinishTime()))
	line("Took", took(r))
	line("Attempts", fmt.Sprintf("%d, %d workers lost", r.GetAttempts(), r.GetLosses()))
	line("Outcome", enumName(r.GetOutcome()))
	line("Worker", a.fit(r.GetWorker(), 128))
	line("Correlation", wholeText(r.GetCorrelationId()))
	line("Trace", wholeText(r.GetTraceId()))
	line("Error", a.fit(r.GetError(), 512))
	line("Output", wholeText(string(r.GetOutput())))
	return a.printTable(t)
}
