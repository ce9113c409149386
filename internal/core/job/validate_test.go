package job_test

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fermata-io/fermata/internal/core/backoff"
	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/schedule"
	"github.com/fermata-io/fermata/internal/core/unixtime"
)

var anchor = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func good() job.Definition {
	d := job.WithDefaults(job.Definition{
		Key:      job.Key{Namespace: "default", ID: "ping"},
		Handler:  "http",
		Schedule: schedule.Spec{Kind: schedule.KindInterval, Every: time.Minute},
	})
	d.Priority, d.HistoryLimit, d.AnchorMS = job.DefaultPriority, job.DefaultHistoryLimit, unixtime.MilliOf(anchor)
	return d
}

func cron(expressions ...string) schedule.Spec {
	return schedule.Spec{Kind: schedule.KindCron, Cron: expressions}
}

func TestValidateNamesTheField(t *testing.T) {
	tests := []struct {
		name  string
		edit  func(*job.Definition)
		field string
		text  string
	}{
		{"excluded but for a gap", func(d *job.Definition) {
			d.Schedule = cron("30 2 * * *")
			d.Schedule.TimeZone, d.Schedule.Exclude.Windows = "Europe/Berlin", []string{"02:00-03:00"}
		}, "job.schedule.exclusions", "leaves no nominal time"},
		{"empty id", func(d *job.Definition) { d.ID = "" }, "job_id", "empty"},
		{"long id", func(d *job.Definition) { d.ID = strings.Repeat("a", 129) }, "job_id", "129"},
		{"id begins with dot", func(d *job.Definition) { d.ID = ".a" }, "job_id", "start with"},
		{"id with slash", func(d *job.Definition) { d.ID = "a/b" }, "job_id", "other than"},
		{"id with hash", func(d *job.Definition) { d.ID = "a#d0" }, "job_id", "other than"},
		{"id with newline", func(d *job.Definition) { d.ID = "a\nb" }, "job_id", "other than"},
		{"id not ASCII", func(d *job.Definition) { d.ID = "äb" }, "job_id", "start with"},
		{"namespace", func(d *job.Definition) { d.Namespace = "a:b" }, "parent", "namespace"},
		{"long namespace", func(d *job.Definition) { d.Namespace = strings.Repeat("n", 65) }, "parent", "65"},
		{"queue", func(d *job.Definition) { d.Queue = "a b" }, "job.queue", "other than"},
		{"priority", func(d *job.Definition) { d.Priority = 10 }, "job.priority", "0 to 9"},
		{"no handler", func(d *job.Definition) { d.Handler = "" }, "job.handler", "empty"},
		{"handler with control", func(d *job.Definition) { d.Handler = "a\x00" }, "job.handler", "control"},
		{"handler not UTF-8", func(d *job.Definition) { d.Handler = "\xff" }, "job.handler", "UTF-8"},
		{"payload", func(d *job.Definition) { d.Payload = make([]byte, 256<<10+1) }, "job.payload", "262145"},
		{"labels", func(d *job.Definition) { d.Labels = manyLabels(33) }, "job.labels", "33"},
		{"label key", func(d *job.Definition) { d.Labels = map[string]string{"": "x"} }, "job.labels", "key"},
		{"label value", func(d *job.Definition) { d.Labels = map[string]string{"k": strings.Repeat("v", 129)} }, `job.labels["k"]`, "129"},
		{"label control", func(d *job.Definition) { d.Labels = map[string]string{"k": "a\x1bb"} }, `job.labels["k"]`, "control"},
		{"negative timeout", func(d *job.Definition) { d.Timeout = -time.Second }, "job.timeout", "-1s"},
		{"long timeout", func(d *job.Definition) { d.Timeout = 25 * time.Hour }, "job.timeout", "24h"},
		{"fraction of a ms", func(d *job.Definition) { d.Timeout = 1500 * time.Microsecond }, "job.timeout", "whole"},
		{"grace", func(d *job.Definition) { d.TimeoutGrace = 6 * time.Minute }, "job.timeout_grace", "5m"},
		{"history", func(d *job.Definition) { d.HistoryLimit = 101 }, "job.history_limit", "100"},
		{"retention", func(d *job.Definition) { d.Retention = -1 }, "job.retention", "0s"},
		{"dead letters", func(d *job.Definition) { d.DeadLetterTTL = math.MaxInt64 }, "job.dead_letter_ttl", "0s"},
		{"no attempts", func(d *job.Definition) { d.Retry.MaxAttempts = 0 }, "job.retry_policy.max_attempts", "1 to"},
		{"negative delay", func(d *job.Definition) { d.Retry.Base = -time.Second }, "job.retry_policy.base_delay", "-1s"},
		{"retry jitter", func(d *job.Definition) { d.Retry.Jitter.Fraction = 2 }, "job.retry_policy.jitter.fraction", "0 to 1"},
		{"multiplier", func(d *job.Definition) { d.Backoff.Multiplier = math.NaN() }, "job.backoff_policy.multiplier", "NaN"},
		{"negative cap", func(d *job.Definition) { d.Backoff.MaxDelay = -1 }, "job.backoff_policy.max_delay", "want"},
		{"min interval", func(d *job.Definition) { d.MinInterval = -1 }, "job.backoff_policy.min_interval", "want"},
		{"a rare expression that comes too often", func(d *job.Definition) {
			d.Schedule = schedule.Spec{Kind: schedule.KindCron, Seconds: true, Cron: []string{"0 0 * * * *", "* * * 24 12 *"}}
		}, "job.schedule.cron.expressions", "comes every 1s"},
		{"a rare expression right after another one", func(d *job.Definition) {
			d.Schedule = schedule.Spec{Kind: schedule.KindCron, Seconds: true, Cron: []string{"0 0 * * * *", "1 0 12 24 12 *"}}
		}, "job.schedule.cron.expressions", "comes every 1s"},
		{"crossed bounds", func(d *job.Definition) { d.MinInterval, d.MaxInterval = 2e9, 1e9 }, "job.backoff_policy.max_interval", "shorter"},
		{"short interval", func(d *job.Definition) { d.Schedule.Every = time.Second }, "job.schedule.interval.every", "5s"},
		{"interval of centuries", func(d *job.Definition) { d.Schedule.Every = 2562047 * time.Hour }, "job.schedule.interval.every", "after 2109"},
		{"negative interval", func(d *job.Definition) { d.Schedule.Every = -time.Minute }, "job.schedule.interval.every", "positive"},
		{"cron text", func(d *job.Definition) { d.Schedule = cron("* * * * *", "61 * * * *") }, "job.schedule.cron.expressions[1]", ""},
		{"impossible cron", func(d *job.Definition) { d.Schedule = cron("0 0 30 2 *") }, "job.schedule.cron.expressions[0]", ""},
		{"no expressions", func(d *job.Definition) { d.Schedule = cron() }, "job.schedule.cron.expressions", "0"},
		{"dense cron", func(d *job.Definition) {
			d.Schedule = cron("0,1 * * * * *")
			d.Schedule.Seconds = true
		}, "job.schedule.cron.expressions", "1s"},
		{"dense every", func(d *job.Definition) { d.Schedule = cron("@every 1s") }, "job.schedule.cron.expressions", "1s"},
		{"zone", func(d *job.Definition) {
			d.Schedule = cron("0 0 * * *")
			d.Schedule.TimeZone = "Mars/Olympus"
		}, "job.schedule.cron.time_zone", ""},
		{"zone of no exclusions", func(d *job.Definition) { d.Schedule.TimeZone = "Europe/Berlin" },
			"job.schedule.exclusions.time_zone", "without exclusions"},
		{"unknown zone of exclusions", func(d *job.Definition) {
			d.Schedule.TimeZone, d.Schedule.Exclude.Dates = "Mars/Olympus", []string{"12-25"}
		}, "job.schedule.exclusions.time_zone", "unknown IANA time zone"},
		{"exclusions of a one-time job", func(d *job.Definition) {
			d.Schedule = schedule.Spec{Kind: schedule.KindOnce, At: anchor, Exclude: schedule.Exclusions{Dates: []string{"12-25"}}}
		}, "job.schedule.exclusions", "only for kinds interval, cron and calendar"},
		{"within slot, disabled", func(d *job.Definition) {
			d.Schedule = cron("0 0 * * *")
			d.Backoff.Disabled, d.Backoff.WithinSlot = true, true
		}, "job.backoff_policy.within_period", "contradicts disabled"},
		{"within slot of an interval", func(d *job.Definition) { d.Backoff.WithinSlot = true }, "job.backoff_policy.within_period", "cron"},
		{"catch-up of one run", func(d *job.Definition) { d.Misfire.MaxCatchUp = 5 }, "job.misfire_policy.max_catch_up", "POLICY_RUN_ALL"},
		{"lock named twice", func(d *job.Definition) { d.Locks = []job.Lock{{Key: "a", Limit: 1}, {Key: "a", Limit: 1}} }, "job.locks[1].key", "twice"},
		{"window", func(d *job.Definition) { d.Schedule.StartAt, d.Schedule.EndAt = anchor, anchor }, "job.schedule.end_time", ""},
		{"once missing", func(d *job.Definition) { d.Schedule = schedule.Spec{Kind: schedule.KindOnce} }, "job.schedule.once", "required"},
		{"far future", func(d *job.Definition) {
			d.Schedule = schedule.Spec{Kind: schedule.KindOnce, At: time.Date(2200, 1, 1, 0, 0, 0, 0, time.UTC)}
		}, "job.schedule.once", "2109"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			d := good()
			tt.edit(&d)
			got := job.Validate(&d, job.DefaultLimits())
			i := slices.IndexFunc(got, func(v job.Violation) bool { return v.Field == tt.field })
			if i < 0 || !strings.Contains(got[i].Description, tt.text) {
				t.Errorf("violations %q lack %s with %q", got, tt.field, tt.text)
			}
		})
	}
}

