package acceptance

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fermata-io/fermata/internal/test/faultproxy"
	"github.com/fermata-io/fermata/internal/test/historycheck"
	"github.com/fermata-io/fermata/internal/test/redistest"
)

// lostGrants is how much of its primary's work a replica misses.
const lostGrants = 5 * time.Second

// TestChaosPromotedReplicaMissesGrants: replicas receive nothing from their primary for
// five seconds of work, then it dies and Sentinel promotes one of them. In class local
// that work runs again; tokens grow all the same, and what was granted before counts
// nowhere.
func TestChaosPromotedReplicaMissesGrants(t *testing.T) {
	skipInShortForm(t, "T30")
	runBesideOne(t)
	var network *faultproxy.Proxy
	who := newOrigins()
	sentinel := redistest.StartSentinelBehind(t, func(addr string) string {
		network = faultproxy.New(t, addr)
		network.Name(who.byProcess(network.Addr()))
		return network.Addr()
	}, 2, 3, 2)
	replicas := []string{"replica-1", "replica-2"}
	for i, name := range replicas {
		who.noteProcess(name, pidOf(t, sentinel.Nodes()[i+1]))
	}
	network.CloseAll() // all connect again, by name

	c := newRacedCluster(t, "redis+sentinel://"+strings.Join(sentinel.SentinelAddrs(), ",")+"/"+sentinel.MasterName())
	c.pulse.pingServers(redisBeside(t))
	a, b := c.startNode("a"), c.startNode("b")
	c.awaitSettled()
	c.startWorker("w1", 60, a.grpc)
	c.startWorker("w2", 60, b.grpc)
	l := newLoad(150, time.Now().Add(time.Second), "default")
	a.registerLoad(l)
	c.waitAllRan(l, patience)

	f := &figures{ID: "T30", Name: "a promoted replica misses the last grants", Faults: map[string]int{"grants lost": 1}, Bound: lostGrants + clusterFailover}
	began := time.Now()
	lost := beginFault("grants lost")
	network.Only(replicas...)
	network.Blackhole(faultproxy.ToClient)
	c.waitEnds(time.Now().Add(lostGrants))
	master := sentinel.Master()
	behind := replicationLag(t, master)
	old := sentinel.KillMaster()
	killed := time.Now().UnixNano()
	network.CloseAll() // what was held back is lost
	network.Pass()
	sentinel.WaitFailover(old)
	fault := lost.endFault(redisBack + leaseTTL)
	c.awaitSettled()
	c.waitEnds(time.Now().Add(redisBack + leaseTTL))
	c.waitEnds(time.Now().Add(5 * time.Second)) // every job's interval, in calm

	f.Took = time.Since(began)
	r := c.judgeHistory(historycheck.History{ExpectedSchedules: l.promises, Faults: []historycheck.Fault{fault}, Bounds: calmBounds(), Stored: storedJobs(a.listAllJobs())})
	addHistory(r)
	f.Gap, f.Job = newService(l.promises).longestGap(c.readEvents(), fault.FromNS, fault.ToNS+int64(10*time.Second))
	granted := len(c.matchingEvents(func(e historycheck.Event) bool {
		return e.Kind == historycheck.Start && e.AtNS > fault.FromNS && e.AtNS < killed
	}))
	for _, p := range []shown{{"bytes that the replicas missed", behind, 1000}, {"runs granted meanwhile", granted, 100}, {"runs repeated", r.Repeats, 50}} {
		atLeast(t, "T30, "+p.What, p.Got, p.Want)
		f.Power = append(f.Power, p)
	}
	c.tokensGrowOver(killed)
	if f.Gap > f.Bound {
		t.Errorf("T30: %s waited %v, want at most %v", f.Job, f.Gap, f.Bound)
	}
	t.Logf("T30: %v", f)
	addFigures(f)
}

// tokensGrowOver wants the tokens of each job's executions after an instant to be
// greater than all before it: nothing excuses one that is not.
func (c *cluster) tokensGrowOver(ns int64) {
	c.t.Helper()
	before := map[string]int64{}
	for _, e := range c.matchingEvents(func(e historycheck.Event) bool { return e.Kind == historycheck.Start && e.AtNS < ns }) {
		before[e.Job] = max(before[e.Job], e.Token)
	}
	later := 0
	for _, e := range c.matchingEvents(func(e historycheck.Event) bool {
		return e.Kind == historycheck.Start && e.AtNS >= ns && e.DueMS*1e6 >= ns
	}) {
		later++
		if e.Token <= before[e.Job] {
			c.t.Errorf("%s: %s has token %d after %d", e.Job, e.Run, e.Token, before[e.Job])
		}
	}
	atLeast(c.t, "executions after it", later, 100)
}

func pidOf(t testing.TB, s *redistest.Server) int {
	t.Helper()
	return infoNumber(t, s, "server", `process_id:(\d+)`)
}

// replicationLag is by how many bytes the last of a primary's replicas is behind.
func replicationLag(t testing.TB, s *redistest.Server) int {
	t.Helper()
	return infoNumber(t, s, "replication", `master_repl_offset:(\d+)`) - infoNumber(t, s, "replication", `slave0:.*offset=(\d+)`)
}

func infoNumber(t testing.TB, s *redistest.Server, section, pattern string) int {
	t.Helper()
	text, err := s.Client().Info(callContext(t), section).Result()
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(pattern).FindStringSubmatch(text)
	if found == nil {
		t.Fatal(fmt.Errorf("INFO %s has no %s", section, pattern))
	}
	n, err := strconv.Atoi(found[1])
	if err != nil {
		t.Fatal(err)
	}
	return n
}
