package acceptance

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fermata-io/fermata/internal/test/historycheck"
	"github.com/fermata-io/fermata/internal/test/redistest"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

const (
	// longestScript is what one script may take on a machine of its own. In the short form,
	// which does not have one, the kernel may take the processor away in the middle of it:
	// ten times as long.
	longestScript = 15 * time.Millisecond
	// instantQueue is where the jobs are that are due at once.
	instantQueue = "instant"
)

// TestChaosOneInstant: thousands of jobs are due at one instant. Redis serves them in
// small bites: no script keeps it busy for long, and the jobs of another queue run on
// time beside them.
func TestChaosOneInstant(t *testing.T) {
	skipUnlessChosen(t, "T35")
	runBesideOthers(t)
	server := redistest.Start(t, redistest.WithAOF("no"),
		redistest.WithConfig("slowlog-log-slower-than", "2000", "slowlog-max-len", "10000"))
	beside := redisBeside(t)
	c := newCluster(t, server.URL())
	c.pulse.pingServers(beside)
	a, b := c.startNode("a"), c.startNode("b")
	c.awaitSettled()
	n := instantJobs(t)
	at := time.Now().Add(3*time.Second + time.Duration(n)*300*time.Microsecond)
	l := &load{jobs: map[string]*fermatav1.Job{}}
	for i := range n {
		j := newJob(behaviour{})
		j.Queue, j.Schedule = instantQueue, onceAt(at)
		l.jobs[fmt.Sprintf("instant-%07d", i)] = j
	}
	steady := newLoad(30, time.Now().Add(time.Second), "default")
	a.registerLoad(steady)
	a.registerLoad(l)
	// Nobody takes them before: on a slow machine they are due together all the same.
	t.Logf("the jobs were registered %v before they were due", time.Until(at))
	for i, node := range []*schedulerNode{a, b} {
		c.startWorkerOf(fmt.Sprintf("steady-%d", i), 20, []string{"default"}, node.grpc)
		c.startWorkerOf(fmt.Sprintf("instant-%d", i), 500, []string{instantQueue}, node.grpc)
	}
	if err := server.Client().Do(callContext(t), "slowlog", "reset").Err(); err != nil {
		t.Fatal(err)
	}
	f := &figures{ID: "T35", Name: "all at one instant", Faults: map[string]int{"jobs due at once": n}, Bound: calmLag}
	ping := longestAnswer(t, "redis://"+beside.Options().Addr, func() {
		redistest.Eventually(t, max(0, time.Until(at))+patience+time.Duration(n)*2*time.Millisecond, "all have run", func() error {
			if ran := len(c.matchingEvents(func(e historycheck.Event) bool { return e.Kind == historycheck.End && l.jobs[e.Job] != nil })); ran < n {
				return errors.New(strconv.Itoa(ran) + " have")
			}
			return nil
		})
	})
	f.Took = time.Since(at)
	c.waitEnds(time.Now().Add(3 * time.Second))

	longest := slowestScript(t, server.Client())
	most := max(longestScript, 4*ping)
	if !chaosLong() {
		most = max(10*longestScript, 4*ping)
	}
	if longest > most {
		t.Errorf("T35: a script took %v, want at most %v (the slowest PING beside it took %v)", longest, most, ping)
	}
	f.Gap, f.Job = newService(steady.promises).longestGap(c.readEvents(), at.UnixNano(), time.Now().UnixNano())
	promises := steady.promises
	for id := range l.jobs {
		promises = append(promises, historycheck.ExpectedSchedule{Job: id})
	}
	r := c.judgeHistory(historycheck.History{ExpectedSchedules: promises, Bounds: calmBounds()})
	addHistory(r)
	f.Power = []shown{{"executions", r.Executions, n}, {"repeats, none of which is allowed", 1 - min(1, r.Repeats), 1}}
	for _, p := range f.Power {
		atLeast(t, "T35, "+p.What, p.Got, p.Want)
	}
	t.Logf("T35: %d jobs in %v, %.0f a second; the slowest script took %v, the slowest PING beside it %v", n, f.Took,
		float64(n)/f.Took.Seconds(), longest, ping)
	addFigures(f)
}

func instantJobs(t testing.TB) int {
	t.Helper()
	if text := os.Getenv("FERMATA_CHAOS_INSTANT"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	if chaosLong() {
		return 50_000
	}
	return scaleJobs(5000)
}

// slowestScript is the longest that a script has taken by Redis's own figures.
func slowestScript(t testing.TB, c *redis.Client) (longest time.Duration) {
	t.Helper()
	log, err := c.SlowLogGet(callContext(t), -1).Result()
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range log {
		if len(e.Args) > 0 && (e.Args[0] == "evalsha" || e.Args[0] == "eval") {
			longest = max(longest, e.Duration)
		}
	}
	return longest
}
