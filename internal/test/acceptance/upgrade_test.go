package acceptance

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	"github.com/fermata-io/fermata/internal/redis/redisstore"
	"github.com/fermata-io/fermata/internal/test/historycheck"
	"github.com/fermata-io/fermata/internal/test/redistest"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// nextVersion is what the next version calls itself.
const nextVersion = "v1.99.0"

// nextMarks are what it adds to a state and to a definition (field 1000, "next").
const (
	nextState      = "!4:next"
	nextDefinition = "\xc2\x3e\x04next"
)

// nextSources are edits that make of the present source a next minor version: it
// writes more into states, definitions, ended runs and gossip, and sends more on the
// links between nodes.
var nextSources = map[string][][2]string{
	"internal/redis/codec/state.go": {
		{`"strconv"`, "\"strconv\"\n\t\"strings\""},
		{"w.buf = append(w.buf, s.Unknown...)", `if !strings.Contains(s.Unknown, "` + nextState + `") {
		s.Unknown += "` + nextState + `"
	}
	w.buf = append(w.buf, s.Unknown...)`},
	},
	"internal/redis/codec/definition.go": {
		{`"fmt"`, "\"bytes\"\n\t\"fmt\""},
		{"return append(b, d.Unknown...), nil", `later := []byte("\xc2\x3e\x04next")
	if bytes.Contains(d.Unknown, later) {
		later = nil
	}
	return append(append(b, d.Unknown...), later...), nil`},
	},
	"internal/redis/codec/run.go": {
		{"return encoded, nil", `return append(encoded, "\xc2\x3e\x04next"...), nil`},
	},
	"internal/cluster/peer/version.go": {{"Protocol    = 1", "Protocol    = 2"}},
	"internal/cluster/membership/meta.go": {
		{"b, _ := json.Marshal(m)", "b, _ := json.Marshal(struct {\n\t\tnodeMeta\n\t\tZone string `json:\"z\"`\n\t}{m, \"next\"})"},
	},
}

// nextBinary builds the scheduler of the next version.
var nextBinary = sync.OnceValues(func() (string, error) {
	root, err := filepath.Abs(sourceRoot)
	if err != nil {
		return "", err
	}
	replace := map[string]string{}
	for name, edits := range nextSources {
		path := filepath.Join(root, name)
		source, err := os.ReadFile(path)
		if err != nil {
			return "", err
		}
		text := string(source)
		for _, e := range edits {
			if strings.Count(text, e[0]) != 1 {
				return "", fmt.Errorf("%s does not have %q once: what makes the next version of it has to follow", name, e[0])
			}
			text = strings.Replace(text, e[0], e[1], 1)
		}
		edited := filepath.Join(buildDir, "next-"+filepath.Base(filepath.Dir(name))+"-"+filepath.Base(name))
		if err := os.WriteFile(edited, []byte(text), 0o600); err != nil {
			return "", err
		}
		replace[path] = edited
	}
	file, err := writeOverlay("next", replace)
	if err != nil {
		return "", err
	}
	return buildCommand("scheduler", "scheduler-next", "-overlay", file, "-ldflags", "-X main.buildVersion="+nextVersion)
})

// writeOverlay writes the file for the flag -overlay of the go command that replaces files by others, or, where there is
// none, leaves them out.
func writeOverlay(name string, replace map[string]string) (file string, err error) {
	text, err := json.Marshal(struct{ Replace map[string]string }{replace})
	if err != nil {
		return "", err
	}
	file = filepath.Join(buildDir, name+".json")
	return file, os.WriteFile(file, text, 0o600)
}

// countVersions counts the nodes of each version, as one of them sees it.
func (n *schedulerNode) countVersions() map[string]int {
	n.t.Helper()
	list, err := n.cluster.ListNodes(callContext(n.t), &fermatav1.ListNodesRequest{})
	if err != nil {
		n.t.Fatal(err)
	}
	count := map[string]int{}
	for _, m := range list.GetNodes() {
		if !m.GetUnreachable() {
			count[m.GetVersion()]++
		}
	}
	return count
}

