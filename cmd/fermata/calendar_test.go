package main

import (
	"strings"
	"testing"
	"time"

	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// TestCalendarsShowTheirFirstDay: without --from-day all views name the day that a calendar counts from, and what
// they show can be given back.
func TestCalendarsShowTheirFirstDay(t *testing.T) {
	c := startCluster(t)
	today := epoch.UTC().Format(time.DateOnly)
	flags := []string{"--calendar", "2 weeks", "--on", "MON,THU", "--time", "09:00", "--tz", "UTC"}
	if out := c.must(append([]string{"preview"}, flags...)...); !strings.Contains(out, "Counted from "+epoch.UTC().Format("Mon 2006-01-02")+" (--from-day).") {
		t.Errorf("preview:\n%s", out)
	}
	c.must(append([]string{"jobs", "create", "report", "--handler", "h"}, flags...)...)
	const text = "every 2 weeks on MON, THU at 09:00 from "
	for _, view := range [][]string{{"jobs", "get", "report"}, {"jobs", "list"}} {
		if out := c.must(view...); !strings.Contains(out, text+today+" UTC") {
			t.Errorf("%s:\n%s", view, out)
		}
	}
	if out := c.must("jobs", "explain", "report"); !strings.Contains(out, "its weeks are counted from "+today) {
		t.Errorf("explain:\n%s", out)
	}
	file, lines := c.must("jobs", "get", "report", "-o", "yaml"), c.must("export")
	for _, out := range []string{file, lines} {
		if !strings.Contains(strings.ReplaceAll(out, `"`, ""), "from:"+today) && !strings.Contains(out, "from: \""+today) && !strings.Contains(out, "from: "+today) {
			t.Errorf("no first day in\n%s", out)
		}
	}

	// Nothing has changed, neither with the day nor without.
	c.pass(8 * 24 * time.Hour)
	if out := c.must("apply", "-f", "-", "<"+file); !strings.Contains(out, "1 unchanged") {
		t.Errorf("apply of what get shows:\n%s", out)
	}
	c.must("import", "--existing", "fail", "<"+lines)
	without := "{id: report, handler: h, schedule: {calendar: {every: 2, unit: week, weekdays: [MON, THU], times: [\"09:00\"], time_zone: UTC}}}\n"
	if out := c.must("apply", "-f", "-", "<"+without); !strings.Contains(out, "1 unchanged") {
		t.Errorf("apply without the day:\n%s", out)
	}
	c.must("jobs", "update", "report", "--timeout", "5m")
	if out := c.must("jobs", "get", "report"); !strings.Contains(out, text+today) {
		t.Errorf("after an update of the timeout:\n%s", out)
	}

	// Elsewhere, and later, the weeks are the same.
	other := startCluster(t)
	other.pass(8 * 24 * time.Hour)
	other.must("import", "<"+lines)
	after := epoch.AddDate(0, 1, 0).UTC().Format(time.RFC3339)
	if a, b := c.must("preview", "report", "--tz", "UTC", "--after", after), other.must("preview", "report", "--tz", "UTC", "--after", after); a != b {
		t.Errorf("here\n%s\nthere\n%s", a, b)
	}
}

// TestCalendarTexts: each calendar is a sentence.
func TestCalendarTexts(t *testing.T) {
	const week, month, day = fermatav1.CalendarSchedule_UNIT_WEEK, fermatav1.CalendarSchedule_UNIT_MONTH, fermatav1.CalendarSchedule_UNIT_DAY
	for want, c := range map[string]*fermatav1.CalendarSchedule{
		"every day at 06:00, 18:00 from 2026-11-30":                                                      {Unit: day, Times: []string{"06:00", "18:00"}, From: "2026-11-30"},
		"every 3 days at 06:00 Asia/Tokyo":                                                               {Unit: day, Every: 3, Times: []string{"06:00"}, TimeZone: "Asia/Tokyo"},
		"every week on THU at 06:00 from 2026-11-26":                                                     {Unit: week, Times: []string{"06:00"}, From: "2026-11-26"},
		"every 2 weeks on MON, FRI at 06:00 from 2026-11-26":                                             {Unit: week, Every: 2, Weekdays: []string{"MON", "FRI"}, Times: []string{"06:00"}, From: "2026-11-26"},
		"every month on day 26 at 06:00 from 2026-11-26":                                                 {Unit: month, Times: []string{"06:00"}, From: "2026-11-26"},
		"every 3 months on day 1, the last day, the last day but 1 at 06:00, not in shorter months, UTC": {Unit: month, Every: 3, MonthDays: []int32{1, -1, -2}, Times: []string{"06:00"}, ShortMonth: fermatav1.CalendarSchedule_SHORT_MONTH_SKIP, TimeZone: "UTC"},
	} {
		if got := calendarText(c); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
