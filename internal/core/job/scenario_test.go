package job

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fermata-io/fermata/internal/core/backoff"
	"github.com/fermata-io/fermata/internal/core/schedule"
	"github.com/fermata-io/fermata/internal/core/unixtime"
)

var update = flag.Bool("update", false, "rewrite what the scenarios answer")

// TestScenarios plays the scripts in testdata/scenarios. A line is a command;
// indented lines below it are what it must answer. Times are counted from noon,
// Monday 2027-01-04 UTC, when the job is created.
func TestScenarios(t *testing.T) {
	paths, err := filepath.Glob("testdata/scenarios/*.txt")
	if err != nil || len(paths) < 25 {
		t.Fatalf("%d scenarios, %v", len(paths), err)
	}
	for _, path := range paths {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txt"), func(t *testing.T) {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			got := playScript(t, string(text))
			if *update {
				if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if got != string(text) {
				t.Errorf("got:\n%s", got)
			}
		})
	}
}

// playScript returns the script with its answers.
func playScript(t *testing.T, text string) string {
	p := &player{t: t, begun: map[uint64]unixtime.Milli{}}
	var out strings.Builder
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		if strings.HasPrefix(line, "  ") {
			continue // an answer
		}
		out.WriteString(line + "\n")
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		for _, answer := range p.play(line) {
			out.WriteString("  " + answer + "\n")
		}
		if p.f != nil {
			if err := p.f.check(); err != nil {
				t.Fatalf("after %q: %v", line, err)
			}
		}
	}
	return out.String()
}

// noon is when scenarios begin.
var noon = time.Date(2027, 1, 4, 12, 0, 0, 0, time.UTC)

type player struct {
	t     *testing.T
	f     *family
	d     Definition
	begun map[uint64]unixtime.Milli // when attempts started, by token
}

// words are the arguments of a command: plain ones, and key=value pairs.
type words struct {
	plain []string
	pairs map[string]string
}

func split(line string) words {
	w := words{pairs: map[string]string{}}
	for _, field := range strings.Fields(line) {
		if k, v, ok := strings.Cut(field, "="); ok {
			w.pairs[k] = strings.ReplaceAll(v, "_", " ")
		} else {
			w.plain = append(w.plain, field)
		}
	}
	return w
}

func (p *player) duration(text string) time.Duration {
	d, err := time.ParseDuration(strings.TrimPrefix(text, "+"))
	if err != nil {
		p.t.Fatal(err)
	}
	return d
}

func (p *player) number(text string) int {
	n, err := strconv.Atoi(text)
	if err != nil {
		p.t.Fatal(err)
	}
	return n
}

// play does one command.
func (p *player) play(line string) []string {
	verb, rest, _ := strings.Cut(line, " ")
	w := split(rest)
	f := p.f
	switch verb {
	case "job":
		p.d = p.define(rest)
		c := compile(p.t, p.d)
		p.f = &family{c: c, parent: New(c, unixtime.MilliOf(noon)).State, children: map[int]State{}, now: unixtime.MilliOf(noon), live: map[uint64]bool{}}
		return p.show()
	case "advance":
		f.now = f.now.Add(p.duration(w.plain[0]))
		return []string{"it is " + p.at(f.now)}
	case "show":
		return p.show()
	case "explain":
		return p.explain(w)
	case "lease":
		return p.lease(w)
	case "child":
		slot := p.number(w.plain[0])
		return p.told(f.onChild(slot, p.ending(w.plain[1], rest, f.children[slot].Token)).Parent)
	case "redrive":
		if len(w.plain) == 0 {
			return p.told(f.on(Redrive{}))
		}
		n := p.number(w.plain[0])
		pair := DecideChild(f.c, f.parent, f.letters[n], Redrive{}, f.now)
		if pair.Child.Delete {
			f.letters = slices.Delete(f.letters, n, n+1)
		}
		f.store(pair.Parent, 0)
		return p.told(pair.Parent)
	}
	return p.told(f.on(p.event(verb, rest, w)))
}

// ending is the end of an attempt.
func (p *player) ending(verb, rest string, token uint64) Input {
	w := split(rest)
	s := FinishAttempt{Token: token, StartedMS: p.begun[token], Worker: "w1"}
	switch verb {
	case "succeed":
		s.Outcome = OutcomeSucceeded
	case "fail", "die":
		s.Outcome, s.Permanent = OutcomeFailed, verb == "die"
		s.Error = w.pairs["error"]
		if after := w.pairs["retry-after"]; after != "" {
			s.RetryAfter = p.duration(after)
		}
	case "time-out":
		s.Outcome = OutcomeTimedOut
	case "lose":
		return LoseLease{Token: token}
	case "return":
		return ReturnLease{Token: token}
	case "terminate":
		return Terminate{}
	default:
		p.t.Fatalf("unknown command %q", verb)
	}
	return s
}

