package acceptance

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/fermata-io/fermata/internal/redis/redisstore"
	"github.com/fermata-io/fermata/internal/test/historycheck"
	"github.com/fermata-io/fermata/internal/test/redistest"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// TestChaosBuilds (T46): nodes of an earlier build, whose latest schema is lower, are killed one after the other and
// replaced by nodes of this build, back, and forward again, while jobs of every kind are created, renamed and redriven
// through both. Then the schema is raised. Nothing is lost, early, late or repeated without a reason. Backups of either
// build are restored by the other.
func TestChaosBuilds(t *testing.T) {
	skipInShortForm(t, "T46")
	runBesideOthers(t)
	b := startBuilds(t)
	b.createLasting()
	b.rollTo("")
	for end := time.Now().Add(chaosSpan(0)); ; {
		b.rollTo(b.earlier)
		b.rollTo("")
		if !time.Now().Before(end) {
			break
		}
	}
	b.raiseSchema()
	b.checkBackups()
	b.judgeBuilds()
	b.checkRounds()
}

// buildTrial is a cluster whose nodes are of two builds, with what its clients did.
type buildTrial struct {
	*cluster
	t       *testing.T
	redis   *redis.Client
	earlier string            // path of the earlier build's scheduler
	running map[string]string // by node: the path of its scheduler; "": this build
	load    *load
	backup  []byte // of the jobs of createLasting, taken by the earlier build
	begun   time.Time
	rounds  int
	mixed   int // rounds in which the nodes were of two builds
	unsure  int // calls that failed because their node was killed
	promise []historycheck.ExpectedSchedule
	silent  []historycheck.NoRunPeriod
	manual  []historycheck.ManualRun
	// redriven are the jobs whose dead run was redriven.
	redriven []string
	faults   []historycheck.Fault
}

// startBuilds starts nodes of the earlier build, which create the keyspace, with two workers and a load.
func startBuilds(t *testing.T) *buildTrial {
	t.Helper()
	earlier := earlierPath(t)
	server := newRedis(t)
	b := &buildTrial{
		cluster: newCluster(t, server.URL()), t: t, redis: server.Client(), earlier: earlier,
		running: map[string]string{}, begun: time.Now(),
	}
	b.pulse.pingServers(server.Client())
	ids, jobs := []string{"a", "b"}, scaleJobs(60)
	if chaosLong() {
		ids, jobs = []string{"a", "b", "c"}, 2000
	}
	for _, id := range ids {
		b.startAs(id, earlier, nil)
		b.running[id] = earlier
	}
	b.awaitSettled()
	var addresses []string
	for _, n := range b.nodes {
		addresses = append(addresses, n.grpc)
	}
	b.startWorker("w1", 100, addresses...)
	slices.Reverse(addresses)
	b.startWorker("w2", 100, addresses...)
	b.load = newLoad(jobs, time.Now().Add(time.Second), "default")
	b.nodes[0].registerLoad(b.load)
	return b
}

// rollTo kills the nodes of another build, one after the other, and starts this one in their place. On the way back the
// short form leaves one node as it is.
func (b *buildTrial) rollTo(binary string) {
	b.t.Helper()
	ids := slices.Sorted(maps.Keys(b.running))
	if binary == b.earlier && !chaosLong() {
		ids = ids[1:]
	}
	for _, id := range ids {
		if b.running[id] != binary {
			b.replaceNode(id, binary)
		}
	}
}

