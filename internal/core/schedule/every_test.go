package schedule

import (
	"reflect"
	"testing"
	"time"
)

// TestEveryTakesWeeksAndDays: a day is 24 hours, and what is stored has no days.
func TestEveryTakesWeeksAndDays(t *testing.T) {
	for text, want := range map[string]string{
		"@every 7d": "@every 168h0m0s", "@every 2w": "@every 336h0m0s", " @every 1d12h": "@every 36h0m0s",
		"@every 90m": "@every 90m", "@every 1d1": "@every 1d1", "@daily": "@daily", "0 0 * * WED": "0 0 * * WED", "@every soon": "@every soon",
	} {
		if got := WithoutDays([]string{text}); !reflect.DeepEqual(got, []string{want}) {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
	if got := WithoutDays(nil); got != nil {
		t.Errorf("no expressions became %q", got)
	}
	s, err := Compile(Spec{Kind: KindCron, Cron: []string{"@every 1w"}}, time.Unix(0, 0), 1)
	if err != nil {
		t.Fatal(err)
	}
	first, _ := s.Next(time.Unix(1, 0))
	second, _ := s.Next(first)
	if second.Sub(first) != 168*time.Hour {
		t.Errorf("from %v to %v", first, second)
	}
}
