package job

import (
	"fmt"

	"github.com/fermata-io/fermata/internal/core/backoff"
	"github.com/fermata-io/fermata/internal/core/schedule"
)

// plan tells by which rule the planned run is due when it is.
func (e *explainer) plan() {
	s := e.s
	if s.Due <= e.now {
		return
	}
	r := Reason{Kind: ReasonNotDue, UntilMS: s.Due}
	e.moved()
	switch {
	case s.Source == DelayHeld && s.Held.Reason != HeldNone:
		return
	case s.Source == DelayRetry:
		r.Kind, r.SinceMS = ReasonRetry, s.LastFinished
		r.Message = fmt.Sprintf("waiting for attempt %d of %d%s, until %s%s", s.Attempt+1, e.c.Retry.MaxAttempts, e.after(), e.at(s.Due), e.retryJitter())
	case s.Source == DelayBackoff:
		r.Kind, r.SinceMS = ReasonBackoff, s.LastFinished
		r.Message = fmt.Sprintf("%s%s, until %s%s", e.step(), e.after(), e.at(s.Due), e.backoffJitter())
	case s.Source == DelayHint:
		r.Kind = ReasonHint
		r.Message = e.hint()
	case s.Source == DelayJitter:
		r.Message = fmt.Sprintf("due %s: nominal %s plus the schedule's jitter", e.at(s.Due), e.at(s.Nominal))
	default:
		r.Message = "due " + e.at(s.Due)
	}
	if r.Kind == ReasonNotDue {
		r.Message += e.counted()
	}
	e.add(r)
}

// counted says which day a calendar counts from, where that decides which days count.
func (e *explainer) counted() string {
	if e.c.Schedule.Kind != schedule.KindCalendar {
		return ""
	}
	return fmt.Sprintf("; its %ss are counted from %s", e.c.Schedule.Calendar.Unit, e.c.FirstDay())
}

// moved tells that the planned run is due at the end of an exclusion because it would have
// been due in it.
func (e *explainer) moved() {
	s := &e.s
	onTime := (s.Source == DelaySchedule || s.Source == DelayJitter) && s.Held.DueMS == 0
	if onTime || !e.excludes(s.Due-1) {
		return
	}
	e.add(Reason{
		Kind: ReasonExclusion, UntilMS: s.Due,
		Message: fmt.Sprintf("the schedule excludes the time before %s", e.at(s.Due)),
	})
}

// excludes reports whether an exclusion holds back the planned run at an instant.
func (e *explainer) excludes(ms int64) bool {
	_, excluded := e.c.excluded(&e.s, ms)
	return excluded
}

// step tells how far up its curve a backoff is; a flat one has no steps.
func (e *explainer) step() string {
	steps := len(e.c.Backoff.Ladder(e.c.Schedule.Every)) - 1
	if steps == 0 {
		return "backoff"
	}
	return fmt.Sprintf("backoff %d of %d", min(int(e.s.Failures), steps), steps)
}

func (e *explainer) retryJitter() string {
	k := int(e.s.Attempt)
	got, _ := e.c.retryDelay(&e.s, k, 0)
	unspread := *e.c
	unspread.Retry.Jitter = backoff.Jitter{Kind: backoff.JitterNone}
	plain, _ := unspread.retryDelay(&e.s, k, 0)
	return jitterOf(e.s.Due-e.s.LastFinished, got, plain)
}

func (e *explainer) backoffJitter() string {
	got, _ := e.c.delay(&e.s, 0)
	return jitterOf(e.s.Due-e.s.LastFinished, got, e.c.EffectiveInterval(int64(e.s.Failures)))
}

func (e *explainer) hint() string {
	h := e.s.Hint
	if h.Source == HintNone {
		return "a hint holds it back until " + e.at(e.s.Due)
	}
	text := fmt.Sprintf("hint of the %s", h.Source)
	if h.Reason != "" {
		text += " (" + h.Reason + ")"
	}
	text += ": due " + e.at(e.s.Due)
	if h.Source != HintWorker {
		text += ", in force until " + e.at(h.UntilMS)
	}
	return text
}
