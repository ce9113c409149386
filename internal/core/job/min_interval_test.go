package job

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/fermata-io/fermata/internal/core/schedule"
)

// TestMinIntervalHoldsOnAllDays: neither many excluded times at first nor expressions that rarely meet hide that nominal
// times are too close to each other.
func TestMinIntervalHoldsOnAllDays(t *testing.T) {
	anchor := time.Date(2026, 11, 28, 12, 0, 30, 0, time.UTC)
	crowdedAtFirst := schedule.Spec{Kind: schedule.KindCron, Seconds: true, Cron: []string{"* * * * * *"},
		Exclude: schedule.Exclusions{Cron: []string{"*/2 1-29,31-59 * 28-30 11 *", "1-59/2 1-59 * 28-30 11 *",
			"1-59/2 0 * 28-30 11 *", "2-59/2 0,30 * 28-30 11 *"}}}
	meetingMonthly := schedule.Spec{Kind: schedule.KindCron, Seconds: true}
	undecided := schedule.Spec{Kind: schedule.KindCron, Seconds: true, Cron: []string{"0 * * * * MON", "2 * * * * TUE"}}
	for i := range 12 {
		meetingMonthly.Cron = append(meetingMonthly.Cron, fmt.Sprintf("%d * * %d,25 * *", i*5, i+1))
		undecided.Cron = append(undecided.Cron, fmt.Sprintf("10-59/5 * * %d-31/%d %d-12 *", 1+i, 2+i%7, 1+i%5))
		undecided.Exclude.Cron = append(undecided.Exclude.Cron, fmt.Sprintf("11-14 * * %d-31/%d %d-12 *", 1+i, 3+i%5, 1+i%7))
	}
	for name, c := range map[string]struct {
		spec  schedule.Spec
		least time.Duration
		want  string
	}{
		"excluded times at first": {crowdedAtFirst, 5 * time.Second, "comes every 1s, at least 5s"},
		"meeting days":            {meetingMonthly, time.Minute, "comes every 5s, at least 1m0s"},
		"meeting days, in order":  {meetingMonthly, 5 * time.Second, ""},
		"too many kinds of days":  {undecided, 5 * time.Second, "too many kinds of days"},
	} {
		l := DefaultLimits()
		l.MinInterval = c.least
		v := ValidateSchedule("job.schedule", c.spec, anchor, l)
		switch {
		case c.want == "" && len(v) > 0:
			t.Errorf("%s: %+v", name, v)
		case c.want != "" && (len(v) != 1 || v[0].Field != "job.schedule.cron.expressions" || !strings.Contains(v[0].Description, c.want)):
			t.Errorf("%s: %+v, want %s", name, v, c.want)
		}
	}
}
