package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/fermata-io/fermata/client"
	"github.com/fermata-io/fermata/internal/cli/config"
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
	jitter     time.Duration
	maxRuns    int32
	calendar   calendarFlags
	without    exclusionFlags
	// shows: --tz is also the zone in which times are written.
	shows bool
	// read holds the times that were read from the flags.
	read *timeReader
}

// exclusionFlags describe times that the schedule leaves out.
type exclusionFlags struct {
	cron, dates, windows, periods []string
}

func (s *scheduleFlags) registerFlags(f *pflag.FlagSet) {
	config.DurationVar(f, &s.every, "every", 0, "run at a fixed rate, such as 30s or 1h30m")
	f.BoolVar(&s.fixedDelay, "fixed-delay", false, "with --every: count from the end of the previous run")
	f.StringArrayVar(&s.cron, "cron", nil, "run by a cron expression of five fields, in which H is a number spread "+
		"over jobs, or @daily and the like; may be repeated")
	f.StringVar(&s.calendar.every, "calendar", "",
		"run at local times in every day, week or month, or in each '2 weeks', '3 days' and the like")
	f.StringSliceVar(&s.calendar.on, "on", nil,
		"with --calendar: days of the week (MON,THU) or of the month (1, 31, or last; in a short month the last one)")
	f.StringSliceVar(&s.calendar.times, "time", nil, "with --calendar: local times of day, such as 09:00; required")
	f.StringVar(&s.calendar.from, "from-day", "",
		"with --calendar: local day in the first period that counts, such as 2026-11-30 (default today, or that of "+
			"--start if it is later)")
	f.BoolVar(&s.calendar.skipShort, "skip-short-months", false,
		"with --calendar month: leave out months that do not have a day of --on")
	f.BoolVar(&s.seconds, "seconds", false, "with --cron: expressions have a leading field of seconds")
	f.StringVar(&s.zone, "tz", "", "time zone of --cron, --calendar, --exclude-..., --at, --start and --end, such "+
		"as Europe/Berlin (default UTC for --cron, --calendar and exclusions, else the local one)")
	f.StringVar(&s.dstGap, "dst-gap", "", "with --cron or --calendar: shift or skip fixed times that a clock "+
		"change leaves out (default shift)")
	f.StringVar(&s.dstRepeat, "dst-repeat", "",
		"with --cron or --calendar: first, last or both passes of fixed times that a clock change repeats (default "+
			"first)")
	f.StringVar(&s.at, "at", "", "run once at a time, such as 2030-01-31T12:00:00Z or '2030-01-31 12:00'")
	config.DurationVar(f, &s.in, "in", 0, "run once after a while, such as 10m")
	f.StringVar(&s.start, "start", "", "no run before this time; also the phase of --every")
	f.StringVar(&s.end, "end", "", "no run is planned for this time or later")
	config.DurationVar(f, &s.jitter, "schedule-jitter", 0,
		"spread due times over this period after the scheduled time, by the same offset for each run")
	f.Int32Var(&s.maxRuns, "max-runs", 0, "end the schedule after this many runs (default no limit)")
	f.StringArrayVar(&s.without.cron, "exclude-cron", nil,
		"leave out times that match a cron expression; may be repeated")
	f.StringSliceVar(&s.without.dates, "exclude-date", nil,
		"leave out local days: 2026-12-25, 2026-12-24/2027-01-02, or 12-25 of every year")
	f.StringArrayVar(&s.without.windows, "exclude-window", nil,
		"leave out local times of the week: 22:00-06:00, Sat,Sun or 'Mon-Fri 12:00-13:00'; may be repeated")
	f.StringArrayVar(&s.without.periods, "exclude-period", nil,
		"leave out a period, START/END without END; may be repeated")
}

