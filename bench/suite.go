package main

import (
	"context"
	"fmt"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/fermata-io/fermata/bench/internal/proc"
)

// Peers.
const (
	peerFermata = "fermata"
	peerAsynq   = "asynq"
	peerRaw     = "raw redis"
)

// Sample is what one run of a case measured, by the key of the metric.
type Sample map[string]float64

// Case is one peer with one setting in a scenario.
type Case struct {
	Peer    string
	Setting string
	// Run measures once, on parts of its own.
	Run func(context.Context, *runner) (Sample, error)
}

// Metric is a column.
type Metric struct {
	Key    string
	Title  string
	Digits int // behind the point
}

// Scenario is a question with the cases that answer it.
type Scenario struct {
	Name    string
	Title   string
	Text    string // what is measured, for readers of the report
	Metrics []Metric
	Cases   func(Params) []Case
	// Targets judges the results; nil where there is nothing to reach.
	Targets func(Results) []Target
}

// others is measured by the runner for each run, preparations included: what processes
// that do not belong to it took of the machine. It should be next to nothing.
var others = Metric{Key: "others", Title: "others % of machine"}

func (s Scenario) columns() []Metric { return append(slices.Clone(s.Metrics), others) }

// Params are the settings of the command line.
type Params struct {
	Peers   map[string]bool
	Only    string // a part of the settings to run; "": all
	Rounds  int
	Quick   bool
	Jobs    int   // 0: the scenario's own number
	Slots   []int // none: the scenario's own
	Flags   []string
	Profile string
}

// jobs is the scenario's number of jobs, one for a quick look, or that of the
// command line.
func (p Params) jobs(full, quick int) int {
	switch {
	case p.Jobs > 0:
		return p.Jobs
	case p.Quick:
		return quick
	}
	return full
}

func (p Params) slots(usual ...int) []int {
	if len(p.Slots) > 0 {
		return p.Slots
	}
	return usual
}

// runner runs the cases of scenarios.
type runner struct {
	p         Params
	dir       string // temporary
	scheduler string // the binary
	log       func(format string, args ...any)
	measured  string // what is being run, as a path
}

// run interleaves the cases: each round runs all of them, beginning with another
// one. A case that fails is not tried again, and its earlier samples do not count.
func (r *runner) run(ctx context.Context, s Scenario) Results {
	results := Results{Scenario: s}
	for _, c := range s.Cases(r.p) {
		if r.p.Peers[c.Peer] && strings.Contains(c.Setting, r.p.Only) {
			results.Rows = append(results.Rows, &Row{Peer: c.Peer, Setting: c.Setting, run: c.Run})
		}
	}
	for round := range r.p.Rounds {
		for i := range results.Rows {
			row := results.Rows[(i+round)%len(results.Rows)]
			if row.Err != "" || ctx.Err() != nil {
				continue
			}
			r.measured = filepath.Join(s.Name, pathOf(row.Setting))
			start, busy, own := time.Now(), proc.Busy(), proc.Own()
			sample, err := row.run(ctx, r)
			if err != nil {
				row.Err, row.Samples = err.Error(), nil
				r.log("%s: %s, %s: FAILED: %v", s.Name, row.Peer, row.Setting, err)
				continue
			}
			foreign := (proc.Busy() - busy) - (proc.Own() - own)
			sample[others.Key] = 100 * max(0, foreign.Seconds()) / time.Since(start).Seconds() / float64(runtime.NumCPU())
			row.Samples = append(row.Samples, sample)
			r.log("%s %d/%d: %s, %s: %s (%.1fs)", s.Name, round+1, r.p.Rounds, row.Peer, row.Setting,
				s.line(sample), time.Since(start).Seconds())
		}
	}
	return results
}

// pathOf is a setting as the name of a folder.
func pathOf(setting string) string {
	return strings.Join(strings.FieldsFunc(setting, func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) }), "-")
}

// line shows a sample.
func (s Scenario) line(sample Sample) string {
	text := ""
	for _, m := range s.columns() {
		if v, ok := sample[m.Key]; ok {
			text += fmt.Sprintf("  %s %.*f", m.Title, m.Digits, v)
		}
	}
	return text
}
