package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/fermata-io/fermata/client"
)

func (a *app) backfillCommand() *cobra.Command {
	var from, to, zone, id string
	var parallel bool
	cmd := &cobra.Command{
		Use:   "backfill ID --from TIME --to TIME",
		Short: "Run the planned times of a past range again",
		Long: "Run the planned times of a past range, --from included and --to not, paced by the recovery rate of " +
			"the\n" +
			"job's queue. By default one after the other and never beside another run of the job. At most 10,000 " +
			"times.",
		Example: "  fermata jobs backfill report --from 2026-11-01 --to 2026-11-08 --tz Europe/Berlin",
		Args:    exactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if from == "" || to == "" {
				return usageErrorf("a range is required: --from and --to")
			}
			times, err := (&scheduleFlags{zone: zone}).newTimeReader()
			if err != nil {
				return err
			}
			start, err := times.parseOptional("--from", from)
			if err != nil {
				return err
			}
			end, err := times.parseOptional("--to", to)
			if err != nil {
				return err
			}
			times.writeRemarks(a.err)
			return a.withSession(cmd, func(ctx context.Context, c *client.Client) error {
				id, j, err := c.BackfillJob(a.withRequestID(ctx), args[0],
					client.Backfill{ID: id, From: start.AsTime(), To: end.AsTime(), Parallel: parallel})
				if err != nil {
					return err
				}
				return printMessage(a, j, func(j *client.Job) error {
					return a.println(fmt.Sprintf("backfill %s of %s, from %s to %s", printableText(id),
						client.JobID(j), shownTime(start, times.location), shownTime(end, times.location)))
				})
			})
		},
	}
	a.requestIDFlag(cmd)
	f := cmd.Flags()
	f.StringVar(&from, "from", "", "first time of the range, such as 2026-11-01T00:00:00Z or 2026-11-01")
	f.StringVar(&to, "to", "", "end of the range, which does not count")
	f.StringVar(&zone, "tz", "", "time zone of --from and --to (default the local one)")
	f.BoolVar(&parallel, "parallel", false, "up to --overlap-limit runs of the job at once, concurrently with its "+
		"other runs")
	f.StringVar(&id, "id", "", "name of the backfill, as --request-id")
	cmd.MarkFlagsMutuallyExclusive("id", "request-id")
	return withNames(cmd)
}

func (a *app) cancelBackfillCommand() *cobra.Command {
	return withNames(&cobra.Command{
		Use: "backfill-cancel ID BACKFILL", Short: "End a backfill; its started runs continue", Args: exactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withSession(cmd, func(ctx context.Context, c *client.Client) error {
				j, err := c.CancelBackfill(ctx, client.BackfillRef{Job: args[0], ID: args[1]})
				if err != nil {
					return err
				}
				return printMessage(a, j, func(j *client.Job) error {
					return a.println(fmt.Sprintf("backfill %s of %s is cancelled", printableText(args[1]),
						client.JobID(j)))
				})
			})
		},
	})
}

// shownTime writes an instant in a zone.
func shownTime(t *timestamppb.Timestamp, location *time.Location) string {
	return t.AsTime().In(location).Format("Mon 2006-01-02 15:04:05 -07:00")
}