func TestValidateAcceptsTheEdges(t *testing.T) {
	edits := map[string]func(*job.Definition){
		"plain":     func(*job.Definition) {},
		"id":        func(d *job.Definition) { d.ID = "0" + strings.Repeat("~", 127) },
		"handler":   func(d *job.Definition) { d.Handler = strings.Repeat("ü", 128) },
		"payload":   func(d *job.Definition) { d.Payload = make([]byte, 256<<10) },
		"labels":    func(d *job.Definition) { d.Labels = manyLabels(32) },
		"zeros":     func(d *job.Definition) { d.TimeoutGrace, d.Retention, d.DeadLetterTTL, d.HistoryLimit = 0, 0, 0, 0 },
		"timeout":   func(d *job.Definition) { d.Timeout = time.Millisecond },
		"interval":  func(d *job.Definition) { d.Schedule.Every = 5 * time.Second },
		"manual":    func(d *job.Definition) { d.Schedule = schedule.Spec{} },
		"rare cron": func(d *job.Definition) { d.Schedule = cron("0 0 29 2 *") },
		"past once": func(d *job.Definition) {
			d.Schedule = schedule.Spec{Kind: schedule.KindOnce, At: anchor.Add(-time.Hour)}
		},
		"exclusions elsewhere": func(d *job.Definition) {
			d.Schedule.TimeZone, d.Schedule.Exclude.Windows = "Europe/Berlin", []string{"22:00-06:00"}
		},
		"within slot": func(d *job.Definition) {
			d.Schedule = cron("0 0 * * *")
			d.Backoff.WithinSlot = true
		},
		"no backoff": func(d *job.Definition) { d.Backoff = backoff.Recurring{Disabled: true} },
		"seconds": func(d *job.Definition) {
			d.Schedule = cron("*/5 * * * * *")
			d.Schedule.Seconds = true
		},
	}
	for name, edit := range edits {
		d := good()
		edit(&d)
		if got := job.Validate(&d, job.DefaultLimits()); len(got) != 0 {
			t.Errorf("%s: %q", name, got)
		}
	}
}

