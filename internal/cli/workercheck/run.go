package workercheck

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// ProtocolVersion is the version of the protocol that is checked.
const ProtocolVersion = "v1"

// Options say what to check.
type Options struct {
	// Command starts the worker. {address} in an argument stands for the addresses of nodes.
	Command []string
	// Env is added to the environment of the command.
	Env []string
	// Profile is [ProfileFull] or [ProfileMinimal].
	Profile string
	// Only are the names of cases; none: all of the profile.
	Only []string
	// Parallel is how many cases run at once, at least 1.
	Parallel int
	// Scale multiplies all times, for slow machines or programs. Above 0.
	Scale float64
	// NeverRepeat reports failed cases also if this machine was busy.
	NeverRepeat bool
}

// Status of a case.
type Status string

// Statuses of cases.
const (
	Passed  Status = "passed"
	Failed  Status = "failed"
	LeftOut Status = "left out"
)

// Result is what became of a case.
type Result struct {
	Case   Case
	Status Status
	// Faults of a failed case.
	Faults []Fault
	// Why a case was left out.
	Why string
	// Output has the last lines that the worker of a failed case wrote.
	Output []string
	Took   time.Duration
	// Repeated: the machine was too busy at first, and the case was run again with longer times.
	Repeated bool
	// neverConnected: the command did not even send a Hello.
	neverConnected bool
}

// Summary is the outcome of a run.
type Summary struct {
	Results                 []Result
	Passed, Failed, LeftOut int
	Took                    time.Duration
	// NotRun are the cases that were not run, because the command did not even connect.
	NotRun int
	// Badge is a text that a conformant worker may show; "" if it is none, or not all cases were run.
	Badge string
}

const (
	// stalled is how late this process has to have run for a failed case to be repeated.
	stalled = 100 * time.Millisecond
	// repeatScale is how much longer the times of a repeated case are.
	repeatScale = 3
	shownLines  = 15
)

// Run runs cases and calls report with each result as it comes, one at a time.
func Run(ctx context.Context, o Options, report func(Result)) (Summary, error) {
	if errNoSignals != nil {
		return Summary{}, errNoSignals
	}
	chosen, err := chooseCases(o)
	if err != nil {
		return Summary{}, err
	}
	began := time.Now()
	watch := watchStalls()
	defer watch.end()
	results := make([]Result, len(chosen))
	results[0] = runCase(ctx, o, chosen[0], o.Scale)
	if results[0].neverConnected {
		// The other cases would fail in the same way.
		report(results[0])
		return summarize(results[:1], len(chosen)-1, o, time.Since(began)), ctx.Err()
	}
	again := runConcurrently(ctx, o, chosen, results, report, watch)
	for _, i := range again {
		results[i] = runCase(ctx, o, chosen[i], o.Scale*repeatScale)
		results[i].Repeated = true
		report(results[i])
	}
	return summarize(results, 0, o, time.Since(began)), ctx.Err()
}

// runConcurrently runs all cases but the first, whose result is there. It returns the cases to repeat.
func runConcurrently(ctx context.Context, o Options, chosen []Case, results []Result, report func(Result),
	watch *stallWatch) (again []int) {
	var mu sync.Mutex
	var running sync.WaitGroup
	places := make(chan struct{}, max(1, o.Parallel))
	for i, c := range chosen {
		places <- struct{}{}
		running.Go(func() {
			defer func() { <-places }()
			from, r := watch.began, results[i]
			if i > 0 {
				from, r = time.Now(), runCase(ctx, o, c, o.Scale)
			}
			mu.Lock()
			defer mu.Unlock()
			results[i] = r
			if r.Status == Failed && !o.NeverRepeat && watch.longestSince(from) >= stalled && ctx.Err() == nil {
				again = append(again, i)
				return
			}
			report(r)
		})
	}
	running.Wait()
	return again
}

