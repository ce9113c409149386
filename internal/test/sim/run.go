package sim

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/fermata-io/fermata/client"
	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/lib/precisetimer"
	"github.com/fermata-io/fermata/internal/redis/conn"
	"github.com/fermata-io/fermata/internal/redis/fsck"
	"github.com/fermata-io/fermata/internal/redis/redisstore"
	"github.com/fermata-io/fermata/internal/test/historycheck"
)

// simulationResult is the result of one seed.
type simulationResult struct {
	seed     uint64
	plan     simulationPlan
	report   historycheck.Report
	faults   []historycheck.Fault
	findings []job.Finding // of the audit
	setupErr error         // that kept it from being judged
	hits     map[string]int
	calls    int // commands to Redis
	story    *story
}

// longestAhead is how far in advance runs are leased at most. A start by the clock of the shards may come
// that much too early where the clock is stepped back in these milliseconds (decision 0015).
const longestAhead = 26 * time.Millisecond

// simulateSeed plays one seed. It is called inside a bubble, on a server that is empty.
func simulateSeed(seed uint64, redis *redisServer) simulationResult {
	precisetimer.UseRuntime()
	p := drawPlan(seed)
	w := newWorld(seed, redis, p.hasRealClock())
	r := simulationResult{seed: seed, plan: p, story: w.story}
	machines := w.newMachines(p)
	people, err := newSimulatedClients(w, w.addressesOf(p.nodes, machines))
	if err != nil {
		r.setupErr = err
		return r
	}
	for _, name := range slices.Concat(p.nodes, p.workers) {
		machines[name].bootHost()
	}
	time.Sleep(jobsAt)
	people.registerJobs()

	tr := &faultInjector{world: w, machines: machines}
	var acting sync.WaitGroup
	at := func(when time.Duration, do func()) {
		acting.Go(func() {
			time.Sleep(when - time.Since(w.story.began))
			do()
		})
	}
	for _, f := range p.faults {
		at(f.at, func() { tr.injectFault(f) })
	}
	for _, e := range p.edits {
		at(e.at, func() { people.applyEdit(e) })
	}
	acting.Wait()
	time.Sleep(judgedAt - time.Since(w.story.began))

	history := historycheck.History{
		ExpectedSchedules: people.promises, NoRunPeriods: people.silences, ManualRuns: people.asked,
		Backoffs: people.backoffs, Waits: people.waits, Faults: tr.done,
		Shared: []historycheck.Shared{{Lock: "shared", Jobs: []string{"locked-0", "locked-1", "locked-2"}, Limit: 1}},
		Bounds: historycheck.Bounds{Lag: time.Second, Settle: time.Second, LeaseTTL: leaseTTL, SessionTTL: sessionTTL,
			Longest: longestRun},
	}
	if slices.Contains(p.faultKinds(), clockStep) {
		history.Bounds.Early = longestAhead
	}
	var dead map[string]bool
	history.Stored, dead, err = people.listStored()
	if p.mayGiveUpRuns() {
		history.GivenUp = dead
	}
	history.EndNS = w.nowNS()
	if err != nil {
		r.setupErr = fmt.Errorf("list the jobs in the end: %w", err)
	}
	w.mu.Lock()
	history.Events = slices.Clone(w.events)
	w.mu.Unlock()
	for _, m := range machines {
		m.stopProcess(10 * time.Second)
	}
	r.findings, err = w.auditStore()
	if err != nil && r.setupErr == nil {
		r.setupErr = fmt.Errorf("audit: %w", err)
	}
	if err := people.client.Close(); err != nil && r.setupErr == nil {
		r.setupErr = err
	}
	close(w.ended)
	w.background.Wait()
	time.Sleep(lateExitTime)
	r.report, r.faults, r.hits, r.calls = historycheck.Check(history), tr.done, w.counts, redis.calls
	return r
}

