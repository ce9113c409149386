package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/fermata-io/fermata/client"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// describeJob shows a job in full.
func (a *app) describeJob(j *client.Job) error {
	s := j.GetStatus()
	var t outputTable
	line := func(name, value string) {
		if value != noValue && value != "" {
			t.addRow(name+":", value)
		}
	}
	line("Name", j.GetName())
	line("Queue", fmt.Sprintf("%s, priority %d", j.GetQueue(), j.GetPriority()))
	line("Handler", a.fitText(j.GetHandler(), 128))
	line("Payload", payloadText(j))
	line("Labels", labelText(j.GetLabels()))
	line("Schedule", scheduleText(j.GetSchedule()))
	line("Spread", durationPBText(j.GetSchedule().GetJitter()))
	line("Leaves out", exclusionText(j.GetSchedule().GetExclusions()))
	line("Retries", retryText(j.GetRetryPolicy()))
	line("Retries from", sourceText(j.GetRetryPolicy().GetSources()))
	line("Backoff", policyText(j))
	line("Backoff from", sourceText(backoffSources(j)))
	line("Timeout", fmt.Sprintf("%s, then %s of grace", durationPBText(j.GetTimeout()),
		durationText(j.GetTimeoutGrace().AsDuration())))
	line("Overlap", overlapText(j))
	line("Misfire", misfireText(j.GetMisfirePolicy()))
	line("Locks", lockText(j.GetLocks()))
	line("Target", a.fitText(j.GetTarget(), 128))
	if n := j.GetPauseAfterFailures(); n > 0 {
		line("Pauses", fmt.Sprintf("after %d failed runs in a row", n))
	}
	line("Max lag", lagText(j))
	line("State", enumName(s.GetState()))
	if s.GetPauseTime() != nil {
		line("Paused", strings.TrimSpace(a.agoText(s.GetPauseTime())+" "+printableText(s.GetPauseNote())))
	}
	if s.GetNextDueTime() != nil {
		due := fmt.Sprintf("%s, by %s", formatTime(s.GetNextDueTime()), enumName(s.GetDelaySource()))
		if next := a.nextRun(j); next != noValue {
			line("Next run", fmt.Sprintf("%s (%s)", next, due))
		} else {
			line("Held run", due)
		}
		line("Scheduled", formatTime(s.GetNextNominalTime()))
		line("Run", fmt.Sprintf("%s, attempt %d, %d workers lost", client.RunID(&client.Run{Name: s.GetCurrentRun()}),
			s.GetCurrentAttempt(), s.GetCurrentLostAttempts()))
	}
	line("Held", a.holdText(s.GetHold()))
	line("Hint", a.hintText(s.GetHint()))
	if s.GetProbe() {
		line("Probe", "the failure count is stale: the next run finds out whether things work again")
	}
	if s.RunsLeft != nil {
		line("Runs left", fmt.Sprintf("%d of %d", s.GetRunsLeft(), j.GetSchedule().GetMaxRuns()))
	}
	if n := s.GetConcurrentRuns(); n > 0 {
		text := "in addition to the current one"
		if s.GetCurrentRun() == "" {
			text = "beside the schedule"
		}
		line("Other runs", fmt.Sprintf("%d %s", n, text))
	}
	for _, b := range s.GetBackfills() {
		line("Backfill", fmt.Sprintf("%s, has got to %s, ends at %s", printableText(b.GetId()),
			formatTime(b.GetProgressTime()), formatTime(b.GetEndTime())))
	}
	line("Failures", fmt.Sprintf("%d in a row", s.GetConsecutiveFailures()))
	line("Interval now", backoffText(j))
	if s.GetLastOutcome() != 0 {
		line("Last attempt", enumName(s.GetLastOutcome())+" "+a.agoText(s.GetLastFinishTime()))
	}
	line("Last error", a.fitText(s.GetLastError(), 512))
	line("Totals", fmt.Sprintf("%s: %d succeeded, %d dead; %s timed out, %d lost; %s skipped",
		countText(int(s.GetRunsTotal()), "run", "runs"), s.GetSucceededTotal(), s.GetDeadTotal(),
		countText(int(s.GetTimeoutTotal()), "attempt", "attempts"), s.GetLostTotal(),
		countText(int(s.GetSkippedTotal()), "scheduled time", "scheduled times")))
	line("Created", a.agoText(j.GetCreateTime()))
	line("Edited", a.agoText(j.GetUpdateTime()))
	line("Etag", j.GetEtag())
	return a.printTable(t)
}

func payloadText(j *client.Job) string {
	p := j.GetPayload()
	switch {
	case j.GetPayloadSealed():
		return fmt.Sprintf("%s, sealed with key %s", countText(int(j.GetPayloadSize()), "byte", "bytes"),
			printableText(j.GetPayloadKeyId()))
	case len(p) == 0:
		return noValue
	}
	text := string(p)
	if hasOwnPayload(j.GetHandler()) {
		text = withoutHTMLEscapes(text)
	}
	if len(p) > 300 {
		return fmt.Sprintf("%s (%d bytes)", clipText(text[:min(len(text), 300)], 200), len(p))
	}
	return clipText(text, 200)
}

