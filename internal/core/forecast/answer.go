package forecast

import (
	"cmp"
	"maps"
	"slices"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/unixtime"
)

// ShardRead says when a shard was read, ms.
type ShardRead struct {
	Shard                int
	DueMS, DefinitionsMS unixtime.Milli
}

// Answer is the forecast of some shards.
type Answer struct {
	*Load
	Shards []ShardRead
	// OmittedQueues is how many queues with runs are not in the load, because there are too many.
	OmittedQueues int
}

// NewLoad returns an empty load.
func NewLoad() *Load { return &Load{Queues: map[job.QueueKey]*Series{}} }

// AddSeries adds runs of a queue.
func (l *Load) AddSeries(key job.QueueKey, buckets int, s *Series) {
	if l.Queues[key] == nil {
		l.Queues[key] = NewSeries(buckets)
	}
	l.Queues[key].Add(s)
}

// Largest returns the queues with the most runs, at most so many, by name, and how many there are beside these,
// including those that were not counted.
func (l *Load) Largest(most int) (queues []job.QueueKey, others int) {
	byName := func(a, b job.QueueKey) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Queue, b.Queue))
	}
	queues = slices.Collect(maps.Keys(l.Queues))
	if len(queues) > most {
		totals := make(map[job.QueueKey]int64, len(queues))
		for key, s := range l.Queues {
			totals[key] = s.Total()
		}
		slices.SortFunc(queues, func(a, b job.QueueKey) int {
			return cmp.Or(cmp.Compare(totals[b], totals[a]), byName(a,
				b))
		})
		queues, others = queues[:most], len(queues)-most
	}
	slices.SortFunc(queues, byName)
	return queues, others + l.Others
}

// Gathered is the forecast of a cluster.
type Gathered struct {
	Answer
	// MissingShards are those that no node has answered for.
	MissingShards []int
	// DueMS and DefinitionsMS are when the oldest reads were; 0: there is none.
	DueMS, DefinitionsMS unixtime.Milli
}

// Gather adds up the answers of nodes. covers selects queues; nil: all.
func Gather(q Query, answers []Answer, shards int, covers func(queue string) bool) Gathered {
	sum := Gathered{Answer: Answer{Load: NewLoad()}}
	var herds []Herd
	counted := make([]bool, shards)
	for _, a := range answers {
		sum.OmittedQueues += a.OmittedQueues + a.Load.Others
		for key, s := range a.Load.Queues {
			if covers == nil || covers(key.Queue) {
				sum.AddSeries(key, q.Buckets, s)
			}
		}
		for _, h := range a.Load.Herds {
			if covers == nil || covers(h.Queue.Queue) {
				herds = append(herds, h)
			}
		}
		for _, r := range a.Shards {
			if r.Shard < 0 || r.Shard >= shards || counted[r.Shard] {
				continue
			}
			counted[r.Shard] = true
			sum.Shards = append(sum.Shards, r)
			if len(sum.Shards) == 1 {
				sum.DueMS, sum.DefinitionsMS = r.DueMS, r.DefinitionsMS
			}
			sum.DueMS, sum.DefinitionsMS = min(sum.DueMS, r.DueMS), min(sum.DefinitionsMS, r.DefinitionsMS)
		}
	}
	if covers != nil {
		sum.OmittedQueues = 0 // the caller must not learn how many others there are
	}
	sum.Herds = MergeHerds(herds, q.HerdJobs)
	for shard, known := range counted {
		if !known {
			sum.MissingShards = append(sum.MissingShards, shard)
		}
	}
	return sum
}
