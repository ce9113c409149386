package schedule

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func calendarIn(zone string, c Calendar) Spec {
	return Spec{Kind: KindCalendar, Calendar: c, TimeZone: zone}
}

func TestCalendars(t *testing.T) {
	nine := []string{"09:00"}
	for _, c := range []struct {
		name string
		spec Spec
		want []string
	}{
		{"every second Monday", calendarIn("Europe/Berlin", Calendar{Every: 2, Unit: CalendarWeek, Times: nine, Weekdays: []time.Weekday{time.Monday}, From: "2026-10-12"}),
			[]string{"2026-10-12T09:00:00+02:00", "2026-10-26T09:00:00+01:00", "2026-11-09T09:00:00+01:00"}},
		{"of a week that has begun", calendarIn("Europe/Berlin", Calendar{Every: 2, Unit: CalendarWeek, Times: nine, Weekdays: []time.Weekday{time.Monday, time.Sunday}, From: "2026-10-14"}),
			[]string{"2026-10-18T09:00:00+02:00", "2026-10-26T09:00:00+01:00", "2026-11-01T09:00:00+01:00"}},
		{"every 3 days", calendarIn("America/New_York", Calendar{Every: 3, Times: []string{"18:00", "06:00"}, From: "2026-03-05"}),
			[]string{"2026-03-05T06:00:00-05:00", "2026-03-05T18:00:00-05:00", "2026-03-08T06:00:00-04:00", "2026-03-08T18:00:00-04:00"}},
		{"day 31, or the last one", calendarIn("", Calendar{Unit: CalendarMonth, Times: nine, MonthDays: []int{31}, From: "2028-01-01"}),
			[]string{"2028-01-31T09:00:00Z", "2028-02-29T09:00:00Z", "2028-03-31T09:00:00Z", "2028-04-30T09:00:00Z"}},
		{"day 31, where there is one", calendarIn("", Calendar{Unit: CalendarMonth, Times: nine, MonthDays: []int{31}, ShortMonth: ShortMonthSkip, From: "2028-01-01"}),
			[]string{"2028-01-31T09:00:00Z", "2028-03-31T09:00:00Z", "2028-05-31T09:00:00Z"}},
		{"the last two days", calendarIn("", Calendar{Every: 3, Unit: CalendarMonth, Times: nine, MonthDays: []int{-1, -2}, From: "2026-11-30"}),
			[]string{"2026-11-30T09:00:00Z", "2027-02-27T09:00:00Z", "2027-02-28T09:00:00Z", "2027-05-30T09:00:00Z"}},
		{"by the day of its start", Spec{Kind: KindCalendar, Calendar: Calendar{Every: 2, Unit: CalendarWeek, Times: nine}, TimeZone: "Asia/Tokyo", StartAt: utc("2026-10-11T23:00:00Z")},
			[]string{"2026-10-12T09:00:00+09:00", "2026-10-26T09:00:00+09:00"}},
		{"in a gap and twice", calendarIn("Europe/Berlin", Calendar{Times: []string{"02:30:15"}, From: "2026-03-28"}),
			[]string{"2026-03-28T02:30:15+01:00", "2026-03-29T03:00:00+02:00", "2026-03-30T02:30:15+02:00"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := compile(t, c.spec, utc("2026-01-01T00:00:00Z"))
			zone, _ := lookupZone(c.spec.TimeZone + strings.Repeat("UTC", max(0, 1-len(c.spec.TimeZone))))
			var got []string
			for _, at := range Upcoming(s, utc("2026-01-01T00:00:00Z"), len(c.want), NewBudget(5)) {
				got = append(got, at.In(zone).Format(time.RFC3339))
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("got  %v\nwant %v", got, c.want)
			}
		})
	}
}

