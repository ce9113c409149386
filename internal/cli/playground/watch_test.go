package playground

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/fermata-io/fermata/client"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

func told(events []jobEvent) string {
	var all []string
	for _, e := range events {
		all = append(all, e.job+": "+e.text)
	}
	return strings.Join(all, "\n")
}

func TestWatcherReportsEvents(t *testing.T) {
	every := 2 * time.Second
	base := jobRow{name: "a", phase: waiting, every: every, effective: every, due: at.Add(every), since: at}
	after := func(change func(*jobRow)) jobRow {
		r := base
		change(&r)
		return r
	}
	for _, tt := range []struct {
		name          string
		before, after []jobRow
		want          string
	}{
		{"nothing", []jobRow{base}, []jobRow{base}, ""},
		{"a new job", nil, []jobRow{base}, "a: registered; next in 2s"},
		{"a new job that has run", nil, []jobRow{after(func(r *jobRow) { r.finished, r.last = at, succeeded })},
			"a: registered; next in 2s\na: ok; next in 2s"},
		{"deleted", []jobRow{base}, nil, "a: deleted"},
		{"success", []jobRow{base}, []jobRow{after(func(r *jobRow) { r.finished, r.last = at, succeeded })}, "a: ok; next in 2s"},
		{"failure", []jobRow{after(func(r *jobRow) { r.failures = 2 })}, []jobRow{after(func(r *jobRow) {
			r.phase, r.failures, r.finished, r.last, r.lastError, r.due = backoff, 3, at, failed, "no", at.Add(16*time.Second)
		})}, "a: failed; 3 failures in a row; next in 16s instead of 2s (no)"},
		{"recovery", []jobRow{after(func(r *jobRow) { r.failures = 3 })}, []jobRow{after(func(r *jobRow) { r.finished, r.last = at, succeeded })},
			"a: ok; backoff reset after 3 failures; next in 2s"},
		{"retry", []jobRow{base}, []jobRow{after(func(r *jobRow) {
			r.phase, r.failures, r.attempt, r.finished, r.last = retrying, 1, 2, at, timedOut
		})}, "a: timed out; attempt 2 in 2s"},
		{"hint", []jobRow{base}, []jobRow{after(func(r *jobRow) {
			r.phase, r.finished, r.last, r.due = hinted, at, failed, at.Add(7*time.Second)
		})}, "a: failed; next in 7s, as it asked"},
		{"dead", []jobRow{base}, []jobRow{after(func(r *jobRow) {
			r.phase, r.finished, r.last, r.lastError, r.due = dead, at, died, "no", time.Time{}
		})}, "a: dead; no attempts left, kept as a dead letter (no)"},
		{"lost", []jobRow{base}, []jobRow{after(func(r *jobRow) { r.lost = 1 })}, "a: its worker vanished; no attempt is used up; next in 2s"},
		{"paused", []jobRow{base}, []jobRow{after(func(r *jobRow) { r.phase, r.due = paused, time.Time{} })}, "a: paused"},
		{"resumed", []jobRow{after(func(r *jobRow) { r.phase = paused })}, []jobRow{base}, "a: resumed; next in 2s"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWatcher(nil)
			if first := w.compareListing(at, tt.before, true); first != nil {
				t.Fatalf("the first listing is no news: %s", told(first))
			}
			if got := told(w.compareListing(at, tt.after, true)); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
			if again := w.compareListing(at, tt.after, true); again != nil {
				t.Errorf("told twice: %s", told(again))
			}
		})
	}
}

func TestWatcherOrderAndPast(t *testing.T) {
	w := newWatcher([]string{"z", "y"})
	w.compareListing(at, []jobRow{{name: "b"}, {name: "y"}, {name: "a"}, {name: "z"}}, true)
	w.compareListing(at, nil, false) // an incomplete listing deletes nothing
	var order []string
	for _, r := range w.sortedRows() {
		order = append(order, r.name)
	}
	if got := fmt.Sprint(order); got != "[z y a b]" {
		t.Errorf("order %s", got)
	}
	for i := range 2 * maxMarks {
		now := at.Add(time.Duration(i) * 10 * time.Millisecond)
		w.compareListing(now, []jobRow{{name: "a", finished: now, last: succeeded}}, false)
	}
	if n := len(w.rows["a"].marks); n < 100 || n > maxMarks+1 {
		t.Errorf("%d marks are kept", n)
	}
	later := at.Add(time.Hour)
	w.compareListing(later, []jobRow{{name: "a", finished: later, last: failed}}, false)
	if marks := w.rows["a"].marks; len(marks) != 1 || marks[0].last != failed {
		t.Errorf("marks of an hour ago are still there: %d", len(marks))
	}
}

