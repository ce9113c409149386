package acceptance

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/fermata-io/fermata/internal/test/historycheck"
)

// shown is a figure by which a trial proves that its fault took place.
type shown struct {
	What      string
	Got, Want int
}

// figures are what one trial came to.
type figures struct {
	ID, Name string
	Faults   map[string]int // by kind
	Power    []shown
	// Bound is documented, Gap was seen: the longest wait of a job, of this one.
	Bound, Gap time.Duration
	Job        string
	// TakeOvers are the times from the loss of a node to the first start of a run
	// in one of its shards.
	TakeOvers []time.Duration
	Took      time.Duration // in all
	Calm      time.Duration // from the end of the last fault until all was as before
}

func (f *figures) String() string {
	text := fmt.Sprintf("%s; longest wait %v of %v", f.faultSummary(), f.Gap.Round(time.Millisecond), f.Bound)
	if len(f.TakeOvers) > 0 {
		text += fmt.Sprintf("; taken over after %v", f.takeOvers())
	}
	for _, p := range f.Power {
		text += fmt.Sprintf("; %s %d", p.What, p.Got)
	}
	return text
}

func (f *figures) faultSummary() string {
	var all []string
	for _, kind := range slices.Sorted(maps.Keys(f.Faults)) {
		all = append(all, fmt.Sprintf("%d x %s", f.Faults[kind], kind))
	}
	return strings.Join(all, ", ")
}

func (f *figures) takeOvers() string {
	if len(f.TakeOvers) == 0 {
		return "-"
	}
	all := slices.Sorted(slices.Values(f.TakeOvers))
	return fmt.Sprintf("p50 %v, p99 %v of %d", quantileOfSorted(all, 0.5).Round(10*time.Millisecond), quantileOfSorted(all, 0.99).Round(10*time.Millisecond), len(all))
}

// chaosReport collects the figures of all trials of a run of the tests.
type chaosReport struct {
	mu         sync.Mutex
	Trials     []*figures
	Histories  int
	Executions int
	Targets    int
	Repeats    int
	Findings   map[historycheck.Kind]int
}

var report = &chaosReport{Findings: map[historycheck.Kind]int{}}

func addFigures(f *figures) {
	report.mu.Lock()
	defer report.mu.Unlock()
	report.Trials = append(report.Trials, f)
}

func addHistory(r historycheck.Report) {
	report.mu.Lock()
	defer report.mu.Unlock()
	report.Histories++
	report.Executions += r.Executions
	report.Targets += r.Targets
	report.Repeats += r.Repeats
	for _, f := range r.Findings {
		report.Findings[f.Kind]++
	}
}

// writeReport shows the figures of all trials, if there were any, and writes them to
// the file that FERMATA_CHAOS_REPORT names.
func (r *chaosReport) writeReport(out io.Writer) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.Trials) == 0 {
		return nil
	}
	slices.SortStableFunc(r.Trials, func(a, b *figures) int { return strings.Compare(a.ID, b.ID) })
	table := tabwriter.NewWriter(out, 0, 4, 2, ' ', 0)
	fmt.Fprintln(table, "trial\tfaults\tlongest wait\tdocumented\ttaken over\tback to normal\t")
	for _, f := range r.Trials {
		fmt.Fprintf(table, "%s\t%s\t%v\t%v\t%s\t%v\t\n", f.ID, f.faultSummary(), f.Gap.Round(10*time.Millisecond), f.Bound,
			f.takeOvers(), f.Calm.Round(10*time.Millisecond))
	}
	if err := table.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(out, "%d histories, %d executions, %d nominal times, %d repeats; lost %d, missed %d, overlapping %d, early %d, findings in all %d\n",
		r.Histories, r.Executions, r.Targets, r.Repeats, r.Findings[historycheck.Lost], r.Findings[historycheck.Missed],
		r.Findings[historycheck.Overlap], r.Findings[historycheck.Early], r.countFaults())
	path := os.Getenv("FERMATA_CHAOS_REPORT")
	if path == "" {
		return nil
	}
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o644)
}

func (r *chaosReport) countFaults() (n int) {
	for _, k := range r.Findings {
		n += k
	}
	return n
}
