package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fermata-io/fermata/client"
	"github.com/fermata-io/fermata/internal/cli/config"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// forecastWidth is the width of the output.
const forecastWidth = 80

func (a *app) forecastCommand() *cobra.Command {
	var o client.ForecastOptions
	cmd := &cobra.Command{
		Use: "forecast", Short: "Show how many runs will be due in the next hours, and jobs with the same time", Args: noArgs,
		Long: `Show how many runs will be due in the next hours: # are planned, which is exact; + are the
later runs of schedules; . are estimated, as those of failing jobs and of schedules with jitter are.
Below are the queues, and the herds: many jobs with the same scheduled time, with what spreads
them. Planned runs that are overdue are in the first line. Times are local.`,
		Example: "  fermata forecast\n  fermata forecast --queue mail --horizon 2h --resolution 5m\n" +
			"  fermata forecast --all-namespaces -o json",
		RunE: printFetched(a, a.printForecast,
			func(ctx context.Context, c *client.Client, _ []string) (*client.LoadForecast, error) {
				return c.Admin().ForecastLoad(ctx, o)
			}),
	}
	allNamespacesFlag(cmd, &o.AllNamespaces, false, "of all namespaces")
	flags := cmd.Flags()
	flags.StringVar(&o.Queue, "queue", "", "of this queue only")
	config.DurationVar(flags, &o.Horizon, "horizon", 24*time.Hour, "how far ahead, 1m to 24h")
	config.DurationVar(flags, &o.Resolution, "resolution", time.Hour, "time of one line, whole minutes, 1m to 1h")
	flags.IntVar(&o.HerdJobs, "herd-jobs", 100, "from how many jobs at one time they are a herd, 2 or more")
	return cmd
}

// loadSums are runs of all queues, or of one.
type loadSums struct{ planned, computed, estimated int64 }

func (s loadSums) total() int64 { return s.planned + s.computed + s.estimated }

func (a *app) printForecast(f *client.LoadForecast) error {
	var b strings.Builder
	writeLoadBars(&b, f)
	a.writeQueueLoads(&b, f)
	writeHerds(&b, f)
	a.writeForecastAge(&b, f)
	return a.printText(b.String())
}

// sumBuckets adds up the queues.
func sumBuckets(f *client.LoadForecast) []loadSums {
	var buckets []loadSums
	for _, q := range f.GetQueues() {
		if buckets == nil {
			buckets = make([]loadSums, len(q.GetPlanned()))
		}
		for i := range min(len(buckets), len(q.GetPlanned()), len(q.GetComputed()), len(q.GetEstimated())) {
			s := &buckets[i]
			s.planned, s.computed, s.estimated = s.planned+q.GetPlanned()[i], s.computed+q.GetComputed()[i],
				s.estimated+q.GetEstimated()[i]
		}
	}
	return buckets
}

// writeLoadBars writes a line for each bucket.
func writeLoadBars(b *strings.Builder, f *client.LoadForecast) {
	buckets := sumBuckets(f)
	most := int64(1)
	for _, s := range buckets {
		most = max(most, s.total())
	}
	if len(buckets) == 0 {
		b.WriteString("no runs are expected\n")
		return
	}
	resolution := f.GetResolution().AsDuration()
	digits := max(4, len(fmt.Sprint(most)))
	fmt.Fprintf(b, "%-12s  %*s\n", "FROM", digits, "RUNS")
	for i, s := range buckets {
		at := f.GetStartTime().AsTime().Add(time.Duration(i) * resolution).Local()
		label := at.Format("15:04")
		if i == 0 || at.Hour() == 0 && at.Minute() == 0 {
			label = at.Format("Jan 2 ") + label
		}
		line := fmt.Sprintf("%12s  %*d  ", label, digits, s.total())
		line += loadBar(s, most, forecastWidth-len(line))
		b.WriteString(strings.TrimRight(line, " ") + "\n")
	}
}

// loadBar returns a bar in proportion to the most runs of a bucket.
func loadBar(s loadSums, most int64, width int) string {
	at := func(n int64) int { return int((n*int64(width) + most - 1) / most) }
	planned, computed, total := at(s.planned), at(s.planned+s.computed), at(s.total())
	return strings.Repeat("#", planned) + strings.Repeat("+", computed-planned) + strings.Repeat(".", total-computed)
}

