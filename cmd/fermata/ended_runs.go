package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fermata-io/fermata/client"
	"github.com/fermata-io/fermata/internal/lib/timespan"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

func (a *app) endedRunsCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "runs", Short: "Show what happened to the runs of all jobs"}
	cmd.AddCommand(a.listRunsCommand())
	return cmd
}

// endedRunsFlags are the flags of fermata runs list.
type endedRunsFlags struct {
	options            client.EndedRunsOptions
	failed             bool
	outcomes           []string
	since, until, zone string
}

func (a *app) listRunsCommand() *cobra.Command {
	var f endedRunsFlags
	table := func(runs []*client.Run) outputTable { return a.endedRunTable(runs, f.options.AllNamespaces) }
	cmd := &cobra.Command{
		Use: "list", Short: "List runs of all jobs that ended", Aliases: []string{"ls"}, Args: noArgs,
		Long: "List runs of all jobs that ended without success, the last one first: dead, quarantined and cancelled\n" +
			"ones. They stay in the list when their jobs no longer keep them, or are deleted. One run with all " +
			"of its\n" +
			"error: fermata jobs runs JOB RUN. Successes are listed where nodes keep events: --outcome succeeded.\n\n" +
			"--since and --until take a time, a time of day such as 02:00, or how long ago: 24h, 7d. A time of day is\n" +
			"the last one before now. If both are times of day, --until is the next one after --since.",
		Example: `  fermata runs list --failed --since 02:00 --until 03:00
  fermata runs list --failed --since 24h --queue mail -A
  fermata runs list --outcome timed-out --since 7d --filter 'labels.team = ops'
  fermata runs list --since 2026-11-26 -o json`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := a.readEndedRunsFlags(&f); err != nil {
				return err
			}
			return a.withSession(cmd, func(ctx context.Context, c *client.Client) error {
				runs, more, err := c.EndedRuns(ctx, f.options)
				if err != nil {
					return err
				}
				if more {
					fmt.Fprintf(a.err, "note: there are more than %d runs; see --limit\n", f.options.Limit)
				}
				return printList(a, runs, table)
			})
		},
	}
	flags := cmd.Flags()
	flags.BoolVar(&f.failed, "failed", false, "only runs that failed: the same as --outcome dead,quarantined")
	flags.StringSliceVar(&f.outcomes, "outcome", nil,
		"only with these outcomes: dead, quarantined, cancelled, succeeded; or "+
			"dead and quarantined runs by their last attempt: failed, timed-out, lost")
	flags.StringVar(&f.since, "since", "", "only runs that ended at this time or later (default all that are kept)")
	flags.StringVar(&f.until, "until", "", "only runs that ended before this time (default now)")
	flags.StringVar(&f.zone, "tz", "", "time zone of --since and --until (default the local one)")
	flags.StringVar(&f.options.Queue, "queue", "", "only of this queue")
	flags.StringVar(&f.options.Expression, "filter", "", "only of jobs that match, as for fermata jobs list")
	flags.IntVar(&f.options.Limit, "limit", 100, "maximum number, 1 to 100,000")
	eachNamespaceFlag(cmd, &f.options.AllNamespaces)
	return registerList(a, cmd, table)
}

func (a *app) readEndedRunsFlags(f *endedRunsFlags) error {
	switch {
	case f.options.Limit < 1 || f.options.Limit > 100_000:
		return usageErrorf("--limit %d: want 1 to 100000", f.options.Limit)
	case f.failed && len(f.outcomes) > 0:
		return usageErrorf("--failed excludes --outcome")
	case f.failed:
		f.options.Outcomes = []client.Outcome{client.OutcomeDead, client.OutcomeQuarantined}
	}
	for _, name := range f.outcomes {
		n, err := enumValue(fermatav1.Outcome_value, "OUTCOME_", "--outcome", name)
		if err != nil {
			return err
		}
		if n == 0 {
			return usageErrorf("--outcome is empty")
		}
		f.options.Outcomes = append(f.options.Outcomes, client.Outcome(n))
	}
	return a.readWindow(f)
}

// readWindow reads --since and --until.
func (a *app) readWindow(f *endedRunsFlags) error {
	times, err := (&scheduleFlags{zone: f.zone}).newTimeReader()
	if err != nil {
		return err
	}
	now := a.now()
	f.options.From, err = times.parsePast("--since", f.since, now, now)
	if err != nil {
		return err
	}
	latest := now
	if isTimeOfDay(f.since) {
		latest = f.options.From.Add(24 * time.Hour)
	}
	f.options.To, err = times.parsePast("--until", f.until, now, latest)
	if err != nil {
		return err
	}
	if to := f.options.To; !to.IsZero() && !to.After(f.options.From) {
		return usageErrorf("--until %s: must be after --since", f.until)
	}
	times.writeRemarks(a.err)
	return nil
}

// parsePast reads a time, how long ago, or a time of day: the last one up to an instant. An empty text is zero.
func (r *timeReader) parsePast(flag, text string, now, latest time.Time) (time.Time, error) {
	if ago, err := timespan.Parse(text); err == nil {
		if ago < 0 {
			return time.Time{}, usageErrorf("%s %s: must be positive", flag, text)
		}
		return now.Add(-ago), nil
	}
	if !isTimeOfDay(text) {
		at, err := r.parseOptional(flag, text)
		if err != nil || at == nil {
			return time.Time{}, err
		}
		return at.AsTime(), nil
	}
	for day := latest.In(r.location); ; day = day.AddDate(0, 0, -1) {
		remarks := r.remarks
		at, err := r.parseOptional(flag, day.Format(time.DateOnly)+" "+text)
		if err != nil || !at.AsTime().After(latest) {
			return at.AsTime(), err
		}
		r.remarks = remarks
	}
}

func isTimeOfDay(text string) bool {
	for _, layout := range []string{"15:04", "15:04:05"} {
		if _, err := time.Parse(layout, text); err == nil {
			return true
		}
	}
	return false
}

func (a *app) endedRunTable(runs []*client.Run, namespaces bool) outputTable {
	t := outputTable{
		heading: []string{"NAMESPACE", "JOB", "RUN", "ENDED", "TOOK", "QUEUE", "TRIGGER", "ATTEMPTS", "OUTCOME", "ERROR"},
		empty:   "no runs", leadingColumns: []string{"TRIGGER", "ATTEMPTS", "QUEUE", "TOOK", "RUN", "NAMESPACE"},
	}
	for _, r := range runs {
		namespace, id, _ := strings.Cut(strings.TrimPrefix(r.GetName(), "namespaces/"), "/jobs/")
		id, _, _ = strings.Cut(id, "/runs/")
		outcome := enumName(r.GetOutcome())
		if last := r.GetLastAttemptOutcome(); last == client.OutcomeTimedOut || last == client.OutcomeLost {
			outcome += " (" + enumName(last) + ")"
		}
		t.addRow(nameText(namespace), nameText(id), nameText(client.RunID(r)), formatTime(r.GetFinishTime()), runDuration(r),
			nameText(r.GetQueue()), enumName(r.GetTrigger()), fmt.Sprint(r.GetAttempts()), outcome, fullText(r.GetError()))
	}
	if !namespaces {
		t = t.withoutColumn("NAMESPACE")
	}
	return t
}
