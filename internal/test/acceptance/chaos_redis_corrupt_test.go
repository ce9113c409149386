package acceptance

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/sharding"
	"github.com/fermata-io/fermata/internal/core/unixtime"
	"github.com/fermata-io/fermata/internal/test/historycheck"
	"github.com/fermata-io/fermata/internal/test/redistest"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// damage is one way to break what is stored of a job.
type damage struct {
	name string // what is wrong afterwards
	do   func(*rawJob) error
}

// rawJob is one job as Redis has it.
type rawJob struct {
	t               testing.TB
	c               *redis.Client
	id, record      string
	state           string // as it is
	key             func(part string) string
	lane, otherLane string
}

func (s *rawJob) setField(part, value string) error {
	return s.c.HSet(callContext(s.t), s.key(part), s.record, value).Err()
}

func (s *rawJob) addLaneEntry(lane string, score float64, record string) error {
	return s.c.ZAdd(callContext(s.t), s.key("l:"+lane), redis.Z{Score: score, Member: record}).Err()
}

var damages = []damage{
	{"state is cut off", func(s *rawJob) error { return s.setField("st", s.state[:20]) }},
	{"state is cut off in its tail", func(s *rawJob) error { return s.setField("st", s.state+"q99:cut") }},
	{"state of an unknown version", func(s *rawJob) error { return s.setField("st", s.state[:35]+"9"+s.state[36:]) }},
	{"state with a negative count", func(s *rawJob) error { return s.setField("st", s.state+"r-5") }},
	{"state with a huge field", func(s *rawJob) error {
		return s.setField("st", fmt.Sprintf("%se%d:%s", s.state, 1<<20, strings.Repeat("x", 1<<20)))
	}},
	{"state is missing", func(s *rawJob) error { return s.c.HDel(callContext(s.t), s.key("st"), s.record).Err() }},
	{"definition is missing", func(s *rawJob) error { return s.c.HDel(callContext(s.t), s.key("def"), s.record).Err() }},
	{"definition is garbage", func(s *rawJob) error { return s.setField("def", "\xff\xff\x00") }},
	{"entry of a job that does not exist", func(s *rawJob) error { return s.addLaneEntry(s.lane, 0, "default/ghost-"+s.id) }},
	{"entries in two lanes", func(s *rawJob) error {
		if err := s.c.ZAdd(callContext(s.t), s.key("lanes"), redis.Z{Score: 0, Member: s.otherLane}).Err(); err != nil {
			return err
		}
		return s.addLaneEntry(s.otherLane, 0, s.record)
	}},
	{"entry is missing", func(s *rawJob) error { return s.c.ZRem(callContext(s.t), s.key("l:"+s.lane), s.record).Err() }},
	{"score beyond all", func(s *rawJob) error { return s.addLaneEntry(s.lane, 1e300, s.record) }},
	{"score before all", func(s *rawJob) error { return s.addLaneEntry(s.lane, -1e300, s.record) }},
	{"lease without a run", func(s *rawJob) error {
		return s.addLaneEntry(s.lane, float64(job.Score(job.RegionLeased, unixtime.MilliOf(time.Now().Add(time.Second)))), s.record)
	}},
	{"run without a lease", func(s *rawJob) error {
		if err := s.setField("st", s.state[:16]+"1"+s.state[17:]); err != nil {
			return err
		}
		return s.c.ZRem(callContext(s.t), s.key("l:"+s.lane), s.record).Err()
	}},
	{"lane is not in the index", func(s *rawJob) error { return s.c.ZRem(callContext(s.t), s.key("lanes"), s.lane).Err() }},
}

// TestChaosCorruption breaks what is stored, in every way there is, under nodes that
// are at work. No node falls, no shard stalls: what is whole goes on in time. What is
// broken heals by itself or is found by an audit, which repairs it or names the repair.
func TestChaosCorruption(t *testing.T) {
	skipUnlessChosen(t, "T17")
	runBesideOthers(t)
	server := newRedis(t)
	c := newCluster(t, server.URL())
	c.pulse.pingServers(redisBeside(t))
	a, b := c.startNode("a"), c.startNode("b")
	c.awaitSettled()
	c.startWorkerOf("w1", 60, []string{"default", "victims"}, a.grpc)
	c.startWorkerOf("w2", 60, []string{"default", "victims"}, b.grpc)
	l := newLoad(60, time.Now().Add(time.Second), "default")
	a.registerLoad(l)
	each := 2
	if chaosLong() {
		each = 20
	}
	victims := a.createVictims(each)
	c.waitAllRan(l, patience)

	f := &figures{ID: "T17", Name: "what is stored is broken", Faults: map[string]int{}, Bound: calmLag}
	from := time.Now()
	for id, d := range victims {
		if err := d.do(readStored(t, server.Client(), id)); err != nil {
			t.Fatalf("%s: %v", d.name, err)
		}
		f.Faults["record broken"]++
	}
	// Through leasing, reaping, and one life of a lease.
	c.waitEnds(time.Now().Add(leaseTTL + 4*time.Second))
	f.Gap, f.Job = newService(l.promises).longestGap(c.readEvents(), from.UnixNano(), time.Now().UnixNano())
	if f.Gap > f.Bound+c.pulse.Since(from)+busyAllowance() {
		t.Errorf("T17: %s, which is whole, waited %v, want at most %v", f.Job, f.Gap, f.Bound)
	}
	audited := time.Now()
	named := a.auditNames(t)
	healed, found := 0, 0
	for id, d := range victims {
		// A finding about a lane is one about the jobs in it.
		about := named["default/"+id] + named[fmt.Sprintf("lane of shard %d", sharding.ShardOf("default", id, shards))]
		switch {
		case about != "":
			found++
		default: // it runs, as it should every second
			redistest.Eventually(t, patience, d.name+": it heals, as the audit knows nothing of it", func() error {
				if !c.hasRunSince(id, audited) {
					return errors.New("it does not run: " + id)
				}
				return nil
			})
			healed++
		}
	}
	f.Power = []shown{{"faults found by the audit", found, 5 * each}, {"healed before it", healed, each / 2}} // the audit may be faster
	for _, p := range f.Power {
		atLeast(t, "T17, "+p.What, p.Got, p.Want)
	}
	c.repairJobs(a, victims)
	f.Took = time.Since(from)
	whole := c.judgeOnly(l, historycheck.History{ExpectedSchedules: l.promises, Bounds: calmBounds(), Stored: storedJobs(a.listAllJobs())})
	atLeast(t, "nominal times", whole.Targets, 100)
	addHistory(whole)
	t.Logf("T17: %v", f)
	addFigures(f)
}

