package quota

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

var errAway = errors.New("redis is away")

// late is the latest that a census begins after its pause.
const late = DefaultEvery / checksPerPause * 3 / 2

// node makes the quota of a node where every namespace has this limit.
func node(t *testing.T, b *bank, limit int, change ...func(*Options)) *Quota {
	t.Helper()
	o := Options{Store: b, Limit: func(string) int { return limit }, Limited: func() bool { return limit > 0 }}
	for _, c := range change {
		c(&o)
	}
	q, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return q
}

// run has a node take its censuses until it dies. It is called inside of synctest.
func run(t *testing.T, q *Quota) (die func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- q.Run(ctx) }()
	synctest.Wait()
	return func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the end of Run: %v", err)
		}
	}
}

// take reserves jobs and returns how many are granted.
func take(t *testing.T, q *Quota, n, limit int) int {
	t.Helper()
	granted, err := q.Reserve(t.Context(), "a", n, limit)
	if err != nil {
		t.Fatal(err)
	}
	return granted
}

// TestNothingIsGrantedWithoutRedis, and returning a reservation does not fail.
func TestNothingIsGrantedWithoutRedis(t *testing.T) {
	b := newBank()
	q := node(t, b, 5)
	if n := take(t, q, 2, 5); n != 2 {
		t.Fatalf("%d are granted", n)
	}
	b.err = errAway
	if n, err := q.Reserve(t.Context(), "a", 1, 5); n != 0 || !errors.Is(err, errAway) {
		t.Errorf("%d are granted, %v", n, err)
	}
	q.Return(t.Context(), "a", 1)
	b.err = nil
	q.Return(t.Context(), "a", 1)
	if n := take(t, q, 5, 5); n != 4 {
		t.Errorf("%d are granted, want 4: one was given back", n)
	}
}

// TestTakeCountsBeyondTheLimit what is stored already, and a census does not lose it.
func TestTakeCountsBeyondTheLimit(t *testing.T) {
	b := newBank()
	q := node(t, b, 5)
	q.Take(t.Context(), "a", 7)
	if n := take(t, q, 1, 5); n != 0 || b.counts["a"] != 7 || b.fresh["a"] != 7 {
		t.Errorf("%d are granted at a count of %d", n, b.counts["a"])
	}
	b.err = errAway
	q.Take(t.Context(), "a", 1)
}

// TestCensusCorrectsCountsOfALostNode: what a node took, that died before it wrote, is counted until
// the next census, and no longer.
func TestCensusCorrectsCountsOfALostNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBank()
		lost, other := node(t, b, 3), node(t, b, 3)
		defer run(t, other)()
		time.Sleep(time.Second)
		b.set(func() { b.there["a"] = 1 })
		if n := take(t, lost, 3, 3); n != 3 {
			t.Fatalf("%d were granted", n)
		}
		time.Sleep(DefaultEvery - 2*time.Second)
		if n := take(t, other, 1, 3); n != 0 {
			t.Errorf("before the census %d are granted", n)
		}
		time.Sleep(time.Second + late + time.Millisecond)
		if n := take(t, other, 3, 3); n != 2 {
			t.Errorf("after the census %d are granted, want 2", n)
		}
	})
}

// TestAnotherNodeReplacesADyingCensus: another one takes it, a pause after the first began.
func TestAnotherNodeReplacesADyingCensus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBank()
		b.span, b.counts["a"], b.there["a"] = 5*time.Second, 9, 4
		die := run(t, node(t, b, 10))
		other := node(t, b, 10)
		defer run(t, other)()
		time.Sleep(time.Second)
		die()
		time.Sleep(DefaultEvery + late + b.span)
		began := b.times()
		if len(began) != 2 || began[1].Sub(began[0]) < DefaultEvery || began[1].Sub(began[0]) > DefaultEvery+late {
			t.Fatalf("censuses began at %v", began)
		}
		if n := take(t, other, 10, 10); n != 6 {
			t.Errorf("%d are granted, want 6", n)
		}
	})
}

