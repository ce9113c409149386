package jobfilter_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/jobfilter"
	"github.com/fermata-io/fermata/internal/core/unixtime"
)

var now = unixtime.MilliOf(time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC))

// specimen is a failing job of each kind of value.
func specimen() *job.Record {
	return &job.Record{
		Definition: &job.Definition{
			Key: job.Key{Namespace: "shop", ID: "report-EU.2"}, Queue: "mail-out", Priority: 5, Handler: "http",
			Target: "api.example.com", CreatedMS: now - 1000,
			Labels: map[string]string{"team": "web-1", "fermata.io/owner": "infra", "a-b": ""},
		},
		State: job.State{
			Region: job.RegionDue, Due: now + 60_000, Failures: 3, LastOutcome: job.OutcomeFailed,
			LastError: `dial "api": Timeout after 5s`, LastStarted: now - 7_200_000, PauseNote: "", Runs: 12,
		},
	}
}

// TestFilters evaluates filters for one job.
func TestFilters(t *testing.T) {
	paused := specimen()
	paused.State.Region, paused.State.Paused, paused.State.PauseNote = job.RegionPaused, true, "deploy *2*"
	paused.State.LastStarted, paused.State.Failures = 0, 0
	for filter, want := range map[string][2]bool{ // of the failing job, of the paused one
		``: {true, true}, `  `: {true, true},
		`id = report-EU.2`: {true, true}, `id = "report-EU.2"`: {true, true}, `id = 'report-EU.2'`: {true, true},
		`id = report`: {false, false}, `id = report-*`: {true, true}, `id = *EU*`: {true, true}, `id=*.2`: {true, true},
		`id = *.3`: {false, false}, `id = r*p*2`: {true, true}, `id = r*2*2`: {false, false}, `id = *`: {true, true},
		`id = REPORT-*`: {false, false}, `id != report-*`: {false, false}, `id : eu`: {true, true}, `id:us`: {false, false},
		`report-eu`: {true, true}, `HTTP`: {true, true}, `eu.2`: {true, true}, `mail`: {false, false},
		`"report-eu"`: {true, true}, `-mail`: {true, true}, `-http`: {false, false}, `NOT http`: {false, false},
		`namespace = shop`: {true, true}, `queue = mail-out`: {true, true}, `queue != mail-out`: {false, false},
		`target = *.example.com`: {true, true}, `target:*`: {true, true}, `owner = infra`: {true, true},
		`priority = 5`: {true, true}, `priority > 5`: {false, false}, `priority >= 5 priority <= 5`: {true, true},
		`priority < 6 AND priority > -1`: {true, true}, `priority != 5`: {false, false},
		`labels.team = web-1`: {true, true}, `labels.team = "web-*"`: {true, true}, `labels.team != web-1`: {false, false},
		`labels.none != x`: {true, true}, `labels.none = ""`: {false, false}, `labels.none = *`: {false, false},
		`labels:team`: {true, true}, `labels:none`: {false, false}, `labels.team:*`: {true, true},
		`labels.team:WEB`: {true, true}, `labels.fermata.io/owner = infra`: {true, true},
		`labels."fermata.io/owner" = infra`: {true, true}, `labels.a-b = ""`: {true, true}, `labels:a-b`: {true, true},
		`labels:fermata.io/owner`: {true, true},
		`state = scheduled`:       {true, false}, `state = paused`: {false, true}, `state != paused`: {true, false},
		`paused = true`: {false, true}, `paused != true`: {true, false}, `paused:false`: {true, false},
		`failing = true`: {true, false}, `failing = false`: {false, true},
		`consecutive_failures >= 3`: {true, false}, `consecutive_failures < 3`: {false, true},
		`pause_note:DEPLOY`: {false, true}, `pause_note:*`: {false, true}, `pause_note = ""`: {true, false},
		`pause_note = "deploy \*2\*"`: {false, true}, `pause_note = "deploy \**"`: {false, true},
		`pause_note = "\*"`: {false, false}, `pause_note:"\*2"`: {false, true}, `last_error:"\*"`: {false, false},
		`pause_note != "deploy \*3*"`: {true, true}, `id = "\\*"`: {false, false}, `labels:"\*"`: {false, false},
		`last_error:timeout`: {true, true}, `last_error = "dial \"api\"*"`: {true, true}, `last_error:"\"API"`: {true, true},
		`last_outcome = failed`: {true, true}, `last_outcome = dead`: {false, false},
		`last_run_time < -1h`: {true, false}, `last_run_time < -2w`: {false, false}, `last_run_time > -1w1d`: {true, false}, `last_run_time < -3h`: {false, false}, `last_run_time:*`: {true, false},
		`NOT last_run_time:*`: {false, true}, `last_run_time > -1d`: {true, false}, `last_run_time < now`: {true, false},
		`next_due_time < 1h`: {true, true}, `next_due_time < 30s`: {false, false},
		`next_due_time > 2026-11-26T12:00:30Z`: {true, true}, `next_due_time < 2026-11-27`: {true, true},
		`next_due_time >= "2026-11-26T13:01:00+01:00"`: {true, true}, `create_time < now`: {true, true},
		`runs_total = 12`:                     {true, true},
		`failing = true AND queue = mail-out`: {true, false}, `failing = true queue = mail-out`: {true, false},
		`failing = true OR paused = true`: {true, true},
		// OR binds tighter than AND.
		`queue = x AND failing = true OR paused = true`:   {false, false},
		`(queue = x AND failing = true) OR paused = true`: {false, true},
		`NOT (failing = true)`:                            {false, true}, `NOT(failing = true)`: {false, true}, `-(failing = true)`: {false, true},
		`failing = true AND(paused = false)`: {true, false}, `failing=true	AND
 http`: {true, false},
		`NOT state = paused AND -labels:none`: {true, false},
	} {
		f, err := jobfilter.Parse(filter)
		if err != nil {
			t.Errorf("%s: %v", filter, err)
			continue
		}
		for i, r := range []*job.Record{specimen(), paused} {
			if f.Matches(r, now) != want[i] {
				t.Errorf("%s: job %d: %v", filter, i, !want[i])
			}
		}
	}
}