func TestValidateReportsAllAtOnce(t *testing.T) {
	d := good()
	d.ID, d.Handler, d.Timeout = "", "", -1
	if got := job.Validate(&d, job.DefaultLimits()); len(got) < 3 {
		t.Errorf("got only %q", got)
	}
}

func TestDefaults(t *testing.T) {
	d := good()
	if d.Retry.MaxAttempts != 1 || d.Queue != "default" || d.Timeout != 30*time.Second ||
		d.TimeoutGrace != 5*time.Second || d.Retention != time.Hour || d.DeadLetterTTL != 168*time.Hour ||
		d.Backoff != backoff.DefaultRecurring() {
		t.Errorf("recurring job: %+v", d)
	}
	for _, s := range []schedule.Spec{{}, {Kind: schedule.KindOnce, At: anchor}} {
		if got := job.WithDefaults(job.Definition{Schedule: s}).Retry; got != backoff.DefaultRetry() {
			t.Errorf("schedule %v: retry %+v", s.Kind, got)
		}
	}
	given := job.Definition{Key: job.Key{Namespace: "n"}, Queue: "q", Timeout: 1, TimeoutGrace: 2, Retention: 3, DeadLetterTTL: 4}
	if got := job.WithDefaults(given); got.Namespace != "n" || got.Queue != "q" || got.Timeout != 1 ||
		got.TimeoutGrace != 2 || got.Retention != 3 || got.DeadLetterTTL != 4 {
		t.Errorf("overwrote what was given: %+v", got)
	}
}

