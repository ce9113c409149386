package redisstore

import (
	"github.com/fermata-io/fermata/internal/core/job"
)

// shardKeys names the keys of one shard. All carry the shard's hash tag, so
// that Redis Cluster keeps them in one slot.
type shardKeys struct {
	meta  string // hash: clock, token, last lease batches of each caller
	def   string // hash: record -> definition
	state string // hash: record -> state
	hist  string // hash: record.slot -> ended run
	lanes string // sorted set: lane -> first due time
	lock  string // the shard's redislock key
	// rankings are sorted sets: job -> its rank, by job.Ranking. They are bounded.
	rankings [job.RankingCount]string
	// objectives is a sorted set: record -> when to check the lateness objective of its run.
	objectives string

	lane string // prefix of the sorted sets of lanes
	base string // prefix of all, for the keys of limits

	events            string // stream: what happened
	hooks             string // hash: webhook -> how far it is
	undelivered       string // prefix of sorted sets: what a webhook gave up on, by time
	legacyUndelivered string // sorted set of an older version: what all of them gave up on
}

func newShardKeys(prefix, tag string) shardKeys {
	p := prefix + ":{" + tag + "}:"
	return shardKeys{
		meta: p + "meta", def: p + "def", state: p + "st", hist: p + "hist",
		lanes: p + "lanes", lock: p + "lock", lane: p + "l:", base: p, objectives: p + "objectives",
		rankings: [job.RankingCount]string{job.RankingFailing: p + "failing", job.RankingLate: p + "late"},
		events:   p + "events", hooks: p + "hooks", undelivered: p + "hookdead:", legacyUndelivered: p + "hookdead",
	}
}

func (k shardKeys) laneKey(l job.Lane) string { return k.lane + l.String() }

// undeliveredKey is the key of the undelivered events of a webhook; for "" the one of an older
// version, which kept those of all webhooks.
func (k shardKeys) undeliveredKey(hook string) string {
	if hook == "" {
		return k.legacyUndelivered
	}
	return k.undelivered + hook
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

// lifeKey holds the last heartbeat of a node's process.
func lifeKey(prefix, process string) string { return keyspaceKey(prefix) + ":life:" + process }

// isChild reports whether a record belongs to a job: a dead letter, or a run that is a record of its
// own.
func isChild(record job.RecordID) bool { return !record.IsJob() }

// definingRecord is the record whose definition a record uses: itself, or for a run that is a record of
// its own, the job.
func definingRecord(record job.RecordID) job.RecordID {
	if record.IsRun() {
		return record.Job()
	}
	return record
}

// laneKeys collects the lanes of a script call. KEYS has each lane once, and items refer to it by its
// place. The rankings and the index of objectives are added only if an item needs them: a missing key
// fails the call while its slot of a Redis Cluster moves.
type laneKeys struct {
	base     int // KEYS before the first lane
	keys     shardKeys
	index    map[job.Lane]int
	list     []job.Lane // by place; zero for other keys
	names    []string
	rankings int // place of the first ranking; 0: none
	// objectives is the place of that index; 0: none
	objectives int
}

func newLaneKeys(keys shardKeys, base int) *laneKeys {
	return &laneKeys{base: base, keys: keys, index: map[job.Lane]int{}}
}

// placeOf returns the place of the lane's key in KEYS, counted from 1 as Lua does.
func (l *laneKeys) placeOf(lane job.Lane) int {
	i, ok := l.index[lane]
	if !ok {
		i = l.addKey(lane, l.keys.laneKey(lane))
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
		for i, key := range l.keys.rankings {
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
		l.objectives = l.addKey(job.Lane{}, l.keys.objectives)
	}
	return l.objectives
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
