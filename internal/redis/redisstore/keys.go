package redisstore

import (
	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/redis/runner"
)

// isChild reports whether a record belongs to a job: a dead letter, or a run that is a record of its
// own.
func isChild(record job.RecordID) bool { return !record.IsJob() }

// laneKeys collects the lanes of a script call. KEYS has each lane once, and items refer to it by its
// place. The rankings, the index of objectives and the revisions are added only if an item needs them: a missing key
// fails the call while its slot of a Redis Cluster moves.
type laneKeys struct {
	base     int // KEYS before the first lane
	keys     runner.ShardKeys
	index    map[job.Lane]int
	list     []job.Lane // by place; zero for other keys
	names    []string
	rankings int // place of the first ranking; 0: none
	// objectives is the place of that index, and revisions that of the hash of revisions; 0: none
	objectives, revisions int
	// unsuccessful are the places of the indexes of unsuccessful runs, and unsuccessfulQueues that of the set of
	// their queues; 0: none.
	unsuccessful       map[job.QueueKey]int
	unsuccessfulQueues int
}

func newLaneKeys(keys runner.ShardKeys, base int) *laneKeys {
	return &laneKeys{base: base, keys: keys, index: map[job.Lane]int{}}
}

// placeOf returns the place of the lane's key in KEYS, counted from 1 as Lua does.
func (l *laneKeys) placeOf(lane job.Lane) int {
	i, ok := l.index[lane]
	if !ok {
		i = l.addKey(lane, l.keys.LaneKey(lane))
		l.index[lane] = i
	}
	return i
}

func (l *laneKeys) addKey(lane job.Lane, key string) int {
	l.list, l.names = append(l.list, lane), append(l.names, key)
	return l.base + len(l.list)
}

// rankingsPlace returns the place of the first ranking; the others follow.
func (l *laneKeys) rankingsPlace() int {
	if l.rankings == 0 {
		for i, key := range l.keys.Rankings {
			if at := l.addKey(job.Lane{}, key); i == 0 {
				l.rankings = at
			}
		}
	}
	return l.rankings
}

// objectivesPlace returns the place of the index of objectives.
func (l *laneKeys) objectivesPlace() int {
	if l.objectives == 0 {
		l.objectives = l.addKey(job.Lane{}, l.keys.Objectives)
	}
	return l.objectives
}

// revisionsPlace returns the place of the hash of revisions.
func (l *laneKeys) revisionsPlace() int {
	if l.revisions == 0 {
		l.revisions = l.addKey(job.Lane{}, l.keys.Revisions)
	}
	return l.revisions
}

// unsuccessfulPlace returns the place of the index of unsuccessful runs of a queue.
func (l *laneKeys) unsuccessfulPlace(q job.QueueKey) int {
	if l.unsuccessful[q] == 0 {
		if l.unsuccessful == nil {
			l.unsuccessful = map[job.QueueKey]int{}
		}
		l.unsuccessful[q] = l.addKey(job.Lane{}, l.keys.UnsuccessfulKey(q))
	}
	return l.unsuccessful[q]
}

// unsuccessfulQueuesPlace returns the place of the set of queues that have such an index.
func (l *laneKeys) unsuccessfulQueuesPlace() int {
	if l.unsuccessfulQueues == 0 {
		l.unsuccessfulQueues = l.addKey(job.Lane{}, l.keys.UnsuccessfulQueues)
	}
	return l.unsuccessfulQueues
}

// appendKeysTo appends the keys to the fixed ones.
func (l *laneKeys) appendKeysTo(fixed []string) []string { return append(fixed, l.names...) }

// laneAt undoes placeOf.
func (l *laneKeys) laneAt(i int64) (job.Lane, bool) {
	at := int(i) - l.base - 1
	if at < 0 || at >= len(l.list) {
		return job.Lane{}, false
	}
	return l.list[at], true
}