func TestCalendarsRefused(t *testing.T) {
	nine := []string{"09:00"}
	for _, c := range []struct {
		calendar Calendar
		field    string
	}{
		{Calendar{}, "calendar.times"},
		{Calendar{Times: slices.Repeat(nine, 25)}, "calendar.times"},
		{Calendar{Times: []string{"9 am"}}, "calendar.times[0]"},
		{Calendar{Times: []string{"09:00:00.5"}}, "calendar.times[0]"},
		{Calendar{Times: []string{"09:00", "24:00"}}, "calendar.times[1]"},
		{Calendar{Times: nine, Every: -1}, "calendar.every"},
		{Calendar{Times: nine, Every: 1001}, "calendar.every"},
		{Calendar{Times: nine, Unit: 3}, "calendar.unit"},
		{Calendar{Times: nine, Weekdays: []time.Weekday{1}}, "calendar.weekdays"},
		{Calendar{Times: nine, Unit: CalendarWeek, Weekdays: []time.Weekday{1, 7}}, "calendar.weekdays[1]"},
		{Calendar{Times: nine, Unit: CalendarWeek, MonthDays: []int{1}}, "calendar.month_days"},
		{Calendar{Times: nine, Unit: CalendarMonth, MonthDays: []int{0}}, "calendar.month_days[0]"},
		{Calendar{Times: nine, Unit: CalendarMonth, MonthDays: []int{-32}}, "calendar.month_days[0]"},
		{Calendar{Times: nine, ShortMonth: ShortMonthSkip}, "calendar.short_month"},
		{Calendar{Times: nine, From: "2026-02-30"}, "calendar.from"},
		{Calendar{Times: nine, Every: 12, Unit: CalendarMonth, MonthDays: []int{30}, ShortMonth: ShortMonthSkip, From: "2026-02-01"}, "calendar"},
		{Calendar{Times: nine, Every: 1000, Unit: CalendarMonth, MonthDays: []int{30}, ShortMonth: ShortMonthSkip, From: "2026-02-01"}, "calendar"},
	} {
		_, err := Compile(calendarIn("", c.calendar), created, 7)
		if err == nil {
			t.Errorf("%+v: accepted", c.calendar)
		} else if got := faults(t, err); !slices.Equal(got, []string{c.field}) {
			t.Errorf("%+v: %v", c.calendar, err)
		}
	}
}

