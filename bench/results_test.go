package main

import (
	"errors"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
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
	o.put(Measured{Name: "lag", Rows: rows(), Targets: target})
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
