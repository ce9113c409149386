package acceptance

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fermata-io/fermata/internal/test/historycheck"
)

// TestChaosClocks: the nodes' clocks are minutes apart, and one of them drifts. The
// scheduler is built with a standard library whose time.Now returns what a test wants,
// so that everything in the process goes by it. Only the long form does: it
// compiles that library.
func TestChaosClocks(t *testing.T) {
	skipInShortForm(t, "T31")
	runBesideOne(t)
	skews := map[string]string{"a": "5m0s 0", "b": "-5m0s 0", "c": "-5s 0.01"}
	runTrials(t, bedOptions{Binary: skewedScheduler(t), Env: func(node string) []string { return []string{skewEnv + "=" + skews[node]} }},
		trial{ID: "T31", Name: "nodes' clocks are wrong", Bound: deathBound, Inject: skewClocks},
	)
}

// skewEnv holds an offset and a rate of drift.
const skewEnv = "FERMATA_TEST_CLOCK"

// skewClocks lets the nodes be, then kills one: neither takes longer than with true
// clocks, and nothing is early.
func skewClocks(b *bed) {
	// A span that a node counts is wrong by a hundredth, far more than any clock of a computer.
	b.early, b.load.waits = time.Millisecond, nil
	for id, least := range map[string]time.Duration{"a": 4 * time.Minute, "b": 4 * time.Minute, "c": 3 * time.Second} {
		at, err := time.Parse(time.RFC3339Nano, fmt.Sprint(b.nodeByID(id).awaitLog(patience, "node is up")["time"]))
		if err != nil {
			b.t.Fatal(err)
		}
		off := time.Until(at)
		b.requireEffect("seconds that the clock of "+id+" is off", int(max(off, -off).Seconds()), int(least.Seconds()))
	}
	from := time.Now().UnixNano()
	b.injectFault(faultKind{Name: "clocks wrong", Harmless: true}, func() { b.waitFor(chaosSpan(10 * time.Second)) })
	lags := b.startLags(from, time.Now().UnixNano())
	b.t.Logf("lag with wrong clocks: p50 %v p99 %v max %v", quantileOfSorted(lags, 0.5), quantileOfSorted(lags, 0.99), quantileOfSorted(lags, 1))
	if p99 := quantileOfSorted(lags, 0.99); p99 > time.Second || len(lags) == 0 || lags[0] < -time.Millisecond {
		b.t.Errorf("with wrong clocks the lag is %v at least and %v (p99)", quantileOfSorted(lags, 0), p99)
	}
	b.injectFault(faultKind{Name: "node killed", Within: deathBound(chaosTTLs())}, func() {
		watch := b.watchTakeOver("b")
		b.killNode(b.nodeByID("b"))
		watch.awaitTakeOver(takeOverPromise)
		b.startNode("b")
	})
	if late := b.matchingEvents(func(e historycheck.Event) bool { return e.Kind == historycheck.Start && e.AtNS < e.DueMS*1e6-1e6 }); len(late) > 0 {
		b.t.Errorf("%d runs began before they were due", len(late))
	}
}

// skewedScheduler builds cmd/scheduler against a time package with an offset.
func skewedScheduler(t *testing.T) string {
	t.Helper()
	out, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		t.Fatal(err)
	}
	original := filepath.Join(strings.TrimSpace(string(out)), "src", "time", "time.go")
	source, err := os.ReadFile(original)
	if err != nil {
		t.Fatal(err)
	}
	const begins = "func Now() Time {\n"
	if strings.Count(string(source), begins) != 1 {
		t.Fatalf("%s has another time.Now than this test knows", original)
	}
	changed := strings.Replace(string(source), begins, skewedNow+"\nfunc trueNow() Time {\n", 1)
	changed = strings.Replace(changed, "import (\n", "import (\n\t\"syscall\"\n", 1)
	dir := t.TempDir()
	replacement, overlay, binary := filepath.Join(dir, "time.go"), filepath.Join(dir, "overlay.json"), filepath.Join(dir, "scheduler")
	text, err := json.Marshal(map[string]map[string]string{"Replace": {original: replacement}})
	if err != nil {
		t.Fatal(err)
	}
	for path, content := range map[string][]byte{replacement: []byte(changed), overlay: text} {
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	build := exec.Command("go", "build", "-overlay", overlay, "-o", binary, "github.com/fermata-io/fermata/cmd/scheduler")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	return binary
}

// skewedNow moves the wall clock and leaves the monotonic one alone, as a clock
// that is set wrong does.
const skewedNow = `
var skewOffset, skewDrift, skewStart = readSkew()

func readSkew() (Duration, float64, Time) {
	text, _ := syscall.Getenv("` + skewEnv + `")
	for i := range len(text) {
		if text[i] == ' ' {
			d, _ := ParseDuration(text[:i])
			percent := 0.0
			if text[i+1:] != "0" {
				percent = 0.01
			}
			return d, percent, trueNow()
		}
	}
	return 0, 0, trueNow()
}

// Now is the time by a clock that is wrong.
func Now() Time {
	t := trueNow()
	if skewOffset == 0 && skewDrift == 0 {
		return t
	}
	off := skewOffset + Duration(skewDrift*float64(t.Sub(skewStart)))
	wall := t.Round(0).Add(off)
	return Time{hasMonotonic | uint64(wall.sec()-minWall)<<nsecShift | uint64(wall.nsec()), t.ext, Local}
}
`
