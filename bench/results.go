package main

import (
	"context"
	"math"
	"slices"
	"strings"

	"github.com/fermata-io/fermata/bench/internal/stats"
)

// Row is what one case came to.
type Row struct {
	Peer    string
	Setting string
	Samples []Sample `json:",omitempty"`
	Err     string   `json:",omitempty"`

	run func(context.Context, *runner) (Sample, error)
}

// Median of a metric over the rounds; NaN when it was not measured.
func (r *Row) Median(key string) float64 { return stats.Median(r.values(key)) }

// Worst is the greatest value of a metric; NaN when it was not measured.
func (r *Row) Worst(key string) float64 {
	_, high := r.Spread(key)
	return high
}

// Spread is the smallest and the greatest value.
func (r *Row) Spread(key string) (low, high float64) {
	v := r.values(key)
	if len(v) == 0 {
		return math.NaN(), math.NaN()
	}
	return slices.Min(v), slices.Max(v)
}

func (r *Row) values(key string) []float64 {
	var out []float64
	for _, s := range r.Samples {
		if v, ok := s[key]; ok {
			out = append(out, v)
		}
	}
	return out
}

// Results are the rows of a scenario.
type Results struct {
	Scenario Scenario
	Rows     []*Row
}

// Of is the median of a metric in the row of a case; NaN when there is none.
func (r Results) Of(peer, setting, key string) float64 {
	for _, row := range r.Rows {
		if row.Peer == peer && row.Setting == setting {
			return row.Median(key)
		}
	}
	return math.NaN()
}

// Best is the greatest median of a metric among the peer's settings.
func (r Results) Best(peer, key string) float64 {
	best := math.NaN()
	for _, row := range r.Rows {
		if v := row.Median(key); row.Peer == peer && !math.IsNaN(v) && !(v <= best) {
			best = v
		}
	}
	return best
}

// BestOf is Best among the settings that ok accepts.
func (r Results) BestOf(peer, key string, ok func(setting string) bool) float64 {
	some := Results{}
	for _, row := range r.Rows {
		if ok(row.Setting) {
			some.Rows = append(some.Rows, row)
		}
	}
	return some.Best(peer, key)
}

// oneServer accepts the settings of asynq with a single server.
func oneServer(setting string) bool { return !strings.Contains(setting, "servers") }

// none is an aim that there is not.
var none = math.NaN()

// Target is a figure that has to be reached.
type Target struct {
	Text     string
	Value    float64
	Required float64
	Aimed    float64 // NaN: none
	AtMost   bool    // the value must not be greater, rather than not smaller
	Unit     string
}

// Verdicts of a target.
const (
	Missed  = "missed"
	Reached = "reached"
	Aimed   = "aim reached"
	Unknown = "not measured"
)

// Verdict compares the value with what is required and aimed at.
func (t Target) Verdict() string {
	switch {
	case math.IsNaN(t.Value):
		return Unknown
	case !t.meets(t.Required):
		return Missed
	case !math.IsNaN(t.Aimed) && t.meets(t.Aimed):
		return Aimed
	}
	return Reached
}

func (t Target) meets(bound float64) bool {
	if t.AtMost {
		return t.Value <= bound
	}
	return t.Value >= bound
}