func (p *player) event(verb, rest string, w words) Input {
	f := p.f
	switch verb {
	case "acknowledge":
		f.parent.Acked = true
		return Wake{} // nothing
	case "pause":
		return Pause{Note: rest}
	case "resume":
		return Resume{CatchUp: rest == "catch-up"}
	case "run":
		modes := map[string]ManualMode{"": ManualReset, "keep": ManualKeep, "reset-on-success": ManualResetOnSuccess}
		mode := ""
		if len(w.plain) > 1 {
			mode = w.plain[1]
		}
		return RequestManualRun{RequestID: w.plain[0], Mode: modes[mode]}
	case "cancel":
		return CancelRun{RunID: f.parent.RunID()}
	case "hint":
		h := Hint{Source: HintOperator, Reason: w.pairs["reason"], UntilMS: f.now.Add(time.Hour)}
		if w.pairs["by"] == "planner" {
			h.Source = HintPlanner
		}
		if in := w.pairs["in"]; in != "" {
			h.AtMS = f.now.Add(p.duration(in))
		}
		if every := w.pairs["every"]; every != "" {
			h.IntervalMS = p.duration(every).Milliseconds()
		}
		if life := w.pairs["for"]; life != "" {
			h.UntilMS = f.now.Add(p.duration(life))
		}
		return SetHint{h}
	case "unhint":
		return SetHint{}
	case "backfill":
		b := Backfill{ID: w.plain[0], Concurrency: 1}
		b.NextMS = unixtime.Milli(noon.Add(p.duration(w.pairs["from"])).UnixMilli() - 1)
		b.ToMS = unixtime.Milli(noon.Add(p.duration(w.pairs["to"])).UnixMilli() - 1)
		if n := w.pairs["parallel"]; n != "" {
			b.Concurrency = uint8(p.number(n))
		}
		return StartBackfill{b}
	case "stop-backfill":
		return StopBackfill{ID: w.plain[0]}
	case "edit":
		d := p.define(rest)
		return Update{New: compile(p.t, d)}
	case "delete":
		return Delete{}
	case "hold":
		return HoldBack{Token: f.parent.Token, Reason: HeldLock, Key: w.plain[0], By: w.pairs["by"], UntilMS: f.now.Add(p.duration(w.pairs["for"]))}
	case "wake":
		return Wake{Reason: HeldLock, Key: w.plain[0]}
	}
	return p.ending(verb, rest, f.parent.Token)
}

// lease hands out the job's run, or that of a child, when it is due.
func (p *player) lease(w words) []string {
	f := p.f
	if len(w.plain) == 0 {
		before := f.parent
		if before.Region != RegionDue {
			return []string{"nothing is due: " + before.Region.String()}
		}
		f.lease()
		p.begun[f.token] = f.now
		return append([]string{fmt.Sprintf("%s: %s, attempt %d", p.at(f.now), before.RunID(), before.Attempt+1)}, p.show()...)
	}
	slot := p.number(w.plain[0])
	child, ok := f.children[slot]
	if !ok {
		return []string{"no such child"}
	}
	f.leaseChild(slot)
	p.begun[f.token] = f.now
	return append([]string{fmt.Sprintf("%s: %s, attempt %d", p.at(f.now), child.RunID(), child.Attempt+1)}, p.show()...)
}

// told shows a decision and the resulting state of the job.
func (p *player) told(d Decision) []string {
	var lines []string
	if names := []string{"applied", "duplicate", "stale", "joined", "no such run", "too many", "not dead"}; d.Answer != Applied {
		lines = append(lines, "answer: "+names[d.Answer])
	}
	for _, n := range d.Notices {
		text := n.Kind.String()
		if n.Count > 0 && n.Kind == NominalSkipped {
			text += fmt.Sprintf(" %d", n.Count)
		}
		if n.Reason != "" {
			text += " (" + n.Reason + ")"
		}
		lines = append(lines, text)
	}
	if p.f.gone {
		return append(lines, "gone")
	}
	return append(lines, p.show()...)
}

func (p *player) at(ms unixtime.Milli) string {
	t := ms.Time().UTC()
	layout := "15:04:05"
	if ms%1000 != 0 {
		layout = "15:04:05.000"
	}
	if t.YearDay() != noon.YearDay() || t.Year() != noon.Year() {
		layout = "2006-01-02 " + layout
	}
	return t.Format(layout)
}

// show shows the state of the job.
func (p *player) show() []string {
	f := p.f
	s := f.parent
	line := s.Region.String()
	if s.HasRun() {
		line += fmt.Sprintf(": %s nominal %s due %s by %s", s.Trigger, p.at(s.Nominal), p.at(s.Due), s.Source)
		if s.Attempt > 0 {
			line += fmt.Sprintf(", %d failed attempts", s.Attempt)
		}
	}
	if s.Failures > 0 {
		line += fmt.Sprintf(", %d failed runs", s.Failures)
	}
	if s.Skipped > 0 {
		line += fmt.Sprintf(", %d skipped", s.Skipped)
	}
	if s.Held.Reason != HeldNone && s.Region == RegionDue {
		line += ", held: " + s.Held.Reason.String()
	}
	if s.Pending != "" {
		line += ", manual run waits"
	}
	lines := []string{line}
	for slot := range MaxConcurrentRuns {
		if child, ok := f.children[slot]; ok {
			text := fmt.Sprintf("child %d %s: %s nominal %s due %s", slot, child.Region, child.Trigger, p.at(child.Nominal), p.at(child.Due))
			if child.Cancel {
				text += ", being cancelled"
			}
			if child.Held.Reason != HeldNone && child.Region == RegionDue {
				text += ", held: " + child.Held.Reason.String()
			}
			lines = append(lines, text)
		}
	}
	if n := len(f.letters); n > 0 {
		lines = append(lines, fmt.Sprintf("%d dead letters", n))
	}
	return lines
}

