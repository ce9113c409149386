package sim

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/fermata-io/fermata/client"
	"github.com/fermata-io/fermata/internal/alarm"
	"github.com/fermata-io/fermata/internal/check"
	"github.com/fermata-io/fermata/internal/job"
	"github.com/fermata-io/fermata/internal/redisstore"
)

// result is what came of one seed.
type result struct {
	seed     uint64
	plan     plan
	report   check.Report
	faults   []check.Fault
	findings []job.Finding // of the audit
	trouble  error         // that kept it from being judged
	hits     map[string]int
	calls    int // commands to Redis
	story    *story
}

// longestAhead is how far in advance runs are leased at most. A start by the clock of the shards may come
// that much too early where the clock is stepped back in these milliseconds (decision 0015).
const longestAhead = 26 * time.Millisecond

// run plays one seed. It is called inside a bubble, on a server that is empty.
func run(seed uint64, redis *server) result {
	alarm.UseRuntime()
	p := newPlan(seed)
	w := newWorld(seed, redis, p.steady())
	r := result{seed: seed, plan: p, story: w.story}
	machines := w.machines(p)
	people, err := newPeople(w, w.addresses(p.nodes, machines))
	if err != nil {
		r.trouble = err
		return r
	}
	for _, name := range slices.Concat(p.nodes, p.workers) {
		machines[name].boot()
	}
	time.Sleep(jobsAt)
	people.register()

	tr := &trouble{world: w, machines: machines}
	var acting sync.WaitGroup
	at := func(when time.Duration, do func()) {
		acting.Go(func() {
			time.Sleep(when - time.Since(w.story.began))
			do()
		})
	}
	for _, f := range p.faults {
		at(f.at, func() { tr.inflict(f) })
	}
	for _, e := range p.edits {
		at(e.at, func() { people.do(e) })
	}
	acting.Wait()
	time.Sleep(judgedAt - time.Since(w.story.began))

	history := check.History{
		Promises: people.promises, Silences: people.silences, Asked: people.asked, Backoffs: people.backoffs, Waits: people.waits, Faults: tr.done,
		Shared: []check.Shared{{Lock: "shared", Jobs: []string{"locked-0", "locked-1", "locked-2"}, Limit: 1}},
		Bounds: check.Bounds{Lag: time.Second, Settle: time.Second, LeaseTTL: leaseTTL, SessionTTL: sessionTTL, Longest: longestRun},
	}
	if slices.Contains(p.kinds(), clockStep) {
		history.Bounds.Early = longestAhead
	}
	var dead map[string]bool
	history.Stored, dead, err = people.stored()
	if p.deadly() {
		history.GivenUp = dead
	}
	history.EndNS = w.nowNS()
	if err != nil {
		r.trouble = fmt.Errorf("list the jobs in the end: %w", err)
	}
	w.mu.Lock()
	history.Events = slices.Clone(w.events)
	w.mu.Unlock()
	for _, m := range machines {
		m.stop(10 * time.Second)
	}
	r.findings, err = w.audit()
	if err != nil && r.trouble == nil {
		r.trouble = fmt.Errorf("audit: %w", err)
	}
	if err := people.client.Close(); err != nil && r.trouble == nil {
		r.trouble = err
	}
	close(w.over)
	w.background.Wait()
	time.Sleep(leaveBehind)
	r.report, r.faults, r.hits, r.calls = check.Check(history), tr.done, w.counts, redis.calls
	return r
}

// leaveBehind is how long goroutines may need to end that nobody waits for: those of
// memberlist, which may be waiting for the answer to a probe.
const leaveBehind = 30 * time.Second

// machines places nodes at 10.0.2.x and workers at 10.0.3.x.
func (w *world) machines(p plan) map[string]*machine {
	all := map[string]*machine{}
	for i, name := range p.nodes {
		all[name] = &machine{world: w, name: name, ip: fmt.Sprintf("10.0.2.%d", i+1)}
	}
	for i, name := range p.workers {
		all[name] = &machine{world: w, name: name, ip: fmt.Sprintf("10.0.3.%d", i+1)}
	}
	nodes := w.addresses(p.nodes, all)
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

func (w *world) addresses(names []string, machines map[string]*machine) []string {
	ips := make([]string, len(names))
	for i, name := range names {
		ips[i] = machines[name].ip
	}
	return ips
}

// stored lists the jobs that are stored, and says which of them have dead letters.
func (p *people) stored() (map[string]bool, map[string]bool, error) {
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

// audit compares all that is stored.
func (w *world) audit() ([]job.Finding, error) {
	h := w.network.Boot("10.0.4.2")
	client, err := redisstore.NewClient(redisstore.ClientOptions{
		URL: "redis://" + redisIP + ":6379", Dialer: w.dialRedis(h), PoolSize: redisPool, ReadTimeout: redisTimeout,
	})
	if err != nil {
		return nil, err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	o := redisstore.Options{Client: client, Prefix: w.keyspace, Shards: shards, AllowUnsafe: true, Logger: w.story.logger("audit")}
	if !w.steady {
		o.Virtual = w.redisNow
	}
	store, err := redisstore.Open(ctx, o)
	if err != nil {
		return nil, err
	}
	var findings []job.Finding
	for shard := range shards {
		report, err := store.Audit(ctx, shard, false)
		if err != nil {
			return nil, err
		}
		findings = append(findings, report.Findings...)
	}
	return findings, nil
}

// clean tells whether nothing is wrong.
func (r result) clean() bool {
	return r.trouble == nil && len(r.report.Findings) == 0 && len(r.findings) == 0
}

// tale is the story of a run that is not clean.
func (r result) tale() string {
	text := fmt.Sprintf("seed %d: %v", r.seed, r.plan)
	var words []string
	if r.trouble != nil {
		text += fmt.Sprintf("  trouble: %v\n", r.trouble)
	}
	for _, f := range r.report.Findings {
		text += fmt.Sprintf("  %v\n", f)
		words = append(words, f.Job)
	}
	for _, f := range r.findings {
		text += fmt.Sprintf("  audit: %s of %s: %+v\n", f.Fault, f.Record, f)
		words = append(words, f.Record)
	}
	return text + r.story.text(slog.LevelInfo, words...)
}