// lateExitTime is how long the goroutines of memberlist may need to end, which nothing waits for: they may be
// waiting for the answer to a probe.
const lateExitTime = 30 * time.Second

// newMachines places nodes at 10.0.2.x and workers at 10.0.3.x.
func (w *world) newMachines(p simulationPlan) map[string]*machine {
	all := map[string]*machine{}
	for i, name := range p.nodes {
		all[name] = &machine{world: w, name: name, ip: fmt.Sprintf("10.0.2.%d", i+1)}
	}
	for i, name := range p.workers {
		all[name] = &machine{world: w, name: name, ip: fmt.Sprintf("10.0.3.%d", i+1)}
	}
	nodes := w.addressesOf(p.nodes, all)
	for i, name := range p.nodes {
		n := &nodeProcess{world: w, name: name}
		for k, ip := range nodes {
			if k != i {
				n.join = append(n.join, fmt.Sprintf("%s:%d", ip, gossipPort))
			}
		}
		all[name].process = n
	}
	for i, name := range p.workers {
		p := &workerProcess{world: w, name: name}
		for k := range nodes { // each worker knows two nodes, and learns of the others
			if k != i%len(nodes) || len(nodes) == 1 {
				p.nodes = append(p.nodes, nodes[k]+":"+grpcPort)
			}
		}
		all[name].process = p
	}
	return all
}

func (w *world) addressesOf(names []string, machines map[string]*machine) []string {
	ips := make([]string, len(names))
	for i, name := range names {
		ips[i] = machines[name].ip
	}
	return ips
}

// listStored lists the stored jobs, and those of them with dead letters.
func (p *simulatedClients) listStored() (map[string]bool, map[string]bool, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	all, dead := map[string]bool{}, map[string]bool{}
	for j, err := range p.client.Jobs(ctx, client.Filter{}) {
		if err != nil {
			return nil, nil, err
		}
		id := client.JobID(j)
		all[id], dead[id] = true, j.GetStatus().GetDeadTotal() > 0
	}
	return all, dead, nil
}

// auditStore compares all that is stored.
func (w *world) auditStore() ([]job.Finding, error) {
	h := w.network.Boot("10.0.4.2")
	client, err := conn.NewClient(conn.ClientOptions{
		URL: "redis://" + redisIP + ":6379", Dialer: w.dialRedis(h), PoolSize: redisPool, ReadTimeout: redisTimeout,
	})
	if err != nil {
		return nil, err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	o := redisstore.Options{Client: client, Prefix: w.keyspace, Shards: shards, AllowUnsafe: true,
		Logger: w.story.newLogger("audit")}
	if !w.steady {
		o.Virtual = w.redisNow
	}
	store, err := redisstore.Open(ctx, o)
	if err != nil {
		return nil, err
	}
	var findings []job.Finding
	for shard := range shards {
		report, err := fsck.New(store).CheckShard(ctx, shard, false)
		if err != nil {
			return nil, err
		}
		findings = append(findings, report.Findings...)
	}
	return findings, nil
}

// isClean reports whether nothing is wrong.
func (r simulationResult) isClean() bool {
	return r.setupErr == nil && len(r.report.Findings) == 0 && len(r.findings) == 0
}

// describeResult is the story of a run that is not clean.
func (r simulationResult) describeResult() string {
	text := fmt.Sprintf("seed %d: %v", r.seed, r.plan)
	var words []string
	if r.setupErr != nil {
		text += fmt.Sprintf("  trouble: %v\n", r.setupErr)
	}
	for _, f := range r.report.Findings {
		text += fmt.Sprintf("  %v\n", f)
		words = append(words, f.Job)
	}
	for _, f := range r.findings {
		text += fmt.Sprintf("  audit: %s of %s: %+v\n", f.Fault, f.Record, f)
		words = append(words, string(f.Record))
	}
	return text + r.story.formatLines(slog.LevelInfo, words...)
}