// buildSchedule returns the schedule of the flags, or nil if none is set, and the paths of the set fields. It
// has no rule if the flags change only other settings of an existing job's schedule; see checkComplete.
func (s *scheduleFlags) buildSchedule(changed func(string) bool, now time.Time) (*client.Schedule, []string, error) {
	if err := s.checkCombination(changed); err != nil {
		return nil, nil, err
	}
	times, err := s.newTimeReader()
	if err != nil {
		return nil, nil, err
	}
	schedule, err := s.buildRule(changed, now, times)
	if err != nil {
		return nil, nil, err
	}
	var paths []string
	switch schedule.GetRule().(type) {
	case *fermatav1.Schedule_Interval:
		paths = append(paths, "schedule.interval")
	case *fermatav1.Schedule_Cron:
		paths = append(paths, "schedule.cron")
	case *fermatav1.Schedule_Calendar:
		paths = append(paths, "schedule.calendar")
	case *fermatav1.Schedule_Once:
		if at := schedule.GetOnce().AsTime(); changed("at") && at.Before(now) {
			times.addRemark("--at %s is past by %s: the job runs at once", s.at, durationText(now.Sub(at)))
		}
		return schedule, []string{"schedule"}, nil // takes none of the settings below
	}
	if schedule == nil {
		schedule = &client.Schedule{}
	}
	settings := []struct {
		path  string
		flags []string
		set   func() error
	}{
		{"start_time", []string{"start"}, func() (err error) {
			schedule.StartTime,
				err = times.parseOptional("--start", s.start)
			return
		}},
		{"end_time", []string{"end"}, func() (err error) {
			schedule.EndTime,
				err = times.parseOptional("--end", s.end)
			return
		}},
		{"jitter", []string{"schedule-jitter"},
			func() error { schedule.Jitter = durationpb.New(s.jitter); return nil }},
		{"max_runs", []string{"max-runs"}, func() error { schedule.MaxRuns = s.maxRuns; return nil }},
		{"exclusions", exclusionNames, func() (err error) {
			schedule.Exclusions,
				err = s.buildExclusions(schedule, times)
			return
		}},
	}
	for _, setting := range settings {
		if !slices.ContainsFunc(setting.flags, changed) {
			continue
		}
		if err := setting.set(); err != nil {
			return nil, nil, err
		}
		paths = append(paths, "schedule."+setting.path)
	}
	if len(paths) == 0 {
		return nil, nil, nil
	}
	if end := schedule.GetEndTime(); end != nil && end.AsTime().Before(now) {
		times.addRemark("--end %s is past: no run is planned", s.end)
	}
	return schedule, paths, nil
}

var exclusionNames = []string{"exclude-cron", "exclude-date", "exclude-window", "exclude-period"}

// checkComplete refuses settings of a schedule that come without one.
func checkComplete(s *client.Schedule) error {
	if s != nil && s.GetRule() == nil {
		return usageErrorf("--start, --end, --schedule-jitter, --max-runs and --exclude-... need --every, --cron " +
			"or --calendar")
	}
	return nil
}

func (s *scheduleFlags) loadZone() (*time.Location, error) {
	if s.zone == "" {
		return time.Local, nil
	}
	location, err := time.LoadLocation(s.zone)
	if err != nil {
		return nil, usageErrorf("--tz: %w", err)
	}
	return location, nil
}

// newTimeReader returns the reader of the times in the flags.
func (s *scheduleFlags) newTimeReader() (*timeReader, error) {
	location, err := s.loadZone()
	s.read = &timeReader{location: location}
	return s.read, err
}

// buildExclusions returns nil if all values are empty, which removes the exclusions.
func (s *scheduleFlags) buildExclusions(schedule *client.Schedule, times *timeReader) (*fermatav1.Exclusions, error) {
	e := &fermatav1.Exclusions{
		Cron: nonEmpty(s.without.cron), Dates: nonEmpty(s.without.dates), Windows: nonEmpty(s.without.windows),
	}
	for _, period := range nonEmpty(s.without.periods) {
		from, to, ok := strings.Cut(period, "/")
		if !ok || from == "" || to == "" {
			return nil, usageErrorf("--exclude-period %q: want START/END", period)
		}
		start, err := times.parseOptional("--exclude-period", from)
		if err != nil {
			return nil, err
		}
		end, err := times.parseOptional("--exclude-period", to)
		if err != nil {
			return nil, err
		}
		e.Periods = append(e.Periods, &fermatav1.Exclusions_Period{StartTime: start, EndTime: end})
	}
	if len(e.Cron)+len(e.Dates)+len(e.Windows)+len(e.Periods) == 0 {
		return nil, nil
	}
	if schedule.GetCron() == nil && schedule.GetCalendar() == nil {
		e.TimeZone = s.zone
	}
	return e, nil
}

// nonEmpty returns the texts that are not empty.
func nonEmpty(texts []string) []string {
	return slices.DeleteFunc(slices.Clone(texts), func(s string) bool { return strings.TrimSpace(s) == "" })
}

