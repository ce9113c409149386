package main

import (
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

	c Case
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

// disturbed reports whether any round was.
func (r *Row) disturbed() bool { return slices.ContainsFunc(r.Samples, Sample.disturbed) }

// Least is the smallest median of a metric among the peer's settings.
func (r Results) Least(peer, key string) float64 {
	least := math.NaN()
	for _, row := range r.Rows {
		if v := row.Median(key); row.Peer == peer && !(v >= least) {
			least = v
		}
	}
	return least
}

// BestOf is Best among the settings that ok accepts.
func (r Results) BestOf(peer, key string, ok func(setting string) bool) float64 {
	return r.only(ok).Best(peer, key)
}

// LeastOf is Least among the settings that ok accepts.
func (r Results) LeastOf(peer, key string, ok func(setting string) bool) float64 {
	return r.only(ok).Least(peer, key)
}

func (r Results) only(ok func(setting string) bool) (some Results) {
	for _, row := range r.Rows {
		if ok(row.Setting) {
			some.Rows = append(some.Rows, row)
		}
	}
	return some
}

// oneServer accepts the settings of asynq with a single server.
func oneServer(setting string) bool { return !strings.Contains(setting, "four servers") }

// Ratio is a line of the headline: a figure of Fermata, and by how much it is better than that of a peer.
type Ratio struct {
	Text string
	// Asynq and OneServer are the ratios to asynq's best setting, and to its best with one server; Raw to raw Redis.
	// Above 1 Fermata is better. NaN: not measured.
	Asynq, OneServer, Raw float64
}

// rateRatios compares rates: the defaults first, then Fermata's best setting.
func (r Results) rateRatios(what string) []Ratio {
	line := func(how string, rate float64) Ratio {
		return Ratio{
			Text: what + ": jobs/s, " + how, Asynq: rate / r.Best(peerAsynq, "rate"),
			OneServer: rate / r.BestOf(peerAsynq, "rate", oneServer), Raw: rate / r.Best(peerRaw, "rate"),
		}
	}
	return []Ratio{
		line("defaults", r.Of(peerFermata, defaultSetting, "rate")), line("best setting", r.Best(peerFermata, "rate")),
	}
}

// cpuRatio compares the processor time that a job takes of all parts.
func (r Results) cpuRatio(what string) Ratio {
	own := r.Of(peerFermata, defaultSetting, "cpu_total")
	return Ratio{
		Text: what + ": processor time a job, defaults", Asynq: r.Least(peerAsynq, "cpu_total") / own,
		OneServer: r.LeastOf(peerAsynq, "cpu_total", oneServer) / own, Raw: none,
	}
}

// rateTargets are the bounds of the defaults' rate.
func (r Results) rateTargets(what string, required, aimed float64) []Target {
	rate := r.Of(peerFermata, defaultSetting, "rate")
	return []Target{
		{Text: what + ", against asynq's best", Value: rate / r.Best(peerAsynq, "rate"),
			Required: required, Aimed: aimed, Unit: "x"},
		{Text: what + ", against asynq's best with one server", Value: rate / r.BestOf(peerAsynq, "rate", oneServer),
			Required: required, Aimed: aimed, Unit: "x"},
	}
}

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
