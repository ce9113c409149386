package main

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// intro explains the document.
const intro = `# Benchmarks

Written by ` + "`make bench`" + `; do not edit. Fermata runs as its users run it: scheduler processes, a worker process written
with the package worker, jobs registered over gRPC. asynq's servers have a process of their own too; its library talks
to Redis without a node between. Everything runs on one machine over loopback, so that clients, nodes, workers and Redis share its
cores: **compare the rows of a table, not machines**. Within a scenario all cases are run in turn, round by round, each time
beginning with another one, every run on a fresh redis-server without persistence ("aof": appendonly everysec). Figures are medians, with the
smallest and the greatest in brackets. After each run the worker's log must show that every job ran exactly as often as
it should, or the run does not count. The last column is what processes outside of the benchmark took of the machine meanwhile. asynq has the best settings that we found, named in its rows.
"Raw redis" is the least that a scheduler can ask of Redis: lease and reschedule random ids with random due times in batches of 100, by two Lua scripts
from four connections, with nothing checked.
`

// markdown writes the document.
func markdown(o Outcome) string {
	var b strings.Builder
	b.WriteString(intro)
	e := o.Environment
	fmt.Fprintf(&b, "\n| | |\n| --- | --- |\n| machine | %d x %s, %s, %s |\n", e.Cores, e.CPU, e.Memory, e.Kernel)
	fmt.Fprintf(&b, "| versions | redis-server %s, asynq %s, go-redis %s, %s |\n", e.Redis, e.Asynq, e.GoRedis, e.Go)
	fmt.Fprintf(&b, "| settings | one node, defaults; redis-server with save \"\" and appendonly no; asynq's log off |\n")
	b.WriteString("\n## Targets\n\n" + targetTable(o))
	for _, m := range o.Scenarios {
		if s, ok := scenarioOf(m.Name); ok {
			build, sizes := "", ""
			if m.Fermata != "" {
				build = ", fermata " + m.Fermata
			}
			if m.Quick {
				sizes = ", smaller sizes"
			}
			fmt.Fprintf(&b, "\n## %s\n\n%s\n\n`%s` (%s%s, rounds: %d%s)\n\n%s", s.Title, s.Text,
				m.Command, m.At.Format("2006-01-02"), build, m.Rounds, sizes, table(s, m.Rows))
		}
	}
	return b.String()
}

// targetTable lists what has to be reached, with the figures.
func targetTable(o Outcome) string {
	var b strings.Builder
	b.WriteString("| target | measured | required | aim | |\n| --- | --- | --- | --- | --- |\n")
	for _, m := range o.Scenarios {
		for _, t := range m.Targets {
			bound := "≥ "
			if t.AtMost {
				bound = "≤ "
			}
			measured, aim := "-", "-"
			if t.Value != nil {
				measured = strings.TrimSpace(figure(*t.Value) + " " + t.Unit)
			}
			if t.Aimed != nil {
				aim = bound + figure(*t.Aimed)
			}
			fmt.Fprintf(&b, "| %s | %s | %s%s | %s | %s |\n", t.Text, measured, bound, figure(t.Required), aim, t.Verdict)
		}
	}
	return b.String()
}

// table shows the rows of a scenario; rates are also compared with the peers'.
func table(s Scenario, rows []*Row) string {
	results := Results{Scenario: s, Rows: rows}
	head := []string{"peer", "setting"}
	var metrics []Metric
	for _, m := range s.columns() {
		for _, r := range rows {
			if len(r.values(m.Key)) > 0 {
				metrics = append(metrics, m)
				head = append(head, m.Title)
				break
			}
		}
	}
	asynq, raw := none, none
	if !math.IsNaN(results.Best(peerFermata, "rate")) {
		asynq, raw = results.Best(peerAsynq, "rate"), results.Best(peerRaw, "rate")
	}
	if !math.IsNaN(asynq) {
		head = append(head, "÷ asynq's best")
	}
	if !math.IsNaN(raw) {
		head = append(head, "÷ raw")
	}
	var b strings.Builder
	fmt.Fprintf(&b, "| %s |\n|%s\n", strings.Join(head, " | "), strings.Repeat(" --- |", len(head)))
	for _, r := range rows {
		cells := []string{r.Peer, r.Setting}
		if r.Err != "" {
			first, _, _ := strings.Cut(r.Err, "\n")
			fmt.Fprintf(&b, "| %s | void: %s |%s\n", strings.Join(cells, " | "), first, strings.Repeat(" |", max(0, len(head)-3)))
			continue
		}
		for _, m := range metrics {
			cells = append(cells, cell(r, m))
		}
		for _, base := range []float64{asynq, raw} {
			if !math.IsNaN(base) {
				cells = append(cells, ratio(r.Median("rate")/base))
			}
		}
		fmt.Fprintf(&b, "| %s |\n", strings.Join(cells, " | "))
	}
	return b.String()
}

// cell is a median with its spread.
func cell(r *Row, m Metric) string {
	v := r.Median(m.Key)
	if math.IsNaN(v) {
		return ""
	}
	text := thousands(v, m.Digits)
	low, high := r.Spread(m.Key)
	if from, to := thousands(low, m.Digits), thousands(high, m.Digits); from != to {
		text += " (" + from + "–" + to + ")"
	}
	return text
}

func ratio(v float64) string {
	if math.IsNaN(v) {
		return ""
	}
	return strconv.FormatFloat(v, 'f', 2, 64)
}

// figure shows a number with as many digits as it deserves.
func figure(v float64) string {
	switch a := math.Abs(v); {
	case a >= 100 || v == math.Trunc(v):
		return thousands(v, 0)
	case a >= 10:
		return thousands(v, 1)
	case a < 1:
		return thousands(v, 3)
	}
	return thousands(v, 2)
}

// thousands formats a number with commas.
func thousands(v float64, digits int) string {
	text := strconv.FormatFloat(v, 'f', digits, 64)
	sign, whole, rest := "", text, ""
	if strings.HasPrefix(text, "-") {
		sign, whole = "-", text[1:]
	}
	if i := strings.IndexByte(whole, '.'); i >= 0 {
		whole, rest = whole[:i], whole[i:]
	}
	for i := len(whole) - 3; i > 0; i -= 3 {
		whole = whole[:i] + "," + whole[i:]
	}
	return sign + whole + rest
}