// listed are the nominal times of a calendar in the years of the test, by walking over the days one by one.
func listed(c Calendar, zone *time.Location, years int) []int64 {
	from, _ := time.Parse(time.DateOnly, c.From)
	var out []int64
	monday := func(t time.Time) time.Time { return t.AddDate(0, 0, -((int(t.Weekday()) + 6) % 7)) }
	for day := from; day.Before(from.AddDate(years, 0, 0)); day = day.AddDate(0, 0, 1) {
		last := time.Date(day.Year(), day.Month()+1, 0, 0, 0, 0, 0, time.UTC).Day()
		counts := false
		switch c.Unit {
		case CalendarDay:
			counts = int(day.Sub(from).Hours()/24)%c.Every == 0
		case CalendarWeek:
			counts = int(monday(day).Sub(monday(from)).Hours()/24/7)%c.Every == 0 && slices.Contains(c.Weekdays, day.Weekday())
		case CalendarMonth:
			if ((day.Year()-from.Year())*12+int(day.Month())-int(from.Month()))%c.Every != 0 {
				break
			}
			for _, n := range c.MonthDays {
				if n < 0 {
					n += last + 1
				}
				if c.ShortMonth == ShortMonthLastDay {
					n = max(1, min(n, last))
				}
				counts = counts || n == day.Day()
			}
		}
		for _, text := range c.Times {
			if at, err := time.Parse("2006-01-02 15:04", day.Format("2006-01-02 ")+text); counts && err == nil {
				instant, _ := AtLocal(at, zone)
				_, offset := instant.Zone()
				_, before := instant.Add(-time.Second).Zone()
				if shown := instant.Unix() + int64(offset); shown != at.Unix() && offset-before > maxOwedGap {
					continue // the day never was
				}
				out = append(out, instant.Unix())
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// Next and Prev of a calendar agree with the walk over all days, in zones with all kinds of changes of the clock.
func TestCalendarsAgainstEveryDay(t *testing.T) {
	zones := []string{"America/Havana", "America/Asuncion", "Asia/Amman"} // where clocks change at midnight
	for _, z := range oracleZones {
		zones = append(zones, z.zone)
	}
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.SampledFrom(zones).Draw(t, "zone")
		zone, err := time.LoadLocation(name)
		if err != nil {
			t.Fatal(err)
		}
		// With a day that never was (Kwajalein 1993, Apia 2011), leap years, and 2100, which is none.
		year := rapid.SampledFrom([]int{1992, 2010, 2024, 2027, 2098}).Draw(t, "year")
		created := time.Date(year-1, 6, 1, 0, 0, 0, 0, time.UTC)
		c := Calendar{
			Every: rapid.IntRange(1, 5).Draw(t, "every"), Unit: CalendarUnit(rapid.IntRange(0, 2).Draw(t, "unit")),
			From: time.Date(year, 1, 1+rapid.IntRange(0, 1000).Draw(t, "from"), 0, 0, 0, 0, time.UTC).Format(time.DateOnly),
		}
		for range rapid.IntRange(1, 3).Draw(t, "times") {
			c.Times = append(c.Times, fmt.Sprintf("%02d:%02d", rapid.SampledFrom([]int{0, 1, 2, 3, 9, 23}).Draw(t, "hour"), rapid.SampledFrom([]int{0, 15, 30, 59}).Draw(t, "minute")))
		}
		switch c.Unit {
		case CalendarWeek:
			for range rapid.IntRange(1, 3).Draw(t, "days") {
				c.Weekdays = append(c.Weekdays, time.Weekday(rapid.IntRange(0, 6).Draw(t, "day")))
			}
		case CalendarMonth:
			c.ShortMonth = ShortMonthPolicy(rapid.IntRange(0, 1).Draw(t, "short"))
			c.MonthDays = rapid.SliceOfN(rapid.SampledFrom([]int{1, 2, 15, 28, 29, 30, 31, -1, -2, -28, -29, -30, -31}), 1, 3).Draw(t, "days")
		}
		want := listed(c, zone, 3)
		s, err := Compile(calendarIn(name, c), created, 7)
		if err != nil {
			if len(want) == 0 {
				return
			}
			t.Fatalf("%+v: %v", c, err)
		}
		at := created
		for i, n := range want[:min(len(want), 400)] {
			next, ok := s.Next(at)
			if !ok || next.Unix() != n {
				t.Fatalf("%+v in %s: after %v comes %v (%t), want %v", c, name, at, next, ok, time.Unix(n, 0).UTC())
			}
			for _, later := range []int64{0, 1, 3599} {
				if later > 0 && (i+1 == len(want) || n+later >= want[i+1]) { // the list ends with its years
					break
				}
				if prev, ok := s.Prev(time.Unix(n+later, 0)); !ok || prev.Unix() != n {
					t.Fatalf("%+v in %s: before %v came %v (%t)", c, name, time.Unix(n+later, 0).UTC(), prev, ok)
				}
			}
			at = next
		}
		if first, ok := s.Prev(time.Unix(want[0]-1, 0)); ok {
			t.Fatalf("%+v in %s: %v lies before the first one", c, name, first)
		}
	})
}

// TestFirstDay: the day that is shown is the one by which a calendar counts.
func TestFirstDay(t *testing.T) {
	weeks := Calendar{Every: 2, Unit: CalendarWeek, Times: []string{"09:00"}, Weekdays: []time.Weekday{time.Monday}}
	for _, c := range []struct {
		from, start, zone, want string
	}{
		{"", "", "", "2026-11-25"},
		{"", "", "Asia/Tokyo", "2026-11-26"},
		{"", "2026-01-05T00:00:00Z", "", "2026-11-25"}, // before the anchor
		{"", "2027-03-01T23:30:00Z", "Europe/Berlin", "2027-03-02"},
		{"2020-01-01", "2027-03-01T23:30:00Z", "Europe/Berlin", "2020-01-01"},
		{"", "", "Mars/Base", ""},
	} {
		spec := calendarIn(c.zone, weeks)
		spec.Calendar.From = c.from
		if c.start != "" {
			spec.StartAt = utc(c.start)
		}
		anchor := utc("2026-11-25T18:00:00Z")
		if got := spec.FirstDay(anchor); got != c.want {
			t.Errorf("%+v: %q", c, got)
		}
		if c.want == "" {
			continue
		}
		named := spec
		named.Calendar.From = c.want
		later := anchor.AddDate(3, 0, 0) // with the day, the anchor makes no difference
		a, b := Upcoming(compile(t, spec, anchor), later, 5, NewBudget(5)), Upcoming(compile(t, named, anchor), later, 5, NewBudget(5))
		if !slices.Equal(a, b) || len(a) != 5 {
			t.Errorf("%+v: %v by default, %v by name", c, a, b)
		}
	}
	if day := (Spec{Kind: KindCron, Cron: []string{"* * * * *"}}).FirstDay(created); day != "" {
		t.Errorf("of a cron: %q", day)
	}
}
