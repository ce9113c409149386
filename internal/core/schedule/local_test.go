package schedule

import (
	"strings"
	"testing"
	"time"
)

func TestAtLocal(t *testing.T) {
	for _, c := range []struct{ zone, local, want, remark string }{
		{"America/New_York", "2027-03-14 01:59", "2027-03-14T01:59:00-05:00", ""},
		{"America/New_York", "2027-03-14 02:30", "2027-03-14T03:00:00-04:00", "does not exist"},
		{"America/New_York", "2027-03-14 03:00", "2027-03-14T03:00:00-04:00", ""},
		{"America/New_York", "2027-11-07 01:30", "2027-11-07T01:30:00-04:00", "first pass"},
		{"America/New_York", "2027-11-07 02:00", "2027-11-07T02:00:00-05:00", ""},
		{"Europe/Berlin", "2027-03-28 02:00", "2027-03-28T03:00:00+02:00", "does not exist"},
		{"Europe/Berlin", "2027-10-31 02:59", "2027-10-31T02:59:00+02:00", "first pass"},
		{"Europe/Berlin", "2027-10-31 03:00", "2027-10-31T03:00:00+01:00", ""},
		{"Australia/Lord_Howe", "2027-10-03 02:15", "2027-10-03T02:30:00+11:00", "does not exist"},
		{"Pacific/Apia", "2011-12-30 12:00", "2011-12-31T00:00:00+14:00", "does not exist"},
		{"Asia/Kolkata", "2027-01-01 00:00", "2027-01-01T00:00:00+05:30", ""},
		{"UTC", "2027-01-01 00:00", "2027-01-01T00:00:00Z", ""},
	} {
		zone, err := time.LoadLocation(c.zone)
		if err != nil {
			t.Fatal(err)
		}
		local, err := time.Parse("2006-01-02 15:04", c.local)
		if err != nil {
			t.Fatal(err)
		}
		at, remark := AtLocal(local.Add(5), zone)
		want := c.want
		if !strings.Contains(remark, "does not exist") {
			want = strings.Replace(c.want, ":00Z", ":00.000000005Z", 1)
			want = strings.NewReplacer(":00-", ":00.000000005-", ":00+", ":00.000000005+").Replace(want)
		}
		if got := at.Format(time.RFC3339Nano); got != want {
			t.Errorf("%s in %s: %s, want %s", c.local, c.zone, got, want)
		}
		if !strings.Contains(remark, c.remark) || remark != "" && c.remark == "" {
			t.Errorf("%s in %s: remark %q, want %q", c.local, c.zone, remark, c.remark)
		}
	}
}

// A local time means what a cron expression for it means, in every zone and around each change of the clock.
func TestAtLocalMatchesCron(t *testing.T) {
	for _, z := range oracleZones {
		zone, err := time.LoadLocation(z.zone)
		if err != nil {
			t.Fatal(err)
		}
		begin := time.Date(z.year, 1, 1, 0, 0, 0, 0, time.UTC)
		for local := begin; local.Year() == z.year; local = local.Add(97 * time.Minute) {
			s, err := Compile(cronIn(z.zone, vixie, local.Format("4 15 2 1 *")), begin.AddDate(0, 0, -2), 7)
			if err != nil {
				continue // nothing within 40 years
			}
			want, ok := s.Next(begin.AddDate(0, 0, -2))
			at, _ := AtLocal(local, zone)
			if ok && want.In(zone).Year() == z.year && z.zone != "Pacific/Apia" && z.zone != "Pacific/Kwajalein" && !at.Equal(want) {
				t.Fatalf("%v in %s: %v, cron %v", local, z.zone, at, want.In(zone))
			}
		}
	}
}
