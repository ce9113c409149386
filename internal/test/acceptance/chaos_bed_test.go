package acceptance

import (
	"cmp"
	"fmt"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fermata-io/fermata/internal/test/historycheck"
	"github.com/fermata-io/fermata/internal/test/redistest"
)

// bedOptions describe a bed; the zero value is three nodes and three workers on a
// standalone server, each link between them through a proxy.
type bedOptions struct {
	// RedisURL and Redis, clients of its servers, replace the bed's own server. The
	// nodes then reach Redis without a proxy.
	RedisURL string
	Redis    []*redis.Client
	Beside   *redis.Client // of a server that no trial touches: shows the machine's stalls; default: those above
	Nodes    int
	Raced    bool            // nodes have the race detector; see newRacedCluster
	Workers  int             // the first ones; default: 3
	Flags    []string        // of each node, after the bed's
	Binary   string          // runs the nodes; default: the one under test
	Jobs     int             // of the load; default by form
	Queues   []string        // of the workers, beside the load's
	Programs []workerProgram // of the first workers, in turn; default: Go's
	Env      func(node string) []string
}

// bed is a cluster under a load, every link of which can be disturbed. Trials take
// turns on it.
type bed struct {
	*cluster
	o       bedOptions
	server  *redistest.Server // nil with RedisURL
	links   map[string]*links // by node
	workers map[string]*process
	made    int // workers so far
	origins *origins
	load    *bedLoad

	begun   time.Time
	faults  []historycheck.Fault
	more    []historycheck.ExpectedSchedule // of jobs that trials make
	early   time.Duration                   // see historycheck.Bounds
	deadly  bool                            // runs are given up as workers die with them
	current *figures                        // of the trial under way
	served  *service                        // of the load's jobs
}

// newBed starts everything and waits until every job has run once.
func newBed(t testing.TB, o bedOptions) *bed {
	t.Helper()
	if o.Nodes == 0 {
		o.Nodes = 3
	}
	b := &bed{o: o, links: map[string]*links{}, workers: map[string]*process{}, begun: time.Now(), origins: newOrigins()}
	url, clients := o.RedisURL, o.Redis
	if url == "" {
		b.server = newRedis(t)
		url, clients = b.server.URL(), []*redis.Client{b.server.Client()}
	}
	if o.Beside != nil {
		clients = []*redis.Client{o.Beside}
	}
	lock, lease := chaosTTLs()
	create := newCluster
	if o.Raced {
		create = newRacedCluster
	}
	b.cluster = create(t, url, append([]string{"--lock-ttl", lock.String(), "--lease-ttl", lease.String()}, o.Flags...)...)
	b.pulse.pingServers(clients...)
	b.spawned = b.origins.noteProcess
	for i := range o.Nodes {
		b.startNode(string(rune('a' + i)))
	}
	b.awaitSettled()
	if len(b.o.Programs) == 0 {
		b.o.Programs = []workerProgram{goProgram(t)}
	}
	for i := range cmp.Or(o.Workers, 3) {
		b.addWorkerOf(b.o.Programs[i%len(b.o.Programs)], b.nodes...)
	}
	b.load = b.registerLoad()
	b.served = newService(b.load.promises)
	redistest.Eventually(t, patience, "every job has run", func() error { return b.served.everyJobRan(b.readEvents()) })
	return b
}

// startNode starts a node, again or for the first time, behind its proxies. Its
// addresses stay the same.
func (b *bed) startNode(id string) *schedulerNode {
	b.t.Helper()
	l := b.links[id]
	if l == nil {
		l = newLinks(b.t, b.server, b.origins, id)
		b.links[id] = l
	}
	flags := l.nodeFlags()
	if b.server == nil {
		flags = slices.Concat(flags, []string{"--redis-url", b.redisURL})
	}
	var env []string
	if b.o.Env != nil {
		env = b.o.Env(id)
	}
	n := b.startAs(id, b.o.Binary, env, flags...)
	n.connectTo(l.realAddress(grpcPort))
	return n
}

// nodeByID is a running node; its id is the letter it was started under.
func (b *bed) nodeByID(id string) *schedulerNode {
	b.t.Helper()
	for _, n := range b.nodes {
		if n.id == id {
			return n
		}
	}
	b.t.Fatalf("node %s does not run", id)
	return nil
}

// addWorker starts a worker that knows all nodes, under a new name.
func (b *bed) addWorker() string {
	b.t.Helper()
	return b.addWorkerAt(b.nodes...)
}

// addWorkerAt starts one that knows these nodes at first.
func (b *bed) addWorkerAt(nodes ...*schedulerNode) string {
	b.t.Helper()
	return b.addWorkerOf(goProgram(b.t), nodes...)
}

// addWorkerOf is addWorkerAt with another program.
func (b *bed) addWorkerOf(program workerProgram, nodes ...*schedulerNode) string {
	b.t.Helper()
	b.made++
	id := fmt.Sprintf("%s%d", program.Prefix, b.made)
	var addresses []string
	for _, n := range nodes {
		addresses = append(addresses, n.grpc)
	}
	b.workers[id] = b.startProgram(program, id, 100, slices.Concat([]string{"default"}, b.o.Queues), addresses...)
	return id
}

// killWorker crashes a worker.
func (b *bed) killWorker(id string) {
	b.t.Helper()
	b.workers[id].killProcess()
	delete(b.workers, id)
}

// workerNames are those that run, in order.
func (b *bed) workerNames() []string {
	var names []string
	for id := range b.workers {
		names = append(names, id)
	}
	slices.Sort(names)
	return names
}

// busiestWorker is the worker with the most runs that have started and not ended.
func (b *bed) busiestWorker() string {
	b.t.Helper()
	live := map[string]int{}
	for _, id := range b.workerNames() {
		live[id] = 0
	}
	for _, e := range b.readEvents() {
		if _, runs := live[e.Worker]; !runs {
			continue
		}
		switch e.Kind {
		case historycheck.Start:
			live[e.Worker]++
		case historycheck.End:
			live[e.Worker]--
		}
	}
	names := b.workerNames()
	return slices.MaxFunc(names, func(x, y string) int { return live[x] - live[y] })
}

// judgedBounds of the load in calm times.
func (b *bed) judgedBounds() historycheck.Bounds {
	bounds := calmBounds()
	_, bounds.LeaseTTL = chaosTTLs()
	bounds.Early = b.early
	bounds.SessionTTL = sessionTTL(bounds.LeaseTTL)
	return bounds
}

func hostPort(ip string, port int) string { return net.JoinHostPort(ip, fmt.Sprint(port)) }
