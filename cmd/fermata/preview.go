package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/fermata-io/fermata/client"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

func (a *app) previewCommand() *cobra.Command {
	var schedule scheduleFlags
	var policy policyFlags
	var count int32
	var after string
	cmd := &cobra.Command{
		Use:   "preview (--every 30s | --cron EXPR | --at TIME | --in 10m) [flags]",
		Short: "Show when a schedule would be due, without storing anything",
		Long: "Show the next due times of a schedule, and with --every the intervals after 0, 1, 2 ... failed runs.\n" +
			"Times are shown in the zone of --tz, else in the local one.",
		Example: "  fermata preview --cron '30 2 * * *' --tz Europe/Berlin --count 5\n  fermata preview --every 1m --backoff-max-delay 10m\n  fermata preview --every 1m --preset monitor",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := schedule.schedule(cmd.Flags().Changed, a.now())
			if err != nil {
				return err
			}
			if s == nil {
				return usagef("say which schedule: --every, --cron, --at or --in")
			}
			location := time.Local
			if schedule.zone != "" {
				if location, err = time.LoadLocation(schedule.zone); err != nil {
					return usagef("--tz: %w", err)
				}
			}
			q := &fermatav1.PreviewScheduleRequest{Schedule: s, Count: count}
			if q.After, err = parseTime("--after", after, location); err != nil {
				return err
			}
			var job client.Job
			if _, err := policy.fill(cmd.Flags().Changed, &job); err != nil {
				return err
			}
			if job.RetryPolicy != nil {
				return usagef("--preset %s is about the retries inside a run, not about the interval; see: fermata presets", policy.preset)
			}
			if q.BackoffPolicy = job.GetBackoffPolicy(); q.BackoffPolicy == nil && s.GetInterval() != nil {
				q.BackoffPolicy = &client.BackoffPolicy{}
			}
			return a.with(cmd, func(ctx context.Context, c *client.Client) error {
				answer, err := c.PreviewSchedule(ctx, q)
				if err != nil {
					return err
				}
				return printOne(a, answer, func(p *fermatav1.PreviewScheduleResponse) error { return a.previewTable(p, location) })
			})
		},
	}
	schedule.register(cmd.Flags())
	policy.registerBackoff(cmd.Flags())
	cmd.Flags().Int32VarP(&count, "count", "n", 10, "how many due times, 1 to 1000")
	cmd.Flags().StringVar(&after, "after", "", "due times after this one (default now)")
	return cmd
}

func (a *app) previewTable(p *fermatav1.PreviewScheduleResponse, location *time.Location) error {
	t := table{heading: []string{"DUE", "IN"}, empty: "never due"}
	for _, due := range p.GetDueTimes() {
		t.add(due.AsTime().In(location).Format("Mon 2006-01-02 15:04:05 -07:00"), a.until(due))
	}
	if err := a.printTable(t); err != nil || len(p.GetBackoffIntervals()) == 0 {
		return err
	}
	if err := a.println(""); err != nil {
		return err
	}
	steps := table{heading: []string{"FAILED RUNS", "INTERVAL"}}
	for failures, d := range p.GetBackoffIntervals() {
		label := fmt.Sprint(failures)
		if failures == len(p.GetBackoffIntervals())-1 {
			label += " or more"
		}
		steps.add(label, short(d.AsDuration()))
	}
	return a.printTable(steps)
}