// replaceNode kills a node amid calls of clients, and starts another build under its name and addresses. The clients
// repeat at another node what was not acknowledged.
func (b *buildTrial) replaceNode(id, binary string) {
	b.t.Helper()
	i := slices.IndexFunc(b.nodes, func(n *schedulerNode) bool { return n.id == id })
	victim, other := b.nodes[i], b.nodes[(i+1)%len(b.nodes)]
	r := &buildRound{buildTrial: b, number: b.rounds, batchAt: time.Now().Add(2 * time.Second).Truncate(time.Millisecond)}
	b.rounds++
	r.createJobs(victim, other)
	fault := beginFault("node of one build replaced by another")
	r.callAmidKill(victim, other)
	next := b.startAs(id, binary, nil,
		"--grpc-addr", victim.grpc, "--peer-addr", victim.peer, "--gossip-addr", victim.gossip, "--http-addr", victim.http)
	b.running[id] = binary
	b.awaitSettled()
	b.faults = append(b.faults, fault.endFault(deathBound(lockTTL, leaseTTL)-calmLag))
	if len(next.countVersions()) > 1 {
		b.mixed++
	}
	r.followJobs(next, other)
}

// buildRound is what clients do while one node is replaced.
type buildRound struct {
	*buildTrial
	number  int
	batchAt time.Time // when the jobs are due that are created while the node is killed
}

// roundKind is a kind of one-time job. Each round creates one job of each kind.
type roundKind struct {
	name      string
	does      behaviour
	retention time.Duration
}

var roundKinds = []roundKind{
	{name: "plain"},
	{name: "retried", does: behaviour{FailAttempts: 2}},
	{name: "dead", does: behaviour{Fail: true}},
	{name: "swept", retention: time.Second},
	{name: "long", does: behaviour{Sleep: 1200 * time.Millisecond}},
}

// idOf is the id of a job of the round.
func (r *buildRound) idOf(kind string) string { return fmt.Sprintf("%s-%d", kind, r.number) }

// batchID is the id of a job that is created while the node is killed.
func (r *buildRound) batchID(i int) string { return fmt.Sprintf("batch-%d-%d", r.number, i) }

// batchSize is how many jobs a round creates while its node is killed.
const batchSize = 50

// onceJob is a one-time job with up to three attempts.
func onceJob(does behaviour, at time.Time) *fermatav1.Job {
	j := newJob(does)
	j.Schedule = onceAt(at)
	j.RetryPolicy = &fermatav1.RetryPolicy{
		BaseDelay: durationpb.New(100 * time.Millisecond), MaxAttempts: 3,
		Jitter: &fermatav1.Jitter{Kind: fermatav1.Jitter_KIND_NONE},
	}
	return j
}

// createJobs creates the jobs of the round, in turn at the nodes, and waits until some of them run.
func (r *buildRound) createJobs(nodes ...*schedulerNode) {
	r.t.Helper()
	// It is renamed while the node is killed.
	nodes[0].createJob(r.idOf("before"), onceJob(behaviour{}, time.Now().Add(time.Hour)))
	at := time.Now().Add(300 * time.Millisecond).Truncate(time.Millisecond)
	for i, kind := range roundKinds {
		id := r.idOf(kind.name)
		j := onceJob(kind.does, at)
		if kind.retention > 0 {
			j.Retention = durationpb.New(kind.retention)
			r.silent = append(r.silent, historycheck.NoRunPeriod{
				Job: id, FromNS: at.Add(time.Hour).UnixNano(), Deleted: true,
			})
		}
		nodes[i%len(nodes)].createJob(id, j)
		if kind.does.Fail { // it runs once more when it is redriven
			r.promise = append(r.promise, historycheck.ExpectedSchedule{Job: id})
		} else {
			r.promiseOnce(id, at)
		}
	}
	r.awaitEvent(patience, "a long run is live", isStartOf(r.idOf("long"), ""))
	r.awaitEvent(patience, "a short run has ended", func(e historycheck.Event) bool {
		return isEnd(e) && e.Job == r.idOf("plain")
	})
}

// promiseOnce adds a one-time job that was acknowledged now.
func (b *buildTrial) promiseOnce(id string, at time.Time) {
	p := historycheck.Promised(id, at, 24*time.Hour)
	p.FromMS = max(p.FromMS, time.Now().UnixMilli())
	b.promise = append(b.promise, p)
}

