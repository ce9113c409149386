package acceptance

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fermata-io/fermata/internal/test/historycheck"
	"github.com/fermata-io/fermata/internal/test/redistest"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// chaosLong reports whether this is the long form, which `make chaos` runs.
func chaosLong() bool { return os.Getenv("FERMATA_CHAOS") == "long" }

// chaosTTLs are the lives of locks and leases: the default lock and a lease as long
// in the long form.
func chaosTTLs() (lock, lease time.Duration) {
	if chaosLong() {
		return 10 * time.Second, 9 * time.Second
	}
	return lockTTL, leaseTTL
}

// chaosSpan is how long a fault is kept up, or repeated, in either form. In the
// long one FERMATA_CHAOS_TIME sets it.
func chaosSpan(short time.Duration) time.Duration {
	if !chaosLong() {
		return short
	}
	if d, err := time.ParseDuration(os.Getenv("FERMATA_CHAOS_TIME")); err == nil {
		return max(d, short)
	}
	return 30 * time.Second
}

// isChosen reports whether FERMATA_CHAOS_RUN, a regular expression, names a trial.
func isChosen(t testing.TB, id string) bool {
	t.Helper()
	filter, err := regexp.Compile(os.Getenv("FERMATA_CHAOS_RUN"))
	if err != nil {
		t.Fatal(err)
	}
	return filter.MatchString(id)
}

// skipUnlessChosen skips a test where FERMATA_CHAOS_RUN names none of its trials.
func skipUnlessChosen(t *testing.T, ids ...string) {
	t.Helper()
	if !slices.ContainsFunc(ids, func(id string) bool { return isChosen(t, id) }) {
		t.Skip("not chosen by FERMATA_CHAOS_RUN")
	}
}

// skipInShortForm skips a test whose trials are all of the long form.
func skipInShortForm(t *testing.T, ids ...string) {
	t.Helper()
	if !chaosLong() {
		t.Skipf("long form only: make chaos RUN='%s'", strings.Join(ids, "|"))
	}
	skipUnlessChosen(t, ids...)
}

// trial is one entry of docs/faults.md: a fault on a bed.
type trial struct {
	ID, Name string
	// Bound is the documented longest wait of a due job, by the bed's times to live.
	Bound func(lock, lease time.Duration) time.Duration
	// Inject begins and ends the fault, and proves by [bed.requireEffect] that it took place.
	Inject func(b *bed)
	// LongOnly trials are left out of the short form.
	LongOnly bool
}

// sessionTTL is what the default of --session-ttl comes to with such leases.
func sessionTTL(lease time.Duration) time.Duration { return min(8*time.Second, 2*lease/3) }

// nodeBound and workerBound are the documented times until work goes on after the
// loss of either, if nothing proves that it is lost.
func nodeBound(lock, _ time.Duration) time.Duration    { return lock + 2*time.Second }
func workerBound(_, lease time.Duration) time.Duration { return sessionTTL(lease) + 2*time.Second }

// leaseBound is for runs whose loss cannot be known before their lease ends.
func leaseBound(_, lease time.Duration) time.Duration { return lease + 2*time.Second }

// deathBound is for nodes whose process ends: what they had leased that no worker
// received waits for the end of its lease.
func deathBound(lock, lease time.Duration) time.Duration {
	return max(takeOverPromise, leaseBound(lock, lease))
}

func eitherBound(lock, lease time.Duration) time.Duration {
	return max(nodeBound(lock, lease), leaseBound(lock, lease))
}

// calmBound is for faults that hold nothing up.
func calmBound(_, _ time.Duration) time.Duration { return calmLag }

// runTrials runs trials one after the other: all on one bed in the short form, each on
// a bed of its own in the long one. A trial that fails ends the bed. In the short form
// a test whose chosen trials are all of the long one is skipped; a test that prepares
// something first calls [skipInShortForm].
func runTrials(t *testing.T, o bedOptions, trials ...trial) {
	t.Helper()
	trials = slices.DeleteFunc(trials, func(x trial) bool { return !isChosen(t, x.ID) })
	if len(trials) == 0 {
		return
	}
	if !chaosLong() {
		trials = slices.DeleteFunc(trials, func(x trial) bool { return x.LongOnly })
		if len(trials) == 0 {
			t.Skip("long form only")
		}
	}
	if !chaosLong() {
		b := newBed(t, o)
		for _, x := range trials {
			b.runTrial(x)
		}
		b.judgeBed()
		return
	}
	for _, x := range trials {
		t.Run(x.ID, func(t *testing.T) {
			b := newBed(t, o)
			b.runTrial(x)
			b.judgeBed()
		})
	}
}