func (p *player) explain(w words) []string {
	facts := Facts{ClusterKnown: true, Shard: 7, Held: true, Holder: "n1", Workers: 1, FreeSlots: 1}
	for _, word := range w.plain {
		switch word {
		case "no-worker":
			facts.Workers, facts.FreeSlots = 0, 0
		case "no-slot":
			facts.FreeSlots = 0
		case "no-holder":
			facts.Held = false
		}
	}
	var children []Child
	for _, slot := range p.f.parent.ChildSlots() {
		children = append(children, Child{Slot: slot, State: p.f.children[slot]})
	}
	e := Explain(p.f.c, p.f.parent, children, facts, p.f.now)
	lines := []string{e.Summary}
	for _, r := range e.Reasons {
		lines = append(lines, "- "+r.Kind.String()+": "+r.Message)
	}
	return lines
}

// define makes the job of a line: a schedule, then settings.
func (p *player) define(rest string) Definition {
	d := def()
	d.AnchorMS, d.CreatedMS, d.UpdatedMS = unixtime.MilliOf(noon), unixtime.MilliOf(noon), unixtime.MilliOf(noon)
	w := split(rest)
	switch w.plain[0] {
	case "every":
		d.Schedule.Every = p.duration(w.plain[1])
	case "cron":
		d.Schedule = schedule.Spec{Kind: schedule.KindCron, Cron: []string{strings.Join(w.plain[1:6], " ")}}
	case "once":
		d.Schedule = schedule.Spec{Kind: schedule.KindOnce, At: noon.Add(p.duration(w.plain[1]))}
	case "none":
		d.Schedule = schedule.Spec{}
	default:
		p.t.Fatalf("unknown schedule %q", rest)
	}
	for _, word := range w.plain[1:] {
		switch word {
		case "fixed-delay":
			d.Schedule.FixedDelay = true
		case "within-period":
			d.Backoff.WithinSlot = true
		case "stale-halve":
			d.Backoff.StaleHalve = true
		}
	}
	if v, ok := w.pairs["preset"]; ok {
		p.set(&d, "preset", v) // what is set beside it wins
		delete(w.pairs, "preset")
	}
	for k, v := range w.pairs {
		p.set(&d, k, v)
	}
	if faults := Validate(&d, DefaultLimits()); len(faults) > 0 {
		p.t.Fatalf("%s: %v", rest, faults)
	}
	return d
}

func (p *player) set(d *Definition, k, v string) {
	switch k {
	case "overlap":
		for o := OverlapSkip; o <= OverlapTerminateOther; o++ {
			if o.String() == strings.ReplaceAll(v, " ", "_") {
				d.Overlap = o
			}
		}
	case "misfire":
		for m := MisfireRunOnce; m <= MisfireRunAll; m++ {
			if m.String() == strings.ReplaceAll(v, " ", "_") {
				d.Misfire.Policy = m
			}
		}
	case "limit":
		d.OverlapLimit = p.number(v)
	case "window":
		d.Misfire.Window = p.duration(v)
	case "catch-up":
		d.Misfire.MaxCatchUp = p.number(v)
	case "attempts":
		d.Retry.MaxAttempts = p.number(v)
	case "base":
		d.Retry.Base = p.duration(v)
	case "max-elapsed":
		d.Retry.MaxElapsed = p.duration(v)
	case "pause-after":
		d.PauseAfter = p.number(v)
	case "max-lag":
		d.MaxLag = p.duration(v)
	case "stale-after":
		d.Backoff.StaleAfter = p.duration(v)
	case "min-interval":
		d.MinInterval = p.duration(v)
	case "max-interval":
		d.MaxInterval = p.duration(v)
	case "jitter":
		d.Schedule.Jitter = p.duration(v)
	case "max-runs":
		d.Schedule.MaxRuns = p.number(v)
	case "zone":
		d.Schedule.TimeZone = v
	case "preset":
		preset, ok := backoff.PresetByName(v)
		if !ok {
			p.t.Fatalf("no preset %q", v)
		}
		if preset.Retry != nil {
			d.Retry = *preset.Retry
		}
		if preset.Recurring != nil {
			d.Backoff, d.MinInterval = *preset.Recurring, preset.MinInterval
		}
	default:
		p.t.Fatalf("unknown setting %q", k)
	}
}
