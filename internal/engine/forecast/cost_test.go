package forecast

import (
	"flag"
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fermata-io/fermata/internal/core/forecast"
	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/schedule"
	"github.com/fermata-io/fermata/internal/core/unixtime"
	"github.com/fermata-io/fermata/internal/redis/redisstore"
	"github.com/fermata-io/fermata/internal/test/redistest"
)

var (
	costJobs  = flag.Int("jobs", 20_000, "how many jobs TestCostOfManyJobs has")
	checkCost = flag.Bool("check-cost", false, "compare what was paid with processor time: needs an idle machine")
)

// maxCostMB is the most memory that a forecast takes, however many jobs there are.
const maxCostMB = 20.0

// TestCostOfManyJobs measures what the reads of many jobs take, and checks what they leave in memory.
//
// Both reads are paid by the time that they took. With -check-cost the test also checks that this is no less than the
// processor time that node and Redis used. Garbage collection and other processes change both, so that this check
// needs an idle machine: `make forecast-cost` sets it.
func TestCostOfManyJobs(t *testing.T) {
	server := redistest.Start(t)
	store, err := redisstore.Open(t.Context(), redisstore.Options{Client: server.Granted(), Shards: 64, AllowUnsafe: true})
	if err != nil {
		t.Fatal(err)
	}
	jobs := *costJobs
	now := time.Now()
	createMany(t, store, jobs, now)
	held := make([]int, store.Shards())
	for i := range held {
		held[i] = i
	}
	f, err := New(Options{Store: store, Shards: len(held), Held: func() []int { return held },
		Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	f.definitions, f.due = newAllowance(1, time.Hour, now), newAllowance(1, time.Hour, now) // no pauses
	heap := heapInUse()
	c := &costMeter{t: t, client: server.Client(), jobs: jobs}
	c.measure("definitions", definitionsShare, func() time.Duration {
		if err := f.readRound(t.Context(), true); err != nil {
			t.Fatal(err)
		}
		return f.roundOf
	})
	c.measure("due index", dueShare, func() time.Duration {
		f.refreshDue(t.Context())
		return f.dueCost
	})
	f.roundAt = time.Now() // the reads are fresh: the query makes none
	began := time.Now()
	answer, err := f.Query(t.Context(), forecast.Query{NowMS: unixtime.MilliOf(now),
		StartMS:      unixtime.MilliOf(now.Truncate(time.Minute)),
		ResolutionMS: time.Minute.Milliseconds(), Buckets: 24 * 60, HerdJobs: 100})
	if err != nil {
		t.Fatal(err)
	}
	took := time.Since(began)
	planned, later := sums(answer)
	answer = forecast.Answer{}
	mb := float64(int64(heapInUse())-int64(heap)) / 1e6
	t.Logf("%d jobs: %.1f MB of memory; a query takes %v for %d planned and %d computed runs", jobs, mb, took,
		planned, later)
	if mb > maxCostMB {
		t.Errorf("%d jobs take %.1f MB, at most %.1f", jobs, mb, maxCostMB)
	}
	if int(planned) != jobs {
		t.Errorf("%d planned runs of %d jobs", planned, jobs)
	}
	runtime.KeepAlive(f)
}

// costMeter compares what work was paid with the processor time that it used.
type costMeter struct {
	t      *testing.T
	client *redis.Client
	jobs   int
}

func (c *costMeter) measure(what string, share float64, work func() (paid time.Duration)) {
	c.t.Helper()
	node, server := processTime(c.t), c.serverTime()
	paid := work()
	node, server = processTime(c.t)-node, c.serverTime()-server
	round := time.Duration(float64(paid) / share)
	c.t.Logf("%s: paid %v a round (%.1f µs a job); used %v of the node and %v of Redis; a round lasts %v: "+
		"%.2f %% and %.2f %% of a core",
		what, paid, paid.Seconds()*1e6/float64(c.jobs), node, server, round, 100*node.Seconds()/round.Seconds(),
		100*server.Seconds()/round.Seconds())
	if *checkCost && (paid < server || paid*3/2 < node) {
		c.t.Errorf("%s: %v were paid for %v of the node and %v of Redis", what, paid, node, server)
	}
}

// serverTime is the processor time that Redis has used.
func (c *costMeter) serverTime() (used time.Duration) {
	text, err := c.client.Info(c.t.Context(), "cpu").Result()
	if err != nil {
		c.t.Fatal(err)
	}
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		if name == "used_cpu_user" || name == "used_cpu_sys" {
			seconds, err := strconv.ParseFloat(value, 64)
			if err != nil {
				c.t.Fatal(err)
			}
			used += time.Duration(seconds * 1e9)
		}
	}
	return used
}

// processTime is the processor time that this process has used.
func processTime(t *testing.T) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func heapInUse() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// createMany creates jobs of a hundred queues: most share some hundred schedules, others have their own.
func createMany(t *testing.T, store *redisstore.Store, jobs int, now time.Time) {
	t.Helper()
	batches := map[int][]job.Record{}
	send := func(shard int) {
		if reply := store.Create(t.Context(), []job.CreateBatch{{Shard: shard,
			Records: batches[shard]}})[0]; reply.Err != nil {
			t.Fatal(reply.Err)
		}
		batches[shard] = nil
	}
	for i := range jobs {
		d := job.WithDefaults(job.Definition{
			Key: job.Key{Namespace: fmt.Sprint("team-", i%10), ID: fmt.Sprintf("job-%07d", i)}, Queue: fmt.Sprint("queue-",
				i/10%10),
			Handler: "http", Payload: make([]byte, 120), Schedule: mixedSchedule(i), Generation: 1,
			AnchorMS: unixtime.MilliOf(now.Add(-time.Duration(i%86400) * time.Second)),
		})
		c, err := job.Compile(&d)
		if err != nil {
			t.Fatal(err)
		}
		state := job.New(c, unixtime.MilliOf(now)).State
		shard := store.ShardOf(d.Key)
		batches[shard] = append(batches[shard], job.Record{Definition: &d, State: state, IndexMS: state.Due})
		if len(batches[shard]) == 400 {
			send(shard)
		}
	}
	for shard := range batches {
		if len(batches[shard]) > 0 {
			send(shard)
		}
	}
}

func mixedSchedule(i int) schedule.Spec {
	zones := []string{"", "Europe/Berlin", "America/New_York", "Asia/Tokyo"}
	cron := func(format string, args ...any) schedule.Spec {
		return schedule.Spec{Kind: schedule.KindCron, Cron: []string{fmt.Sprintf(format, args...)}, TimeZone: zones[i/7%4]}
	}
	switch k := i / 100 % 20; {
	case k < 5:
		return cron("%d * * * *", i/2000%12*5)
	case k < 9:
		return cron("0 %d * * *", i/2000%24)
	case k < 12:
		return cron("*/%d * * * *", 5+i/2000%3*5)
	case k < 15:
		return cron("H H * * *")
	case k < 16:
		return cron("%d %d * * *", i/2000%60, i/120000%24)
	}
	return schedule.Spec{Kind: schedule.KindInterval, Every: time.Duration(1+i/2000%30) * 10 * time.Minute}
}
