package main

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// intro explains the document.
const intro = `# Benchmarks

Written by ` + "`make bench`" + `; do not edit. Fermata runs as its users run it: scheduler nodes, a worker process that uses the package
worker, jobs registered over gRPC. asynq's servers have a process of their own too; its library talks to Redis directly,
without a node. Everything runs on one machine over loopback, so that clients, nodes, workers and Redis share its cores:
**compare ratios, not absolute numbers of different machines**. How it is measured:

- Fermata has its defaults unless a row says otherwise: one node, a worker with 16 slots, ten runs of history. asynq has the
  best settings that we found, named in its rows, with one server and with four.
- All cases of a scenario run in turn, round by round. Each round begins with another case, and each run has a new
  redis-server without persistence ("aof": appendonly everysec). Figures are medians; the smallest and the greatest are in brackets.
- Due times are at random nanoseconds, never at whole milliseconds.
- One-time jobs are followed until they are deleted.
- The worker's log must show that every job ran exactly as often as it should. Otherwise the run does not count.
- The last column is what other processes took of the machine. A run beside more than 10 % is repeated, at most twice. If
  others took more each time, the row is marked "disturbed".
- "Raw redis" is the least work that a scheduler can ask of Redis. Two Lua scripts lease random ids in batches of 100 and
  complete them (one-time jobs) or reschedule them (recurring jobs), over four connections, and check nothing.
`

// markdown writes the document.
func markdown(o Outcome) string {
	var b strings.Builder
	b.WriteString(intro)
	b.WriteString("\n## Ratios\n\nAbove 1 Fermata is better. \"÷ asynq\" compares with asynq's best setting.\n\n" +
		ratioTable(o))
	b.WriteString("\n## Targets\n\n" + targetTable(o))
	if old := earlierForms(o); len(old) > 0 {
		fmt.Fprintf(&b, "\nNot measured yet as they are now defined, and therefore not in the two tables above: %s.\n",
			strings.Join(old, ", "))
	}
	e := o.Environment
	fmt.Fprintf(&b, "\n## Figures\n\nAbsolute numbers are of this machine, unless a section names another one:\n")
	fmt.Fprintf(&b, "\n| | |\n| --- | --- |\n| machine | %s |\n", e.machine())
	fmt.Fprintf(&b, "| versions | redis-server %s, asynq %s, go-redis %s, %s |\n", e.Redis, e.Asynq, e.GoRedis, e.Go)
	fmt.Fprintf(&b, "| settings | redis-server with save \"\" and appendonly no; asynq's log off |\n")
	for _, m := range o.Scenarios {
		if s, ok := scenarioOf(m.Name); ok {
			b.WriteString(m.section(s))
		}
	}
	return b.String()
}

// section has the figures of a scenario.
func (m Measured) section(s Scenario) string {
	var b strings.Builder
	fmt.Fprintf(&b, "\n### %s\n\n%s\n\n`%s` (%s)\n\n", s.Title, s.Text, m.Command, m.origin())
	if m.isEarlierForm(s) {
		fmt.Fprintf(&b, "**These figures are of build %s, measured before the scenario was defined as above.** "+
			"Settings have the names and the meaning that they had: %s\n\n", m.Fermata, earlierMeaning)
	}
	b.WriteString(table(s, m.Rows))
	if m.disturbed() {
		fmt.Fprintf(&b, "\ndisturbed: other processes took more than %d %% of the machine "+
			"in at least one round that counts.\n", disturbedAbove)
	}
	return b.String()
}

// earlierMeaning is how the figures of earlier forms differ.
const earlierMeaning = "deletion is not included, raw Redis always reschedules, " +
	"asynq has one server unless its row says four, and due times may be whole milliseconds."

// origin is when, with what and where a scenario was measured.
func (m Measured) origin() string {
	text := m.At.Format("2006-01-02")
	if m.Fermata != "" {
		text += ", fermata " + m.Fermata
	}
	text += fmt.Sprintf(", rounds: %d", m.Rounds)
	if m.Quick {
		text += ", smaller sizes"
	}
	if m.Machine != "" {
		text += ", " + m.Machine
	}
	return text
}

// earlierForms are the titles of the scenarios whose figures are of an earlier form.
func earlierForms(o Outcome) (titles []string) {
	for _, m := range o.Scenarios {
		if s, ok := scenarioOf(m.Name); ok && m.isEarlierForm(s) {
			titles = append(titles, s.Title)
		}
	}
	return titles
}

// ratioTable is the headline.
func ratioTable(o Outcome) string {
	var b strings.Builder
	b.WriteString("| Fermata | ÷ asynq | ÷ asynq, one server | ÷ raw Redis | build |\n" +
		"| --- | --- | --- | --- | --- |\n")
	for _, m := range o.Scenarios {
		s, ok := scenarioOf(m.Name)
		if !ok || m.isEarlierForm(s) || s.Ratios == nil {
			continue
		}
		for _, r := range s.Ratios(Results{Scenario: s, Rows: m.Rows}) {
			fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", r.Text, ratio(r.Asynq), ratio(r.OneServer), ratio(r.Raw), m.Fermata)
		}
	}
	return b.String()
}

// targetTable lists what has to be reached, with the figures.
func targetTable(o Outcome) string {
	var b strings.Builder
	b.WriteString("| target | measured | required | aim | |\n| --- | --- | --- | --- | --- |\n")
	for _, m := range o.Scenarios {
		if s, ok := scenarioOf(m.Name); ok && m.isEarlierForm(s) {
			continue
		}
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
		if r.disturbed() {
			cells[1] += " (disturbed)"
		}
		if r.Err != "" {
			first, _, _ := strings.Cut(r.Err, "\n")
			gap := strings.Repeat(" |", max(0, len(head)-3))
			fmt.Fprintf(&b, "| %s | void: %s |%s\n", strings.Join(cells, " | "), first, gap)
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
	if math.IsNaN(v) || math.IsInf(v, 0) {
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
