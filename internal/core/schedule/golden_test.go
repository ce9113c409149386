package schedule

import (
	"slices"
	"testing"
	"time"
)

// Instants worked out by hand from the published transitions of each zone.
// after is in the zone of the case.
func TestGoldenClockChanges(t *testing.T) {
	cases := []struct {
		name, expr, zone, after string
		policy                  dst
		want                    []string
	}{
		{"gap runs once right after", "30 2 * * *", "America/New_York", "2026-03-07 12:00", vixie,
			[]string{"2026-03-08 03:00:00 -0400", "2026-03-09 02:30:00 -0400"}},
		{"gap skipped by choice", "30 2 * * *", "America/New_York", "2026-03-07 12:00", skip,
			[]string{"2026-03-09 02:30:00 -0400"}},
		{"several gap matches collapse", "0,15,30 2 * * *", "America/New_York", "2026-03-07 12:00", vixie,
			[]string{"2026-03-08 03:00:00 -0400", "2026-03-09 02:00:00 -0400"}},
		{"gap match merges with a regular one", "0,30 2,3 * * *", "America/New_York", "2026-03-07 12:00", vixie,
			[]string{"2026-03-08 03:00:00 -0400", "2026-03-08 03:30:00 -0400"}},
		{"wild owes nothing for a gap", "30 * * * *", "America/New_York", "2026-03-08 00:45", vixie,
			[]string{"2026-03-08 01:30:00 -0500", "2026-03-08 03:30:00 -0400"}},
		{"repeat runs in the first pass", "30 1 * * *", "America/New_York", "2026-10-31 12:00", vixie,
			[]string{"2026-11-01 01:30:00 -0400", "2026-11-02 01:30:00 -0500"}},
		{"repeat runs twice by choice", "30 1 * * *", "America/New_York", "2026-10-31 12:00", both,
			[]string{"2026-11-01 01:30:00 -0400", "2026-11-01 01:30:00 -0500", "2026-11-02 01:30:00 -0500"}},
		{"repeat runs in the last pass by choice", "30 1 * * *", "America/New_York", "2026-10-31 12:00", last,
			[]string{"2026-11-01 01:30:00 -0500", "2026-11-02 01:30:00 -0500"}},
		{"half-hour repeat, last pass", "45 1 * * *", "Australia/Lord_Howe", "2026-04-04 12:00", last,
			[]string{"2026-04-05 01:45:00 +1030", "2026-04-06 01:45:00 +1030"}},
		{"Berlin's long night, both passes and the last", "30 2 * * *", "Europe/Berlin", "2026-10-24 12:00", both,
			[]string{"2026-10-25 02:30:00 +0200", "2026-10-25 02:30:00 +0100", "2026-10-26 02:30:00 +0100"}},
		{"both makes up for a gap too", "30 2 * * *", "America/New_York", "2026-03-07 12:00", both,
			[]string{"2026-03-08 03:00:00 -0400", "2026-03-09 02:30:00 -0400"}},
		{"hourly loses no real hour", "0 * * * *", "America/New_York", "2026-11-01 00:30", vixie,
			[]string{"2026-11-01 01:00:00 -0400", "2026-11-01 01:00:00 -0500", "2026-11-01 02:00:00 -0500"}},
		{"macro is wild", "@hourly", "America/New_York", "2026-11-01 00:30", vixie,
			[]string{"2026-11-01 01:00:00 -0400", "2026-11-01 01:00:00 -0500", "2026-11-01 02:00:00 -0500"}},
		{"a listed hour range is fixed", "0 0-23 * * *", "America/New_York", "2026-11-01 00:30", vixie,
			[]string{"2026-11-01 01:00:00 -0400", "2026-11-01 02:00:00 -0500"}},
		{"half-hour gap", "15 2 * * *", "Australia/Lord_Howe", "2026-10-03 12:00", vixie,
			[]string{"2026-10-04 02:30:00 +1100", "2026-10-05 02:15:00 +1100"}},
		{"half-hour repeat", "45 1 * * *", "Australia/Lord_Howe", "2026-04-04 12:00", vixie,
			[]string{"2026-04-05 01:45:00 +1100", "2026-04-06 01:45:00 +1030"}},
		{"midnight gap", "10 0 * * 0", "Asia/Beirut", "2026-03-28 12:00", vixie,
			[]string{"2026-03-29 01:00:00 +0300", "2026-04-05 00:10:00 +0300"}},
		{"midnight gap of the past", "0 0 * * *", "America/Sao_Paulo", "2018-11-03 12:00", vixie,
			[]string{"2018-11-04 01:00:00 -0200", "2018-11-05 00:00:00 -0200"}},
		{"a lost day is not owed", "0 12 * * *", "Pacific/Apia", "2011-12-29 13:00", vixie,
			[]string{"2011-12-31 12:00:00 +1400"}},
		{"a lost day for a weekly job", "0 12 * * FRI", "Pacific/Apia", "2011-12-24 13:00", vixie,
			[]string{"2012-01-06 12:00:00 +1400"}},
		{"Ramadan in Casablanca, start", "30 2 * * *", "Africa/Casablanca", "2026-02-14 12:00", vixie,
			[]string{"2026-02-15 02:30:00 +0100", "2026-02-16 02:30:00 +0000"}},
		{"Ramadan in Casablanca, end", "30 2 * * *", "Africa/Casablanca", "2026-03-21 12:00", vixie,
			[]string{"2026-03-22 03:00:00 +0100"}},
		{"Dublin's negative summer time", "30 1 * * *", "Europe/Dublin", "2026-03-28 12:00", vixie,
			[]string{"2026-03-29 02:00:00 +0100", "2026-03-30 01:30:00 +0100"}},
		{"far future uses the rule of the zone", "30 2 * * *", "Europe/Berlin", "2090-03-25 12:00", vixie,
			[]string{"2090-03-26 03:00:00 +0200", "2090-03-27 02:30:00 +0200"}},
		{"last day of a far leap year", "0 20 31 12 *", "Europe/Berlin", "2040-12-31 12:00", vixie,
			[]string{"2040-12-31 20:00:00 +0100", "2041-12-31 20:00:00 +0100"}},
		{"new year after a far leap year", "0 1 1 1 *", "Europe/Berlin", "2040-12-31 12:00", vixie,
			[]string{"2041-01-01 01:00:00 +0100", "2042-01-01 01:00:00 +0100"}},
		{"UTC has no gap", "30 2 * * *", "UTC", "2026-03-07 12:00", vixie,
			[]string{"2026-03-08 02:30:00 +0000", "2026-03-09 02:30:00 +0000"}},
		{"leap day across 2100", "0 0 29 2 *", "UTC", "2094-01-01 00:00", vixie,
			[]string{"2096-02-29 00:00:00 +0000", "2104-02-29 00:00:00 +0000", "2108-02-29 00:00:00 +0000"}},
		{"day fields unite", "0 0 13 * FRI", "UTC", "2026-02-10 00:00", vixie,
			[]string{"2026-02-13 00:00:00 +0000", "2026-02-20 00:00:00 +0000"}},
		{"a starred day field intersects", "0 0 */2 * MON", "UTC", "2026-06-01 00:00", vixie,
			[]string{"2026-06-15 00:00:00 +0000", "2026-06-29 00:00:00 +0000", "2026-07-13 00:00:00 +0000"}},
		{"last day", "0 0 L * *", "UTC", "2028-01-31 00:00", vixie,
			[]string{"2028-02-29 00:00:00 +0000", "2028-03-31 00:00:00 +0000"}},
		{"third Friday, last Monday", "0 0 * * FRI#3,MON#L", "UTC", "2026-06-01 00:00", vixie,
			[]string{"2026-06-19 00:00:00 +0000", "2026-06-29 00:00:00 +0000"}},
		{"nearest weekday stays in the month", "0 0 1W,31W * *", "UTC", "2026-07-20 00:00", vixie,
			[]string{"2026-07-31 00:00:00 +0000", "2026-08-03 00:00:00 +0000", "2026-08-31 00:00:00 +0000"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			loc, err := time.LoadLocation(c.zone)
			if err != nil {
				t.Fatal(err)
			}
			after, err := time.ParseInLocation("2006-01-02 15:04", c.after, loc)
			if err != nil {
				t.Fatal(err)
			}
			s := compile(t, cronIn(c.zone, c.policy, c.expr), after)
			if got := upcoming(s, c.zone, after, len(c.want)); !slices.Equal(got, c.want) {
				t.Errorf("got  %q\nwant %q", got, c.want)
			}
			for _, n := range Upcoming(s, after, len(c.want), NewBudget(5)) {
				if p, ok := s.Prev(n); !ok || !p.Equal(n) {
					t.Errorf("Prev(%v) = %v, %v; want itself", n, p, ok)
				}
			}
		})
	}
}

