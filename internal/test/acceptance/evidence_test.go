package acceptance

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/fermata-io/fermata/internal/test/historycheck"
	"github.com/fermata-io/fermata/internal/test/redistest"
)

// evidence is one worker's file, and what was read of it so far.
type evidence struct {
	path   string
	offset int64
}

// readEvents reads what all workers have recorded so far.
func (c *cluster) readEvents() []historycheck.Event {
	c.t.Helper()
	for i := range c.evidence {
		c.recorded = append(c.recorded, c.evidence[i].readNew(c.t)...)
	}
	return c.recorded
}

// readNew returns the whole lines that were added since the last time.
func (e *evidence) readNew(t testing.TB) []historycheck.Event {
	t.Helper()
	file, err := os.Open(e.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	text, err := io.ReadAll(io.NewSectionReader(file, e.offset, 1<<40))
	if err != nil {
		t.Fatal(err)
	}
	text = text[:bytes.LastIndexByte(text, '\n')+1]
	events, err := historycheck.ParseEvents(text)
	if err != nil {
		t.Fatalf("%s: %v", e.path, err)
	}
	e.offset += int64(len(text))
	return events
}

// matchingEvents returns the recorded events that fit.
func (c *cluster) matchingEvents(fit func(historycheck.Event) bool) []historycheck.Event {
	c.t.Helper()
	var fitting []historycheck.Event
	for _, e := range c.readEvents() {
		if fit(e) {
			fitting = append(fitting, e)
		}
	}
	return fitting
}

// awaitEvent waits for the first event that fits, and returns it.
func (c *cluster) awaitEvent(limit time.Duration, what string, fit func(historycheck.Event) bool) historycheck.Event {
	c.t.Helper()
	var found historycheck.Event
	redistest.Eventually(c.t, limit, what, func() error {
		events := c.matchingEvents(fit)
		if len(events) == 0 {
			return errors.New("nobody recorded it")
		}
		found = events[0]
		return nil
	})
	return found
}

// isStartOf fits the starts of a job, on one worker or, if that is empty, on any.
func isStartOf(job, worker string) func(historycheck.Event) bool {
	return func(e historycheck.Event) bool {
		return e.Kind == historycheck.Start && e.Job == job && (worker == "" || e.Worker == worker)
	}
}

// mark is the beginning of a fault that ends with done.
type mark struct{ historycheck.Fault }

func beginFault(name string, workers ...string) *mark {
	return &mark{historycheck.Fault{Name: name, FromNS: time.Now().UnixNano(), Workers: workers}}
}

func (m *mark) endFault(hold time.Duration) historycheck.Fault {
	m.ToNS, m.Hold = time.Now().UnixNano(), hold
	return m.Fault
}

// judgeHistory checks a history and fails the test with what is wrong about it.
func (c *cluster) judgeHistory(h historycheck.History) historycheck.Report {
	c.t.Helper()
	h.EndNS = time.Now().UnixNano() // before the reading, which takes its time
	h.Events = c.readEvents()
	for _, stall := range c.pulse.stallFaults() {
		c.t.Logf("%s for %v at %v", stall.Name, time.Duration(stall.ToNS-stall.FromNS), time.Unix(0, stall.FromNS))
		h.Faults = append(h.Faults, stall)
	}
	r := historycheck.Check(h)
	for i, f := range r.Findings {
		if i == 20 {
			c.t.Errorf("... and %d findings more", len(r.Findings)-i)
			break
		}
		c.t.Errorf("%v", f)
	}
	c.t.Logf("%d executions, %d nominal times (%d excused), %d repeats; lag %s", r.Executions, r.Targets, r.Excused,
		r.Repeats, describeLags(r.Lags))
	return r
}

// calmLag is the documented bound of the lag of a healthy cluster.
const calmLag = 2 * time.Second

// busyAllowance is what a machine with other work to do may add to a documented bound, beside what
// it is seen to stand still: a second, and five in the short form, which runs beside the
// tests of other packages.
func busyAllowance() time.Duration {
	if chaosLong() {
		return time.Second
	}
	return 5 * time.Second
}

// calmBounds are what the tests expect of a healthy cluster on a busy machine.
func calmBounds() historycheck.Bounds {
	return historycheck.Bounds{Lag: calmLag, Grace: busyAllowance(), Settle: time.Second, LeaseTTL: leaseTTL, SessionTTL: sessionTTL(leaseTTL), Longest: 10 * time.Second}
}

// lagsBetween are the lags of the runs that started in an interval, sorted.
func lagsBetween(lags []historycheck.Lag, fromNS, toNS int64) []time.Duration {
	var all []time.Duration
	for _, l := range lags {
		if l.AtNS >= fromNS && l.AtNS < toNS {
			all = append(all, l.Lag)
		}
	}
	slices.Sort(all)
	return all
}

// quantileOfSorted of sorted durations.
func quantileOfSorted(sorted []time.Duration, q float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))]
}

func describeLags(lags []historycheck.Lag) string {
	all := lagsBetween(lags, 0, 1<<63-1)
	return fmt.Sprintf("p50 %v p99 %v max %v", quantileOfSorted(all, 0.5).Round(time.Millisecond/10),
		quantileOfSorted(all, 0.99).Round(time.Millisecond/10), quantileOfSorted(all, 1).Round(time.Millisecond/10))
}

// atLeast fails a test whose history was too thin to show anything.
func atLeast(t testing.TB, what string, got, want int) {
	t.Helper()
	if got < want {
		t.Errorf("%s: %d, want at least %d: the test had no power", what, got, want)
	}
}
