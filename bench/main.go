package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/fermata-io/fermata/bench/internal/fermata"
	"github.com/fermata-io/fermata/bench/internal/load"
)

// scenarios in the order in which they are run and reported.
func scenarios() []Scenario {
	return []Scenario{drain, recurring, retry, cpu, lag, instant, submit, memory, idle, growth, scaling}
}

// quickScenarios are those that a quick look runs unless others are named: together
// they take less than three minutes.
func quickScenarios() []Scenario {
	return []Scenario{drain, recurring, retry, cpu, lag, instant, submit}
}

func scenarioOf(name string) (Scenario, bool) {
	for _, s := range scenarios() {
		if s.Name == name {
			return s, true
		}
	}
	return Scenario{}, false
}

func main() {
	if len(os.Args) > 1 && os.Args[1] == load.Command {
		if err := load.Serve(os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, "worker:", err)
			os.Exit(1)
		}
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// command is what the command line asks for.
type command struct {
	Params
	scenarios []Scenario
	scheduler string // a binary
	json      string
	render    bool
	docs      string
	keep      bool
	line      string
}

func parse(args []string) (c command, err error) {
	c.line = strings.TrimSpace("go run . " + strings.Join(args, " "))
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.Usage = func() {
		fmt.Fprintf(flags.Output(), "usage: go run . [scenario ...] [flags]\n\nscenarios:\n")
		for _, s := range scenarios() {
			fmt.Fprintf(flags.Output(), "  %-10s %s\n", s.Name, s.Title)
		}
		fmt.Fprintf(flags.Output(), "\nflags:\n")
		flags.PrintDefaults()
	}
	peers := flags.String("peers", "fermata,asynq,raw", "which to run")
	slots := flags.String("slots", "", "slots of Fermata's worker in drain, as 64,500 (empty: all of the scenario)")
	flags.StringVar(&c.Only, "only", "", "run only the settings that contain this text, as \"64 in flight\"")
	flags.IntVar(&c.Rounds, "rounds", 3, "how often each case is run")
	flags.BoolVar(&c.Quick, "quick", false, "smaller sizes, and without the scenarios that take long even so")
	flags.IntVar(&c.Jobs, "jobs", 0, "number of jobs (0: the scenario's own)")
	flags.StringVar(&c.scheduler, "scheduler", "", "a scheduler that is built already, instead of one from the source")
	flags.StringVar(&c.Profile, "profile", "",
		"write profiles of Fermata in drain, recurring, retry, lag, submit and idle "+
			"(of a second) to a folder of each setting in this one")
	flags.StringVar(&c.json, "json", "", "write all samples to this file")
	flags.BoolVar(&c.keep, "keep", false, "keep what the file of -json, which has to be there, holds of other scenarios")
	flags.StringVar(&c.docs, "docs", "", "write the document to this file")
	flags.BoolVar(&c.render, "render", false, "write the document of what the file of -json holds, and measure nothing")
	about := "a flag for each scheduler node, as --lease-ttl=10s; may be repeated"
	flags.Func("scheduler-flag", about, func(s string) error {
		c.Flags = append(c.Flags, s)
		return nil
	})
	for len(args) > 0 && !strings.HasPrefix(args[0], "-") {
		s, ok := scenarioOf(args[0])
		if !ok {
			return c, fmt.Errorf("no scenario %q", args[0])
		}
		c.scenarios, args = append(c.scenarios, s), args[1:]
	}
	if err := flags.Parse(args); err != nil {
		return c, err
	}
	switch {
	case len(c.scenarios) > 0:
	case c.Quick:
		c.scenarios = quickScenarios()
	default:
		c.scenarios = scenarios()
	}
	c.Peers = map[string]bool{}
	for name := range strings.SplitSeq(*peers, ",") {
		known := map[string]string{"fermata": peerFermata, "asynq": peerAsynq, "raw": peerRaw}[name]
		if known == "" {
			return c, fmt.Errorf("no peer %q", name)
		}
		c.Peers[known] = true
	}
	for text := range strings.FieldsFuncSeq(*slots, func(r rune) bool { return r == ',' }) {
		n, err := strconv.Atoi(text)
		if err != nil {
			return c, err
		}
		c.Slots = append(c.Slots, n)
	}
	if c.Profile != "" {
		c.Profile, err = filepath.Abs(c.Profile)
	}
	return c, err
}

func run(ctx context.Context, args []string) error {
	c, err := parse(args)
	if errors.Is(err, flag.ErrHelp) {
		return nil
	}
	if err != nil {
		return err
	}
	var o Outcome
	if c.keep || c.render {
		o, err = loadOutcome(c.json)
		if err != nil {
			return fmt.Errorf("nothing that could be kept: %w", err)
		}
	}
	if c.render {
		return c.write(o)
	}
	dir, err := os.MkdirTemp("", "fermata-bench")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	start := time.Now()
	r := &runner{p: c.Params, dir: dir, scheduler: c.scheduler, log: func(format string, args ...any) {
		fmt.Fprintf(os.Stderr, "%6.1fs "+format+"\n", append([]any{time.Since(start).Seconds()}, args...)...)
	}}
	if r.scheduler == "" {
		kind := fermata.Released
		if c.Profile != "" {
			kind = fermata.Profiling
		}
		r.scheduler, err = fermata.Build(ctx, dir, kind)
		if err != nil {
			return err
		}
	}
	o.Environment = environment(ctx)
	var failed []error
	for _, s := range c.scenarios {
		results := r.run(ctx, s)
		if ctx.Err() != nil {
			// The measurement is incomplete: an earlier one, if there is any, is kept.
			failed = append(failed, fmt.Errorf("%s: stopped before its end", s.Name))
			break
		}
		m := Measured{
			Name: s.Name, Form: s.Form, At: time.Now().UTC().Truncate(time.Second), Fermata: o.Environment.Fermata,
			Machine: o.Environment.machine(), Rounds: s.rounds(c.Params), Quick: c.Quick, Command: c.line, Rows: results.Rows,
		}
		if s.Targets != nil {
			m.Targets = verdicts(s.Targets(results))
		}
		for _, row := range m.Rows {
			if row.Err != "" {
				failed = append(failed, fmt.Errorf("%s: %s, %s: %s", s.Name, row.Peer, row.Setting, row.Err))
			}
		}
		fmt.Printf("\n%s\n\n%s", s.Title, table(s, m.Rows))
		alone := Outcome{Scenarios: []Measured{m}}
		if s.Ratios != nil {
			fmt.Printf("\n%s", ratioTable(alone))
		}
		if len(m.Targets) > 0 {
			fmt.Printf("\n%s", targetTable(alone))
		}
		o.put(m)
		if err := c.write(o); err != nil { // after each, so that what is there is kept
			return err
		}
	}
	return errors.Join(failed...)
}

// write writes what was asked for.
func (c command) write(o Outcome) error {
	o.Scenarios = slices.Clone(o.Scenarios)
	o.sort()
	if c.json != "" {
		if err := o.save(c.json); err != nil {
			return err
		}
	}
	if c.docs != "" {
		return os.WriteFile(c.docs, []byte(markdown(o)), 0o644)
	}
	return nil
}
