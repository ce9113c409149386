package main

import (
	"context"
	"errors"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func rows() []*Row {
	return []*Row{
		{Peer: peerFermata, Setting: "a", Samples: []Sample{{"rate": 100}, {"rate": 300}, {"rate": 200}}},
		{Peer: peerFermata, Setting: "b", Samples: []Sample{{"rate": 150}}},
		{Peer: peerAsynq, Setting: "c", Samples: []Sample{{"rate": 50}, {"rate": 30}}},
		{Peer: peerAsynq, Setting: "broken", Err: "lost a job\nand more"},
	}
}

func TestMedianSpreadBest(t *testing.T) {
	r := Results{Rows: rows()}
	if v := r.Of(peerFermata, "a", "rate"); v != 200 {
		t.Errorf("median %v", v)
	}
	if low, high := r.Rows[0].Spread("rate"); low != 100 || high != 300 {
		t.Errorf("spread %v to %v", low, high)
	}
	if v := r.Best(peerFermata, "rate"); v != 200 {
		t.Errorf("best %v", v)
	}
	if v := r.Best(peerAsynq, "rate"); v != 40 {
		t.Errorf("best %v", v)
	}
	if v := r.BestOf(peerFermata, "rate", func(s string) bool { return s != "a" }); v != 150 {
		t.Errorf("best of some %v", v)
	}
	if v := r.Best(peerRaw, "rate"); !math.IsNaN(v) {
		t.Errorf("best of nothing %v", v)
	}
}

func TestVerdict(t *testing.T) {
	for _, c := range []struct {
		t    Target
		want string
	}{
		{Target{Value: 4.9, Required: 5, Aimed: 8}, Missed},
		{Target{Value: 5, Required: 5, Aimed: 8}, Reached},
		{Target{Value: 9, Required: 5, Aimed: 8}, Aimed},
		{Target{Value: 9, Required: 5, Aimed: none}, Reached},
		{Target{Value: 9, Required: 8, Aimed: 5, AtMost: true}, Missed},
		{Target{Value: 7, Required: 8, Aimed: 5, AtMost: true}, Reached},
		{Target{Value: 0, Required: 0, Aimed: none, AtMost: true}, Reached},
		{Target{Value: math.NaN(), Required: 8}, Unknown},
	} {
		if got := c.t.Verdict(); got != c.want {
			t.Errorf("%+v: %s, want %s", c.t, got, c.want)
		}
	}
}

func TestTable(t *testing.T) {
	got := table(Scenario{Metrics: []Metric{{"rate", "jobs/s", 0}, {"other", "not measured", 1}}}, rows())
	want := `| peer | setting | jobs/s | ÷ asynq's best |
| --- | --- | --- | --- |
| fermata | a | 200 (100–300) | 5.00 |
| fermata | b | 150 | 3.75 |
| asynq | c | 40 (30–50) | 1.00 |
| asynq | broken | void: lost a job | |
`
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestThousands(t *testing.T) {
	for want, got := range map[string]string{
		"1,234,567": thousands(1234567, 0), "-1,234.5": thousands(-1234.5, 1), "999": thousands(999, 0), "0.25": thousands(.25, 2),
		"12.3": figure(12.34), "60,000": figure(60000), "5": figure(5), "0.501": figure(.501), "1.50": figure(1.5),
	} {
		if got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

func TestOutcomeKeepsOtherScenarios(t *testing.T) {
	file := filepath.Join(t.TempDir(), "o.json")
	var o Outcome
	target := verdicts([]Target{{Text: "fast", Value: 3, Required: 2, Aimed: none}, {Text: "unknown", Value: math.NaN(), Required: 1, Aimed: 2}})
	o.put(Measured{Name: "lag", Form: lag.Form, Rows: rows(), Targets: target})
	o.put(Measured{Name: "drain", Rounds: 1})
	o.put(Measured{Name: "drain", Rounds: 3})
	if err := (command{json: file}).write(o); err != nil {
		t.Fatal(err)
	}
	o, err := loadOutcome(file)
	if err != nil {
		t.Fatal(err)
	}
	if len(o.Scenarios) != 2 || o.Scenarios[0].Name != "drain" || o.Scenarios[0].Rounds != 3 {
		t.Fatalf("%+v", o.Scenarios)
	}
	text := markdown(o)
	for _, want := range []string{drain.Title, lag.Title, "| fast | 3 | ≥ 2 | - | reached |", "| unknown | - | ≥ 1 | ≥ 2 | not measured |"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if _, err := os.Stat(file); err != nil {
		t.Error(err)
	}
}

// TestEarlierFormsAreMarked: figures of a scenario that has changed since stay in the document, marked with their build,
// and are in none of the tables that compare.
func TestEarlierFormsAreMarked(t *testing.T) {
	fast := []*Row{
		{Peer: peerFermata, Setting: defaultSetting, Samples: []Sample{{"rate": 900}}},
		{Peer: peerAsynq, Setting: oneServerName, Samples: []Sample{{"rate": 150}}},
		{Peer: peerAsynq, Setting: fourServersName, Samples: []Sample{{"rate": 300}}},
		{Peer: peerRaw, Setting: rawCompleteName, Samples: []Sample{{"rate": 3000}}},
	}
	m := Measured{Name: "drain", Form: drain.Form, Fermata: "b1", Machine: "a machine", Rows: fast,
		Targets: verdicts(drain.Targets(Results{Rows: fast}))}
	const line = "| one-time jobs: jobs/s, defaults | 3.00 | 6.00 | 0.30 | b1 |"
	if text := markdown(Outcome{Scenarios: []Measured{m}}); !strings.Contains(text, line) || !strings.Contains(text, "a machine") ||
		!strings.Contains(text, "| one-time jobs, defaults, share of raw Redis | 30 % |") || strings.Contains(text, "of build b1") {
		t.Errorf("the present form:\n%s", text)
	}
	m.Form = drain.Form - 1
	if text := markdown(Outcome{Scenarios: []Measured{m}}); strings.Contains(text, line) || strings.Contains(text, "share of raw Redis") ||
		!strings.Contains(text, "These figures are of build b1") || !strings.Contains(text, "in the two tables above: "+drain.Title) {
		t.Errorf("an earlier form:\n%s", text)
	}
}

// TestDisturbedRunsAreRepeated: a run beside other processes is repeated at most so often, and the quietest counts.
func TestDisturbedRunsAreRepeated(t *testing.T) {
	for _, c := range []struct {
		others []float64 // of each run
		quick  bool
		runs   int
		rate   float64 // number of the run that counts
		marked bool
	}{
		{others: []float64{0}, runs: 1, rate: 1},
		{others: []float64{disturbedAbove}, runs: 1, rate: 1},
		{others: []float64{40, 5}, runs: 2, rate: 2},
		{others: []float64{40, 20, 30}, runs: 1 + maxRepeats, rate: 2, marked: true},
		{others: []float64{40}, quick: true, runs: 1, rate: 1, marked: true},
	} {
		runs := 0
		s := Scenario{Name: "s", Metrics: []Metric{{"rate", "jobs/s", 0}}, Cases: func(Params) []Case {
			return []Case{{Peer: peerFermata, Setting: "a", Run: func(context.Context, *runner) (Sample, error) {
				runs++
				return Sample{"rate": float64(runs), others.Key: c.others[runs-1]}, nil
			}}}
		}}
		r := &runner{p: Params{Rounds: 1, Quick: c.quick, Peers: map[string]bool{peerFermata: true}}, log: t.Logf}
		rows := r.run(t.Context(), s).Rows
		if runs != c.runs || rows[0].Median("rate") != c.rate || rows[0].disturbed() != c.marked {
			t.Errorf("%+v: %d runs, %+v", c, runs, rows[0].Samples)
		}
		if strings.Contains(table(s, rows), "| a (disturbed) |") != c.marked {
			t.Errorf("%+v:\n%s", c, table(s, rows))
		}
	}
}

// TestCasesThatTakeLongRunOnce: they are measured in the first round only.
func TestCasesThatTakeLongRunOnce(t *testing.T) {
	runs := map[string]int{}
	one := func(name string, once bool) Case {
		return Case{Peer: peerFermata, Setting: name, Once: once, Run: func(context.Context, *runner) (Sample, error) {
			runs[name]++
			return Sample{}, nil
		}}
	}
	s := Scenario{Cases: func(Params) []Case { return []Case{one("short", false), one("long", true)} }}
	r := &runner{p: Params{Rounds: 3, Quick: true, Peers: map[string]bool{peerFermata: true}}, log: t.Logf}
	r.run(t.Context(), s)
	s.MaxRounds = 1
	r.run(t.Context(), s)
	if runs["short"] != 4 || runs["long"] != 2 {
		t.Errorf("%v", runs)
	}
}

// TestEachScenarioHasAsynqWithOneAndFourServers, except where servers do not matter.
func TestEachScenarioHasAsynqWithOneAndFourServers(t *testing.T) {
	for _, s := range []Scenario{drain, recurring, retry, lag, instant, idle} {
		for _, quick := range []bool{false, true} {
			one, four := false, false
			for _, c := range s.Cases(Params{Quick: quick}) {
				if c.Peer == peerAsynq {
					one, four = one || oneServer(c.Setting), four || !oneServer(c.Setting)
				}
			}
			if !one || !four {
				t.Errorf("%s, quick %v: one server %v, four %v", s.Name, quick, one, four)
			}
		}
	}
}

// TestDeletionCounts: the rate of one-time jobs is that of draining and deleting.
func TestDeletionCounts(t *testing.T) {
	drained := span{took: time.Second, cpu: map[string]time.Duration{partRedis: 600 * time.Millisecond, partScheduler: 300 * time.Millisecond}}
	deleted := span{took: 9 * time.Second, cpu: map[string]time.Duration{partRedis: 200 * time.Millisecond, partScheduler: 100 * time.Millisecond}}
	s := backlog{n: 1000, keep: time.Second}.sample(drained, deleted)
	if s["drained"] != 1000 || math.Abs(s["rate"]-750) > 1e-6 || s["cpu_redis"] != 800 || s["cpu_total"] != 1200 ||
		s["deletion_redis"] != 200 || s["deletion_scheduler"] != 100 {
		t.Errorf("%v", s)
	}
	s = backlog{n: 1000}.sample(drained, span{})
	if _, ok := s["drained"]; ok || s["rate"] != 1000 || s["cpu_total"] != 900 {
		t.Errorf("without deletion: %v", s)
	}
}

// TestDocument: the document is that of the samples beside it.
func TestDocument(t *testing.T) {
	o, err := loadOutcome("../docs/benchmarks.json")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile("../docs/benchmarks.md")
	if err != nil {
		t.Fatal(err)
	}
	if string(text) != markdown(o) {
		t.Error("docs/benchmarks.md is not what docs/benchmarks.json comes to: go run . -render -json ../docs/benchmarks.json -docs ../docs/benchmarks.md")
	}
}

// TestNothingToKeep: the document is not written anew with less than it had.
func TestNothingToKeep(t *testing.T) {
	docs := filepath.Join(t.TempDir(), "docs.md")
	for _, how := range []string{"-keep", "-render"} {
		if err := run(t.Context(), []string{"drain", how, "-json", docs + ".json", "-docs", docs}); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %v", how, err)
		}
	}
	if _, err := os.Stat(docs); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the document: %v", err)
	}
}

func TestParse(t *testing.T) {
	c, err := parse([]string{"drain", "lag", "-peers", "fermata,raw", "-slots", "64,500", "-scheduler-flag=--x=1"})
	if err != nil {
		t.Fatal(err)
	}
	if len(c.scenarios) != 2 || c.Peers[peerAsynq] || !c.Peers[peerRaw] || len(c.Slots) != 2 || c.Flags[0] != "--x=1" {
		t.Errorf("%+v", c.Params)
	}
	for _, wrong := range [][]string{{"nothing"}, {"-peers", "other"}, {"-slots", "x"}} {
		if _, err := parse(wrong); err == nil {
			t.Errorf("%q is taken", wrong)
		}
	}
}

func TestBenchmarkMetric(t *testing.T) {
	out := []byte("goos: linux\nBenchmarkCycle/jobs=1 \t 100\t 17 ns/op\t 9.25 redis-us/job\nPASS\n")
	if v, err := benchmarkMetric(out, "redis-us/job"); err != nil || v != 9.25 {
		t.Errorf("%v, %v", v, err)
	}
	if _, err := benchmarkMetric(out, "other"); err == nil {
		t.Error("found what is not there")
	}
}

func TestRowsAreDistinct(t *testing.T) {
	for _, s := range scenarios() {
		seen := map[string]bool{}
		for _, c := range s.Cases(Params{}) {
			name := c.Peer + ": " + c.Setting
			if seen[name] {
				t.Errorf("%s has %s twice", s.Name, name)
			}
			seen[name] = true
		}
	}
}
