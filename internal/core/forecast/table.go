package forecast

import (
	"strings"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/schedule"
)

const (
	maxPatterns = 8_000
	maxGroups   = 80_000
	maxSamples  = 10_000
	// SampledJobs is how many jobs of a herd are named.
	SampledJobs = 20
)

// Table has the patterns, and the names of queues, that the shards of a node have in common. It is not safe for
// concurrent use, nor are the shards that use it.
type Table struct {
	patterns []*pattern
	owners   []string // of patterns: the namespaces whose jobs brought them
	owned    shares
	index    map[string]uint32
	free     []uint32 // numbers of no pattern
	zones    schedule.Zones
	queues   map[job.QueueKey]uint32
	names    []job.QueueKey
	unnamed  []uint32 // numbers of no queue

	samples, maxSampled               int
	maxPatterns, maxGroups, maxQueues int // of a shard, but for the patterns
}

// NewTable returns an empty table for so many shards.
func NewTable(shards int) *Table {
	shards = max(1, shards)
	return &Table{
		owned: shares{}, index: map[string]uint32{}, zones: schedule.Zones{}, queues: map[job.QueueKey]uint32{},
		maxSampled:  SampledJobs/shards + 1,
		maxPatterns: maxPatterns, maxGroups: max(100, maxGroups/shards), maxQueues: max(16, maxRows/shards),
	}
}

// numberOf returns the number of a queue.
func (t *Table) numberOf(key job.QueueKey) uint32 {
	n, ok := t.queues[key]
	if ok {
		return n
	}
	key = job.QueueKey{Namespace: strings.Clone(key.Namespace), Queue: strings.Clone(key.Queue)}
	if k := len(t.unnamed); k > 0 {
		n, t.unnamed = t.unnamed[k-1], t.unnamed[:k-1]
		t.names[n] = key
	} else {
		n, t.names = uint32(len(t.names)), append(t.names, key)
	}
	t.queues[key] = n
	return n
}

// shares are the numbers of entries of a table by namespace.
type shares map[string]int

// allows reports whether a namespace may have another entry of a table with so many entries, of at most so many. The
// last quarter of a table is for namespaces that have less than a quarter, so that none of them takes all places.
func (s shares) allows(namespace string, entries, most int) bool {
	return entries < most && (s[namespace] < most/4 || entries < most-most/4)
}

// release removes an entry.
func (s shares) release(namespace string) {
	s[namespace]--
	if s[namespace] == 0 {
		delete(s, namespace)
	}
}

// intern returns the number of the pattern that was read for a job of a namespace; false: there is no place in the
// table, or the schedule is invalid.
func (t *Table) intern(r *patternReader, namespace string) (uint32, bool) {
	key := r.appendKey()
	n, ok := t.index[string(key)]
	if ok {
		return n, true
	}
	p := r.p
	if !t.owned.allows(namespace, len(t.index), t.maxPatterns) || r.compile(&p) != nil {
		return 0, false
	}
	if k := len(t.free); k > 0 {
		n, t.free = t.free[k-1], t.free[:k-1]
		t.patterns[n], t.owners[n] = &p, namespace
	} else {
		n, t.patterns, t.owners = uint32(len(t.patterns)), append(t.patterns, &p), append(t.owners, namespace)
	}
	t.owned[namespace]++
	t.index[string(key)] = n
	return n, true
}

// Sweep forgets patterns and queues that none of the shards uses. These must be all shards of the table that will be
// used again, those that are being read included.
func (t *Table) Sweep(shards []*Shard) {
	patterns, queues := make([]bool, len(t.patterns)), make([]bool, len(t.names))
	t.samples = 0
	for _, s := range shards {
		for key := range s.groups {
			patterns[key.pattern], queues[key.queue] = true, true
		}
		for queue := range s.rows {
			queues[queue] = true
		}
		for queue := range s.leftOut {
			queues[queue] = true
		}
		if s.Due != nil {
			for _, row := range s.Due.rows {
				queues[row.queue] = true
			}
		}
		for _, ids := range s.samples {
			t.samples += len(ids)
		}
	}
	for key, n := range t.index {
		if !patterns[n] {
			delete(t.index, key)
			t.patterns[n], t.free = nil, append(t.free, n)
			t.owned.release(t.owners[n])
		}
	}
	for key, n := range t.queues {
		if !queues[n] {
			delete(t.queues, key)
			t.unnamed = append(t.unnamed, n)
		}
	}
}
