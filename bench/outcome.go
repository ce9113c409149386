package main

import (
	"encoding/json"
	"math"
	"os"
	"slices"
	"time"
)

// Outcome is all that was measured, as it is kept in a JSON file.
type Outcome struct {
	Environment Environment
	Scenarios   []Measured
}

// Measured is what a scenario came to.
type Measured struct {
	Name    string
	Form    int `json:",omitempty"` // of the scenario when it was measured
	At      time.Time
	Fermata string `json:",omitempty"` // the build that was measured
	Machine string `json:",omitempty"`
	Rounds  int
	Quick   bool `json:",omitempty"`
	Command string
	Rows    []*Row
	Targets []Verdict `json:",omitempty"`
}

// isEarlierForm reports whether the scenario was changed since, so that its figures mean something else.
func (m Measured) isEarlierForm(s Scenario) bool { return m.Form < s.Form }

func (m Measured) disturbed() bool { return slices.ContainsFunc(m.Rows, (*Row).disturbed) }

// Verdict is a target as it is kept: figures that were not measured are left out.
type Verdict struct {
	Text     string
	Value    *float64 `json:",omitempty"`
	Required float64
	Aimed    *float64 `json:",omitempty"`
	AtMost   bool     `json:",omitempty"`
	Unit     string   `json:",omitempty"`
	Verdict  string
}

func verdicts(targets []Target) []Verdict {
	var out []Verdict
	number := func(v float64) *float64 {
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return nil
		}
		return &v
	}
	for _, t := range targets {
		out = append(out, Verdict{t.Text, number(t.Value), t.Required, number(t.Aimed), t.AtMost, t.Unit, t.Verdict()})
	}
	return out
}

// loadOutcome reads a file.
func loadOutcome(file string) (o Outcome, err error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return o, err
	}
	return o, json.Unmarshal(text, &o)
}

// put takes a scenario's results in, in place of earlier ones.
func (o *Outcome) put(m Measured) {
	i := slices.IndexFunc(o.Scenarios, func(x Measured) bool { return x.Name == m.Name })
	if i < 0 {
		o.Scenarios = append(o.Scenarios, m)
		return
	}
	o.Scenarios[i] = m
}

// sort brings the scenarios into the order in which they are run.
func (o *Outcome) sort() {
	place := func(m Measured) int {
		return slices.IndexFunc(scenarios(), func(s Scenario) bool { return s.Name == m.Name })
	}
	slices.SortStableFunc(o.Scenarios, func(a, b Measured) int { return place(a) - place(b) })
}

func (o Outcome) save(file string) error {
	text, err := json.MarshalIndent(o, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(text, '\n'), 0o644)
}
