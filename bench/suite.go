package main

import (
	"context"
	"fmt"
	"path/filepath"
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
	// Once measures in the first round only: a case that takes minutes.
	Once bool
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
	Name string
	// Form grows when cases or metrics change their meaning: figures of an earlier form are marked as such.
	Form int
	// MaxRounds is the number of rounds that are enough; 0: as many as asked for.
	MaxRounds int
	Title     string
	Text      string // what is measured, for readers of the report
	Metrics   []Metric
	Cases     func(Params) []Case
	// Targets judges the results; nil where there is nothing to reach.
	Targets func(Results) []Target
	// Ratios are the headline: Fermata with its defaults, compared with the peers.
	Ratios func(Results) []Ratio
}

// others is what processes that do not belong to the benchmark took of the machine during a run: of the whole run, or
// of the span that is measured, whichever is more.
var others = Metric{Key: "others", Title: "others % of machine"}

const (
	// disturbedAbove is how many percent of the machine others may take. A run beside more is repeated.
	disturbedAbove = 10
	// maxRepeats bounds how often a run is repeated. The quietest counts, and is marked if it was disturbed too.
	maxRepeats = 2
)

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

// maxRepeats is how often a disturbed run is repeated. A quick look only marks it.
func (p Params) maxRepeats() int {
	if p.Quick {
		return 0
	}
	return maxRepeats
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
			results.Rows = append(results.Rows, &Row{Peer: c.Peer, Setting: c.Setting, c: c})
		}
	}
	rounds := s.rounds(r.p)
	for round := range rounds {
		for i := range results.Rows {
			row := results.Rows[(i+round)%len(results.Rows)]
			if row.Err != "" || row.c.Once && round > 0 || ctx.Err() != nil {
				continue
			}
			start := time.Now()
			sample, err := r.measure(ctx, s, row)
			if err != nil {
				row.Err, row.Samples = err.Error(), nil
				r.log("%s: %s, %s: FAILED: %v", s.Name, row.Peer, row.Setting, err)
				continue
			}
			row.Samples = append(row.Samples, sample)
			r.log("%s %d/%d: %s, %s: %s (%.1fs)", s.Name, round+1, rounds, row.Peer, row.Setting,
				s.line(sample), time.Since(start).Seconds())
		}
	}
	return results
}

// rounds is how often the cases are run.
func (s Scenario) rounds(p Params) int {
	if s.MaxRounds > 0 {
		return min(s.MaxRounds, p.Rounds)
	}
	return p.Rounds
}

// measure runs a case, again while others disturb it. It returns the sample that was disturbed least.
func (r *runner) measure(ctx context.Context, s Scenario, row *Row) (quietest Sample, err error) {
	for repeat := 0; ; repeat++ {
		sample, err := r.measureOnce(ctx, s, row)
		if err != nil {
			return nil, err
		}
		if quietest == nil || sample[others.Key] < quietest[others.Key] {
			quietest = sample
		}
		if !quietest.disturbed() || repeat == r.p.maxRepeats() || ctx.Err() != nil {
			return quietest, nil
		}
		r.log("%s: %s, %s: others took %.0f %% of the machine: once more", s.Name, row.Peer, row.Setting, sample[others.Key])
	}
}

// measureOnce runs a case and notes what others took of the machine.
func (r *runner) measureOnce(ctx context.Context, s Scenario, row *Row) (Sample, error) {
	r.measured = filepath.Join(s.Name, pathOf(row.Setting))
	start, busy, own := time.Now(), proc.Busy(), proc.Own()
	sample, err := row.c.Run(ctx, r)
	if err != nil {
		return nil, err
	}
	whole := span{took: time.Since(start), others: max(0, (proc.Busy()-busy)-(proc.Own()-own))}
	sample[others.Key] = max(sample[others.Key], whole.shareOfOthers())
	return sample, nil
}

// disturbed reports whether others took too much of the machine.
func (s Sample) disturbed() bool { return s[others.Key] > disturbedAbove }

// pathOf is a setting as the name of a folder.
func pathOf(setting string) string {
	isOther := func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) }
	return strings.Join(strings.FieldsFunc(setting, isOther), "-")
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
