package forecast

import (
	"encoding/binary"
	"strings"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/schedule"
)

const (
	minuteMS = 60_000
	// MaxHorizon is how far ahead a forecast reaches.
	MaxHorizon = 24 * time.Hour
	// reach is how far ahead of its read a job is looked at: the horizon, and the age that a read may have.
	reach = MaxHorizon + 4*time.Hour
	// delaySamples is how many jittered delays the mean delay of a failing job is taken of.
	delaySamples = 16
)

// advice is how the jobs of a herd can be spread.
type advice uint8

const (
	adviseNothing advice = iota
	adviseCron
	adviseCalendar
	adviseInterval
)

// pattern is what the occurrences of a group of jobs have in common.
type pattern struct {
	text      string // for people
	advice    advice // adviseNothing: the times are spread already
	estimated bool
	// every is the distance of the occurrences of an interval in ms, cell the first phase of the pattern; 0: the
	// schedule has the occurrences.
	every, cell int64
	// times has the occurrences, or, of an interval, the exclusions; nil: none.
	times *schedule.Schedule
	after int64 // occurrences are later than this, ms; 0: no bound
	// unplanned: while after lies ahead, the first occurrence is not the planned run.
	unplanned bool
	until     int64 // occurrences are earlier than this, ms; 0: no bound
	jitter    int64 // ms
	weight    int64 // steps that an occurrence takes
}

// patternReader reads the pattern of one job after the other.
type patternReader struct {
	key    []byte // identifies the pattern
	zones  schedule.Zones
	p      pattern
	spec   schedule.Spec
	anchor time.Time // with which the spec is compiled
	offset int64     // of the phase in its cell
}

// read returns false if no occurrence follows the planned run of the job.
func (r *patternReader) read(d *job.Definition, s *job.State, nowMS int64) bool {
	*r = patternReader{key: r.key[:0], zones: r.zones, spec: d.Schedule, anchor: time.UnixMilli(nowMS)}
	hashed := d.Schedule.UsesHash()
	if hashed {
		r.spec = d.Schedule.ResolveHash(d.ScheduleSeed())
	}
	r.p.jitter = r.spec.Jitter.Milliseconds()
	r.p.estimated = r.p.jitter > 0
	r.p.advice = adviceFor(&r.spec, hashed)
	if !r.readTimes(d, s, nowMS) {
		return false
	}
	r.setBounds(d, s, nowMS)
	return r.p.until == 0 || r.p.until > nowMS
}

// adviceFor returns how jobs with a schedule can be spread.
func adviceFor(spec *schedule.Spec, hashed bool) advice {
	switch {
	case hashed || spec.Jitter > 0 || spec.FixedDelay:
		return adviseNothing
	case spec.Kind == schedule.KindCalendar:
		return adviseCalendar
	case isEvery(spec), spec.Kind == schedule.KindInterval:
		return adviseInterval
	}
	return adviseCron
}

// isEvery reports whether a cron schedule is an interval.
func isEvery(spec *schedule.Spec) bool {
	return spec.Kind == schedule.KindCron && len(spec.Cron) == 1 &&
		strings.HasPrefix(strings.TrimSpace(spec.Cron[0]), "@every")
}

// readTimes sets the times of the pattern, but for its bounds.
func (r *patternReader) readTimes(d *job.Definition, s *job.State, nowMS int64) bool {
	switch {
	case !d.Recurring():
		return false
	case d.Schedule.Kind == schedule.KindInterval || isEvery(&d.Schedule):
		return r.readInterval(d, s, nowMS)
	}
	if r.spec.Kind == schedule.KindCalendar {
		r.spec.Calendar.From = r.spec.FirstDay(d.AnchorMS.Time())
	}
	if !r.spec.StartAt.After(time.UnixMilli(nowMS)) {
		r.spec.StartAt = time.Time{}
	}
	return true
}

// readInterval sets the grid of an interval: that of its schedule, or that of the waits of backoff, or of a fixed
// delay.
func (r *patternReader) readInterval(d *job.Definition, s *job.State, nowMS int64) bool {
	grid := d.Schedule
	grid.Exclude = schedule.Exclusions{}
	if grid.Kind == schedule.KindInterval {
		grid.TimeZone = "" // of the exclusions
	}
	compiled, err := schedule.Compile(grid, d.AnchorMS.Time(), 0)
	if err != nil {
		return false
	}
	now := time.UnixMilli(nowMS)
	r.p.every = compiled.Period(now).Milliseconds()
	if r.isDelayed(d, s) {
		r.readDelay(d, s, nowMS)
	} else {
		first, ok := compiled.Next(now)
		if !ok {
			return false
		}
		r.setPhase(first.UnixMilli())
		if first.UnixMilli() > nowMS+r.p.every {
			r.p.after = first.UnixMilli() - 1
		}
	}
	r.spec.StartAt = time.Time{} // it is in the phase
	return r.p.every <= reach.Milliseconds()
}

// isDelayed reports whether the intervals of a job count from the end of its runs.
func (r *patternReader) isDelayed(d *job.Definition, s *job.State) bool {
	return d.Schedule.FixedDelay || s.Failures > 0 && d.Schedule.Kind == schedule.KindInterval && !d.Backoff.Disabled
}

