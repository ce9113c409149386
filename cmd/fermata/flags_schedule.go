package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/fermata-io/fermata/client"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// scheduleFlags describe a schedule.
type scheduleFlags struct {
	every      time.Duration
	fixedDelay bool
	cron       []string
	seconds    bool
	zone       string
	dstGap     string
	dstRepeat  string
	at         string
	in         time.Duration
	start, end string
}

func (s *scheduleFlags) register(f *pflag.FlagSet) {
	f.DurationVar(&s.every, "every", 0, "run at a fixed rate, such as 30s or 1h30m")
	f.BoolVar(&s.fixedDelay, "fixed-delay", false, "with --every: count from the end of the previous run")
	f.StringArrayVar(&s.cron, "cron", nil, "run by a cron expression of five fields, or @daily and the like; may be repeated")
	f.BoolVar(&s.seconds, "seconds", false, "with --cron: expressions have a leading field of seconds")
	f.StringVar(&s.zone, "tz", "", "time zone of --cron, --at, --start and --end, such as Europe/Berlin (default UTC for --cron, else the local one)")
	f.StringVar(&s.dstGap, "dst-gap", "", "with --cron: shift or skip fixed times that a clock change leaves out (default shift)")
	f.StringVar(&s.dstRepeat, "dst-repeat", "", "with --cron: first, last or both passes of fixed times that a clock change repeats (default first)")
	f.StringVar(&s.at, "at", "", "run once at a time, such as 2030-01-31T12:00:00Z or '2030-01-31 12:00'")
	f.DurationVar(&s.in, "in", 0, "run once after a while, such as 10m")
	f.StringVar(&s.start, "start", "", "no run before this time; also the phase of --every")
	f.StringVar(&s.end, "end", "", "no run after this time")
}

// schedule returns what the flags describe; nil when none of them is set.
func (s *scheduleFlags) schedule(changed func(string) bool, now time.Time) (*client.Schedule, error) {
	if err := s.fit(changed); err != nil {
		return nil, err
	}
	location := time.Local
	if s.zone != "" {
		var err error
		if location, err = time.LoadLocation(s.zone); err != nil {
			return nil, usagef("--tz: %w", err)
		}
	}
	start, err := parseTime("--start", s.start, location)
	if err != nil {
		return nil, err
	}
	end, err := parseTime("--end", s.end, location)
	if err != nil {
		return nil, err
	}
	rule, err := s.rule(changed, now, location)
	if err != nil {
		return nil, err
	}
	if rule == nil && (start != nil || end != nil) {
		return nil, usagef("--start and --end need --every or --cron")
	}
	if rule != nil {
		rule.StartTime, rule.EndTime = start, end
	}
	return rule, nil
}

func (s *scheduleFlags) rule(changed func(string) bool, now time.Time, location *time.Location) (*client.Schedule, error) {
	switch {
	case changed("every") && s.fixedDelay:
		return client.FixedDelay(s.every), nil
	case changed("every"):
		return client.Every(s.every), nil
	case changed("cron"):
		gap, err := enumValue(fermatav1.DstGap_value, "DST_GAP_", "--dst-gap", s.dstGap)
		if err != nil {
			return nil, err
		}
		repeat, err := enumValue(fermatav1.DstRepeat_value, "DST_REPEAT_", "--dst-repeat", s.dstRepeat)
		return &client.Schedule{Rule: &fermatav1.Schedule_Cron{Cron: &fermatav1.CronSchedule{
			Expressions: s.cron, TimeZone: s.zone, Seconds: s.seconds,
			DstGap: fermatav1.DstGap(gap), DstRepeat: fermatav1.DstRepeat(repeat),
		}}}, err
	case changed("at"):
		at, err := parseTime("--at", s.at, location)
		return &client.Schedule{Rule: &fermatav1.Schedule_Once{Once: at}}, err
	case changed("in"):
		if s.in < 0 {
			return nil, usagef("--in %v: must not be negative", s.in)
		}
		return client.Once(now.Add(s.in).Truncate(time.Millisecond)), nil
	}
	return nil, nil
}

// fit refuses combinations in which a flag would be ignored.
func (s *scheduleFlags) fit(changed func(string) bool) error {
	var rules []string
	for _, name := range []string{"every", "cron", "at", "in"} {
		if changed(name) {
			rules = append(rules, "--"+name)
		}
	}
	if len(rules) > 1 {
		return usagef("%s exclude each other", strings.Join(rules, " and "))
	}
	needs := []struct {
		flag string
		one  []string
	}{
		{"fixed-delay", []string{"every"}},
		{"seconds", []string{"cron"}},
		{"dst-gap", []string{"cron"}},
		{"dst-repeat", []string{"cron"}},
		{"tz", []string{"cron", "at", "start", "end"}},
	}
	for _, n := range needs {
		met := !changed(n.flag)
		for _, other := range n.one {
			met = met || changed(other)
		}
		if !met {
			return usagef("--%s needs --%s", n.flag, strings.Join(n.one, " or --"))
		}
	}
	return nil
}

var timeLayouts = []string{"2006-01-02T15:04:05", "2006-01-02 15:04:05", "2006-01-02T15:04", "2006-01-02 15:04", "2006-01-02"}

func parseTime(flag, text string, location *time.Location) (*timestamppb.Timestamp, error) {
	if text == "" {
		return nil, nil
	}
	if t, err := time.Parse(time.RFC3339Nano, text); err == nil {
		return timestamppb.New(t), nil
	}
	for _, layout := range timeLayouts {
		if t, err := time.ParseInLocation(layout, text, location); err == nil {
			return timestamppb.New(t), nil
		}
	}
	return nil, usagef("%s %q: want a time such as 2030-01-31T12:00:00Z or '2030-01-31 12:00'", flag, text)
}

// enumValue finds the number of an enum value by its name in lower case without
// prefix. Empty is unspecified.
func enumValue(values map[string]int32, prefix, what, text string) (int32, error) {
	if text == "" {
		return 0, nil
	}
	if n, ok := values[prefix+strings.ToUpper(text)]; ok && n != 0 {
		return n, nil
	}
	names := make([]string, len(values))
	for name, n := range values {
		if int(n) < len(names) {
			names[n] = strings.ToLower(strings.TrimPrefix(name, prefix))
		}
	}
	return 0, usage(fmt.Errorf("%s %q: want one of %s", what, text, strings.Join(names[1:], ", ")))
}