func chooseCases(o Options) (chosen []Case, err error) {
	if len(o.Command) == 0 {
		return nil, errors.New("no command to check")
	}
	if o.Profile != ProfileFull && o.Profile != ProfileMinimal {
		return nil, fmt.Errorf("profile %q: want %s or %s", o.Profile, ProfileFull, ProfileMinimal)
	}
	unknown := slices.Clone(o.Only)
	for _, c := range Cases() {
		unknown = slices.DeleteFunc(unknown, func(name string) bool { return name == c.Name })
		if slices.Contains(o.Only, c.Name) || len(o.Only) == 0 && c.ofProfile(o.Profile) {
			chosen = append(chosen, c)
		}
	}
	if len(unknown) > 0 {
		return nil, fmt.Errorf("no case %s: --list lists the cases", strings.Join(unknown, ", "))
	}
	return chosen, nil
}

// runCase runs one case at a scale of time.
func runCase(ctx context.Context, o Options, c Case, scale float64) (r Result) {
	began := time.Now()
	r = Result{Case: c, Status: Passed}
	t, err := newTrial(ctx, o, scale)
	if err != nil {
		r.Status, r.Faults = Failed, []Fault{{ruleProgram, err.Error()}}
		return r
	}
	t.runGuarded(c)
	t.end()
	r.Took = time.Since(began)
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case len(t.faults) > 0:
		r.Status, r.Faults, r.Output = Failed, t.faults, t.process.outputLines(shownLines)
		r.neverConnected = len(t.sessions) == 0 && t.faults[0].Rule == ruleProgram
	case t.leftOut != "":
		r.Status, r.Why = LeftOut, t.leftOut
	case ctx.Err() != nil:
		r.Status, r.Faults = Failed, []Fault{{ruleProgram, "interrupted"}}
	}
	return r
}

// runGuarded runs a case until it returns or unwinds.
func (t *trial) runGuarded(c Case) {
	defer func() {
		if v := recover(); v != nil {
			if _, ends := v.(errCaseEnds); !ends {
				panic(v)
			}
		}
	}()
	c.run(t)
}

func summarize(results []Result, notRun int, o Options, took time.Duration) Summary {
	s := Summary{Results: results, NotRun: notRun, Took: took}
	for _, r := range results {
		switch r.Status {
		case Passed:
			s.Passed++
		case Failed:
			s.Failed++
		case LeftOut:
			s.LeftOut++
		}
	}
	if s.Failed == 0 && len(o.Only) == 0 {
		s.Badge = fmt.Sprintf("Fermata worker: conformant, %s profile, protocol %s", o.Profile, ProtocolVersion)
	}
	return s
}

// stallWatch measures how late this process runs.
type stallWatch struct {
	began time.Time
	mu    sync.Mutex
	late  []stall
	stop  chan struct{}
	ended chan struct{}
}

type stall struct {
	at     time.Time
	length time.Duration
}

// stallBeat is how often the watch looks.
const stallBeat = 10 * time.Millisecond

func watchStalls() *stallWatch {
	w := &stallWatch{began: time.Now(), stop: make(chan struct{}), ended: make(chan struct{})}
	go func() {
		defer close(w.ended)
		ticker := time.NewTicker(stallBeat)
		defer ticker.Stop()
		for last := time.Now(); ; {
			select {
			case <-w.stop:
				return
			case <-ticker.C:
			}
			now := time.Now()
			if late := now.Sub(last) - stallBeat; late > stallBeat {
				w.mu.Lock()
				w.late = append(w.late, stall{now, late})
				w.mu.Unlock()
			}
			last = now
		}
	}()
	return w
}

func (w *stallWatch) end() {
	close(w.stop)
	<-w.ended
}

// longestSince returns the longest stall that ended after a time.
func (w *stallWatch) longestSince(from time.Time) (longest time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, s := range w.late {
		if s.at.After(from) {
			longest = max(longest, s.length)
		}
	}
	return longest
}