// TestReservationsDuringACensusCount is counted in what it finds.
func TestReservationsDuringACensusCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBank()
		b.span, b.there["a"] = 5*time.Second, 1
		q := node(t, b, 4)
		defer run(t, q)()
		time.Sleep(time.Second)
		if n := take(t, q, 2, 4); n != 2 {
			t.Fatalf("%d are granted", n)
		}
		time.Sleep(b.span)
		if n := take(t, q, 4, 4); n != 1 {
			t.Errorf("%d are granted, want 1", n)
		}
	})
}

// TestCensusTakesAtMostAFiftieth of the time, however long it counts, and is taken as often
// as it may again when it counts faster.
func TestCensusTakesAtMostAFiftieth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBank()
		b.span = 3 * time.Second
		defer run(t, node(t, b, 1))()
		time.Sleep(time.Hour)
		slow := b.times()
		for i := 1; i < len(slow); i++ {
			if gap := slow[i].Sub(slow[i-1]); gap < censusShare*b.span || gap > censusShare*b.span+late {
				t.Errorf("census %d after %v", i, gap)
			}
		}
		if len(slow) < 20 {
			t.Errorf("%d censuses in an hour", len(slow))
		}
		b.set(func() { b.span = 0 })
		time.Sleep(censusShare*3*time.Second + late)
		before := len(b.times())
		time.Sleep(10 * (DefaultEvery + late))
		if n := len(b.times()) - before; n < 10 {
			t.Errorf("%d censuses in the time of ten", n)
		}
	})
}

// TestSlowCensusesOfSeveralNodes do not overtake each other for ever.
func TestSlowCensusesOfSeveralNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBank()
		b.span, b.counts["a"], b.there["a"] = DefaultEvery+DefaultEvery/2, 9, 4
		one, other := node(t, b, 10), node(t, b, 10)
		defer run(t, one)()
		defer run(t, other)()
		time.Sleep(2 * censusShare * b.span)
		if n := take(t, one, 10, 10); n != 6 {
			t.Errorf("%d are granted, want 6", n)
		}
	})
}

// TestNoStoreCallsWithoutLimits, nor shown of a limit that there was.
func TestNoStoreCallsWithoutLimits(t *testing.T) {
	b := newBank()
	b.there["a"] = 1
	limit := 0
	q := node(t, b, 0, func(o *Options) {
		o.Limit, o.Limited = func(string) int { return limit }, func() bool { return limit > 0 }
	})
	for _, step := range []struct{ limit, metrics int }{{0, 0}, {2, 2}, {0, 0}} {
		before := b.calls
		limit = step.limit
		if err := q.Refresh(t.Context()); err != nil {
			t.Error(err)
		}
		if n := testutil.CollectAndCount(q); n != step.metrics || b.calls > before != (step.limit > 0) {
			t.Errorf("limit %d: %d metrics, %d calls", limit, n, b.calls-before)
		}
		if q.Limited() != (step.limit > 0) || q.Limit("a") != step.limit {
			t.Errorf("limit %d: said to be %d", step.limit, q.Limit("a"))
		}
	}
}

// TestFailuresAreLoggedOnce, and that they have ended.
func TestFailuresAreLoggedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, log := newBank(), &bytes.Buffer{}
		b.err = errAway
		q := node(t, b, 1, func(o *Options) { o.Logger = slog.New(slog.NewTextHandler(log, nil)) })
		die := run(t, q)
		time.Sleep(5 * DefaultEvery)
		b.set(func() { b.err = nil })
		time.Sleep(5 * DefaultEvery)
		die()
		if text := log.String(); strings.Count(text, "\n") != 2 || !strings.Contains(text, "level=WARN") || !strings.Contains(text, errAway.Error()) || !strings.Contains(text, "quota census recovered") {
			t.Errorf("log:\n%s", text)
		}
	})
}

