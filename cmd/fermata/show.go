package main

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fermata-io/fermata/client"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

func (a *app) listCommand() *cobra.Command {
	var f client.Filter
	var state string
	var limit int
	cmd := &cobra.Command{
		Use: "list", Short: "List jobs", Aliases: []string{"ls"}, Args: noArgs,
		Example: `  fermata jobs list --failing 1
  fermata jobs list --state paused --label team=ops`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			n, err := enumValue(fermatav1.JobStatus_State_value, "STATE_", "--state", state)
			if err != nil {
				return err
			}
			f.State = fermatav1.JobStatus_State(n)
			return a.with(cmd, func(ctx context.Context, c *client.Client) error {
				jobs, err := collect(ctx, c, f, limit)
				if err != nil {
					return err
				}
				return printAll(a, jobs, a.jobTable)
			})
		},
	}
	cmd.Flags().StringVar(&f.Queue, "queue", "", "only of this queue")
	cmd.Flags().StringVar(&state, "state", "", "only in this state: scheduled, running, paused, dead or done")
	cmd.Flags().StringVar(&f.IDPrefix, "prefix", "", "only ids that begin like this")
	cmd.Flags().StringToStringVar(&f.Labels, "label", nil, "only with this label, key=value; may be repeated")
	cmd.Flags().Int64Var(&f.MinFailures, "failing", 0, "only with at least so many failed runs in a row")
	cmd.Flags().IntVar(&limit, "limit", 0, "at most so many (default all)")
	return cmd
}

// collect gathers jobs in the order of their names.
func collect(ctx context.Context, c *client.Client, f client.Filter, limit int) ([]*client.Job, error) {
	f.PageSize = 1000
	if limit > 0 {
		f.PageSize = int32(min(limit, 1000))
	}
	var jobs []*client.Job
	for j, err := range c.Jobs(ctx, f) {
		if err != nil {
			return nil, err
		}
		if jobs = append(jobs, j); len(jobs) == limit {
			break
		}
	}
	slices.SortFunc(jobs, func(x, y *client.Job) int { return cmp.Compare(x.GetName(), y.GetName()) })
	return jobs, nil
}

func (a *app) jobTable(jobs []*client.Job) error {
	t := table{
		heading: []string{"NAME", "QUEUE", "SCHEDULE", "STATE", "NEXT RUN", "FAILURES", "BACKOFF", "LAST", "AGE", "LAST ERROR"},
		empty:   "no jobs",
	}
	for _, j := range jobs {
		s := j.GetStatus()
		last := none
		if s.GetLastOutcome() != 0 {
			last = enumName(s.GetLastOutcome()) + " " + a.ago(s.GetLastFinishTime())
		}
		t.add(clip(client.JobID(j), 40), j.GetQueue(), clip(scheduleText(j.GetSchedule()), 32), enumName(s.GetState()),
			a.nextRun(j), fmt.Sprint(s.GetConsecutiveFailures()), backoffText(j), last, a.age(j.GetCreateTime()),
			clip(s.GetLastError(), 48))
	}
	return a.printTable(t)
}

func (a *app) getCommand() *cobra.Command {
	return &cobra.Command{
		Use: "get ID", Short: "Show a job", Args: exactArgs(1),
		Long: "Show a job. With -o yaml it is in the form that create and update take with -f: a payload of plain\n" +
			"text is written as payload_text.",
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.with(cmd, func(ctx context.Context, c *client.Client) error {
				j, err := c.GetJob(ctx, args[0])
				if err != nil {
					return err
				}
				return printOne(a, j, a.describe)
			})
		},
	}
}

// describe shows a job in full.
func (a *app) describe(j *client.Job) error {
	s := j.GetStatus()
	var t table
	line := func(name, value string) {
		if value != none && value != "" {
			t.add(name+":", value)
		}
	}
	line("Name", j.GetName())
	line("Queue", fmt.Sprintf("%s, priority %d", j.GetQueue(), j.GetPriority()))
	line("Handler", clip(j.GetHandler(), 128))
	line("Payload", payloadText(j.GetPayload()))
	line("Labels", labelText(j.GetLabels()))
	line("Schedule", scheduleText(j.GetSchedule()))
	line("Retries", retryText(j.GetRetryPolicy()))
	line("Backoff", policyText(j))
	line("Timeout", fmt.Sprintf("%s, then %s of grace", shortPB(j.GetTimeout()), short(j.GetTimeoutGrace().AsDuration())))
	line("State", enumName(s.GetState()))
	if s.GetPauseTime() != nil {
		line("Paused", strings.TrimSpace(a.ago(s.GetPauseTime())+" "+printable(s.GetPauseNote())))
	}
	if s.GetNextDueTime() != nil {
		due := fmt.Sprintf("%s, by %s", instant(s.GetNextDueTime()), enumName(s.GetDelaySource()))
		if next := a.nextRun(j); next != none {
			line("Next run", fmt.Sprintf("%s (%s)", next, due))
		} else {
			line("Held run", due)
		}
		line("Nominally", instant(s.GetNextNominalTime()))
		line("Run", fmt.Sprintf("%s, attempt %d, %d workers lost", client.RunID(&client.Run{Name: s.GetCurrentRun()}), s.GetCurrentAttempt(), s.GetCurrentLosses()))
	}
	line("Failures", fmt.Sprintf("%d in a row", s.GetConsecutiveFailures()))
	line("Interval now", backoffText(j))
	if s.GetLastOutcome() != 0 {
		line("Last attempt", enumName(s.GetLastOutcome())+" "+a.ago(s.GetLastFinishTime()))
	}
	line("Last error", clip(s.GetLastError(), 512))
	line("Totals", fmt.Sprintf("%d runs: %d succeeded, %d dead; %d attempts timed out, %d lost; %d due times skipped",
		s.GetRunsTotal(), s.GetSucceededTotal(), s.GetDeadTotal(), s.GetTimeoutTotal(), s.GetLostTotal(), s.GetSkippedTotal()))
	line("Created", a.ago(j.GetCreateTime()))
	line("Edited", a.ago(j.GetUpdateTime()))
	line("Etag", j.GetEtag())
	return a.printTable(t)
}

func payloadText(p []byte) string {
	if len(p) == 0 {
		return none
	}
	if len(p) > 300 {
		return fmt.Sprintf("%s (%d bytes)", clip(string(p[:300]), 200), len(p))
	}
	return clip(string(p), 200)
}

func labelText(labels map[string]string) string {
	var parts []string
	for _, k := range slices.Sorted(maps.Keys(labels)) {
		parts = append(parts, printable(k)+"="+printable(labels[k]))
	}
	return strings.Join(parts, ", ")
}

func retryText(p *fermatav1.RetryPolicy) string {
	if p.GetMaxAttempts() == 1 {
		return "none: one attempt a run"
	}
	text := fmt.Sprintf("%d attempts, %s from %s", p.GetMaxAttempts(), enumName(p.GetStrategy()), short(p.GetBaseDelay().AsDuration()))
	if d := p.GetMaxDelay().AsDuration(); d > 0 {
		text += ", at most " + short(d)
	}
	return text
}

func policyText(j *client.Job) string {
	p := j.GetBackoffPolicy()
	switch {
	case j.GetSchedule().GetInterval() == nil:
		return none
	case p.GetDisabled():
		return "none"
	}
	text := fmt.Sprintf("interval times %g for each failed run, up to %d", p.GetMultiplier(), p.GetMaxExponent())
	if d := p.GetMaxDelay().AsDuration(); d > 0 {
		text += ", at most " + short(d)
	}
	return text
}