func TestRowOfJob(t *testing.T) {
	status := func(change func(*fermatav1.JobStatus)) *client.Job {
		s := &fermatav1.JobStatus{
			State: fermatav1.JobStatus_STATE_SCHEDULED, DelaySource: fermatav1.DelaySource_DELAY_SOURCE_BACKOFF,
			NextDueTime: timestamppb.New(at.Add(time.Minute)), EffectiveInterval: durationpb.New(8 * time.Second),
			ConsecutiveFailures: 2, LastOutcome: fermatav1.Outcome_OUTCOME_FAILED, LastError: "bad\nnews",
			LastFinishTime: timestamppb.New(at), RunsTotal: 7,
		}
		change(s)
		return &client.Job{
			Name: "namespaces/default/jobs/a", CreateTime: timestamppb.New(at.Add(-time.Hour)),
			Schedule: client.Every(2 * time.Second), Status: s,
		}
	}
	r := rowOf(status(func(*fermatav1.JobStatus) {}))
	if r.name != "a" || r.phase != backoff || r.lastError != "bad news" || r.last != failed || r.failures != 2 || r.runs != 7 ||
		!r.due.Equal(at.Add(time.Minute)) || !r.since.Equal(at) || r.every != 2*time.Second || r.effective != 8*time.Second {
		t.Errorf("%+v", r)
	}
	for _, tt := range []struct {
		state  fermatav1.JobStatus_State
		source fermatav1.DelaySource
		want   jobPhase
	}{
		{fermatav1.JobStatus_STATE_RUNNING, 0, running}, {fermatav1.JobStatus_STATE_PAUSED, 0, paused},
		{fermatav1.JobStatus_STATE_DEAD, 0, dead}, {fermatav1.JobStatus_STATE_DONE, 0, done}, {0, 0, uncertain},
		{fermatav1.JobStatus_STATE_SCHEDULED, fermatav1.DelaySource_DELAY_SOURCE_RETRY, retrying},
		{fermatav1.JobStatus_STATE_SCHEDULED, fermatav1.DelaySource_DELAY_SOURCE_HINT, hinted},
		{fermatav1.JobStatus_STATE_SCHEDULED, fermatav1.DelaySource_DELAY_SOURCE_SCHEDULE, waiting},
	} {
		r := rowOf(status(func(s *fermatav1.JobStatus) { s.State, s.DelaySource = tt.state, tt.source }))
		if r.phase != tt.want || r.due.IsZero() == (tt.state == fermatav1.JobStatus_STATE_SCHEDULED) {
			t.Errorf("%v %v: %s, due %v", tt.state, tt.source, r.phase, r.due)
		}
	}
	gated := rowOf(status(func(s *fermatav1.JobStatus) {
		s.State, s.DelaySource = fermatav1.JobStatus_STATE_SCHEDULED, fermatav1.DelaySource_DELAY_SOURCE_HELD
		s.Hold = &fermatav1.Hold{Reason: fermatav1.Hold_REASON_LOCK, Key: "slow"}
	}))
	if gated.phase != held || gated.gate != "lock slow" || gated.intervalText(true) != "lock slow" {
		t.Errorf("a held run: %+v", gated)
	}
	live := rowOf(status(func(s *fermatav1.JobStatus) { s.State = fermatav1.JobStatus_STATE_RUNNING }))
	if !live.started.Equal(at.Add(time.Minute)) || live.dueIn(at.Add(62*time.Second)) != "+2.0s" {
		t.Errorf("a live run: %+v", live)
	}
	manual := &client.Job{Status: &fermatav1.JobStatus{State: fermatav1.JobStatus_STATE_DONE}}
	if r := rowOf(manual); r.phase != onDemand || r.rule != "manual" {
		t.Errorf("%+v", r)
	}
}
