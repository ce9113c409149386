package redisstore

import (
	"github.com/fermata-io/fermata/internal/core/job"
)

// shardKeys names the keys of one shard. All carry the shard's hash tag, so
// that Redis Cluster keeps them in one slot.
type shardKeys struct {
	meta  string // hash: clock, token, last lease batch of each caller
	def   string // hash: record -> definition
	state string // hash: record -> state
	hist  string // hash: record.slot -> ended run
	lanes string // sorted set: lane -> first due time
	lock  string // the shard's redislock key
	// worst are sorted sets: job -> its rank, by job.Worst. They are bounded.
	worst [job.Worsts]string
	// objectives is a sorted set: record -> when to look at the lateness objective of its run
	objectives string

	lane string // prefix of the sorted sets of lanes
	base string // prefix of all, for the keys of limits

	events      string // stream: what happened
	hooks       string // hash: webhook -> how far it is
	hookLetters string // prefix of sorted sets: what a webhook gave up on, by time
	oldLetters  string // sorted set of an older version: what all of them gave up on
}

func newShardKeys(prefix, tag string) shardKeys {
	p := prefix + ":{" + tag + "}:"
	return shardKeys{
		meta: p + "meta", def: p + "def", state: p + "st", hist: p + "hist",
		lanes: p + "lanes", lock: p + "lock", lane: p + "l:", base: p, objectives: p + "objectives",
		worst:  [job.Worsts]string{job.Failing: p + "failing", job.Late: p + "late"},
		events: p + "events", hooks: p + "hooks", hookLetters: p + "hookdead:", oldLetters: p + "hookdead",
	}
}

func (k shardKeys) laneKey(l job.Lane) string { return k.lane + l.String() }

// lettersKey is of what a webhook gave up on; "" has what an older version kept for all.
func (k shardKeys) lettersKey(hook string) string {
	if hook == "" {
		return k.oldLetters
	}
	return k.hookLetters + hook
}

func (k shardKeys) laneKeys(lanes []job.Lane) []string {
	keys := make([]string, len(lanes))
	for i, l := range lanes {
		keys[i] = k.laneKey(l)
	}
	return keys
}

// keyspaceKey holds what is true of the whole keyspace: the number of shards,
// the schema version, and whether its clock is virtual.
func keyspaceKey(prefix string) string { return prefix + ":{meta}" }

// lifeKey holds the last sign of life of a node's process.
func lifeKey(prefix, process string) string { return keyspaceKey(prefix) + ":life:" + process }

// isChild tells whether a record belongs to another one: a dead letter, or a run
// that is a record of its own.
func isChild(record job.RecordID) bool { return !record.IsJob() }

// definedBy names the record whose definition counts for a record: its own, but
// the parent's for a run that is a record of its own.
func definedBy(record job.RecordID) job.RecordID {
	if record.IsRun() {
		return record.Job()
	}
	return record
}

// laneKeys numbers the lanes that a script call names: KEYS holds each lane
// once, and items refer to it by its place. The indexes of the worst jobs, and that of
// objectives, are among them where some item needs them: a key that is not there is in the way while a slot
// of a Redis Cluster moves.
type laneKeys struct {
	base  int // KEYS before the first lane
	keys  shardKeys
	index map[job.Lane]int
	list  []job.Lane // of each place; the zero one at those of other keys
	names []string
	worst int // place of the first index of the worst; 0: not named
	// objectives is the place of that index; 0: not named
	objectives int
}

func newLaneKeys(keys shardKeys, base int) *laneKeys {
	return &laneKeys{base: base, keys: keys, index: map[job.Lane]int{}}
}

// at returns the place of the lane's key in KEYS, counted from 1 as Lua does.
func (l *laneKeys) at(lane job.Lane) int {
	i, ok := l.index[lane]
	if !ok {
		i = l.add(lane, l.keys.laneKey(lane))
		l.index[lane] = i
	}
	return i
}

func (l *laneKeys) add(lane job.Lane, key string) int {
	l.list, l.names = append(l.list, lane), append(l.names, key)
	return l.base + len(l.list)
}

// worstAt returns the place of the first index of the worst jobs; the others follow.
func (l *laneKeys) worstAt() int {
	if l.worst == 0 {
		for i, key := range l.keys.worst {
			if at := l.add(job.Lane{}, key); i == 0 {
				l.worst = at
			}
		}
	}
	return l.worst
}

// objectivesAt returns the place of the index of objectives.
func (l *laneKeys) objectivesAt() int {
	if l.objectives == 0 {
		l.objectives = l.add(job.Lane{}, l.keys.objectives)
	}
	return l.objectives
}

// appendTo appends the keys to the fixed ones.
func (l *laneKeys) appendTo(fixed []string) []string { return append(fixed, l.names...) }

// lane undoes at.
func (l *laneKeys) lane(i int64) (job.Lane, bool) {
	at := int(i) - l.base - 1
	if at < 0 || at >= len(l.list) {
		return job.Lane{}, false
	}
	return l.list[at], true
}