// TestFaults parses invalid filters: errors have the place of the fault.
func TestFaults(t *testing.T) {
	for filter, want := range map[string]struct {
		position int
		reason   string
	}{
		`queue = a colour = red`:   {11, "fields are id, namespace, queue"},
		`é colour = red`:           {3, "no field"},
		`queue =`:                  {7, "value is missing"},
		`queue = (a OR b)`:         {7, "value is missing"},
		`= a`:                      {1, "unexpected ="},
		`failing`:                  {1, "failing = true"},
		`a and b`:                  {3, "AND"},
		`failing = yes`:            {1, "true or false"},
		`state = broken`:           {1, "scheduled, running, paused, dead, done"},
		`priority > high`:          {1, "whole number"},
		`id > a`:                   {1, "have an order"},
		`next_due_time < tomorrow`: {1, "2026-11-30"},
		`labels.team`:              {0, ""}, // a word
		`labels = x`:               {1, "labels.KEY"},
		`labels.team > x`:          {1, "have an order"},
		`queue.x = y`:              {1, "no parts"},
		`"queue" = y`:              {1, "not quoted"},
		`id = "open`:               {6, "not closed"},
		`id = a)`:                  {7, "unexpected"},
		`(id = a`:                  {8, "ends too early"},
		`id = a OR`:                {8, "missing after OR"},
		`id = a AND`:               {8, "missing after AND"},
		`duration(x)`:              {1, "no function"},
		`queue == bulk`:            {8, "no operator"},
		`queue !== keep`:           {9, "no operator"},
		`queue =~ b`:               {8, "no operator"},
		`queue <> b`:               {8, "no operator"},
		`queue := b`:               {8, "no operator"},
		`queue = a, b`:             {10, "join comparisons by OR"},
		`queue = a,b`:              {10, "join comparisons by OR"},
		`id = a && queue = b`:      {8, "write AND, OR or NOT"},
		`a || b`:                   {3, "write AND, OR or NOT"},
		`queue in (x)`:             {1, "the operators are"},
		`queue LIKE x`:             {1, "the operators are"},
		`state is paused`:          {1, "the operators are"},
		`queue = "=a,b" in like`:   {0, ""},
		`a , b`:                    {3, "unexpected"},
		`-`:                        {1, "missing"},
		"\xff":                     {1, "UTF-8"},
		strings.Repeat("(", 17) + "a" + strings.Repeat(")", 17): {17, "16 levels"},
		strings.Repeat("a ", 65):                                {129, "64 terms"},
		strings.Repeat("a", 2049):                               {1, "2048"},
	} {
		_, err := jobfilter.Parse(filter)
		if want.position == 0 {
			if err != nil {
				t.Errorf("%s: %v", filter, err)
			}
			continue
		}
		var fault *jobfilter.Error
		if !errors.As(err, &fault) || fault.Position != want.position || !strings.Contains(fault.Reason, want.reason) {
			t.Errorf("%.40s: %v, want %d: %s", filter, err, want.position, want.reason)
		}
	}
}