func TestSameIgnoresInternalFields(t *testing.T) {
	a, b := good(), good()
	a.Labels, b.Payload = map[string]string{}, []byte{}
	b.Generation, b.AnchorMS, b.Revision, b.CreatedMS, b.UpdatedMS = 1, 2, 3, 4, 5
	b.CreateRequestID, b.UpdateRequestIDs, b.Unknown = "r", job.RequestIDs{"u"}, []byte{1}
	if !a.Equal(&b) {
		t.Error("bookkeeping must not count")
	}
	for name, edit := range map[string]func(*job.Definition){
		"payload":  func(d *job.Definition) { d.Payload = []byte("x") },
		"labels":   func(d *job.Definition) { d.Labels = map[string]string{"a": "b"} },
		"schedule": func(d *job.Definition) { d.Schedule.Every++ },
		"retry":    func(d *job.Definition) { d.Retry.MaxAttempts++ },
		"backoff":  func(d *job.Definition) { d.Backoff.Jitter.Fraction = 0.2 },
		"max":      func(d *job.Definition) { d.MaxInterval = 1 },
		"priority": func(d *job.Definition) { d.Priority = 1 },
	} {
		c := good()
		edit(&c)
		if a.Equal(&c) {
			t.Errorf("%s must count", name)
		}
	}
}

func TestRequestIDs(t *testing.T) {
	for id, good := range map[string][2]bool{
		"":                      {true, false},
		"3f-A.b:c~d_e":          {true, true},
		"with space":            {true, false},
		"a/b":                   {true, false},
		"tab\t":                 {false, false},
		strings.Repeat("x", 65): {false, false},
	} {
		if got := job.ValidateRequestID(id) == ""; got != good[0] {
			t.Errorf("request id %q: %v", id, got)
		}
		if got := job.ValidateManualID(id) == ""; got != good[1] {
			t.Errorf("manual id %q: %v", id, got)
		}
	}
}

func manyLabels(n int) map[string]string {
	m := map[string]string{}
	for i := range n {
		m["k"+strings.Repeat("x", i)] = strings.Repeat("v", 128)
	}
	return m
}

// TestOversizedRequestsAreRefusedCheaply: a request with a million labels, or as many locks, expressions and
// excluded dates, costs little more than its refusal.
func TestOversizedRequestsAreRefusedCheaply(t *testing.T) {
	const many = 1_000_000
	labels := make(map[string]string, many)
	for i := range many {
		labels[strconv.Itoa(i)] = ""
	}
	for name, edit := range map[string]func(*job.Definition){
		"labels":  func(d *job.Definition) { d.Labels = labels },
		"locks":   func(d *job.Definition) { d.Locks = make([]job.Lock, many) },
		"cron":    func(d *job.Definition) { d.Schedule = cron(make([]string, many)...) },
		"periods": func(d *job.Definition) { d.Schedule.Exclude.Periods = make([]schedule.Period, many) },
		"dates":   func(d *job.Definition) { d.Schedule.Exclude.Dates = make([]string, many) },
	} {
		d := good()
		edit(&d)
		if n := testing.AllocsPerRun(1, func() {
			if got := job.Validate(&d, job.DefaultLimits()); len(got) == 0 || len(got) > 50 {
				t.Errorf("%s: %d violations", name, len(got))
			}
		}); n > 1000 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}
