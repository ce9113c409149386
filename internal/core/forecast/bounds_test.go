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
		load := table.Build(q, []*Shard{shard})
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