// writeQueueLoads writes a line for each queue.
func (a *app) writeQueueLoads(b *strings.Builder, f *client.LoadForecast) {
	if len(f.GetQueues()) == 0 {
		return
	}
	fmt.Fprintf(b, "\n%-30s %9s %9s %9s %18s\n", "QUEUE", "PLANNED", "COMPUTED", "ESTIMATED", "MOST AT ONCE")
	for _, q := range f.GetQueues() {
		var sums loadSums
		most, mostAt := int64(0), 0
		for i, s := range sumBuckets(&client.LoadForecast{Queues: []*fermatav1.QueueLoad{q}}) {
			sums = loadSums{sums.planned + s.planned, sums.computed + s.computed, sums.estimated + s.estimated}
			if s.total() > most {
				most, mostAt = s.total(), i
			}
		}
		at := f.GetStartTime().AsTime().Add(time.Duration(mostAt) * f.GetResolution().AsDuration()).Local()
		fmt.Fprintf(b, "%-30s %9d %9d %9d %18s\n", a.fitText(q.GetNamespace()+"/"+q.GetQueue(), 30),
			sums.planned,
			sums.computed, sums.estimated, fmt.Sprintf("%d at %s", most, at.Format("15:04")))
		if left := q.GetJobsLeftOut(); left > 0 {
			fmt.Fprintf(b, "  without the later runs of %d jobs: their schedules are too many, or too complicated\n", left)
		}
	}
	if n := f.GetOmittedQueues(); n > 0 {
		fmt.Fprintf(b, "and %s with fewer runs\n", countText(int(n), "queue", "queues"))
	}
}

// writeHerds writes the herds, each with what spreads it.
func writeHerds(b *strings.Builder, f *client.LoadForecast) {
	for i, h := range f.GetHerds() {
		if i == 0 {
			b.WriteString("\nHERDS\n")
		}
		at := h.GetTime().AsTime().Local().Format("15:04:05")
		if h.GetWholeMinute() {
			at = "about " + h.GetTime().AsTime().Local().Format("15:04")
		}
		fmt.Fprintf(b, "%d jobs of queue %s at %s", h.GetJobs(), printableText(h.GetNamespace()+"/"+h.GetQueue()), at)
		if h.GetTimes() > 1 {
			fmt.Fprintf(b, " and %s", countText(int(h.GetTimes()-1), "more time", "more times"))
		}
		if h.GetSchedule() != "" {
			fmt.Fprintf(b, ": %q", printableText(h.GetSchedule()))
		}
		b.WriteString("\n")
		if h.GetMovableJobs() > 0 {
			fmt.Fprintf(b, "  %d could move: %s\n", h.GetMovableJobs(), printableText(h.GetFix()))
		} else if h.GetFix() != "" {
			fmt.Fprintf(b, "  %s\n", printableText(h.GetFix()))
		}
		writeHerdJobs(b, h.GetJobIds())
	}
}

// writeHerdJobs writes as many ids as fit a line.
func writeHerdJobs(b *strings.Builder, ids []string) {
	if len(ids) == 0 {
		return
	}
	ids = slices.Sorted(slices.Values(ids))
	line := "  such as " + printableText(ids[0])
	for _, id := range ids[1:] {
		if longer := line + ", " + printableText(id); len(longer) <= forecastWidth {
			line = longer
		}
	}
	b.WriteString(line + "\n")
}

// writeForecastAge writes how old the forecast is, if that matters, and what it lacks.
func (a *app) writeForecastAge(b *strings.Builder, f *client.LoadForecast) {
	if n := len(f.GetMissingShards()); n > 0 {
		fmt.Fprintf(b, "\nincomplete: %s not counted; ask again later\n", countText(n, "shard is", "shards are"))
	}
	const old = 10 * time.Second
	planned, definitions := f.GetPlannedTime(), f.GetDefinitionsTime()
	if planned == nil || a.now().Sub(planned.AsTime()) < old && a.now().Sub(definitions.AsTime()) < old {
		return
	}
	fmt.Fprintf(b, "\nplanned runs as of %s ago, schedules as of %s ago\n", a.ageText(planned), a.ageText(definitions))
}
