package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fermata-io/fermata/internal/cli/workercheck"
)

func (a *app) workerCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "worker", Short: "Check a worker that you wrote", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(a.workerCheckCommand())
	return cmd
}

func (a *app) workerCheckCommand() *cobra.Command {
	o := workercheck.Options{}
	var list bool
	cmd := &cobra.Command{
		Use: "check [flags] -- COMMAND [ARG...]", Short: "Check that a worker follows the protocol",
		Long: "Start COMMAND as a worker, once for each case, against scripted nodes that this command serves, and report\n" +
			"which rules of docs/worker-protocol.md it violates. No cluster and no Redis are needed. COMMAND is a program\n" +
			"with the check handlers, which reads its settings from the environment: see the check program in that\n" +
			"document. {address} in an argument stands for the addresses of the nodes, which FERMATA_ADDRESS has too.\n" +
			"What COMMAND starts is ended with it.\n\n" +
			"The profile minimal leaves out what a worker may leave out. What Hello announces is checked in both.\n" +
			"A case that fails while this machine is too busy is repeated with longer times.\n" +
			"Exit code 1 if a case fails, or if all chosen cases are left out.",
		Example: "  fermata worker check -- ./check-program\n" +
			"  fermata worker check --profile minimal -o json -- python3 check_program.py\n" +
			"  fermata worker check --case trust,suspended -- ./check-program\n" +
			"  fermata worker check --list",
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case list && len(args) > 0:
				return usageErrorf("--list takes no command")
			case list:
				return a.printCheckCases(workercheck.Cases())
			case len(args) == 0:
				return usageErrorf("name the command that starts the worker, after --\nusage: %s", cmd.UseLine())
			case o.Parallel < 1:
				return usageErrorf("--parallel %d: want 1 or more", o.Parallel)
			case o.Scale < 0.5 || o.Scale > 100:
				return usageErrorf("--time-scale %v: want 0.5 to 100", o.Scale)
			}
			o.Command = args
			return a.checkWorker(cmd.Context(), o)
		},
	}
	f := cmd.Flags()
	f.SetInterspersed(false)
	f.StringVar(&o.Profile, "profile", workercheck.ProfileFull, "full or minimal")
	f.StringSliceVar(&o.Only, "case", nil, "names of the cases to run (default: all of the profile)")
	f.BoolVar(&list, "list", false, "list the cases and run none")
	f.IntVar(&o.Parallel, "parallel", 8, "cases that run at once, each with a process of its own")
	f.Float64Var(&o.Scale, "time-scale", 1, "multiply all times by this, for slow machines or programs")
	return cmd
}

// checkedRule is a rule as JSON has it.
type checkedRule struct {
	ID    string `json:"rule"`
	Place string `json:"place"`
}

// checkedFault is a fault as JSON has it.
type checkedFault struct {
	checkedRule
	Text string `json:"text"`
}

// checkedCase is a case, and what became of it, as JSON has it.
type checkedCase struct {
	Name     string         `json:"name"`
	Title    string         `json:"title"`
	Profile  string         `json:"profile"`
	Rules    []checkedRule  `json:"rules"`
	Status   string         `json:"status,omitempty"`
	Why      string         `json:"why,omitempty"`
	Faults   []checkedFault `json:"faults,omitempty"`
	Output   []string       `json:"output,omitempty"`
	Seconds  float64        `json:"seconds,omitempty"`
	Repeated bool           `json:"repeated,omitempty"`
}

// checkReport is the whole result as JSON has it.
type checkReport struct {
	Protocol string        `json:"protocol"`
	Profile  string        `json:"profile"`
	Passed   int           `json:"passed"`
	Failed   int           `json:"failed"`
	LeftOut  int           `json:"left_out"`
	NotRun   int           `json:"not_run"`
	Seconds  float64       `json:"seconds"`
	Badge    string        `json:"badge"`
	Cases    []checkedCase `json:"cases"`
}

func describeRule(r workercheck.Rule) checkedRule { return checkedRule{r.ID, r.Place()} }

func describeCase(c workercheck.Case) checkedCase {
	d := checkedCase{Name: c.Name, Title: c.Title, Profile: workercheck.ProfileMinimal}
	if c.Full {
		d.Profile = workercheck.ProfileFull
	}
	for _, r := range c.Rules {
		d.Rules = append(d.Rules, describeRule(r))
	}
	return d
}