// callAmidKill makes calls at a node, kills it, and repeats at another one what was not acknowledged.
func (r *buildRound) callAmidKill(victim, other *schedulerNode) {
	r.t.Helper()
	calls := []func(context.Context, *schedulerNode) error{r.createBatch, r.renameJob, r.runPlainJob}
	failed := make([]error, len(calls))
	var calling sync.WaitGroup
	for i, call := range calls {
		calling.Go(func() { failed[i] = call(callContext(r.t), victim) })
	}
	r.killNode(victim)
	calling.Wait()
	for i, call := range calls {
		if failed[i] == nil {
			continue
		}
		r.unsure++
		callUntilAnswered(r.t, fmt.Sprintf("call %d of round %d, after %v", i, r.number, failed[i]),
			func(ctx context.Context) (any, error) { return nil, call(ctx, other) })
	}
	for i := range batchSize {
		r.promiseOnce(r.batchID(i), r.batchAt)
	}
	r.noteManual(r.idOf("plain"), "m-again")
}

// noteManual adds a manual run that was acknowledged now.
func (b *buildTrial) noteManual(id, run string) {
	b.manual = append(b.manual, historycheck.ManualRun{Job: id, Run: run, AtNS: time.Now().UnixNano()})
}

func (r *buildRound) createBatch(ctx context.Context, n *schedulerNode) error {
	batch := &fermatav1.BatchCreateJobsRequest{Parent: namespace, Compact: r.number%2 == 0, NamesOnly: r.number%3 == 0}
	for i := range batchSize {
		id := r.batchID(i)
		batch.Requests = append(batch.Requests, &fermatav1.CreateJobRequest{
			JobId: id, RequestId: "first-" + id, Job: onceJob(behaviour{}, r.batchAt),
		})
	}
	answer, err := n.jobs.BatchCreateJobs(ctx, batch)
	for _, result := range answer.GetResults() {
		if err == nil && result.GetCode() != 0 {
			err = status.Error(codes.Code(result.GetCode()), result.GetMessage())
		}
	}
	return err
}

func (r *buildRound) renameJob(ctx context.Context, n *schedulerNode) error {
	_, err := n.jobs.RenameJob(ctx, &fermatav1.RenameJobRequest{
		Name: jobName(r.idOf("before")), NewId: r.idOf("after"), RequestId: r.idOf("rename"),
	})
	return err
}

func (r *buildRound) runPlainJob(ctx context.Context, n *schedulerNode) error {
	_, err := n.jobs.RunJob(ctx, &fermatav1.RunJobRequest{Name: jobName(r.idOf("plain")), RequestId: "again"})
	return err
}

// followJobs runs the job that was renamed, and redrives the dead run of the round before.
func (r *buildRound) followJobs(nodes ...*schedulerNode) {
	r.t.Helper()
	n := nodes[r.number%len(nodes)]
	after := r.idOf("after")
	r.promise = append(r.promise, historycheck.ExpectedSchedule{Job: after})
	answer := callUntilAnswered(r.t, "run "+after, func(ctx context.Context) (*fermatav1.RunJobResponse, error) {
		return n.jobs.RunJob(ctx, &fermatav1.RunJobRequest{Name: jobName(after), RequestId: "now"})
	})
	r.noteManual(after, path.Base(answer.GetRun().GetName()))
	if r.number == 0 {
		return
	}
	dead := fmt.Sprintf("dead-%d", r.number-1)
	redistest.Eventually(r.t, patience, dead+" is redriven", func() error {
		if n.redriveLetters(dead) == 0 {
			return errors.New("it is not dead")
		}
		return nil
	})
	r.redriven = append(r.redriven, dead)
}

// lastingJobs is how many jobs createLasting makes.
const lastingJobs = 5

