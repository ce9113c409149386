package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/fermata-io/fermata/client"
	"github.com/fermata-io/fermata/internal/cli/config"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// hintFlags set when a job runs next, or how often it runs for a while.
type hintFlags struct {
	in, every, life time.Duration
	at, until       string
	reason          string
	planner, clear  bool
}

func (a *app) hintCommand() *cobra.Command {
	var flags hintFlags
	cmd := &cobra.Command{
		Use:   "hint ID (--in 5m | --at TIME | --every 10s | --clear) [flags]",
		Short: "Override when a job runs next, for a while",
		Long: "Override when a job runs next (--in, --at; used once), or how often (--every), inside its " +
			"--min-interval and\n" +
			"--max-interval. A hint takes the place of the schedule's interval, backed off or not, changes nothing " +
			"of the\n" +
			"definition, shows on the job, and ends after --for or at --until, by default after an hour.",
		Example: `  fermata jobs hint ping --in 5m --reason 'maintenance until noon'
  fermata jobs hint sync --every 10s --for 1h
  fermata jobs hint sync --clear`,
		Args: exactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			times := &timeReader{location: time.Local}
			hint, err := flags.buildHint(cmd.Flags().Changed, a.now(), times)
			if err != nil {
				return err
			}
			times.writeRemarks(a.err)
			return a.withSession(cmd, func(ctx context.Context, c *client.Client) error {
				j, err := c.HintJob(ctx, args[0], hint)
				if err != nil {
					return err
				}
				return printMessage(a, j, func(j *client.Job) error {
					text := "hint of " + client.JobID(j) + " cleared"
					if hint != nil {
						text = fmt.Sprintf("hint of %s: %s", client.JobID(j), a.hintText(j.GetStatus().GetHint()))
					}
					if next := a.nextText(j); !strings.Contains(text, next) {
						text += ", " + next
					}
					return a.println(text)
				})
			})
		},
	}
	f := cmd.Flags()
	config.DurationVar(f, &flags.in, "in", 0, "next run after so long")
	f.StringVar(&flags.at, "at", "", "next run at a time, such as 2030-01-31T12:00:00Z or '2030-01-31 12:00'")
	config.DurationVar(f, &flags.every, "every", 0, "interval between runs until the hint ends")
	config.DurationVar(f, &flags.life, "for", 0, "how long the hint lasts (default 1h)")
	f.StringVar(&flags.until, "until", "", "time at which the hint ends")
	f.StringVar(&flags.reason, "reason", "", "why, for people")
	f.BoolVar(&flags.planner, "planner", false, "the hint comes from a planning program, not from a person")
	f.BoolVar(&flags.clear, "clear", false, "remove the hint")
	return withNames(cmd)
}

// buildHint returns nil for --clear.
func (h *hintFlags) buildHint(changed func(string) bool, now time.Time, times *timeReader) (*client.Hint, error) {
	says := 0
	for _, name := range []string{"in", "at", "every"} {
		if changed(name) {
			says++
		}
	}
	switch {
	case h.clear:
		for _, name := range []string{"in", "at", "every", "for", "until", "reason", "planner"} {
			if changed(name) {
				return nil, usageErrorf("--clear excludes --%s", name)
			}
		}
		return nil, nil
	case says == 0:
		return nil, usageErrorf("an action is required: --in, --at, --every or --clear")
	case changed("in") && changed("at"):
		return nil, usageErrorf("--in and --at exclude each other")
	case changed("for") && changed("until"):
		return nil, usageErrorf("--for and --until exclude each other")
	case h.in < 0 || h.life < 0:
		return nil, usageErrorf("--in and --for must not be negative")
	}
	hint := &client.Hint{Source: fermatav1.Hint_SOURCE_OPERATOR, Reason: h.reason}
	if h.planner {
		hint.Source = fermatav1.Hint_SOURCE_PLANNER
	}
	var err error
	if changed("at") {
		if hint.NextRunTime, err = times.parseRequired("--at", h.at); err != nil {
			return nil, err
		}
	}
	if changed("until") {
		if hint.ExpireTime, err = times.parseRequired("--until", h.until); err != nil {
			return nil, err
		}
	}
	if at := hint.GetNextRunTime(); at != nil && at.AsTime().Before(now) {
		times.addRemark("--at %s is past: the job runs at once", h.at)
	}
	if changed("in") {
		hint.NextRunTime = timestamppb.New(now.Add(h.in))
	}
	if changed("for") {
		hint.ExpireTime = timestamppb.New(now.Add(h.life))
	}
	if changed("every") {
		hint.Interval = durationpb.New(h.every)
	}
	return hint, nil
}
