package importer_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fermata-io/fermata/internal/cli/importer"
	"github.com/fermata-io/fermata/internal/core/schedule"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// controllerTimes is an expression as the controller of Kubernetes reads it: a field is a list of numbers, ranges,
// stars and steps, and if neither day field is a star, one of the two has to match.
type controllerTimes struct {
	minute, hour, day, month, weekday [60]bool
	either                            bool
}

func readControllerTimes(expression string) (c controllerTimes) {
	f := strings.Fields(expression)
	for i, field := range []*[60]bool{&c.minute, &c.hour, &c.day, &c.month, &c.weekday} {
		low, high := []int{0, 0, 1, 1, 0}[i], []int{59, 23, 31, 12, 6}[i]
		for value := low; value <= high; value++ {
			field[value] = controllerField(f[i], value, low, high)
		}
	}
	star := func(field string) bool { return slices.Contains(strings.Split(field, ","), "*") }
	c.either = !star(f[2]) && !star(f[4])
	return c
}

func (c *controllerTimes) match(at time.Time) bool {
	if !c.minute[at.Minute()] || !c.hour[at.Hour()] {
		return false
	}
	day, weekday := c.day[at.Day()], c.weekday[at.Weekday()]
	return c.month[at.Month()] && (day && weekday || c.either && (day || weekday))
}

func controllerField(field string, value, low, high int) bool {
	for item := range strings.SplitSeq(field, ",") {
		base, stepText, stepped := strings.Cut(item, "/")
		step := 1
		if stepped {
			step, _ = strconv.Atoi(stepText)
		}
		from, to := low, high
		if base != "*" {
			first, last, ranged := strings.Cut(base, "-")
			from, _ = strconv.Atoi(first)
			if ranged {
				to, _ = strconv.Atoi(last)
			} else if !stepped {
				to = from
			}
		}
		if value >= from && value <= to && (value-from)%step == 0 {
			return true
		}
	}
	return false
}

// TestCronJobsRunWhenKubernetesRunsThem: the schedule of an imported CronJob has the minutes of a year that the
// controller has, through changes of the clock too: it skips what a change skips, and runs both times what comes twice.
func TestCronJobsRunWhenKubernetesRunsThem(t *testing.T) {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, name := range []string{"UTC", "Europe/Berlin", "America/New_York", "America/Havana", "Australia/Lord_Howe"} {
		zone, err := time.LoadLocation(name)
		if err != nil {
			t.Fatal(err)
		}
		var minutes []time.Time // that the clock on the wall shows
		for at := start; at.Before(start.AddDate(1, 0, 0)); at = at.Add(time.Minute) {
			minutes = append(minutes, at.In(zone))
		}
		for _, expression := range []string{
			"0 0 */2 * 1", "0 0 1 * */2", "30 2 * * *", "0 3 */10 * 1", "30 1 * * 0", "15 1,2 8-14 3,11 0", "*/20 2 * * *", "0 */5 * * *", "0 0 * * *", "0 0 13 * 5", "5/20 0-3 29,30 3,10 *",
			"0 0 1,* * 1", "0 0 * * 1/2", "0 0 * * 6/2,1", "59 23 31 12 *",
		} {
			_, jobs := show(t, readCronJobs(t, "f", []byte(cronJobText(fmt.Sprintf("schedule: %q, timeZone: %s,", expression, name), "")), importer.CronJobOptions{Zone: "UTC"}))
			if len(jobs) != 1 {
				t.Fatalf("%s: %d jobs", expression, len(jobs))
			}
			cron := jobs[0].Job.GetSchedule().GetCron()
			spec := schedule.Spec{Kind: schedule.KindCron, Cron: cron.GetExpressions(), TimeZone: cron.GetTimeZone()}
			if cron.GetDstGap() == fermatav1.DstGap_DST_GAP_SKIP {
				spec.Gap = schedule.GapSkip
			}
			if cron.GetDstRepeat() == fermatav1.DstRepeat_DST_REPEAT_BOTH {
				spec.Repeat = schedule.RepeatBoth
			}
			compiled, err := schedule.Compile(spec, start, 1)
			if err != nil {
				t.Fatal(err)
			}
			next, _ := compiled.Next(start.Add(-time.Second))
			times := readControllerTimes(expression)
			for _, at := range minutes {
				if times.match(at) != next.Equal(at) {
					t.Fatalf("%q in %s: %v: the next one here is %v", expression, name, at, next.In(zone))
				}
				if next.Equal(at) {
					next, _ = compiled.Next(at)
				}
			}
		}
	}
}