// readDelay supposes that a job goes on with the interval that backoff gives it now, and with runs as long as the
// last one.
func (r *patternReader) readDelay(d *job.Definition, s *job.State, nowMS int64) {
	if s.Failures > 0 && !d.Backoff.Disabled {
		r.p.every = max(1, meanDelay(d, s).Milliseconds())
	}
	r.p.every += max(0, int64(s.LastFinished-s.LastStarted))
	r.p.estimated, r.p.advice = true, adviseNothing
	r.p.jitter, r.spec.Jitter = 0, 0
	due := int64(s.Due)
	r.setPhase(max(due, nowMS))
	if due > nowMS+r.p.every {
		r.p.after = roundUpMS(due) - minuteMS
	}
}

// setPhase sets the phase of an interval by one of its times.
func (r *patternReader) setPhase(ms int64) {
	phase, cell := ms%r.p.every, cellOf(r.p.every)
	r.p.cell = phase / cell * cell
	r.offset = phase - r.p.cell
}

// cellOf returns to how much phases of an interval are rounded, ms: there are at most 24 cells, but for short intervals
// of less than 24 minutes, whose cells are a minute or a tenth.
func cellOf(everyMS int64) int64 { return max(1, min(minuteMS, everyMS/10), everyMS/24) }

// meanDelay returns the mean of the intervals that backoff gives a failing job.
func meanDelay(d *job.Definition, s *job.State) time.Duration {
	sum := time.Duration(0)
	for seed := range uint64(delaySamples) {
		sum += d.Backoff.Delay(d.Schedule.Every, int64(s.Failures), d.MinInterval, d.MaxInterval, seed) / delaySamples
	}
	return sum
}

// setBounds sets from when and until when there are occurrences, and drops what does not matter within reach, so that
// more jobs have the same pattern.
func (r *patternReader) setBounds(d *job.Definition, s *job.State, nowMS int64) {
	last := nowMS + reach.Milliseconds()
	if end := r.spec.EndAt; !end.IsZero() && end.UnixMilli() <= last {
		r.p.until = schedule.RoundDown(end).UnixMilli()
	}
	r.spec.EndAt = time.Time{}
	if !isPlanned(s) && !s.Live() && int64(s.Due) > nowMS {
		r.p.after, r.p.unplanned = max(r.p.after, roundUpMS(int64(s.Due))), true
	}
	if d.Schedule.MaxRuns > 0 {
		left := int64(d.Schedule.MaxRuns) - int64(s.Fired) - 1
		r.spec.MaxRuns = 0
		end := r.endAfter(left, max(nowMS, int64(s.Nominal)), last)
		if end != 0 && (r.p.until == 0 || end < r.p.until) {
			r.p.until = end
		}
	}
}

// endAfter returns the end of a schedule that has so many occurrences left after one; 0: it is out of reach.
func (r *patternReader) endAfter(left, from, last int64) int64 {
	if left <= 0 {
		return 1
	}
	if r.p.every > 0 {
		if left > (last-from)/r.p.every {
			return 0
		}
		return roundUpMS(from + left*r.p.every + r.p.every/2)
	}
	p := r.p
	if left > reach.Milliseconds()/1000 || r.compile(&p) != nil {
		return 0
	}
	end := int64(0)
	p.times.CountByMinute(time.UnixMilli(from), time.UnixMilli(last), schedule.NewBudget(1), func(at time.Time,
		n int64) bool {
		left -= n
		if left <= 0 {
			end = roundUpMS(at.UnixMilli() + 1)
		}
		return left > 0
	})
	return end
}

// roundUpMS rounds up to a minute, so that few bounds differ.
func roundUpMS(ms int64) int64 { return (ms + minuteMS - 1) / minuteMS * minuteMS }

// isPlanned reports whether the current run of a job is the planned one of its schedule, at its time: the occurrence
// that follows is not planned yet.
func isPlanned(s *job.State) bool {
	switch s.Source {
	case job.DelaySchedule, job.DelayJitter, job.DelayBackoff:
		return s.Region == job.RegionDue && s.Trigger == job.TriggerSchedule && s.Attempt == 0
	}
	return false
}

// appendKey completes the key.
func (r *patternReader) appendKey() []byte {
	b := append(r.key[:0], byte(r.p.advice))
	for _, n := range [...]int64{r.p.every, r.p.cell, r.p.after, r.p.until} {
		b = binary.AppendVarint(b, n)
	}
	for _, set := range [...]bool{r.p.estimated, r.p.unplanned} {
		if set {
			b = append(b, 1)
		}
		b = append(b, 0)
	}
	r.key = r.spec.AppendCanonical(b)
	return r.key
}

// compile sets the schedule and the text of the pattern.
func (r *patternReader) compile(p *pattern) error {
	p.text, p.weight = describe(&r.spec), 1
	if p.every > 0 && r.spec.Exclude.Empty() {
		return nil
	}
	times, err := schedule.CompileSharing(r.spec, r.anchor, 0, r.zones)
	p.times, p.weight = times, stepWeight*int64(r.spec.Weight())
	return err
}

// describe returns a schedule as people write it.
func describe(spec *schedule.Spec) string {
	switch spec.Kind {
	case schedule.KindCron:
		return strings.Join(spec.Cron, "; ")
	case schedule.KindCalendar:
		return spec.Calendar.Unit.String() + " " + strings.Join(spec.Calendar.Times, ",")
	}
	return "every " + formatInterval(spec.Every)
}

// formatInterval returns a duration without the units that are zero.
func formatInterval(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = text[:len(text)-2]
	}
	if strings.HasSuffix(text, "h0m") {
		text = text[:len(text)-2]
	}
	return text
}
