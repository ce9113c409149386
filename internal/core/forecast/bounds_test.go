package forecast

import (
	"fmt"
	"testing"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/unixtime"
)

// A load has series for few queues, those with the most planned runs; the others are counted.
func TestQueuesOfALoadAreBounded(t *testing.T) {
	table, read := NewTable(1), unixtime.Milli(1_900_000_020_000)
	shard := table.NewShard(read)
	shard.Due = table.NewDueIndex(read)
	const queues = 5000
	for i := range queues {
		due := []unixtime.Milli{read + 60_000}
		if i == queues-1 {
			due = append(due, read+60_000, read+120_000)
		}
		shard.Due.Add(job.QueueKey{Namespace: "ns", Queue: fmt.Sprintf("q%04d", i)}, due)
	}
	shard.Due.Trim()
	for _, buckets := range []int{24, dayMinutes} {
		q := Query{NowMS: read, StartMS: read - read%minuteMS, ResolutionMS: dayMinutes / int64(buckets) * minuteMS, Buckets: buckets}
		load := table.Build(q, []*Shard{shard}, nil)
		most := min(maxQueues, maxBuckets/buckets)
		if len(load.Queues) != most || load.Others != queues-most {
			t.Errorf("%d buckets: %d queues and %d others, want %d and %d", buckets, len(load.Queues), load.Others, most, queues-most)
		}
		largest := load.Queues[job.QueueKey{Namespace: "ns", Queue: fmt.Sprintf("q%04d", queues-1)}]
		if largest == nil || largest.Total() != 3 {
			t.Errorf("%d buckets: the queue with the most runs has %v", buckets, largest)
		}
		if _, others := load.Largest(10); others != queues-10 {
			t.Errorf("%d buckets: %d queues are said to be left out, want %d", buckets, others, queues-10)
		}
	}
}

// No namespace takes all places of a table, so that the jobs of others are computed.
func TestTablesAreShared(t *testing.T) {
	b := newBed(t, 2)
	b.table.maxPatterns, b.table.maxGroups, b.table.maxQueues = 40, 40, 16
	for i := range 1440 {
		b.add(fmt.Sprint("q", i), 1, cron(fmt.Sprintf("%d %d * * *", i%60, i/60)), nil)
	}
	if n := b.table.owned["ns"]; n != 30 {
		t.Errorf("a namespace has %d of 40 patterns, want 30", n)
	}
	for shard := range b.shards {
		if groups := b.shards[shard].ownedGroups; groups["ns"] > 30 || b.shards[shard].ownedRows["ns"] > 12 {
			t.Errorf("shard %d: a namespace has %d groups and %d rows", shard, groups["ns"], b.shards[shard].ownedRows["ns"])
		}
	}
	d := &job.Definition{Key: job.Key{Namespace: "other", ID: "x"}, Queue: "q", Schedule: cron("7 3 * * *")}
	b.shards[0].AddJob(d, &job.State{Due: unixtime.MilliOf(noon) + 1, Nominal: unixtime.MilliOf(noon) + 1})
	if b.shards[0].ownedGroups["other"] != 1 || len(b.shards[0].leftOut) == 0 {
		t.Errorf("the job of another namespace has no group: %v", b.shards[0].ownedGroups)
	}
	b.table.Sweep(nil)
	if len(b.table.owned) != 0 {
		t.Errorf("after a sweep: %v", b.table.owned)
	}
}
