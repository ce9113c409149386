package sim

import (
	"context"
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fermata-io/fermata/internal/test/redistest"
)

// The environment selects the seeds of a run of this test: FERMATA_SIM_SEED is the first seed, FERMATA_SIM_SEEDS
// how many there are, one after the other.
const (
	seedEnv  = "FERMATA_SIM_SEED"
	seedsEnv = "FERMATA_SIM_SEEDS"
)

// quickSeeds is the default number of seeds.
const quickSeeds = 12

func envNumber(t *testing.T, env string, byDefault uint64) uint64 {
	t.Helper()
	text := os.Getenv(env)
	if text == "" {
		return byDefault
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("%s: %v", env, err)
	}
	return n
}

// TestSimulation plays seeds, several at a time, each side with a Redis of its own.
// The story of a seed that fails is printed.
func TestSimulation(t *testing.T) {
	first, n := envNumber(t, seedEnv, 1), envNumber(t, seedsEnv, quickSeeds)
	var (
		mu    sync.Mutex
		next  = first
		tally = newTally()
	)
	take := func() (seed uint64, ok bool) {
		mu.Lock()
		defer mu.Unlock()
		next++
		return next - 1, next-1 < first+n && len(tally.unclean) < 5
	}
	t.Run("sides", func(t *testing.T) {
		for side := range runtime.GOMAXPROCS(0) {
			t.Run(strconv.Itoa(side), func(t *testing.T) {
				t.Parallel()
				redis := redistest.Start(t)
				for seed, ok := take(); ok; seed, ok = take() {
					r := runSeed(t, redis, seed)
					mu.Lock()
					tally.addResult(r)
					mu.Unlock()
					if !r.isClean() {
						t.Errorf("this run is not clean, nor are %d of %d repetitions; to see it again: make sim SEED=%d N=1\n%s",
							countUnclean(t, redis, seed), replays, seed, r.describeResult())
					}
				}
			})
		}
	})
	t.Log(tally)
	if n >= quickSeeds && first == 1 {
		tally.requireEffects(t)
	}
}

// replays is how often a seed that is not clean is played again: it decides what
// happens, but not the order of what happens in one instant.
const replays = 10

// countUnclean counts how many repetitions of a seed are not clean.
func countUnclean(t *testing.T, redis *redistest.Server, seed uint64) (unclean int) {
	t.Helper()
	for range replays {
		if !runSeed(t, redis, seed).isClean() {
			unclean++
		}
	}
	return unclean
}

// standsStill is how long one seed may take. It takes less than a second, but for a
// race detector on a busy machine.
const standsStill = 3 * time.Minute

// runSeed runs one seed in a bubble.
func runSeed(t *testing.T, redis *redistest.Server, seed uint64) (r simulationResult) {
	t.Helper()
	server, err := dialServer(redis.Addr())
	if err != nil {
		t.Fatal(err)
	}
	stuck := time.AfterFunc(standsStill, func() {
		panic(fmt.Sprintf("seed %d stands still: somebody holds a mutex while time should pass, and somebody waits for it", seed))
	})
	defer stuck.Stop()
	t.Run(fmt.Sprint(seed), func(t *testing.T) {
		synctest.Test(t, func(*testing.T) { r = simulateSeed(seed, server) })
	})
	if err := server.closeServer(); err != nil {
		t.Fatal(err)
	}
	if err := redis.Client().FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	return r
}

// tally sums up what was played.
type tally struct {
	unclean                                                 []uint64
	seeds, executions, targets, repeats, waits, held, calls int
	hits                                                    map[string]int
	gaps                                                    map[faultKind]time.Duration
}

func newTally() *tally { return &tally{hits: map[string]int{}, gaps: map[faultKind]time.Duration{}} }

func (y *tally) addResult(r simulationResult) {
	y.seeds++
	if !r.isClean() {
		y.unclean = append(y.unclean, r.seed)
	}
	y.executions += r.report.Executions
	y.targets += r.report.Targets
	y.repeats += r.report.Repeats
	y.waits += r.report.Waits
	y.held += r.report.Held
	y.calls += r.calls
	for what, n := range r.hits {
		y.hits[what] += n
	}
	// What a plan of one kind of fault alone held back is that kind's doing.
	if kinds := r.plan.faultKinds(); len(kinds) == 1 {
		for _, l := range r.report.Lags {
			y.gaps[kinds[0]] = max(y.gaps[kinds[0]], l.Lag)
		}
	}
}

func (y *tally) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d histories, %d not clean; %d executions, %d nominal times, %d repeated, %d waits of failing jobs, %d holders of a lock, %d commands to Redis",
		y.seeds, len(y.unclean), y.executions, y.targets, y.repeats, y.waits, y.held, y.calls)
	for _, what := range slices.Sorted(maps.Keys(y.hits)) {
		fmt.Fprintf(&b, "\n%8d %s", y.hits[what], what)
		if gap, alone := y.gaps[faultKind(what)]; alone {
			fmt.Fprintf(&b, "; alone it held a run back for up to %v, of %v and its length allowed", gap.Round(time.Millisecond), holdTime(faultKind(what)))
		}
	}
	return b.String()
}

// requireEffects fails a test that was too tame to show anything.
func (y *tally) requireEffects(t *testing.T) {
	t.Helper()
	for what, least := range map[string]int{"redis reply lost": 1, "redis request twice": 1, "redis slow": 1} {
		if y.hits[what] < least {
			t.Errorf("%s: %d times, want at least %d", what, y.hits[what], least)
		}
	}
	for _, k := range allKinds() {
		if y.hits[string(k)] == 0 && y.seeds >= 10*quickSeeds {
			t.Errorf("no %s among %d seeds", k, y.seeds)
		}
	}
	if y.executions < 100*y.seeds || y.repeats == 0 || y.waits == 0 || y.held < 10*y.seeds {
		t.Errorf("%d executions, %d repeats, %d waits, %d holders of a lock in %d seeds", y.executions, y.repeats, y.waits, y.held, y.seeds)
	}
}

// quiet drops go-redis's messages about failed connections: here they are intended.
type quiet struct{}

func (quiet) Printf(context.Context, string, ...any) {}

func TestMain(m *testing.M) {
	redis.SetLogger(quiet{})
	os.Exit(m.Run())
}
