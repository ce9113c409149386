package main

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/fermata-io/fermata/client"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

func (a *app) previewCommand() *cobra.Command {
	schedule := scheduleFlags{shows: true}
	var policy policyFlags
	var count int32
	var after, queue string
	cmd := &cobra.Command{
		Use: "preview [ID] [--every 30s | --cron EXPR | --calendar '2 weeks' --time 09:00 | --at TIME | --in " +
			"10m] [flags]",
		Short: "Show when a schedule would be due, without storing anything",
		Long: "Show the next due times of a schedule; with --every the intervals after 0, 1, 2 ... failed runs; " +
			"and for other\n" +
			"schedules, or with flags of retries, the delays between the attempts of a run. With the id of a job, " +
			"H and jitter\n" +
			"are shown as that job has them; without a schedule beside it, the job's own, and when the next runs " +
			"would be due\n" +
			"if all of them failed.\n" +
			"Times are shown in the zone of --tz, else in the local one.",
		Example: "  fermata preview ping\n  fermata preview --cron '30 2 * * *' --tz Europe/Berlin --count 5\n  " +
			"fermata preview --calendar month --on last --time 18:00 --tz Europe/Berlin\n  fermata preview --every " +
			"1m --backoff-max-delay 10m\n  fermata preview --every 1m --preset monitor",
		Args: rangeArgs(0, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			s, _, err := schedule.buildSchedule(cmd.Flags().Changed, a.now())
			if err != nil {
				return err
			}
			if err := checkComplete(s); err != nil {
				return err
			}
			if s == nil && len(args) == 0 {
				return usageErrorf("a schedule is required: --every, --cron, --calendar, --at or --in, or the id " +
					"of a job")
			}
			if err := a.findPreset(cmd, &policy); err != nil {
				return err
			}
			times := schedule.read
			q := &fermatav1.PreviewScheduleRequest{Schedule: s, Count: count}
			if cmd.Flags().Changed("after") {
				if q.After, err = times.parseRequired("--after", after); err != nil {
					return err
				}
			}
			times.writeRemarks(a.err)
			var job client.Job
			if _, err := policy.fillJob(cmd.Flags().Changed, &job); err != nil {
				return err
			}
			q.RetryPolicy = job.GetRetryPolicy()
			if q.RetryPolicy == nil && s.GetOnce() != nil {
				q.RetryPolicy = &client.RetryPolicy{}
			}
			q.BackoffPolicy = job.GetBackoffPolicy()
			if q.BackoffPolicy == nil && s.GetInterval() != nil {
				q.BackoffPolicy = &client.BackoffPolicy{}
			}
			return a.withSession(cmd, func(ctx context.Context, c *client.Client) error {
				if len(args) == 1 {
					q.Job = c.JobName(args[0])
				}
				if queue != "" || len(args) == 0 && a.namespace != "default" {
					q.PolicyQueue = c.QueueName(cmp.Or(queue, "default"))
				}
				answer, err := c.PreviewSchedule(ctx, q)
				if err != nil {
					return err
				}
				return printMessage(a, answer, func(p *fermatav1.PreviewScheduleResponse) error {
					t := a.timeTable(p.GetTimes(), times.location)
					if once := s.GetOnce(); once != nil && q.After == nil && !once.AsTime().After(a.now()) {
						t.empty = "due at once"
					}
					return a.previewTable(p, t, times.location)
				})
			})
		},
	}
	schedule.registerFlags(cmd.Flags())
	policy.registerFlags(cmd.Flags())
	cmd.Flags().StringVar(&queue, "queue", "",
		"show what the defaults of this queue make of policies (default: those of the queue default)")
	cmd.Flags().Int32VarP(&count, "count", "n", 10, "how many due times, 1 to 1000")
	cmd.Flags().StringVar(&after, "after", "", "due times after this one (default now)")
	return cmd
}

func (a *app) previewTable(p *fermatav1.PreviewScheduleResponse, times outputTable, location *time.Location) error {
	if err := a.printTable(times); err != nil {
		return err
	}
	if from := p.GetCalendarFrom(); from != "" {
		if err := a.println("\nCounted from " + dayText(from) + " (--from-day)."); err != nil {
			return err
		}
	}
	if intervals := p.GetBackoffIntervals(); len(intervals) > 0 {
		steps := outputTable{heading: []string{"FAILED RUNS", "INTERVAL"}}
		for failures, d := range intervals {
			label := fmt.Sprint(failures)
			if failures == len(intervals)-1 {
				label += " or more"
			}
			steps.addRow(label, durationText(d.AsDuration()))
		}
		if err := a.printNext(steps); err != nil {
			return err
		}
	}
	if delays := p.GetRetryDelays(); len(delays) > 0 {
		attempts := outputTable{heading: []string{"ATTEMPT", "DELAY BEFORE IT"}}
		for i, d := range delays {
			attempts.addRow(fmt.Sprint(i+2), durationText(d.AsDuration()))
		}
		if err := a.printNext(attempts); err != nil {
			return err
		}
	}
	if len(p.GetProjectedDueTimes()) == 0 {
		return nil
	}
	ladder := outputTable{heading: []string{"IF ALL FAIL", "IN"}}
	for _, due := range p.GetProjectedDueTimes() {
		ladder.addRow(shownTime(due, location), a.untilText(due))
	}
	return a.printNext(ladder)
}

// dayText is a local day with its day of the week.
func dayText(day string) string {
	at, err := time.Parse(time.DateOnly, day)
	if err != nil {
		return printableText(day)
	}
	return at.Format("Mon 2006-01-02")
}

// timeTable leaves out empty columns.
func (a *app) timeTable(times []*fermatav1.ScheduledTime, location *time.Location) outputTable {
	jitter, remarks := false, false
	for _, at := range times {
		jitter = jitter || at.GetLatestDueTime().AsTime().After(at.GetNominalTime().AsTime())
		remarks = remarks || at.GetDstNote() != ""
	}
	t := outputTable{heading: []string{"DUE", "IN"}, empty: "never due"}
	if jitter {
		t.heading = append(t.heading, "NOMINALLY", "WINDOW")
	}
	if remarks {
		t.heading = append(t.heading, "REMARK")
	}
	for _, at := range times {
		cells := []string{shownTime(at.GetDueTime(), location), a.untilText(at.GetDueTime())}
		if jitter {
			nominal := at.GetNominalTime().AsTime()
			cells = append(cells, nominal.In(location).Format("15:04:05"),
				"+"+durationText(at.GetLatestDueTime().AsTime().Sub(nominal)))
		}
		if remarks {
			cells = append(cells, printableText(at.GetDstNote()))
		}
		t.addRow(cells...)
	}
	return t
}

// printNext prints a table below another.
func (a *app) printNext(t outputTable) error {
	if err := a.println(""); err != nil {
		return err
	}
	return a.printTable(t)
}