// judgeOnly judges what happened to the jobs of a load, whatever became of others.
func (c *cluster) judgeOnly(l *load, h historycheck.History) historycheck.Report {
	c.t.Helper()
	h.EndNS = time.Now().UnixNano()
	h.Events = c.matchingEvents(func(e historycheck.Event) bool { return l.jobs[e.Job] != nil })
	h.Faults = append(h.Faults, c.pulse.stallFaults()...)
	r := historycheck.Check(h)
	for _, f := range r.Findings {
		c.t.Errorf("%v", f)
	}
	return r
}

// createVictims makes jobs to be broken, some for each way, in a queue of their own.
func (n *schedulerNode) createVictims(each int) map[string]damage {
	n.t.Helper()
	victims := map[string]damage{}
	for i := range each * len(damages) {
		id := fmt.Sprintf("victim-%04d", i)
		victims[id] = damages[i%len(damages)]
		n.createJob(id, victimJob())
	}
	return victims
}

func victimJob() *fermatav1.Job {
	j := newJob(behaviour{})
	j.Queue, j.Schedule = "victims", everyInterval(time.Second, time.Now())
	return j
}

func readStored(t testing.TB, c *redis.Client, id string) *rawJob {
	t.Helper()
	tag := sharding.Tags(shards)[sharding.ShardOf("default", id, shards)]
	s := &rawJob{
		t: t, c: c, id: id, record: "default/" + id, lane: "default/victims/5", otherLane: "default/elsewhere/5",
		key: func(part string) string { return fmt.Sprintf("fermata:{%s}:%s", strings.Trim(tag, "{}"), part) },
	}
	// Between two runs: what is live would be judged by its own rules.
	redistest.Eventually(t, patience, id+" waits", func() (err error) {
		if s.state, err = c.HGet(callContext(t), s.key("st"), s.record).Result(); err == nil && s.state[16] != '0' {
			err = errors.New("it runs")
		}
		return err
	})
	return s
}

// auditNames asks a node to check all shards, and returns its findings by record
// and of lanes.
func (n *schedulerNode) auditNames(t testing.TB) map[string]string {
	t.Helper()
	return n.checkAll(t, false)
}

func (n *schedulerNode) checkAll(t testing.TB, repair bool) map[string]string {
	t.Helper()
	named := map[string]string{}
	for shard := range shards {
		r, err := n.cluster.CheckShard(callContext(t), &fermatav1.CheckShardRequest{Shard: int32(shard), Repair: repair})
		if err != nil {
			t.Fatalf("check of shard %d: %v", shard, err)
		}
		for _, f := range r.GetFindings() {
			of := f.GetRecord()
			if of == "" {
				of = fmt.Sprintf("lane of shard %d", shard)
			}
			named[of] += f.GetFault().String() + " " + f.GetDetail() + "; "
		}
	}
	return named
}

// hasRunSince reports whether a job has run since.
func (c *cluster) hasRunSince(id string, since time.Time) bool {
	return len(c.matchingEvents(func(e historycheck.Event) bool { return e.Job == id && e.AtNS > since.UnixNano() })) > 0
}

// repairJobs repairs what can be, registers again what cannot, and wants all to run.
func (c *cluster) repairJobs(n *schedulerNode, victims map[string]damage) {
	c.t.Helper()
	n.checkAll(c.t, true)
	for record := range n.auditNames(c.t) {
		id := strings.TrimPrefix(record, "default/")
		if _, ours := victims[id]; !ours {
			c.t.Errorf("after the repair: %s", record)
			continue
		}
		callUntilAnswered(c.t, "create "+id, func(ctx context.Context) (*fermatav1.Job, error) {
			j, err := n.jobs.CreateJob(ctx, &fermatav1.CreateJobRequest{Parent: namespace, JobId: id, Job: victimJob()})
			if status.Code(err) == codes.AlreadyExists {
				return j, nil // it was named in the midst of a run, and there is nothing wrong with it
			}
			return j, err
		})
	}
	again := time.Now()
	for id, d := range victims {
		redistest.Eventually(c.t, patience, d.name+": it runs again", func() error {
			if !c.hasRunSince(id, again) {
				return fmt.Errorf("%s has not: %v", id, n.auditNames(c.t)["default/"+id])
			}
			return nil
		})
	}
}