// TestPlan derives what indexes can serve.
func TestPlan(t *testing.T) {
	type plan = jobfilter.Plan
	for filter, want := range map[string]plan{
		``:                                    {},
		`id = a`:                              {IDs: []string{"a"}},
		`id = a AND id = b`:                   {Nothing: true},
		`id = b OR id = a OR id = b`:          {IDs: []string{"a", "b"}},
		`(id = a OR (id = b OR id = c)) id=c`: {IDs: []string{"c"}},
		`(id = a OR id = b) queue = q`:        {IDs: []string{"a", "b"}, Queues: []string{"q"}},
		`id = a OR queue = a`:                 {},
		`id = a OR id = b-*`:                  {},
		`id = ""`:                             {Nothing: true},
		`id = a-*`:                            {IDPrefix: "a-"},
		`id = *a`:                             {},
		`NOT id = a`:                          {},
		`id != a`:                             {},
		`namespace = n queue = q`:             {Namespace: "n", Queues: []string{"q"}},
		`queue = b OR queue = a`:              {Queues: []string{"a", "b"}},
		`(queue = b OR queue = a) queue = b`:  {Queues: []string{"b"}},
		`queue = b queue = a`:                 {Queues: []string{}, Nothing: true},
		`queue = b OR handler = x`:            {},
		`state = paused failing = true`:       {Status: job.StatusPaused, Failing: true},
		`state = paused state = dead`:         {Status: job.StatusDead, Nothing: true},
		`consecutive_failures > 0`:            {Failing: true},
		`consecutive_failures >= 1`:           {Failing: true},
		`consecutive_failures = 2`:            {Failing: true},
		`consecutive_failures >= 0`:           {},
		`consecutive_failures < 5`:            {},
		`consecutive_failures != 5`:           {},
		`paused = true`:                       {Paused: true},
		`failing = false paused = false`:      {},
		`(state = dead AND (queue = a OR b))`: {Status: job.StatusDead},
	} {
		f, err := jobfilter.Parse(filter)
		if err != nil {
			t.Fatalf("%s: %v", filter, err)
		}
		got := f.Plan()
		if strings.Join(got.IDs, ",") != strings.Join(want.IDs, ",") || got.IDPrefix != want.IDPrefix || got.Namespace != want.Namespace ||
			strings.Join(got.Queues, ",") != strings.Join(want.Queues, ",") || got.Status != want.Status ||
			got.Failing != want.Failing || got.Paused != want.Paused || got.Nothing != want.Nothing {
			t.Errorf("%s: %+v, want %+v", filter, got, want)
		}
	}
}

// FuzzParse parses any text: there is no panic, faults have a place in the text, and a job that matches is within
// the plan.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		`id = report-EU.2`, `(queue = b OR queue = a) AND NOT labels."x y" : z`, `-a "b c" last_run_time < -1h`, `é = 'x\'`,
		`id = mail-out OR http AND(paused=false)`, `id = "\x00"`, `a.b.c d:e`, `((a)) , ! -- NOT NOT`,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		filter, err := jobfilter.Parse(text)
		var fault *jobfilter.Error
		switch {
		case err != nil && !errors.As(err, &fault):
			t.Fatalf("%q: %T", text, err)
		case err != nil && (fault.Position < 1 || fault.Position > len([]rune(text))+1):
			t.Fatalf("%q: %v", text, err)
		case err != nil || filter == nil:
			return
		}
		r := specimen()
		if p := filter.Plan(); filter.Matches(r, now) && (p.Nothing || p.IDs != nil && !slices.Contains(p.IDs, r.Definition.ID) ||
			!strings.HasPrefix(r.Definition.ID, p.IDPrefix) || p.Status != 0 && p.Status != r.State.Status() ||
			len(p.Queues) > 0 && !strings.Contains(strings.Join(p.Queues, " "), r.Definition.Queue)) {
			t.Fatalf("%q matches a job that its plan %+v excludes", text, p)
		}
	})
}