// TestRollingUpgradeAndBack replaces the nodes by those of a next version, one after
// the other, under load, and back again. Nothing is lost or repeated while versions
// are mixed, and what the next version has added is still there after the present one
// has written every record again.
func TestRollingUpgradeAndBack(t *testing.T) {
	runBesideOthers(t)
	next, err := nextBinary()
	if err != nil {
		t.Fatal(err)
	}
	server := newRedis(t)
	c := newCluster(t, server.URL())
	c.pulse.pingServers(server.Client())
	for _, id := range []string{"a", "b", "c"} {
		c.startNode(id)
	}
	c.awaitSettled()
	c.startWorker("w1", 40, c.nodes[0].grpc, c.nodes[1].grpc)
	c.startWorker("w2", 40, c.nodes[1].grpc, c.nodes[2].grpc)
	first := time.Now().Add(time.Second)
	l := newLoad(scaleJobs(200), first, "default")
	for id, j := range l.jobs {
		j.HistoryLimit = new(int32(3))
		l.jobs[id] = j
	}
	c.nodes[0].registerLoad(l)
	c.waitAllRan(l, patience)

	roll := func(binary string) {
		t.Helper()
		for i, old := range slices.Clone(c.nodes) {
			c.stopNode(old)
			n := c.startAs(old.id, binary, nil)
			c.awaitSettled()
			if got := n.countVersions(); binary != "" && got[nextVersion] != i+1 || len(got) > 2 {
				t.Errorf("versions of nodes: %v", got)
			}
			// Versions are mixed for a while.
			c.waitEnds(time.Now().Add(time.Second))
		}
	}
	roll(next)
	marked := func(what string) (states, definitions, records int) {
		t.Helper()
		all := keysWith(t, server.Client(), ":st")
		for _, text := range all {
			if strings.Contains(text, nextState) {
				states++
			}
		}
		for _, text := range keysWith(t, server.Client(), ":def") {
			if strings.Contains(text, nextDefinition) {
				definitions++
			}
		}
		t.Logf("%s: %d of %d states and %d definitions have what is new", what, states, len(all), definitions)
		return states, definitions, len(all)
	}
	edited, start := newJob(behaviour{}), time.Now().Add(time.Second).Truncate(time.Millisecond)
	edited.Schedule = everyInterval(time.Second, start)
	c.nodes[0].createJob("edited", edited)
	l.promises = append(l.promises, historycheck.ExpectedSchedule{
		Job: "edited", AnchorMS: start.UnixMilli(), Every: time.Second, FromMS: max(start.UnixMilli(), time.Now().UnixMilli()),
	})
	// Every job runs once more, on nodes of the next version alone.
	c.waitEnds(time.Now().Add(6 * time.Second))
	redistest.Eventually(t, patience, "the next version has written every state", func() error {
		if states, definitions, records := marked("after the upgrade"); states != records || definitions == 0 {
			return fmt.Errorf("%d of %d states, %d definitions", states, records, definitions)
		}
		return nil
	})
	roll("")
	edited.Name, edited.Labels = jobName("edited"), map[string]string{"by": "the present version"}
	if _, err := c.nodes[0].jobs.UpdateJob(callContext(t), &fermatav1.UpdateJobRequest{
		Job: edited, UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"labels"}},
	}); err != nil {
		t.Fatal(err)
	}
	c.waitEnds(time.Now().Add(6 * time.Second))
	if states, definitions, records := marked("after the way back"); states != records || definitions == 0 {
		t.Errorf("%d of %d states and %d definitions still have what the next version added", states, records, definitions)
	}
	if got := c.nodes[0].countVersions(); len(got) != 1 {
		t.Errorf("versions of nodes: %v", got)
	}

	jobs := c.nodes[0].listAllJobs()
	bounds := calmBounds()
	bounds.Lag = 2500 * time.Millisecond
	ids := storedJobs(jobs)
	r := c.judgeHistory(historycheck.History{ExpectedSchedules: l.promises, Bounds: bounds, Stored: ids})
	if r.Repeats != 0 {
		t.Errorf("%d executions were repeated", r.Repeats)
	}
	for id, j := range jobs {
		if s := j.GetStatus(); s.GetLostTotal() != 0 || s.GetDeadTotal() != 0 || s.GetConsecutiveFailures() != 0 {
			t.Errorf("%s: %v", id, s)
		}
	}
}