// createLasting creates jobs that come to rest in different states, and takes a backup of them.
func (b *buildTrial) createLasting() {
	b.t.Helper()
	n := b.nodes[0]
	once := func(does behaviour, after time.Duration) *fermatav1.Job { return onceJob(does, time.Now().Add(after)) }
	hourly := func(does behaviour) *fermatav1.Job {
		j := newJob(does)
		j.Schedule = everyInterval(time.Hour, time.Now().Add(time.Second).Truncate(time.Millisecond))
		j.RetryPolicy = &fermatav1.RetryPolicy{MaxAttempts: 1}
		return j
	}
	for id, j := range map[string]*fermatav1.Job{
		"back-later": once(behaviour{}, time.Hour), "back-done": once(behaviour{}, 0),
		"back-dead": once(behaviour{Fail: true}, 0), "back-failing": hourly(behaviour{Fail: true}),
		"back-paused": hourly(behaviour{}),
	} {
		n.createJob(id, j)
		b.promise = append(b.promise, historycheck.ExpectedSchedule{Job: id})
	}
	callUntilAnswered(b.t, "pause", func(ctx context.Context) (*fermatav1.Job, error) {
		return n.jobs.PauseJob(ctx, &fermatav1.PauseJobRequest{Name: jobName("back-paused"), Note: "while builds change"})
	})
	for id, fits := range map[string]func(*fermatav1.JobStatus) bool{
		"back-done":    func(s *fermatav1.JobStatus) bool { return s.GetState() == fermatav1.JobStatus_STATE_DONE },
		"back-dead":    func(s *fermatav1.JobStatus) bool { return s.GetState() == fermatav1.JobStatus_STATE_DEAD },
		"back-failing": func(s *fermatav1.JobStatus) bool { return s.GetConsecutiveFailures() == 1 },
		"back-paused":  func(s *fermatav1.JobStatus) bool { return s.GetState() == fermatav1.JobStatus_STATE_PAUSED },
	} {
		redistest.Eventually(b.t, patience, id+" comes to rest", func() error { return wantStatus(n.getJob(id), fits) })
	}
	b.backup = exportLasting(n)
}

func exportLasting(n *schedulerNode) []byte {
	n.t.Helper()
	return n.runCommand(nil, "export", "--states", "--prefix", "back-")
}

// raiseSchema raises the schema of the keyspace, as an operator does once all nodes know it. From then on nodes of the
// earlier build are refused, and the only run of a one-time job is kept in its state, until another one ends.
func (b *buildTrial) raiseSchema() {
	b.t.Helper()
	meta := "fermata:{meta}"
	was, err := b.redis.HGet(callContext(b.t), meta, "schema").Int()
	if err != nil || was != earlierSchema {
		b.t.Fatalf("the schema is %d, want %d: %v", was, earlierSchema, err)
	}
	err = b.redis.HSet(callContext(b.t), meta, "schema", redisstore.SchemaVersion).Err()
	if err != nil {
		b.t.Fatal(err)
	}
	b.replaceNode("a", "") // which knows it from the start, before the others notice
	b.checkRefusedBuild(b.earlier, refusedEarlier)
	n := b.nodes[0]
	kept, tries := "", 0
	redistest.Eventually(b.t, patience, "a state keeps the run of its job", func() error {
		kept = fmt.Sprintf("kept-%d", tries)
		tries++
		at := time.Now().Truncate(time.Millisecond)
		n.createJob(kept, onceJob(behaviour{}, at))
		b.promiseOnce(kept, at)
		b.awaitSuccesses(kept, 1)
		if b.hasHistory(kept) {
			return errors.New("its run is in the history")
		}
		return nil
	})
	b.wantRuns(kept, 1)
	callUntilAnswered(b.t, "run "+kept, func(ctx context.Context) (*fermatav1.RunJobResponse, error) {
		return n.jobs.RunJob(ctx, &fermatav1.RunJobRequest{Name: jobName(kept), RequestId: "again"})
	})
	b.awaitSuccesses(kept, 2)
	b.wantRuns(kept, 2)
}

