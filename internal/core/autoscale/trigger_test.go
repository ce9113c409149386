package autoscale

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestParse(t *testing.T) {
	for name, c := range map[string]struct {
		texts map[string]string
		want  Trigger
	}{
		"the least": {
			map[string]string{"queue": "mail", "targetBacklog": "10"},
			Trigger{Namespace: "default", Queues: []string{"mail"}, Backlog: 10, CountRunning: true, Horizon: time.Minute},
		},
		"as KEDA sends it": {
			map[string]string{"queue": "mail", "namespace": "team-a", "targetLag": "30s", "scalerAddress": "fermata.jobs.svc:7070", "enableTLS": "true", "unsafeSsl": "false", "countRunning": ""},
			Trigger{Namespace: "team-a", Queues: []string{"mail"}, Lag: 30 * time.Second, CountRunning: true, Horizon: time.Minute},
		},
		"both targets": {
			map[string]string{"queue": "mail", "targetBacklog": "0.5", "targetLag": "1m", "countRunning": "false", "horizon": "0s"},
			Trigger{Namespace: "default", Queues: []string{"mail"}, Backlog: .5, Lag: time.Minute},
		},
		"thresholds": {
			map[string]string{"queue": "mail, bulk", "targetBacklog": "5", "activationBacklog": "20"},
			Trigger{Namespace: "default", Queues: []string{"mail", "bulk"}, Backlog: 5, CountRunning: true, ActivationBacklog: 20, ActivationLag: time.Minute},
		},
		"what KEDA finds in variables": {
			map[string]string{"queueFromEnv": "mail,bulk", "namespace": "", "namespaceFromEnv": "team-a", "targetBacklog": "5"},
			Trigger{Namespace: "team-a", Queues: []string{"mail", "bulk"}, Backlog: 5, CountRunning: true, Horizon: time.Minute},
		},
		"all thresholds": {
			map[string]string{"queue": "mail", "targetBacklog": "5", "activationBacklog": "20", "activationLag": "5m"},
			Trigger{Namespace: "default", Queues: []string{"mail"}, Backlog: 5, CountRunning: true, ActivationBacklog: 20, ActivationLag: 5 * time.Minute},
		},
	} {
		got, faults := Parse(c.texts)
		if len(faults) > 0 || !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v %v, want %+v", name, got, faults, c.want)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		change map[string]string
		want   string // "key text"
	}{
		"no queue":               {map[string]string{"queue": ""}, "queue is missing"},
		"half a list":            {map[string]string{"queue": "mail,,bulk"}, "queue is missing, or has an empty name"},
		"the same twice":         {map[string]string{"queue": "mail, mail"}, `queue has "mail" twice`},
		"too many":               {map[string]string{"queue": strings.Repeat("a,", MaxQueues) + "a"}, "queue has"},
		"no target":              {map[string]string{"targetBacklog": ""}, "targetBacklog is missing: give targetBacklog, targetLag or both"},
		"blanks are no target":   {map[string]string{"targetBacklog": " "}, "targetBacklog is missing: give targetBacklog, targetLag or both"},
		"no number":              {map[string]string{"targetBacklog": "ten"}, `targetBacklog is "ten", want a number`},
		"not a number":           {map[string]string{"targetBacklog": "NaN"}, "targetBacklog is"},
		"nothing each":           {map[string]string{"targetBacklog": "0"}, "targetBacklog is"},
		"without end":            {map[string]string{"targetBacklog": "+Inf"}, "targetBacklog is"},
		"a lag without unit":     {map[string]string{"targetLag": "30"}, `targetLag is "30", want a duration with a unit`},
		"no lag":                 {map[string]string{"targetLag": "0s"}, "targetLag must be 1ms or more"},
		"a lag of nothing":       {map[string]string{"targetLag": "1ns"}, "targetLag must be 1ms or more"},
		"a lag of days":          {map[string]string{"targetLag": "48h"}, "targetLag is"},
		"half a job":             {map[string]string{"activationBacklog": "0.5"}, "activationBacklog is"},
		"less than none":         {map[string]string{"activationBacklog": "-1"}, "activationBacklog is"},
		"a threshold for itself": {map[string]string{"activationLag": "1m"}, "activationLag has no effect"},
		"two minds":              {map[string]string{"activationBacklog": "3", "horizon": "1m"}, "horizon has no effect"},
		"running of nothing":     {map[string]string{"targetBacklog": "", "targetLag": "1s", "countRunning": "true"}, "countRunning has no effect"},
		"maybe":                  {map[string]string{"countRunning": "perhaps"}, "countRunning is"},
		"misspelt":               {map[string]string{"targetBackLog": "5"}, "targetBackLog is not known; known are namespace, queue, targetBacklog, targetLag, countRunning, activationBacklog, activationLag, horizon"},
		"said twice":             {map[string]string{"queueFromEnv": "bulk"}, "queue is given twice, once as queueFromEnv"},
		"misspelt in variables":  {map[string]string{"quueFromEnv": "bulk"}, "quue is not known"},
		"a key in plain sight":   {map[string]string{"tlsClientKey": "PEM"}, "tlsClientKey is not read by KEDA here: name a Secret"},
		"very long":              {map[string]string{"horizon": strings.Repeat("9", 10_000)}, `horizon is "9999999999999999999999999999999999999999..."`},
	} {
		texts := map[string]string{"queue": "mail", "targetBacklog": "10"}
		maps.Copy(texts, c.change)
		_, faults := Parse(texts)
		if len(faults) != 1 || !strings.HasPrefix(faults[0].Key+" "+faults[0].Text, c.want) {
			t.Errorf("%s: %v, want %q", name, faults, c.want)
		}
	}
	_, faults := Parse(map[string]string{"targetBacklog": "x", "horizon": "y"})
	if len(faults) != 3 {
		t.Errorf("%v: want all that is wrong", faults)
	}
}

