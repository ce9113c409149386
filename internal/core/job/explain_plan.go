package job

import (
	"fmt"

	"github.com/fermata-io/fermata/internal/core/backoff"
	"github.com/fermata-io/fermata/internal/core/schedule"
	"github.com/fermata-io/fermata/internal/core/unixtime"
)

// explainPlan adds the rule that set the due time of the planned run.
func (e *explainer) explainPlan() {
	s := e.s
	if s.Due <= e.now {
		return
	}
	r := Reason{Kind: ReasonNotDue, UntilMS: s.Due}
	e.explainMoved()
	switch {
	case s.Source == DelayHeld && s.Held.Reason != HeldNone:
		return
	case s.Source == DelayRetry:
		r.Kind, r.SinceMS = ReasonRetry, s.LastFinished
		r.Message = fmt.Sprintf("waiting for attempt %d of %d%s, until %s%s", s.Attempt+1, e.c.Retry.MaxAttempts,
			e.quoteFailure(), e.formatInstant(s.Due), e.describeRetryJitter())
	case s.Source == DelayBackoff:
		r.Kind, r.SinceMS = ReasonBackoff, s.LastFinished
		r.Message = fmt.Sprintf("%s%s, until %s%s", e.describeStep(), e.quoteFailure(), e.formatInstant(s.Due),
			e.describeBackoffJitter())
	case s.Source == DelayHint:
		r.Kind = ReasonHint
		r.Message = e.describeHint()
	case s.Source == DelayJitter:
		r.Message = fmt.Sprintf("due %s: nominal %s plus the schedule's jitter", e.formatInstant(s.Due),
			e.formatInstant(s.Nominal))
	default:
		r.Message = "due " + e.formatInstant(s.Due)
	}
	if r.Kind == ReasonNotDue {
		r.Message += e.describeCountedDay()
	}
	e.addReason(r)
}

// describeCountedDay names the day from which a calendar counts, where that decides which days match.
func (e *explainer) describeCountedDay() string {
	if e.c.Schedule.Kind != schedule.KindCalendar {
		return ""
	}
	return fmt.Sprintf("; its %ss are counted from %s", e.c.Schedule.Calendar.Unit, e.c.FirstDay())
}

// explainMoved adds that the due time of the planned run moved to the end of an exclusion.
func (e *explainer) explainMoved() {
	s := &e.s
	onTime := (s.Source == DelaySchedule || s.Source == DelayJitter) && s.Held.DueMS == 0
	if onTime || !e.isExcludedAt(s.Due-1) {
		return
	}
	e.addReason(Reason{
		Kind: ReasonExclusion, UntilMS: s.Due,
		Message: fmt.Sprintf("the schedule excludes the time before %s", e.formatInstant(s.Due)),
	})
}

// isExcludedAt reports whether an exclusion holds back the planned run at an instant.
func (e *explainer) isExcludedAt(ms unixtime.Milli) bool {
	_, excluded := e.c.excludesRun(&e.s, ms)
	return excluded
}

// describeStep names the step of a backoff on its curve; a flat curve has no steps.
func (e *explainer) describeStep() string {
	steps := len(e.c.Backoff.Ladder(e.c.Schedule.Every)) - 1
	if steps == 0 {
		return "backoff"
	}
	return fmt.Sprintf("backoff %d of %d", min(int(e.s.Failures), steps), steps)
}

func (e *explainer) describeRetryJitter() string {
	k := int(e.s.Attempt)
	got, _ := e.c.computeRetryDelay(&e.s, k, 0)
	unspread := *e.c.Definition
	unspread.Retry.Jitter = backoff.Jitter{Kind: backoff.JitterNone}
	plain, _ := e.c.withDefinition(&unspread).computeRetryDelay(&e.s, k, 0)
	return describeJitter(int64(e.s.Due-e.s.LastFinished), got, plain)
}

func (e *explainer) describeBackoffJitter() string {
	got, _ := e.c.nextDelay(&e.s, 0)
	return describeJitter(int64(e.s.Due-e.s.LastFinished), got, e.c.EffectiveInterval(int64(e.s.Failures)))
}

func (e *explainer) describeHint() string {
	h := e.s.Hint
	if h.Source == HintNone {
		return "a hint holds it back until " + e.formatInstant(e.s.Due)
	}
	text := fmt.Sprintf("hint of the %s", h.Source)
	if h.Reason != "" {
		text += " (" + h.Reason + ")"
	}
	text += ": due " + e.formatInstant(e.s.Due)
	if h.Source != HintWorker {
		text += ", in force until " + e.formatInstant(h.UntilMS)
	}
	return text
}
