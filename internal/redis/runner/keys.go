package runner

import "github.com/fermata-io/fermata/internal/core/job"

// ShardKeys names the keys of one shard. All carry the shard's hash tag, so
// that Redis Cluster keeps them in one slot.
type ShardKeys struct {
	Meta  string // hash: clock, token, last lease batches of each caller
	Def   string // hash: record -> definition
	State string // hash: record -> state
	Hist  string // hash: record.slot -> ended run
	Lanes string // sorted set: lane -> first due time
	Lock  string // the shard's redislock key
	// Rankings are sorted sets: job -> its rank, by job.Ranking. They are bounded.
	Rankings [job.RankingCount]string
	// Objectives is a sorted set: record -> when to check the lateness objective of its run.
	Objectives string
	Revisions  string // hash: job -> its earlier definitions
	Renames    string // hash: end of a rename -> how far it is, or the job that was taken
	// FinishedRenames is a hash: old name and request id of a rename that has ended -> the job that it has renamed.
	// FinishedRenameTimes is a sorted set: the same -> when it has ended. They are bounded.
	FinishedRenames, FinishedRenameTimes string

	// UnsuccessfulQueues is a sorted set: namespace/queue -> when its index of unsuccessful runs was last written.
	UnsuccessfulQueues string
	unsuccessful       string // prefix of those indexes

	lane string // prefix of the sorted sets of lanes
	Base string // prefix of all, for the keys of limits

	Events            string // stream: what happened
	Hooks             string // hash: webhook -> how far it is
	undelivered       string // prefix of sorted sets: what a webhook gave up on, by time
	legacyUndelivered string // sorted set of an older version: what all of them gave up on
}

// NewShardKeys names the keys of the shard with a tag.
func NewShardKeys(prefix, tag string) ShardKeys {
	p := prefix + ":{" + tag + "}:"
	return ShardKeys{
		Meta: p + "meta", Def: p + "def", State: p + "st", Hist: p + "hist",
		Lanes: p + "lanes", Lock: p + "lock", lane: p + "l:", Base: p, Objectives: p + "objectives",
		Revisions: p + "revisions", Renames: p + "renames", FinishedRenames: p + "renamed",
		FinishedRenameTimes: p + "renamed:times",
		UnsuccessfulQueues:  p + "unsuccessful", unsuccessful: p + "unsuccessful:",
		Rankings: [job.RankingCount]string{job.RankingFailing: p + "failing", job.RankingLate: p + "late"},
		Events:   p + "events", Hooks: p + "hooks", undelivered: p + "hookdead:", legacyUndelivered: p + "hookdead",
	}
}

// LaneKey is the key of a lane.
func (k ShardKeys) LaneKey(l job.Lane) string { return k.lane + l.String() }

// UndeliveredKey is the key of the undelivered events of a webhook; for "" the one of an older
// version, which kept those of all webhooks.
func (k ShardKeys) UndeliveredKey(hook string) string {
	if hook == "" {
		return k.legacyUndelivered
	}
	return k.undelivered + hook
}

// UnsuccessfulKey is the key of the index of unsuccessful runs of a queue, a sorted set: ended run -> its end. It is
// bounded.
func (k ShardKeys) UnsuccessfulKey(q job.QueueKey) string {
	return k.unsuccessful + q.Namespace + "/" + q.Queue
}

// LaneKeys are the keys of lanes, in their order.
func (k ShardKeys) LaneKeys(lanes []job.Lane) []string {
	keys := make([]string, len(lanes))
	for i, l := range lanes {
		keys[i] = k.LaneKey(l)
	}
	return keys
}

// KeyspaceKey holds what is true of the whole keyspace: the number of shards,
// the schema version, and whether its clock is virtual.
func KeyspaceKey(prefix string) string { return prefix + ":{meta}" }

// HeartbeatKey holds the last heartbeat of a node's process.
func HeartbeatKey(prefix, process string) string { return KeyspaceKey(prefix) + ":life:" + process }
