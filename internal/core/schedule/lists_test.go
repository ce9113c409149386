package schedule

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// zoneMinutes is a stretch of minutes in a zone, with what the wall shows.
type zoneMinutes struct {
	zone  string
	first int64 // minutes since 1970
	walls []wall
}

func windowAt(zone string, from time.Time, days int) zoneMinutes {
	loc, err := time.LoadLocation(zone)
	if err != nil {
		panic(err)
	}
	w := zoneMinutes{zone: zone, first: from.Unix() / 60, walls: make([]wall, days*24*60)}
	for i := range w.walls {
		w.walls[i] = readWall(time.Unix((w.first+int64(i))*60, 0).In(loc))
	}
	return w
}

// windows are months of each length and the time around changes of the clock, at midnight, across the date line and far
// ahead too.
func windows() (all []zoneMinutes) {
	for _, month := range []string{"2026-02-01", "2028-02-01", "2100-02-01", "2027-04-01", "2027-12-01"} {
		all = append(all, windowAt("UTC", utc(month+"T00:00:00Z"), 40))
	}
	for _, zone := range []string{"America/New_York", "Europe/Berlin", "Australia/Lord_Howe", "Pacific/Chatham", "America/Havana", "America/St_Johns", "Africa/Cairo", "Antarctica/Troll", "Asia/Beirut"} {
		for _, month := range []string{"2026-03-01", "2026-04-01", "2026-10-01", "2026-11-01", "2100-03-10", "2100-10-10"} {
			all = append(all, windowAt(zone, utc(month+"T12:00:00Z"), 30))
		}
	}
	for zone, days := range map[string][]string{
		"Pacific/Apia": {"2011-12-20", "2011-09-15"}, "Pacific/Kwajalein": {"1993-08-10"}, "America/Sao_Paulo": {"2018-02-10", "2018-10-25"},
		"America/Asuncion": {"2020-03-15", "2020-09-25"}, "Asia/Amman": {"2021-03-20", "2021-10-20"}, "Africa/Casablanca": {"2026-02-10", "2026-03-15"},
	} {
		for _, day := range days {
			all = append(all, windowAt(zone, utc(day+"T12:00:00Z"), 25))
		}
	}
	return all
}

func drawField(t *rapid.T, low, high, stars int) string {
	if rapid.IntRange(0, 9).Draw(t, "star") < stars {
		return "*"
	}
	if rapid.IntRange(0, 9).Draw(t, "starred") == 0 {
		return fmt.Sprintf("*/%d", rapid.IntRange(1, high+5).Draw(t, "step"))
	}
	var items []string
	for range rapid.IntRange(1, 3).Draw(t, "items") {
		from := rapid.IntRange(low, high).Draw(t, "from")
		item := fmt.Sprint(from)
		ranged := rapid.Bool().Draw(t, "range")
		if ranged {
			item += fmt.Sprintf("-%d", rapid.IntRange(from, high).Draw(t, "to"))
		}
		// A single day of the week with a step goes on to 7, which the naive reading does not know.
		if rapid.IntRange(0, 3).Draw(t, "stepped") == 0 && (ranged || high != 6) {
			item += fmt.Sprintf("/%d", rapid.IntRange(1, high+5).Draw(t, "step"))
		}
		items = append(items, item)
	}
	return strings.Join(items, ",")
}

// Lists of expressions agree with a walk over each minute of a window. Run it with -rapid.checks=4800 for the figure in
// the notes.
func TestCronListsAgainstEveryMinute(t *testing.T) {
	all := windows()
	rapid.Check(t, func(t *rapid.T) {
		w := all[rapid.IntRange(0, len(all)-1).Draw(t, "window")]
		policy := rapid.SampledFrom(everyDST).Draw(t, "policy")
		var list []string
		var want []int64
		for range rapid.IntRange(1, 3).Draw(t, "expressions") {
			expression := strings.Join([]string{
				drawField(t, 0, 59, 1), drawField(t, 0, 23, 3), drawField(t, 1, 31, 6), drawField(t, 1, 12, 9), drawField(t, 0, 6, 6),
			}, " ")
			list = append(list, expression)
			n := readNaive(expression)
			want = append(want, n.nominal(w.first, w.walls)[policy]...)
		}
		slices.Sort(want)
		want = slices.Compact(want)
		s, err := Compile(cronIn(w.zone, policy, list...), time.Unix(w.first*60, 0), 7)
		if err != nil && strings.Contains(err.Error(), "no instant") {
			t.Skip("an expression has no instant")
		}
		if err != nil {
			t.Fatalf("%q: %v", list, err)
		}
		at, end := time.Unix(w.first*60-1, 0), time.Unix((w.first+int64(len(w.walls)))*60, 0)
		for i := 0; ; i++ {
			next, ok := s.Next(at)
			if !ok || !next.Before(end) {
				if i != len(want) {
					t.Fatalf("%q %v in %s: %d times, want %d; the last one is %v", list, policy, w.zone, i, len(want), at.UTC())
				}
				return
			}
			if i >= len(want) || next.Unix() != want[i]*60 {
				t.Fatalf("%q %v in %s: after %v comes %v", list, policy, w.zone, at.UTC(), next)
			}
			if prev, ok := s.Prev(next.Add(time.Millisecond)); !ok || !prev.Equal(next) {
				t.Fatalf("%q %v in %s: Prev of %v is %v", list, policy, w.zone, next, prev)
			}
			at = next
		}
	})
}