// runTrial lets one trial act and waits until everything is as before.
func (b *bed) runTrial(x trial) {
	b.t.Helper()
	lock, lease := chaosTTLs()
	f := &figures{ID: x.ID, Name: x.Name, Faults: map[string]int{}, Bound: x.Bound(lock, lease)}
	b.current = f
	from := time.Now()
	x.Inject(b)
	for _, l := range b.links {
		l.removeFaults()
	}
	injected := time.Now()
	b.awaitCalm(f.Bound)
	until := time.Now()
	f.Took, f.Calm = until.Sub(from), until.Sub(injected)
	f.Gap, f.Job = b.served.longestGap(b.readEvents(), from.UnixNano(), until.UnixNano())
	stalls := b.pulse.Since(from)
	if most := f.Bound + stalls + busyAllowance(); f.Gap > most {
		b.t.Errorf("%s: %s waited %v beyond its interval; %v is documented (the machine stalled for %v)", f.ID, f.Job, f.Gap, f.Bound, stalls)
	}
	if len(f.Faults) == 0 {
		b.t.Errorf("%s injected nothing", f.ID)
	}
	b.t.Logf("%s %s: %v", f.ID, f.Name, f)
	addFigures(f)
	b.current = nil
}

// faultKind describes for the checker what a fault may do to work.
type faultKind struct {
	Name string
	// Within is the documented time until work goes on after its end; 0 is the lag
	// of calm times.
	Within time.Duration
	// Workers that may lose leases or results by it; nil is all.
	Workers []string
	// Harmless faults cost no lease and no result.
	Harmless bool
}

// injectFault keeps a fault up as long as do takes, and notes it.
func (b *bed) injectFault(kind faultKind, do func()) {
	b.t.Helper()
	m := beginFault(kind.Name, kind.Workers...)
	m.Harmless = kind.Harmless
	do()
	b.faults = append(b.faults, m.endFault(max(0, kind.Within-calmLag)))
	b.current.Faults[kind.Name]++
}

// requireEffect fails a trial whose fault did not show.
func (b *bed) requireEffect(what string, got, want int) {
	b.t.Helper()
	atLeast(b.t, b.current.ID+", "+what, got, want)
	b.current.Power = append(b.current.Power, shown{what, got, want})
}

// createTrialJob creates a job of a trial; the checker knows it by this promise.
func (b *bed) createTrialJob(p historycheck.ExpectedSchedule, j *fermatav1.Job) {
	b.t.Helper()
	b.nodeByID("b").createJob(p.Job, j)
	b.more = append(b.more, p)
}

// waitFor keeps a fault up for its time.
func (b *bed) waitFor(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	<-timer.C
}

// awaitCalm waits until the nodes know each other and hold all shards, and no job is
// late.
func (b *bed) awaitCalm(bound time.Duration) {
	b.t.Helper()
	b.awaitSettled()
	redistest.Eventually(b.t, bound+patience, "all jobs are on time", func() error { return b.served.onTime(b.readEvents(), calmLag) })
}

// judgeBed ends the bed's history and judges it.
func (b *bed) judgeBed() {
	b.t.Helper()
	for _, f := range b.faults { // until then, what was due in it need not have begun
		b.waitFor(time.Until(time.Unix(0, f.ToNS).Add(f.Hold + calmLag + time.Second)))
	}
	b.load.editor.stopEditing()
	jobs := b.nodes[0].listAllJobs()
	h := historycheck.History{
		ExpectedSchedules: slices.Concat(b.load.promises, b.load.editor.promises, b.more), NoRunPeriods: b.load.editor.silences,
		Backoffs: b.load.backoffs, Waits: b.load.waits, Faults: b.faults, Bounds: b.judgedBounds(), Stored: storedJobs(jobs),
	}
	if b.deadly {
		h.GivenUp = map[string]bool{}
		for id, j := range jobs {
			h.GivenUp[id] = j.GetStatus().GetDeadTotal() > 0
		}
	}
	r := b.judgeHistory(h)
	atLeast(b.t, "nominal times", r.Targets, len(b.load.jobs)*2/3) // a busy machine runs fewer of them
	atLeast(b.t, "edits", b.load.editor.done, 3*edited)
	waits := len(b.load.backoffs)
	if chaosLong() { // in less than a minute not each of them comes to its second failure, the less while Redis is away
		waits = int(float64(waits) * min(1, chaosSpan(0).Seconds()/60))
	}
	atLeast(b.t, "waits of failing jobs", r.Waits, waits)
	addHistory(r)
}
