package acceptance

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fermata-io/fermata/internal/redis/redisacl"
	"github.com/fermata-io/fermata/internal/test/historycheck"
	"github.com/fermata-io/fermata/internal/test/redistest"
)

// setRules gives a user rules, as ACL SETUSER takes them.
func setRules(t *testing.T, server *redistest.Server, user, rules string) {
	t.Helper()
	args := []any{"acl", "setuser", user}
	for _, word := range strings.Fields(rules) {
		args = append(args, word)
	}
	if err := server.Client().Do(callContext(t), args...).Err(); err != nil {
		t.Fatal(err)
	}
}

// TestRollingSwitchToFunctions goes the steps of docs/security/redis.md that take EVAL away from the nodes' user, one
// node after the other, under load: Redis refuses nothing, and nothing is lost or repeated. FERMATA_PREVIOUS may name a
// scheduler of the version before, with which the nodes begin.
func TestRollingSwitchToFunctions(t *testing.T) {
	runBesideOthers(t)
	server := newRedis(t)
	setRules(t, server, "fermata", redisacl.UserRules("fermata", false))
	c := newCluster(t, server.URL())
	c.pulse.pingServers(server.Client())
	for _, id := range []string{"a", "b", "c"} {
		c.startAs(id, os.Getenv("FERMATA_PREVIOUS"), nil)
	}
	c.awaitSettled()
	c.startWorker("w1", 40, c.nodes[0].grpc, c.nodes[1].grpc)
	c.startWorker("w2", 40, c.nodes[1].grpc, c.nodes[2].grpc)
	first := time.Now().Add(time.Second)
	l := newLoad(scaleJobs(200), first, "default")
	c.nodes[0].registerLoad(l)
	c.waitAllRan(l, patience)

	// 1 and 2: another user loads the functions.
	setRules(t, server, "loader", "reset on #"+redisacl.HashPassword("pw")+" "+redisacl.LoaderRules())
	load := exec.Command(commandPath(t, "fermata"), "redis", "functions", "--load", "--redis-url", "redis://loader:pw@"+server.Addr())
	if out, err := load.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	c.waitEnds(time.Now().Add(time.Second))
	// 3: nodes of both kinds may run.
	setRules(t, server, "fermata", "+fcall")
	// 4: all nodes, one after the other.
	for _, old := range slices.Clone(c.nodes) {
		c.stopNode(old)
		c.startNode(old.id, "--redis-functions")
		c.awaitSettled()
		c.waitEnds(time.Now().Add(time.Second))
	}
	// 5: without EVAL.
	setRules(t, server, "fermata", redisacl.UserRules("fermata", true))
	c.waitEnds(time.Now().Add(5 * time.Second))
	for _, refused := range server.Refused() {
		t.Errorf("refused: %s", refused)
	}
	if err := server.Granted().Eval(callContext(t), "return 1", nil).Err(); err == nil {
		t.Error("the nodes' user may still bring code along")
	}

	jobs := c.nodes[0].listAllJobs()
	bounds := calmBounds()
	bounds.Lag = 2500 * time.Millisecond
	r := c.judgeHistory(historycheck.History{ExpectedSchedules: l.promises, Bounds: bounds, Stored: storedJobs(jobs)})
	if r.Repeats != 0 {
		t.Errorf("%d executions were repeated", r.Repeats)
	}
	for id, j := range jobs {
		if s := j.GetStatus(); s.GetLostTotal() != 0 || s.GetDeadTotal() != 0 || s.GetConsecutiveFailures() != 0 {
			t.Errorf("%s: %v", id, s)
		}
	}
	setRules(t, server, "fermata", "+eval +evalsha") // for the audit of the test
}