func describeResult(r workercheck.Result) checkedCase {
	d := describeCase(r.Case)
	d.Status, d.Why, d.Repeated = strings.ReplaceAll(string(r.Status), " ", "_"), r.Why, r.Repeated
	d.Seconds = r.Took.Round(time.Millisecond).Seconds()
	for _, f := range r.Faults {
		d.Faults = append(d.Faults, checkedFault{describeRule(f.Rule), f.Text})
	}
	for _, line := range r.Output {
		d.Output = append(d.Output, strings.ToValidUTF8(line, "?"))
	}
	return d
}

func (a *app) printCheckCases(cases []workercheck.Case) error {
	if a.output != "table" {
		described := []checkedCase{}
		for _, c := range cases {
			described = append(described, describeCase(c))
		}
		return a.printValue(map[string]any{"cases": described})
	}
	t := outputTable{heading: []string{"CASE", "PROFILE", "RULES", "CHECKS"}}
	for _, c := range cases {
		d := describeCase(c)
		var rules []string
		for _, r := range d.Rules {
			rules = append(rules, r.ID)
		}
		t.addRow(c.Name, d.Profile, strings.Join(rules, " "), c.Title)
	}
	return a.printTable(t)
}

// printValue prints a value as JSON or YAML.
func (a *app) printValue(v any) error {
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	return a.printText(string(text))
}

// checkWorker runs the cases, prints each result of a table as it comes, and fails if a case has failed.
func (a *app) checkWorker(ctx context.Context, o workercheck.Options) error {
	var printErr error
	s, err := workercheck.Run(ctx, o, func(r workercheck.Result) {
		if a.output == "table" && ctx.Err() == nil {
			printErr = errors.Join(printErr, a.printCheckResult(r))
		}
	})
	switch {
	case ctx.Err() != nil:
		return &codedError{err: errors.New("interrupted"), code: exitFailed}
	case err != nil:
		return newUsageError(err)
	case printErr != nil:
		return printErr
	}
	if err := a.printCheckSummary(s, o); err != nil {
		return err
	}
	if s.Failed > 0 {
		return &codedError{err: fmt.Errorf("the worker failed %s", countText(s.Failed, "case", "cases")), code: exitFailed}
	}
	if s.Passed == 0 {
		return &codedError{
			err:  errors.New("nothing was checked: all chosen cases were left out, for the reasons above"),
			code: exitFailed,
		}
	}
	return nil
}

// printCheckResult prints a result and, of a failed case, the violated rules and the end of the worker's output.
func (a *app) printCheckResult(r workercheck.Result) error {
	line := fmt.Sprintf("%-9s %-25s %5.1fs", r.Status, r.Case.Name, r.Took.Seconds())
	if r.Why != "" {
		line += "  " + r.Why
	}
	if r.Repeated {
		line += "  repeated with longer times"
	}
	lines := []string{line}
	for _, f := range r.Faults {
		lines = append(lines, fmt.Sprintf("  %s %s", f.Rule.ID, f.Rule.Place()), "    "+printableText(f.Text))
	}
	for _, text := range r.Output {
		lines = append(lines, "    | "+printableText(text))
	}
	return a.println(strings.Join(lines, "\n"))
}

func (a *app) printCheckSummary(s workercheck.Summary, o workercheck.Options) error {
	if a.output != "table" {
		report := checkReport{
			Protocol: workercheck.ProtocolVersion, Profile: o.Profile, Passed: s.Passed, Failed: s.Failed,
			LeftOut: s.LeftOut,
			NotRun:  s.NotRun, Seconds: s.Took.Round(time.Millisecond).Seconds(), Badge: s.Badge,
			Cases: []checkedCase{},
		}
		for _, r := range s.Results {
			report.Cases = append(report.Cases, describeResult(r))
		}
		return a.printValue(report)
	}
	line := fmt.Sprintf("%d passed, %d failed, %d left out in %.1fs, %s profile, protocol %s", s.Passed, s.Failed,
		s.LeftOut,
		s.Took.Seconds(), o.Profile, workercheck.ProtocolVersion)
	if s.NotRun > 0 {
		line += fmt.Sprintf("\n%s not run, because the command did not connect", countText(s.NotRun, "case", "cases"))
	}
	if s.Badge != "" {
		line += "\n" + s.Badge
	}
	return a.println(line)
}
