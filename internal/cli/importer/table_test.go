package importer_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/fermata-io/fermata/internal/cli/importer"
	"github.com/fermata-io/fermata/internal/cli/manifest"
	"github.com/fermata-io/fermata/internal/core/schedule"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

var scheduleRow = regexp.MustCompile("^\\| (crontab|Kubernetes|systemd|Quartz|Jenkins) \\| `([^`]+)` \\| (.*) \\| ([^|]*) \\|$")

// TestScheduleTable: each row of the table in docs/scheduling.md. What is imported becomes what the row says, and what
// is written by hand has the times of the row.
func TestScheduleTable(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "scheduling.md"))
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string]int{}
	for line := range strings.SplitSeq(string(text), "\n") {
		m := scheduleRow.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		from, expression, here, want := m[1], m[2], m[3], m[4]
		rows[from]++
		if got := hereOf(t, from, expression); got != "" && got != here {
			t.Errorf("%s %s: %s, want %s", from, expression, got, here)
		}
		if got := timesOf(t, here); got != want {
			t.Errorf("%s %s: %s: %s, want %s", from, expression, here, got, want)
		}
	}
	for _, from := range []string{"crontab", "Kubernetes", "systemd", "Quartz", "Jenkins"} {
		if rows[from] < 1 {
			t.Errorf("no row about %s", from)
		}
	}
}

// hereOf is the schedule that an import makes; "" for what is not imported, which is refused as it stands.
func hereOf(t *testing.T, from, expression string) string {
	t.Helper()
	var jobs []manifest.Job
	switch from {
	case "crontab", "Jenkins":
		_, jobs = show(t, readCrontab(t, "f", []byte(expression+" /bin/a\n"), importer.CrontabOptions{Zone: "UTC", Overlap: "skip", Timeout: time.Hour}))
	case "Kubernetes":
		_, jobs = show(t, readCronJobs(t, "f", []byte(cronJobText(fmt.Sprintf("schedule: %q,", expression), "")), importer.CronJobOptions{Zone: "UTC"}))
	default:
		spec := schedule.Spec{Kind: schedule.KindCron, Cron: []string{expression}}
		if _, err := schedule.Compile(spec, time.Unix(1_700_000_000, 0), 1); err == nil {
			t.Errorf("%s %s: is understood as it stands", from, expression)
		}
		return ""
	}
	if len(jobs) != 1 {
		t.Errorf("%s %s: %d jobs", from, expression, len(jobs))
		return ""
	}
	switch rule := jobs[0].Job.GetSchedule().GetRule().(type) {
	case *fermatav1.Schedule_Interval:
		text := "every " + rule.Interval.GetEvery().AsDuration().String()
		if rule.Interval.GetFixedDelay() {
			text += ", `fixed_delay`"
		}
		return text
	case *fermatav1.Schedule_Cron:
		return "`" + strings.Join(rule.Cron.GetExpressions(), "`, `") + "`"
	}
	return "none"
}

// timesOf are the next two times of what a row says.
func timesOf(t *testing.T, here string) string {
	t.Helper()
	now := time.Date(2026, 11, 26, 0, 0, 0, 0, time.UTC)
	var spec schedule.Spec
	text, delayed := strings.CutSuffix(here, ", `fixed_delay`")
	switch every, isInterval := strings.CutPrefix(text, "every "); {
	case isInterval:
		d, err := time.ParseDuration(every)
		if err != nil {
			t.Fatal(err)
		}
		spec = schedule.Spec{Kind: schedule.KindInterval, Every: d, FixedDelay: delayed}
	default:
		expressions := strings.Split(strings.TrimSuffix(strings.Trim(text, "`"), "` with `seconds"), "`, `")
		spec = schedule.Spec{Kind: schedule.KindCron, Cron: expressions, Seconds: len(strings.Fields(expressions[0])) == 6}
	}
	compiled, err := schedule.Compile(spec, now, 1)
	if err != nil {
		t.Errorf("%s: %v", here, err)
		return ""
	}
	var out []string
	for _, at := range schedule.Upcoming(compiled, now, 2, schedule.NewBudget(5)) {
		layout := "2006-01-02 15:04"
		if at.Second() != 0 {
			layout = "2006-01-02 15:04:05"
		}
		out = append(out, at.UTC().Format(layout))
	}
	if strings.HasPrefix(here, "`H") {
		return "its own"
	}
	return strings.Join(out, ", ")
}
