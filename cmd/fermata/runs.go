package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/fermata-io/fermata/client"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

func (a *app) runsCommand() *cobra.Command {
	cmd := &cobra.Command{
		SuggestFor: []string{"history", "logs"},
		Use:        "runs ID [RUN]", Short: "Show the runs of a job",
		Long: "List the current run, finished runs and dead letters of a job, or show one run with its output.",
		Args: rangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 2 && len(a.columnNames) > 0 {
				return usageErrorf("--columns is for the list of runs, not for one run")
			}
			return a.withSession(cmd, func(ctx context.Context, c *client.Client) error {
				if len(args) == 2 {
					run, err := c.GetRun(ctx, c.RunName(args[0], args[1]))
					if err != nil {
						return err
					}
					return printMessage(a, run, a.describeRun)
				}
				runs, err := c.Runs(ctx, args[0])
				if err != nil {
					return err
				}
				return printList(a, runs, a.runTable)
			})
		},
	}
	return registerList(a, cmd, a.runTable)
}

func (a *app) runTable(runs []*client.Run) outputTable {
	t := outputTable{
		heading:        []string{"RUN", "STATE", "TRIGGER", "DUE", "TOOK", "ATTEMPTS", "OUTCOME", "WORKER", "ERROR"},
		empty:          "no runs",
		leadingColumns: []string{"WORKER", "TRIGGER", "ATTEMPTS", "TOOK", "STATE", "ERROR", "DUE"},
	}
	for _, r := range runs {
		outcome := enumName(r.GetOutcome())
		if r.GetDeadLetter() {
			outcome += " (kept)"
		}
		due := a.agoText(r.GetDueTime())
		if r.GetState() == fermatav1.Run_STATE_WAITING {
			due = a.untilText(r.GetDueTime())
		}
		t.addRow(nameText(client.RunID(r)), enumName(r.GetState()), triggerText(r), due, runDuration(r),
			fmt.Sprint(r.GetAttempts()), outcome, nameText(r.GetWorker()), fullText(r.GetError()))
	}
	return t
}

// triggerText is what triggered a run. A run with a payload of its own is marked.
func triggerText(r *client.Run) string {
	if r.GetOwnPayload() == nil {
		return enumName(r.GetTrigger())
	}
	return enumName(r.GetTrigger()) + " (own payload)"
}

// ownPayloadText describes the payload that a run has in place of its job's.
func ownPayloadText(r *client.Run) string {
	p := r.GetOwnPayload()
	if p == nil {
		return noValue
	}
	sealed := ""
	if p.GetSealed() {
		sealed = ", sealed"
	}
	return fmt.Sprintf("%s%s, SHA-256 %x", countText(int(p.GetSize()), "byte", "bytes"), sealed, p.GetSha256())
}

// runDuration is the time from the start to the end of a run's last attempt.
func runDuration(r *client.Run) string {
	if r.GetStartTime() == nil || r.GetFinishTime() == nil {
		return noValue
	}
	d := max(0, r.GetFinishTime().AsTime().Sub(r.GetStartTime().AsTime()))
	if d < time.Minute {
		return d.Round(time.Millisecond).String()
	}
	return durationText(d)
}

// attemptText describes an attempt that came after others.
func (a *app) attemptText(earlier []*client.RunAttempt, r *client.RunAttempt) string {
	text := enumName(r.GetOutcome()) + ", started " + formatTime(r.GetStartTime())
	if n := len(earlier); n > 0 {
		if wait := timeBetween(earlier[n-1].GetFinishTime(), r.GetDueTime()); wait > 0 {
			text += fmt.Sprintf(", due %s after the one before (%s)", wait, enumName(r.GetDelaySource()))
		}
	}
	text += ", took " + timeBetween(r.GetStartTime(), r.GetFinishTime()).String()
	if r.GetWorker() != "" {
		text += ", on " + a.fitText(r.GetWorker(), 128)
	}
	return text
}

// timeBetween is the time from one instant to another, at least 0.
func timeBetween(from, to *timestamppb.Timestamp) time.Duration {
	return max(0, to.AsTime().Sub(from.AsTime())).Round(time.Millisecond)
}

func (a *app) describeRun(r *client.Run) error {
	var t outputTable
	line := func(name, value string) {
		if value != noValue && value != "" {
			t.addRow(name+":", value)
		}
	}
	line("Name", r.GetName())
	line("State", enumName(r.GetState()))
	line("Trigger", enumName(r.GetTrigger()))
	line("Own payload", ownPayloadText(r))
	line("Content", fullText(string(r.GetOwnPayload().GetPayload())))
	line("Scheduled", formatTime(r.GetNominalTime()))
	line("Due", formatTime(r.GetDueTime()))
	line("Started", formatTime(r.GetStartTime()))
	line("Finished", formatTime(r.GetFinishTime()))
	line("Took", runDuration(r))
	line("Attempts", fmt.Sprintf("%d, %d workers lost", r.GetAttempts(), r.GetLostAttempts()))
	for i, attempt := range r.GetAttemptLog() {
		line(fmt.Sprintf("Attempt %d", attempt.GetAttempt()), a.attemptText(r.GetAttemptLog()[:i], attempt))
	}
	line("Outcome", enumName(r.GetOutcome()))
	line("Worker", a.fitText(r.GetWorker(), 128))
	line("Correlation", fullText(r.GetCorrelationId()))
	line("Trace", fullText(r.GetTraceId()))
	line("Error", a.fitText(r.GetError(), 512))
	line("Output", fullText(string(r.GetOutput())))
	return a.printTable(t)
}
