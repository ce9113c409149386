package workercheck_test

import (
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/fermata-io/fermata/internal/cli/workercheck"
	"github.com/fermata-io/fermata/internal/test/faultyworker"
)

// faultVariable makes this test program the worker under test, with the fault that it names.
const faultVariable = "WORKERCHECK_FAULT"

// noFault is the value for a worker without a fault.
const noFault = "none"

func TestMain(m *testing.M) {
	if fault := os.Getenv(faultVariable); fault != "" {
		os.Exit(faultyworker.Main(strings.TrimPrefix(fault, noFault)))
	}
	os.Exit(m.Run())
}

func optionsWithFault(fault string, only ...string) workercheck.Options {
	return workercheck.Options{
		Command: []string{os.Args[0]}, Env: []string{faultVariable + "=" + fault}, Profile: workercheck.ProfileFull,
		Only: only, Parallel: 8, Scale: 1,
	}
}

func run(t *testing.T, o workercheck.Options) workercheck.Summary {
	t.Helper()
	s, err := workercheck.Run(t.Context(), o, func(workercheck.Result) {})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// plantedFaults has, for each fault of the faulty worker, the case that has to find it and the rule that it has to
// name. There are two rules where the order of events decides which is violated first.
var plantedFaults = []struct{ fault, caseName, rule string }{
	{"bad-worker-id", "hello", "H2"},
	{"shared-worker-id", "hello", "H2"},
	{"new-worker-id", "kept-results", "H2"},
	{"epoch-from-zero", "hello", "H4"},
	{"constant-epoch", "refused", "H4"},
	{"wrong-namespace", "hello", "H3"},
	{"first-queue-only", "hello", "H3"},
	{"wrong-slots", "hello", "H3"},
	{"hello-twice", "hello", "H1"},
	{"no-heartbeats", "announces", "H7"},
	{"no-early-leases", "announces", "H7"},
	{"no-prefetch", "announces", "H7"},
	{"greets-all-at-once", "one-hello", "H5 H4"},
	{"waits-for-welcome", "one-hello", "H5"},
	{"no-pause", "refused", "H6"},
	{"exits-when-refused", "refused", "P1"},
	{"no-started", "lease", "L3"},
	{"result-before-end", "lease", "L2 R6"},
	{"keeps-results", "lease", "R6"},
	{"text-payloads", "payloads", "L4"},
	{"trims-output", "payloads", "L4"},
	{"runs-twice", "same-lease", "L1"},
	{"ignores-slots", "prefetch", "L5"},
	{"one-at-a-time", "slots", "L5"},
	{"dies-of-unknown-message", "unknown-messages", "P1"},
	{"no-timeout", "timeout", "L7"},
	{"timeout-as-failure", "timeout", "L7"},
	{"early-timeout", "timeout", "L7"},
	{"permanent-as-failure", "failures", "R1"},
	{"errors-without-text", "failures", "R1"},
	{"no-retry-after", "failures", "R2"},
	{"retry-after-in-seconds", "failures", "R2"},
	{"dies-of-panic", "panic", "P1"},
	{"ignores-missing-handler", "panic", "R3"},
	{"forgets-results", "kept-results", "R4"},
	{"sends-results-twice", "kept-results", "R4"},
	{"forgets-outputs", "kept-results", "R5"},
	{"names-no-results", "kept-results", "R4"},
	{"keeps-refused-results", "acks", "R6"},
	{"forgets-results", "node-lost", "N2"},
	{"no-lost-after-stale", "stale", "R7"},
	{"repeats-lost", "stale", "R7"},
	{"no-cancel", "cancel", "C1"},
	{"cancel-as-failure", "cancel", "C1"},
	{"no-result-after-cancel", "cancel", "C1"},
	{"cancels-all", "cancel", "C3"},
	{"dies-of-unknown-cancel", "cancel", "P1"},
	{"no-cancel-of-lost", "cancel-lost", "C2"},
	{"slow-heartbeats", "heartbeats", "T1"},
	{"constant-seq", "heartbeats", "T1"},
	{"heartbeats-not-sent", "heartbeats", "T1"},
	{"trusts-for-lease", "trust", "T2"},
	{"no-lost", "trust", "T9"},
	{"keeps-stream", "silent-node", "T3"},
	{"stays-with-silent-node", "silent-node-left", "T7"},
	{"trusts-from-ack", "late-ack", "T4"},
	{"ignores-confirmed", "unconfirmed", "T6"},
	{"starts-without-trust", "suspended", "T5"},
	{"trusts-for-lease", "trust-without-heartbeats", "T8"},
	{"exits-at-break", "reconnect", "P1"},
	{"stops-handlers-at-break", "reconnect", "N1"},
	{"names-nothing", "reconnect", "N2"},
	{"insists-on-advertised", "load-balancer", "N3"},
	{"configured-only", "advertised", "N4"},
	{"no-keepalive", "keepalive", "N5"},
	{"no-drain", "drain", "D1"},
	{"drain-stops-handlers", "drain", "D1 N2"},
	{"no-relocation", "relocate", "D3"},
	{"relocation-stops-handlers", "relocate", "D3 N2"},
	{"no-draining", "stop", "S1"},
	{"starts-while-draining", "stop", "S1"},
	{"exits-at-once", "stop", "S1 S2"},
	{"exits-before-ack", "stop", "S2"},
	{"exit-code-one", "stop", "S2"},
	{"breaks-off", "stop", "S3"},
	{"exits-at-break-while-draining", "stop-cut", "S4"},
	{"no-drain-timeout", "drain-timeout", "S5"},
	{"early-drain-timeout", "drain-timeout", "S5"},
	{"counts-stopped", "drain-timeout", "S5"},
	{"keeps-waiting-leases", "prefetch", "O2"},
	{"newest-first", "prefetch", "O1"},
	{"names-waiting-leases", "prefetch", "O1"},
	{"returns-once", "returned-again", "N6"},
	{"starts-early", "start-after", "O3"},
	{"forgets-early-leases", "start-after", "O3"},
	{"trusts-any-certificate", "tls", "A1"},
	{"no-client-certificate", "client-certificate", "A1"},
	{"token-once", "token", "A2"},
	{"no-tls", "tls", "A1"},
	{"ignores-welcome-addresses", "advertised", "N4"},
	{"ignores-addresses", "advertised", "N4"},
	{"no-trust-after-drain", "drain-outage", "D2"},
	{"never-confirms", "confirmed", "T6"},
	{"seq-goes-on", "reconnect", "T1"},
	{"no-heartbeats-when-idle", "heartbeats", "T1"},
	{"waits-for-a-node", "stop-alone", "S2"},
	{"waits-for-a-run", "stop-idle", "S2"},
	{"zero-timeout", "timeout", "L7"},
	{"starts-cancelled-leases", "start-after", "C1"},
	{"drops-results-without-stream", "reconnect", "N2 R4"},
}

// maxTries is how often a fault is looked for: on a busy machine a case may miss a fault that is a matter of
// milliseconds.
const maxTries = 4

// runFault runs one case on the worker with a fault.
func runFault(t *testing.T, fault, caseName string) workercheck.Result {
	o := optionsWithFault(fault, caseName)
	o.NeverRepeat = true
	s, err := workercheck.Run(t.Context(), o, func(workercheck.Result) {})
	if err != nil || len(s.Results) != 1 {
		t.Errorf("%s: %v, %d results", fault, err, len(s.Results))
		return workercheck.Result{}
	}
	if s.Badge != "" {
		t.Errorf("%s: has the badge %q", fault, s.Badge)
	}
	return s.Results[0]
}

// names reports whether the first fault of a result is of one of the rules.
func names(r workercheck.Result, rules string) bool {
	return r.Status == workercheck.Failed && slices.Contains(strings.Fields(rules), r.Faults[0].Rule.ID)
}

// TestPlantedFaultsAreFound runs each fault against the case that has to find it: all of them side by side, and
// those that were missed once more, one at a time.
func TestPlantedFaultsAreFound(t *testing.T) {
	t.Parallel()
	var running sync.WaitGroup
	places, missed := make(chan struct{}, 16), make(chan int, len(plantedFaults))
	for i, p := range plantedFaults {
		places <- struct{}{}
		running.Go(func() {
			defer func() { <-places }()
			if !names(runFault(t, p.fault, p.caseName), p.rule) {
				missed <- i
			}
		})
	}
	running.Wait()
	close(missed)
	for i := range missed {
		searchAgain(t, i)
	}
}

// searchAgain runs a fault that was missed.
func searchAgain(t *testing.T, i int) {
	p := plantedFaults[i]
	var found workercheck.Result
	for range maxTries - 1 {
		if found = runFault(t, p.fault, p.caseName); names(found, p.rule) {
			return
		}
	}
	t.Errorf("%s: %s %v, want a fault of rule %s in case %s", p.fault, found.Status, found.Faults, p.rule, p.caseName)
}

// TestEveryCaseFindsAFault: a case that no faulty worker fails proves nothing.
func TestEveryCaseFindsAFault(t *testing.T) {
	for _, c := range workercheck.Cases() {
		if !slices.ContainsFunc(plantedFaults,
			func(p struct{ fault, caseName, rule string }) bool { return p.caseName == c.Name }) {
			t.Errorf("no planted fault fails the case %s", c.Name)
		}
	}
}

// TestWorkerWithoutFaultsConforms: the faulty worker passes everything when it has no fault.
func TestWorkerWithoutFaultsConforms(t *testing.T) {
	t.Parallel()
	s := run(t, optionsWithFault(noFault))
	for _, r := range s.Results {
		if r.Status != workercheck.Passed {
			t.Errorf("%s: %s %v %s\n%s", r.Case.Name, r.Status, r.Faults, r.Why, strings.Join(r.Output, "\n"))
		}
	}
	if want := "Fermata worker: conformant, full profile, protocol v1"; s.Badge != want {
		t.Errorf("badge %q, want %q", s.Badge, want)
	}
}

// TestMinimalWorker: a worker that leaves out what it may is conformant with the minimal profile only.
func TestMinimalWorker(t *testing.T) {
	t.Parallel()
	o := optionsWithFault("no-heartbeats")
	o.Profile = workercheck.ProfileMinimal
	s := run(t, o)
	if s.Failed != 0 || s.LeftOut == 0 || s.Badge != "Fermata worker: conformant, minimal profile, protocol v1" {
		t.Errorf("%d failed, %d left out, badge %q", s.Failed, s.LeftOut, s.Badge)
		for _, r := range s.Results {
			t.Log(r.Case.Name, r.Status, r.Faults, r.Why)
		}
	}
}

func TestRefusedOptions(t *testing.T) {
	good := optionsWithFault(noFault)
	for name, change := range map[string]func(*workercheck.Options){
		"no command": func(o *workercheck.Options) { o.Command = nil },
		"profile":    func(o *workercheck.Options) { o.Profile = "some" },
		"no case":    func(o *workercheck.Options) { o.Only = []string{"hello", "nothing"} },
	} {
		o := good
		change(&o)
		if _, err := workercheck.Run(t.Context(), o, nil); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: error %v", name, err)
		}
	}
}