// keysWith reads the values of all hashes whose keys end like this.
func keysWith(t *testing.T, client *redis.Client, suffix string) (values []string) {
	t.Helper()
	keys, err := client.Keys(callContext(t), "fermata:*"+suffix).Result()
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range keys {
		texts, err := client.HVals(callContext(t), key).Result()
		if err != nil {
			t.Fatal(err)
		}
		values = append(values, texts...)
	}
	return values
}

// TestNewerSchemaIsRefused raises the schema of the keyspace under running nodes, as
// a later version would: they stop within seconds, none of them starts again, and all
// of them log the reason in one line.
func TestNewerSchemaIsRefused(t *testing.T) {
	runBesideOthers(t)
	server := newRedis(t)
	c := newCluster(t, server.URL())
	a, b := c.startNode("a"), c.startNode("b")
	c.awaitSettled()
	c.startWorker("w1", 10, a.grpc, b.grpc)
	j := newJob(behaviour{})
	j.Schedule = everyInterval(time.Second, time.Now())
	a.createJob("ping", j)
	c.awaitEvent(patience, "work goes on", func(e historycheck.Event) bool { return e.Kind == historycheck.End })

	ctx := callContext(t)
	if err := server.Client().HSet(ctx, "fermata:{meta}", "schema", redisstore.SchemaVersion+1).Err(); err != nil {
		t.Fatal(err)
	}
	why := fmt.Sprintf("its schema is a later one: version %d, this binary knows %d: run a newer version",
		redisstore.SchemaVersion+1, redisstore.SchemaVersion)
	for _, n := range []*schedulerNode{a, b} {
		select {
		case <-n.done:
		case <-time.After(patience):
			t.Fatalf("%s goes on", n.name)
		}
		refusedSchema(t, n.process, why)
		c.forgetNode(n)
	}
	c.checkRefusedBuild(commandPath(t, "scheduler"), why)
	if err := server.Client().HSet(ctx, "fermata:{meta}", "schema", redisstore.SchemaVersion).Err(); err != nil {
		t.Fatal(err)
	}
}

// checkRefusedBuild starts a node of another build, which must end and give this reason.
func (c *cluster) checkRefusedBuild(binary, why string) {
	c.t.Helper()
	p := startProcess(c.t, "late", nil, binary, "--redis-url", c.redisURL, "--shards", fmt.Sprint(shards),
		"--grpc-addr", "127.0.0.1:0", "--peer-addr", "127.0.0.1:0", "--gossip-addr", "127.0.0.1:0", "--http-addr", "127.0.0.1:0")
	select {
	case <-p.done:
	case <-time.After(patience):
		c.t.Fatal("a node starts that does not know the schema")
	}
	refusedSchema(c.t, p, why)
}

// refusedSchema wants exit code 3, and one last line with the reason.
func refusedSchema(t testing.TB, p *process, why string) {
	t.Helper()
	if code := p.cmd.ProcessState.ExitCode(); code != 3 {
		t.Errorf("%s ended with exit code %d, want 3", p.name, code)
	}
	log, err := os.ReadFile(p.log)
	if err != nil {
		t.Fatal(err)
	}
	lines := bytes.Split(bytes.TrimSpace(log), []byte("\n"))
	if last := string(lines[len(lines)-1]); !strings.HasPrefix(last, "scheduler: ") || !strings.Contains(last, why) {
		t.Errorf("the last line of %s is %q", p.name, last)
	}
}