// refusedEarlier is why nodes of the earlier build do not start in a keyspace of this one.
var refusedEarlier = fmt.Sprintf("its schema is a later one: version %d, this binary knows %d: run a newer version",
	redisstore.SchemaVersion, earlierSchema)

// hasHistory reports whether the history of a job has the first run.
func (b *buildTrial) hasHistory(id string) bool {
	b.t.Helper()
	keys, err := b.redis.Keys(callContext(b.t), "fermata:*:hist").Result()
	if err != nil {
		b.t.Fatal(err)
	}
	for _, key := range keys {
		has, err := b.redis.HExists(callContext(b.t), key, "default/"+id+".0").Result()
		if err != nil {
			b.t.Fatal(err)
		}
		if has {
			return true
		}
	}
	return false
}

// awaitSuccesses waits until so many runs of a job have succeeded, and no run has ended otherwise.
func (b *buildTrial) awaitSuccesses(id string, want int64) {
	b.t.Helper()
	redistest.Eventually(b.t, patience, fmt.Sprintf("%s succeeds %d times", id, want), func() error {
		return wantStatus(b.nodes[0].getJob(id), func(s *fermatav1.JobStatus) bool {
			return s.GetSucceededTotal() == want && s.GetRunsTotal() == want
		})
	})
}

// wantRuns checks that so many runs of a job are listed, which all succeeded, and returns the first one.
func (b *buildTrial) wantRuns(id string, want int) *fermatav1.Run {
	b.t.Helper()
	runs := b.nodes[0].listRuns(id)
	for _, r := range runs {
		if r.GetOutcome() != fermatav1.Outcome_OUTCOME_SUCCEEDED {
			b.t.Errorf("%s: a run ended with %v", id, r.GetOutcome())
		}
	}
	if len(runs) != want {
		b.t.Fatalf("%s has %d runs, want %d: %v", id, len(runs), want, runs)
	}
	return runs[want-1]
}

// checkBackups restores the backup of each build by nodes of the other, in keyspaces that these have created.
func (b *buildTrial) checkBackups() {
	b.t.Helper()
	want := parseBackup(b.t, b.backup)
	if len(want) != lastingJobs {
		b.t.Fatalf("the backup is\n%s", b.backup)
	}
	present := exportLasting(b.nodes[0])
	sameBackups(b.t, parseBackup(b.t, present), want)
	for _, to := range []struct {
		binary string
		backup []byte
	}{{"", b.backup}, {b.earlier, present}} {
		c := newCluster(b.t, newRedis(b.t).URL())
		n := c.startAs("restored", to.binary, nil)
		c.awaitSettled()
		out := n.runCommand(to.backup, "import", "--states")
		if string(out) != fmt.Sprintf("registered %d jobs\n", lastingJobs) {
			b.t.Errorf("%s", out)
		}
		sameBackups(b.t, parseBackup(b.t, exportLasting(n)), want)
		if to.binary == "" {
			c.checkRefusedBuild(b.earlier, refusedEarlier)
		}
	}
}

// judgeBuilds judges the history when what faults may hold back must have run.
func (b *buildTrial) judgeBuilds() {
	b.t.Helper()
	last := b.faults[len(b.faults)-1]
	b.waitEnds(time.Unix(0, last.ToNS).Add(last.Hold + calmLag + time.Second))
	f := &figures{
		ID: "T46", Name: "nodes of two builds replace one another", Faults: map[string]int{last.Name: b.rounds},
		Bound: deathBound(lockTTL, leaseTTL), Took: time.Since(b.begun),
	}
	f.Gap, f.Job = newService(b.load.promises).longestGap(b.readEvents(), b.faults[0].FromNS, time.Now().UnixNano())
	if most := f.Bound + b.pulse.Since(b.begun) + busyAllowance(); f.Gap > most {
		b.t.Errorf("%s waited %v beyond its interval; %v is documented", f.Job, f.Gap, f.Bound)
	}
	f.Power = []shown{{"rounds with two builds", b.mixed, 2}, {"jobs of batches", b.rounds * batchSize, 4 * batchSize}}
	for _, p := range f.Power {
		atLeast(b.t, p.What, p.Got, p.Want)
	}
	b.t.Logf("%v; %d calls were not answered by the node that was killed", f, b.unsure)
	addFigures(f)
	r := b.judgeHistory(historycheck.History{
		ExpectedSchedules: slices.Concat(b.load.promises, b.promise), NoRunPeriods: b.silent,
		ManualRuns: b.manual, Redriven: b.redriven, Faults: b.faults, Bounds: calmBounds(), Stored: storedJobs(b.nodes[0].listAllJobs()),
	})
	atLeast(b.t, "nominal times", r.Targets, len(b.load.jobs)+b.rounds*batchSize/2)
	addHistory(r)
}