// TestCommandsThatAreNoWorkers fail, and the report has what they wrote.
func TestCommandsThatAreNoWorkers(t *testing.T) {
	for command, text := range map[string]string{
		"/does/not/exist":                                  "cannot start the command",
		"/bin/sh -c echo\ttwo\twords;exit\t3":              "exit status 3",
		"/bin/sh -c test\t{address}\t!=\tx&&exit\t4":       "exit status 4",
		"/bin/sh -c test\t$FERMATA_ADDRESS\t&&\t\texit\t5": "exit status 5",
	} {
		o := optionsWithFault(noFault, "hello")
		o.Command = strings.Split(command, " ")
		for i := range o.Command {
			o.Command[i] = strings.ReplaceAll(o.Command[i], "\t", " ")
		}
		r := run(t, o).Results[0]
		if r.Status != workercheck.Failed || len(r.Faults) == 0 || !strings.Contains(r.Faults[0].Text, text) {
			t.Errorf("%s: %s %v", command, r.Status, r.Faults)
		}
		if strings.Contains(text, "status 3") && !slices.Equal(r.Output, []string{"two words"}) {
			t.Errorf("output %q", r.Output)
		}
	}
}

// TestRulesAreDocumented: each rule stands in the section that reports name, once, and reports know each documented
// rule.
func TestRulesAreDocumented(t *testing.T) {
	text, err := os.ReadFile("../../../" + workercheck.Document)
	if err != nil {
		t.Fatal(err)
	}
	sections := map[string][]string{} // rules, by the anchor of their section
	rule := regexp.MustCompile(`(?m)^- \*\*([A-Z]\d)\*\* `)
	for _, section := range strings.Split(string(text), "\n## ")[1:] {
		title, body, _ := strings.Cut(section, "\n")
		anchor := strings.ReplaceAll(strings.ToLower(title), " ", "-")
		for _, found := range rule.FindAllStringSubmatch(body, -1) {
			sections[anchor] = append(sections[anchor], found[1])
		}
	}
	want := map[string][]string{}
	for _, r := range workercheck.Rules() {
		want[r.Anchor] = append(want[r.Anchor], r.ID)
	}
	if !maps.EqualFunc(sections, want, slices.Equal) {
		t.Errorf("%s has the rules %v, and reports name %v", workercheck.Document, sections, want)
	}
}

// TestContractIsDocumented: the settings that the command gets are those of the document.
func TestContractIsDocumented(t *testing.T) {
	text, err := os.ReadFile("../../../" + workercheck.Document)
	if err != nil {
		t.Fatal(err)
	}
	script := "env | grep ^FERMATA_ | cut -d= -f1; exit 3"
	o := optionsWithFault(noFault, "client-certificate")
	o.Command = []string{"/bin/sh", "-c", script}
	names := run(t, o).Results[0].Output
	if len(names) < 10 {
		t.Errorf("the command got the settings %v", names)
	}
	for _, name := range names {
		if !strings.Contains(string(text), name) {
			t.Errorf("%s lacks the setting %s", workercheck.Document, name)
		}
	}
}