func TestActive(t *testing.T) {
	plain := Trigger{Backlog: 10, Horizon: time.Minute}
	patient := Trigger{Backlog: 10, ActivationBacklog: 5, ActivationLag: time.Minute}
	for _, c := range []struct {
		trigger Trigger
		size    Demand
		want    bool
	}{
		{plain, Demand{}, false},
		{plain, Demand{Waiting: 1}, true},
		{plain, Demand{Running: 1}, true},
		{plain, Demand{Next: 2 * time.Minute, Ahead: true}, false},
		{plain, Demand{Next: time.Minute, Ahead: true}, true},
		{plain, Demand{Next: 0, Ahead: false}, false},
		{Trigger{Backlog: 10}, Demand{Next: 0, Ahead: true}, false},
		{patient, Demand{Waiting: 5, Lag: 59 * time.Second}, false},
		{patient, Demand{Waiting: 6}, true},
		{patient, Demand{Waiting: 1, Lag: time.Minute}, true},
		{patient, Demand{Running: 1}, true},
	} {
		if got := c.trigger.Active(c.size); got != c.want {
			t.Errorf("%+v with %+v: %v", c.trigger, c.size, got)
		}
	}
}

func TestMetrics(t *testing.T) {
	size := Demand{Waiting: 7, Running: 4, Lag: 1500 * time.Millisecond}
	for _, c := range []struct {
		trigger Trigger
		want    []Metric
	}{
		{Trigger{Backlog: 5, CountRunning: true}, []Metric{{Backlog, 11, 5}}},
		{Trigger{Backlog: 5}, []Metric{{Backlog, 7, 5}}},
		{Trigger{Lag: time.Minute}, []Metric{{Lag, 1.5, 60}}},
		{Trigger{Backlog: .5, Lag: time.Minute}, []Metric{{Backlog, 7, .5}, {Lag, 1.5, 60}}},
	} {
		if got := c.trigger.Metrics(size); !slices.Equal(got, c.want) {
			t.Errorf("%+v: %v, want %v", c.trigger, got, c.want)
		}
	}
}

func TestSizesAddUp(t *testing.T) {
	soon, later := Demand{Next: time.Second, Ahead: true, Running: 1}, Demand{Next: time.Minute, Ahead: true, Waiting: 2, Lag: time.Hour}
	want := Demand{Waiting: 2, Running: 1, Lag: time.Hour, Next: time.Second, Ahead: true}
	if soon.And(later) != want || later.And(soon) != want || want.And(Demand{}) != want || (Demand{}).And(want) != want {
		t.Errorf("%+v %+v", soon.And(later), later.And(soon))
	}
}

// TestQueuesWithRunsHaveWorkers: whatever trigger is accepted, a queue with runs that are with workers, or that
// wait for long, has workers.
func TestQueuesWithRunsHaveWorkers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		texts := map[string]string{"queue": "q", "targetBacklog": "1"}
		for key, values := range map[string][]string{
			"targetLag": {"", "1ms", "24h"}, "countRunning": {"", "false"}, "activationBacklog": {"", "0", "1000000000"},
			"activationLag": {"", "0s", "24h"}, "horizon": {"", "0s", "1h"},
		} {
			texts[key] = rapid.SampledFrom(values).Draw(t, key)
		}
		trigger, faults := Parse(texts)
		if len(faults) > 0 {
			return
		}
		if !trigger.Active(Demand{Running: rapid.Int64Range(1, 100).Draw(t, "running")}) {
			t.Errorf("%v scales a run away", texts)
		}
		if !trigger.Active(Demand{Waiting: rapid.Int64Range(1, 100).Draw(t, "waiting"), Lag: MaxSpan}) {
			t.Errorf("%v leaves a job for ever", texts)
		}
	})
}

func FuzzParse(f *testing.F) {
	f.Add("mail", "10", "30s", "1m", "true")
	f.Fuzz(func(t *testing.T, queue, backlog, lag, horizon, counted string) {
		trigger, faults := Parse(map[string]string{"queue": queue, "targetBacklog": backlog, "targetLag": lag, "horizon": horizon, "countRunning": counted})
		if len(faults) > 0 {
			return
		}
		metrics := trigger.Metrics(Demand{Waiting: 1, Lag: time.Second})
		if len(metrics) == 0 || trigger.Horizon < 0 || trigger.Horizon > MaxSpan {
			t.Errorf("%+v", trigger)
		}
		for _, m := range metrics {
			if !(m.Target >= MinTarget) {
				t.Errorf("%+v", m)
			}
		}
	})
}
