package forecast

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/schedule"
	"github.com/fermata-io/fermata/internal/core/unixtime"
)

// fillTable reads jobs of a hundred queues in 64 shards: most share schedules, the others have their own.
func fillTable(t testing.TB, jobs int) (*Table, []*Shard) {
	t.Helper()
	r := rand.New(rand.NewPCG(3, 4))
	table := NewTable(64)
	shards := make([]*Shard, 64)
	for i := range shards {
		shards[i] = table.NewShard(unixtime.MilliOf(noon))
		shards[i].Due = table.NewDueIndex(unixtime.MilliOf(noon))
	}
	zones := []string{"", "Europe/Berlin", "America/New_York", "Asia/Tokyo"}
	for i := range jobs {
		spec := every(time.Duration(1+r.IntN(30)) * 10 * time.Minute)
		switch r.IntN(4) {
		case 0:
			spec = cron(fmt.Sprintf("%d %d * * *", r.IntN(60), r.IntN(24)))
		case 1, 2:
			spec = cron(fmt.Sprintf("%d * * * *", 5*r.IntN(12)))
		}
		if spec.Kind == schedule.KindCron {
			spec.TimeZone = zones[r.IntN(4)]
		}
		d := definition(fmt.Sprint("queue-", r.IntN(100)), fmt.Sprintf("job-%07d", i), spec,
			noon.Add(-time.Duration(r.IntN(86400))*time.Second))
		due := unixtime.MilliOf(noon) + unixtime.Milli(r.Int64N(24*3600*1000))
		shard := shards[r.IntN(64)]
		shard.AddJob(&d, &job.State{Nominal: due, Due: due})
		shard.Due.Add(job.QueueKey{Namespace: "ns", Queue: d.Queue}, []unixtime.Milli{due})
	}
	for _, s := range shards {
		s.Due.Trim()
	}
	return table, shards
}

func BenchmarkBuild(b *testing.B) {
	table, shards := fillTable(b, 200_000)
	q := Query{NowMS: unixtime.MilliOf(noon), StartMS: unixtime.MilliOf(noon.Truncate(time.Minute)),
		ResolutionMS: minuteMS, Buckets: 24 * 60, HerdJobs: 100}
	for b.Loop() {
		table.Build(q, shards, nil)
	}
	groups := 0
	for _, s := range shards {
		groups += len(s.groups)
	}
	b.ReportMetric(float64(len(table.index)), "patterns")
	b.ReportMetric(float64(groups), "groups")
}

func BenchmarkAddJob(b *testing.B) {
	table := NewTable(64)
	shard := table.NewShard(unixtime.MilliOf(noon))
	d := definition("q", "job", cron("0 * * * *"), noon)
	state := &job.State{Nominal: unixtime.MilliOf(noon), Due: unixtime.MilliOf(noon)}
	b.ReportAllocs()
	for b.Loop() {
		shard.AddJob(&d, state)
	}
}
