package acceptance

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/fermata-io/fermata/internal/check"
)

// events reads what all workers have recorded so far.
func (c *cluster) events() []check.Event {
	c.t.Helper()
	var all []check.Event
	for _, path := range c.evidence {
		text, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			c.t.Fatal(err)
		}
		events, err := check.ParseEvents(text)
		if err != nil {
			c.t.Fatalf("%s: %v", path, err)
		}
		all = append(all, events...)
	}
	return all
}

// match returns the recorded events that fit.
func (c *cluster) match(fit func(check.Event) bool) []check.Event {
	c.t.Helper()
	return slices.DeleteFunc(c.events(), func(e check.Event) bool { return !fit(e) })
}

// saw waits for the first event that fits, and returns it.
func (c *cluster) saw(limit time.Duration, what string, fit func(check.Event) bool) check.Event {
	c.t.Helper()
	var found check.Event
	eventually(c.t, limit, what, func() error {
		events := c.match(fit)
		if len(events) == 0 {
			return errors.New("nobody recorded it")
		}
		found = events[0]
		return nil
	})
	return found
}

// executions counts the starts that fit.
func starts(job, worker string) func(check.Event) bool {
	return func(e check.Event) bool {
		return e.Kind == check.Start && e.Job == job && (worker == "" || e.Worker == worker)
	}
}

// mark is the beginning of a fault that ends with done.
type mark struct{ check.Fault }

func begin(name string, workers ...string) *mark {
	return &mark{check.Fault{Name: name, FromNS: time.Now().UnixNano(), Workers: workers}}
}

func (m *mark) done(hold time.Duration) check.Fault {
	m.ToNS, m.Hold = time.Now().UnixNano(), hold
	return m.Fault
}

// judge checks a history and fails the test with what is wrong about it.
func (c *cluster) judge(h check.History) check.Report {
	c.t.Helper()
	h.Events, h.EndNS = c.events(), time.Now().UnixNano()
	for _, stall := range c.pulse.seen() {
		c.t.Logf("%s for %v at %v", stall.Name, time.Duration(stall.ToNS-stall.FromNS), time.Unix(0, stall.FromNS))
		h.Faults = append(h.Faults, stall)
	}
	r := check.Check(h)
	for i, f := range r.Findings {
		if i == 20 {
			c.t.Errorf("... and %d findings more", len(r.Findings)-i)
			break
		}
		c.t.Errorf("%v", f)
	}
	c.t.Logf("%d executions, %d nominal times (%d excused), %d repeats; lag %s", r.Executions, r.Targets, r.Excused,
		r.Repeats, describe(r.Lags))
	return r
}

// calmBounds are what the tests expect of a healthy cluster on a busy machine.
func calmBounds() check.Bounds {
	return check.Bounds{Lag: 2 * time.Second, Settle: time.Second, LeaseTTL: leaseTTL, Longest: 10 * time.Second}
}

// between are the lags of the runs that started in an interval, sorted.
func between(lags []check.Lag, fromNS, toNS int64) []time.Duration {
	var all []time.Duration
	for _, l := range lags {
		if l.AtNS >= fromNS && l.AtNS < toNS {
			all = append(all, l.Lag)
		}
	}
	slices.Sort(all)
	return all
}

// quantile of sorted durations.
func quantile(sorted []time.Duration, q float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))]
}

func describe(lags []check.Lag) string {
	all := between(lags, 0, 1<<63-1)
	return fmt.Sprintf("p50 %v p99 %v max %v", quantile(all, 0.5).Round(time.Millisecond/10),
		quantile(all, 0.99).Round(time.Millisecond/10), quantile(all, 1).Round(time.Millisecond/10))
}

// atLeast fails a test whose history was too thin to show anything.
func atLeast(t testing.TB, what string, got, want int) {
	t.Helper()
	if got < want {
		t.Errorf("%s: %d, want at least %d: the test had no power", what, got, want)
	}
}