// The rarest expression of the calendar: a leap day on a Sunday, 40 years apart.
func TestLongestWait(t *testing.T) {
	s := compile(t, cronIn("", vixie, "0 0 29 2 */7"), utc("2088-02-29T00:00:00Z"))
	want := utc("2128-02-29T00:00:00Z")
	if got, ok := s.Next(utc("2088-02-29T00:00:00Z")); !ok || !got.Equal(want) {
		t.Errorf("Next = %v, %v; want %v", got, ok, want)
	}
	if got, ok := s.Prev(want.Add(-1)); !ok || !got.Equal(utc("2088-02-29T00:00:00Z")) {
		t.Errorf("Prev = %v, %v; want 2088", got, ok)
	}
}

// The second Sunday of March at 02:30 in New York never exists: it is always
// made up for, or never runs.
func TestOnlyInGaps(t *testing.T) {
	expr := "30 2 8-14 3 */7"
	s := compile(t, cronIn("America/New_York", vixie, expr), created)
	got := upcoming(s, "America/New_York", created, 2)
	if want := []string{"2026-03-08 03:00:00 -0400", "2027-03-14 03:00:00 -0400"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if _, err := Compile(cronIn("America/New_York", skip, expr), created, 7); err == nil {
		t.Error("compiled although it has no instant")
	}
}
