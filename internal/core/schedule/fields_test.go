package schedule

import (
	"fmt"
	"strings"
	"testing"
	"time"

	cron "github.com/netresearch/go-cron"
	"pgregory.net/rapid"
)

func drawExpression(t *rapid.T) string {
	number := func(low, high int) string { return fmt.Sprint(rapid.IntRange(low, high).Draw(t, "n")) }
	field := func(low, high int, special ...string) string {
		items := make([]string, rapid.IntRange(1, 3).Draw(t, "items"))
		for i := range items {
			switch k := rapid.IntRange(0, 4+len(special)).Draw(t, "shape"); k {
			case 0, 1:
				items[i] = number(low, high)
			case 2:
				items[i] = number(low, high) + "-" + number(low, high)
			case 3:
				return "*"
			case 4:
				return "*/" + number(2, (high-low)/2)
			default:
				items[i] = special[k-5]
			}
		}
		return strings.Join(items, ",")
	}
	return strings.Join([]string{
		field(0, 59), field(0, 59), field(0, 23),
		field(1, 31, "L", "L-3", "L-30", "LW", "15W", "1W", "31W"), field(1, 12),
		field(0, 6, "1#1", "5#3", "2#5", "0#L", "MON", "7"),
	}, " ")
}

// In UTC the grammar library's own evaluation is sound; ours must agree.
func TestFieldsAgreeWithLibrary(t *testing.T) {
	parser := cron.MustNewParser(grammar | cron.Second | cron.DowOrDom).WithMaxSearchYears(30)
	rapid.Check(t, func(t *rapid.T) {
		expr := drawExpression(t)
		parsed, err := parser.Parse(expr)
		if err != nil {
			t.Fatalf("%q: %v", expr, err)
		}
		spec := parsed.(*cron.SpecSchedule)
		spec.Location = time.UTC
		f, _, err := parseFields(expr, true, 7)
		if err != nil {
			t.Fatalf("%q: %v", expr, err)
		}
		words := strings.Fields(expr)
		spec.DowOrDom = words[3][0] != '*' && words[5][0] != '*'
		at := time.Unix(rapid.Int64Range(-3e9, 6e9).Draw(t, "at"), 0).UTC()
		if want := spec.Next(at.Add(-time.Second)); !want.IsZero() {
			if got, ok := f.nextMatch(at.Unix()); !ok || got != want.Unix() {
				t.Fatalf("%q: next(%v) = %v, want %v", expr, at, time.Unix(got, 0).UTC(), want)
			}
		} else if got, ok := f.nextMatch(at.Unix()); ok && time.Unix(got, 0).UTC().Year() < at.Year()+30 {
			t.Fatalf("%q: next(%v) = %v, want none", expr, at, time.Unix(got, 0).UTC())
		}
		if want := spec.Prev(at.Add(time.Second)); !want.IsZero() {
			if got, ok := f.prevMatch(at.Unix()); !ok || got != want.Unix() {
				t.Fatalf("%q: prev(%v) = %v, want %v", expr, at, time.Unix(got, 0).UTC(), want)
			}
		} else if got, ok := f.prevMatch(at.Unix()); ok && time.Unix(got, 0).UTC().Year() > at.Year()-30 {
			t.Fatalf("%q: prev(%v) = %v, want none", expr, at, time.Unix(got, 0).UTC())
		}
	})
}