// TestMetricsShowTheFullestNamespaces: of many, those that are nearest to their limits.
func TestMetricsShowTheFullestNamespaces(t *testing.T) {
	b := newBank()
	for i := range 2 * maxSeries {
		b.there[fmt.Sprintf("n%03d", i)] = i + 1
	}
	b.there["free"], b.there["small"] = 1_000_000, 1
	limits := map[string]int{"free": 0, "small": 1}
	registry := prometheus.NewRegistry()
	q := node(t, b, 1000, func(o *Options) {
		o.Registerer = registry
		o.Limit = func(namespace string) int {
			if l, ok := limits[namespace]; ok {
				return l
			}
			return 1000
		}
	})
	if err := q.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	families, err := registry.Gather()
	if err != nil || len(families) != 2 {
		t.Fatalf("%d metrics, %v", len(families), err)
	}
	for _, family := range families {
		shown := map[string]float64{}
		for _, m := range family.GetMetric() {
			shown[m.GetLabel()[0].GetValue()] = m.GetGauge().GetValue()
		}
		first := map[string]float64{"fermata_namespace_jobs": 1, "fermata_namespace_jobs_limit": 1}[family.GetName()]
		fullest := map[string]float64{"fermata_namespace_jobs": 2 * maxSeries, "fermata_namespace_jobs_limit": 1000}[family.GetName()]
		_, free := shown["free"]
		_, emptiest := shown["n000"]
		if len(shown) != maxSeries || shown["small"] != first || shown[fmt.Sprintf("n%03d", 2*maxSeries-1)] != fullest || free || emptiest {
			t.Errorf("%s: %d are shown, among them %v of 1 and %v of the fullest; free %v, emptiest %v",
				family.GetName(), len(shown), shown["small"], shown[fmt.Sprintf("n%03d", 2*maxSeries-1)], free, emptiest)
		}
	}
}

func TestOptionsAreChecked(t *testing.T) {
	limit, limited := func(string) int { return 1 }, func() bool { return true }
	for _, o := range []Options{
		{Limit: limit, Limited: limited}, {Store: newBank(), Limited: limited}, {Store: newBank(), Limit: limit},
	} {
		if _, err := New(o); err == nil {
			t.Errorf("%+v", o)
		}
	}
}

// TestFullNamespaces: those that have as much as they may have, by the last look, which alone asks the
// store.
func TestFullNamespaces(t *testing.T) {
	b := newBank()
	b.there["at"], b.there["below"], b.there["above"], b.there["free"] = 10, 9, 11, 100
	limit := 10
	q := node(t, b, 0, func(o *Options) {
		o.Limit = func(namespace string) int {
			if namespace == "free" {
				return 0
			}
			return limit
		}
		o.Limited = func() bool { return limit > 0 }
	})
	if q.Full("at") {
		t.Error("full before anybody has looked")
	}
	look := func() {
		t.Helper()
		if err := q.Refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	look()
	calls := b.calls
	for namespace, want := range map[string]bool{"at": true, "below": false, "above": true, "free": false, "none": false} {
		if q.Full(namespace) != want {
			t.Errorf("%s: full is %v", namespace, !want)
		}
	}
	if b.calls != calls {
		t.Error("to ask takes a call of the store")
	}
	limit = 12
	look()
	if q.Full("above") {
		t.Error("full under a higher limit")
	}
	limit = 0
	look()
	if q.Full("above") {
		t.Error("full without a limit")
	}
}

// failingCensus is a bank whose censuses begin and come to nothing.
type failingCensus struct{ *bank }

func (f failingCensus) Census(ctx context.Context, every time.Duration, want func(string) bool) (bool, error) {
	began, err := f.bank.Census(ctx, every, want)
	if began {
		err = errAway
	}
	return began, err
}

// TestFailingCensusesAreLoggedOnce: the looks between them, at which none is due, are no success.
func TestFailingCensusesAreLoggedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		die := run(t, node(t, newBank(), 5, func(o *Options) {
			o.Store, o.Logger = failingCensus{o.Store.(*bank)}, slog.New(slog.NewTextHandler(&log, nil))
		}))
		time.Sleep(6 * DefaultEvery)
		die()
		if text := log.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text, "level=WARN") {
			t.Errorf("the log: %s", text)
		}
	})
}