func (s *scheduleFlags) buildRule(changed func(string) bool, now time.Time, times *timeReader) (*client.Schedule,
	error) {
	switch {
	case changed("every") && s.fixedDelay:
		return client.FixedDelay(s.every), nil
	case changed("every"):
		return client.Every(s.every), nil
	case changed("cron"):
		gap, repeat, err := s.clockChangeRules()
		return &client.Schedule{Rule: &fermatav1.Schedule_Cron{Cron: &fermatav1.CronSchedule{
			Expressions: s.cron, TimeZone: s.zone, Seconds: s.seconds, DstGap: gap, DstRepeat: repeat,
		}}}, err
	case changed("calendar"):
		c, err := s.calendar.buildSchedule()
		if err != nil {
			return nil, err
		}
		c.TimeZone = s.zone
		c.DstGap, c.DstRepeat, err = s.clockChangeRules()
		return &client.Schedule{Rule: &fermatav1.Schedule_Calendar{Calendar: c}}, err
	case changed("at"):
		at, err := times.parseOptional("--at", s.at)
		if at == nil && err == nil {
			err = usageErrorf("--at is empty: give a time, or --in 0s for now")
		}
		return &client.Schedule{Rule: &fermatav1.Schedule_Once{Once: at}}, err
	case changed("in"):
		if s.in < 0 {
			return nil, usageErrorf("--in %v: must not be negative", s.in)
		}
		return client.Once(now.Add(s.in)), nil
	}
	return nil, nil
}

func (s *scheduleFlags) clockChangeRules() (fermatav1.DstGap, fermatav1.DstRepeat, error) {
	gap, err := enumValue(fermatav1.DstGap_value, "DST_GAP_", "--dst-gap", s.dstGap)
	if err != nil {
		return 0, 0, err
	}
	repeat, err := enumValue(fermatav1.DstRepeat_value, "DST_REPEAT_", "--dst-repeat", s.dstRepeat)
	return fermatav1.DstGap(gap), fermatav1.DstRepeat(repeat), err
}

// checkCombination refuses combinations in which a flag would be ignored.
func (s *scheduleFlags) checkCombination(changed func(string) bool) error {
	var rules []string
	for _, name := range []string{"every", "cron", "calendar", "at", "in"} {
		if changed(name) {
			rules = append(rules, "--"+name)
		}
	}
	if len(rules) > 1 {
		return usageErrorf("%s exclude each other", strings.Join(rules, " and "))
	}
	if changed("at") || changed("in") {
		for _, name := range append([]string{"start", "end", "schedule-jitter", "max-runs"}, exclusionNames...) {
			if changed(name) {
				return usageErrorf("%s takes no --%s", rules[0], name)
			}
		}
	}
	needs := []struct {
		flag string
		one  []string
	}{
		{"fixed-delay", []string{"every"}},
		{"seconds", []string{"cron"}},
		{"dst-gap", []string{"cron", "calendar"}},
		{"dst-repeat", []string{"cron", "calendar"}},
		{"on", []string{"calendar"}},
		{"time", []string{"calendar"}},
		{"from-day", []string{"calendar"}},
		{"skip-short-months", []string{"calendar"}},
		{"tz", append([]string{"cron", "calendar", "at", "start", "end"}, exclusionNames...)},
	}
	for _, n := range needs {
		met := !changed(n.flag) || (n.flag == "tz" && s.shows)
		for _, other := range n.one {
			met = met || changed(other)
		}
		if !met {
			return usageErrorf("--%s needs --%s", n.flag, strings.Join(n.one, " or --"))
		}
	}
	return nil
}

// enumValue returns the number of an enum value from its lower-case name without prefix, with parts joined by -
// or _. The empty name is unspecified.
func enumValue(values map[string]int32, prefix, what, text string) (int32, error) {
	if text == "" {
		return 0, nil
	}
	if n, ok := values[prefix+strings.ToUpper(strings.ReplaceAll(text, "-", "_"))]; ok && n != 0 {
		return n, nil
	}
	names := make([]string, len(values))
	for name, n := range values {
		if int(n) < len(names) {
			names[n] = strings.ReplaceAll(strings.ToLower(strings.TrimPrefix(name, prefix)), "_", "-")
		}
	}
	return 0, newUsageError(fmt.Errorf("%s %q: want one of %s", what, text, strings.Join(names[1:], ", ")))
}