// checkRounds compares what is stored of the jobs of all rounds with what they did.
func (b *buildTrial) checkRounds() {
	b.t.Helper()
	n := b.nodes[0]
	for i := range b.rounds {
		r := &buildRound{buildTrial: b, number: i}
		b.awaitSuccesses(r.idOf("plain"), 2)
		b.wantRuns(r.idOf("plain"), 2)
		b.awaitSuccesses(r.idOf("long"), 1)
		b.awaitSuccesses(r.idOf("after"), 1)
		for k := range batchSize {
			b.awaitSuccesses(r.batchID(k), 1)
		}
		b.awaitSuccesses(r.idOf("retried"), 1)
		wantAttempts(b.t, b.wantRuns(r.idOf("retried"), 1), 2, fermatav1.Outcome_OUTCOME_SUCCEEDED)
		for _, kind := range []string{"swept", "before"} {
			redistest.Eventually(b.t, patience, r.idOf(kind)+" is gone", func(ctx context.Context) error {
				_, err := n.jobs.GetJob(ctx, &fermatav1.GetJobRequest{Name: jobName(r.idOf(kind))})
				if status.Code(err) != codes.NotFound {
					return fmt.Errorf("it is answered with %v", err)
				}
				return nil
			})
		}
		deaths := int64(2)
		if i == b.rounds-1 { // no later round has redriven it
			deaths = 1
		}
		redistest.Eventually(b.t, patience, r.idOf("dead")+" is dead", func() error {
			return wantStatus(n.getJob(r.idOf("dead")), func(s *fermatav1.JobStatus) bool {
				return s.GetState() == fermatav1.JobStatus_STATE_DEAD && s.GetDeadTotal() == deaths
			})
		})
	}
	letters := map[string]int{}
	for _, l := range n.listDeadLetters() {
		letters[strings.Split(l.GetName(), "/")[3]]++
		wantAttempts(b.t, l.GetRun(), int(l.GetRun().GetAttempts()), fermatav1.Outcome_OUTCOME_UNSPECIFIED)
	}
	for i := range b.rounds {
		id := fmt.Sprintf("dead-%d", i)
		if letters[id] != 1 {
			b.t.Errorf("%s has %d dead letters, want the one that nobody has redriven", id, letters[id])
		}
	}
}

// wantAttempts checks the attempts that a run has stored: so many failed, and the last one ended with last, if that
// is given. Others may have been lost with their node.
func wantAttempts(t *testing.T, r *fermatav1.Run, failed int, last fermatav1.Outcome) {
	t.Helper()
	ended := map[fermatav1.Outcome]int{}
	for _, a := range r.GetAttemptLog() {
		ended[a.GetOutcome()]++
	}
	delete(ended, fermatav1.Outcome_OUTCOME_LOST)
	want := map[fermatav1.Outcome]int{fermatav1.Outcome_OUTCOME_FAILED: failed}
	if last != fermatav1.Outcome_OUTCOME_UNSPECIFIED {
		want[last] = 1
	}
	if !maps.Equal(ended, want) {
		t.Errorf("the attempts of %s ended with %v, want %v", r.GetName(), ended, want)
	}
}