func labelText(labels map[string]string) string {
	var parts []string
	for _, k := range slices.Sorted(maps.Keys(labels)) {
		parts = append(parts, printableText(k)+"="+printableText(labels[k]))
	}
	return strings.Join(parts, ", ")
}

func retryText(p *fermatav1.RetryPolicy) string {
	if p.GetMaxAttempts() == 1 {
		return "none: one attempt a run"
	}
	text := fmt.Sprintf("%d attempts, %s from %s", p.GetMaxAttempts(), enumName(p.GetStrategy()),
		durationText(p.GetBaseDelay().AsDuration()))
	if d := p.GetMaxDelay().AsDuration(); d > 0 {
		text += ", at most " + durationText(d)
	}
	return text
}

func policyText(j *client.Job) string {
	p := j.GetBackoffPolicy()
	switch {
	case j.GetSchedule().GetInterval() == nil:
		return noValue
	case p.GetDisabled():
		return "none"
	}
	text := fmt.Sprintf("interval times %g for each failed run, up to %d", p.GetMultiplier(), p.GetMaxExponent())
	if d := p.GetMaxDelay().AsDuration(); d > 0 {
		text += ", at most " + durationText(d)
	}
	return text
}

func exclusionText(e *fermatav1.Exclusions) string {
	var parts []string
	for _, list := range [][]string{e.GetCron(), e.GetDates(), e.GetWindows()} {
		parts = append(parts, list...)
	}
	for _, p := range e.GetPeriods() {
		parts = append(parts, p.GetStartTime().AsTime().Format(time.RFC3339)+"/"+p.GetEndTime().AsTime().Format(time.RFC3339))
	}
	if zone := e.GetTimeZone(); zone != "" {
		parts = append(parts, "in "+zone)
	}
	return strings.Join(parts, "; ")
}

func overlapText(j *client.Job) string {
	switch p := j.GetOverlapPolicy(); p {
	case fermatav1.OverlapPolicy_OVERLAP_POLICY_BUFFER_ALL, fermatav1.OverlapPolicy_OVERLAP_POLICY_ALLOW_ALL:
		if n := j.GetOverlapLimit(); n > 0 {
			return fmt.Sprintf("%s, up to %d", enumName(p), n)
		}
		return enumName(p)
	case fermatav1.OverlapPolicy_OVERLAP_POLICY_SKIP:
		return noValue
	default:
		return enumName(p)
	}
}

func misfireText(p *fermatav1.MisfirePolicy) string {
	text := enumName(p.GetPolicy())
	if n := p.GetMaxCatchUp(); n > 0 {
		text += fmt.Sprintf(", the newest %d", n)
	}
	if d := p.GetCatchUpWindow().AsDuration(); d > 0 {
		return text + ", up to " + durationText(d) + " late"
	}
	if p.GetPolicy() == fermatav1.MisfirePolicy_POLICY_RUN_ONCE {
		return noValue
	}
	return text
}

func lockText(locks []*fermatav1.Lock) string {
	var parts []string
	for _, l := range locks {
		text := printableText(l.GetKey())
		if l.GetLimit() > 1 {
			text += fmt.Sprintf(" (up to %d)", l.GetLimit())
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, ", ")
}

// lagText describes the objective for late starts, and the lag of the last run.
func lagText(j *client.Job) string {
	text := durationPBText(j.GetMaxLag())
	if d := j.GetStatus().GetBreachedLag().AsDuration(); d > 0 {
		text += ", the last run was late by " + durationText(d)
	}
	return text
}

// holdText describes what holds a run back.
func (a *app) holdText(h *fermatav1.Hold) string {
	if h.GetReason() == 0 {
		return noValue
	}
	text := "by " + enumName(h.GetReason())
	if h.GetKey() != "" {
		text += " " + printableText(h.GetKey())
	}
	if h.GetBlockedBy() != "" {
		text += ", which " + printableText(h.GetBlockedBy()) + " has"
	}
	if h.GetSinceTime() != nil {
		text += ", since " + a.agoText(h.GetSinceTime())
	}
	return text
}

// hintText describes what a hint requests.
func (a *app) hintText(h *fermatav1.Hint) string {
	if h == nil {
		return noValue
	}
	var parts []string
	if h.GetInterval() != nil {
		parts = append(parts, "every "+durationText(h.GetInterval().AsDuration()))
	}
	if h.GetNextRunTime() != nil {
		parts = append(parts, "next run "+a.untilText(h.GetNextRunTime()))
	}
	text := strings.Join(parts, ", ") + fmt.Sprintf(" (by %s, ends %s)", enumName(h.GetSource()),
		a.untilText(h.GetExpireTime()))
	if h.GetReason() != "" {
		text += ": " + printableText(h.GetReason())
	}
	return text
}
