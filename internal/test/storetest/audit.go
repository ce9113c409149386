package storetest

import (
	"context"
	"slices"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/unixtime"
	"github.com/fermata-io/fermata/internal/redis/codec"
	"github.com/fermata-io/fermata/internal/redis/fsck"
)

// CheckConsistency reads everything that the keyspace holds and fails the test for what
// does not fit together.
func (w *World) CheckConsistency() {
	w.T.Helper()
	for shard := range w.Store.Shards() {
		w.auditShard(shard)
		for _, f := range w.MustBeConsistent(shard, false).Findings {
			w.T.Errorf("audit: the store's own audit finds %+v", f)
		}
	}
}

// MustBeConsistent is the store's own audit of a shard.
func (w *World) MustBeConsistent(shard int, repair bool) job.ConsistencyReport {
	w.T.Helper()
	report, err := fsck.New(w.Store).CheckShard(contextOf(w.T), shard, repair)
	if err != nil {
		w.T.Fatalf("audit: %v", err)
	}
	return report
}

func (w *World) auditShard(shard int) {
	w.T.Helper()
	ctx := contextOf(w.T)
	states := w.requireMap(w.Client.HGetAll(ctx, w.Key(shard, "st")).Result())
	defs := w.requireMap(w.Client.HGetAll(ctx, w.Key(shard, "def")).Result())
	hist := w.requireMap(w.Client.HGetAll(ctx, w.Key(shard, "hist")).Result())
	index := w.readScores(w.Key(shard, "lanes"))

	places := map[string][]string{} // record -> lanes that have it
	scores := map[string]int64{}
	prefix := w.Key(shard, "l:")
	for _, key := range w.readKeys(prefix + "*") {
		lane := strings.TrimPrefix(key, prefix)
		first := job.NeverMS
		for record, score := range w.readScores(key) {
			places[record] = append(places[record], lane)
			scores[record] = score
			first = min(first, unixtime.Milli(score))
		}
		if due, ok := index[lane]; !ok || unixtime.Milli(due) != first {
			w.T.Errorf("audit: lane %s has first due %d, the index of lanes has %d (%v)", lane, first, due, ok)
		}
		delete(index, lane)
	}
	for lane := range index {
		w.T.Errorf("audit: the index of lanes names %s, which is empty", lane)
	}
	for record, text := range states {
		region, _ := job.SplitScore(scores[record])
		if len(places[record]) != 1 || byte(region) != text[16]-'0' {
			w.T.Errorf("audit: record %s in lanes %v, region %v, state %s", record, places[record], region, text)
		}
		if hasOwnDefinition(job.RecordID(record), text) != (defs[record] != "") {
			w.T.Errorf("audit: record %s, definition %q", record, defs[record])
		}
		delete(places, record)
	}
	for record, lanes := range places {
		w.T.Errorf("audit: lanes %v have record %s, which has no state", lanes, record)
	}
	for record := range defs {
		if _, ok := states[record]; !ok {
			w.T.Errorf("audit: definition of %s has no state", record)
		}
	}
	for field := range hist {
		record := field[:strings.LastIndexByte(field, '.')]
		if _, ok := states[record]; !ok {
			w.T.Errorf("audit: history has %s, whose record does not exist", field)
		}
	}
	w.auditRevisions(shard, states)
	w.auditLanes(shard, states)
}

// auditRevisions looks for revisions without a job, and for some in a wrong order.
func (w *World) auditRevisions(shard int, states map[string]string) {
	w.T.Helper()
	for record, text := range w.requireMap(w.Client.HGetAll(contextOf(w.T), w.Key(shard, "revisions")).Result()) {
		list, err := codec.DecodeRevisions(job.RecordID(record), text)
		if err != nil || len(list) == 0 || states[record] == "" {
			w.T.Errorf("audit: %d revisions of %s, state %q: %v", len(list), record, states[record], err)
		}
	}
}

// auditLanes compares the lanes that states name with those that hold them.
func (w *World) auditLanes(shard int, states map[string]string) {
	w.T.Helper()
	ids := make([]job.RecordID, 0, len(states))
	for id := range states {
		ids = append(ids, job.RecordID(id))
	}
	records, err := w.Store.GetRecords(contextOf(w.T), shard, ids)
	if err != nil {
		w.T.Fatalf("audit: %v", err)
	}
	for i, r := range records {
		if r == nil {
			w.T.Errorf("audit: record %s cannot be read: %s", ids[i], states[string(ids[i])])
			continue
		}
		key := w.Key(shard, "l:") + r.State.Lane.String()
		if _, err := w.Client.ZScore(contextOf(w.T), key, string(ids[i])).Result(); err != nil {
			w.T.Errorf("audit: record %s is not in its lane %s: %v", ids[i], r.State.Lane, err)
		}
	}
	w.auditRuns(ids, records)
}

// auditRuns compares the slots that jobs count as taken with the runs that are
// records of their own.
func (w *World) auditRuns(ids []job.RecordID, records []*job.Record) {
	w.T.Helper()
	expected := map[job.RecordID]bool{}
	for i, r := range records {
		if r == nil || ids[i].Job() != ids[i] {
			continue
		}
		for _, slot := range r.State.ChildSlots() {
			expected[ids[i].Run(slot)] = true
		}
	}
	for i, id := range ids {
		if !isRun(id) {
			continue
		}
		if !expected[id] {
			w.T.Errorf("audit: job %s knows nothing of its run %s", id.Job(), id)
		}
		delete(expected, id)
		if r := records[i]; r != nil && id.Job().Run(slices.Max(append(r.State.ChildSlots(), -1))) != id {
			w.T.Errorf("audit: run %s records slots %b", id, r.State.Children)
		}
	}
	for id := range expected {
		w.T.Errorf("audit: job %s has no run %s", id.Job(), id)
	}
}

func isRun(record job.RecordID) bool { return record.IsRun() }

func (w *World) requireMap(m map[string]string, err error) map[string]string {
	w.T.Helper()
	if err != nil {
		w.T.Fatalf("audit: %v", err)
	}
	return m
}

func (w *World) readScores(key string) map[string]int64 {
	w.T.Helper()
	members, err := w.Client.ZRangeWithScores(contextOf(w.T), key, 0, -1).Result()
	if err != nil {
		w.T.Fatalf("audit: %v", err)
	}
	out := map[string]int64{}
	for _, m := range members {
		out[m.Member.(string)] = int64(m.Score)
	}
	return out
}

// readKeys finds keys on whatever server holds them.
func (w *World) readKeys(pattern string) []string {
	w.T.Helper()
	pattern = strings.NewReplacer("[", `\[`, "]", `\]`).Replace(pattern)
	cluster, ok := w.Client.(*redis.ClusterClient)
	if !ok {
		return w.requireKeys(w.Client.Keys(contextOf(w.T), pattern).Result())
	}
	// All masters: KEYS is not redirected, and a slot may just have moved.
	var mu sync.Mutex
	var found []string
	err := cluster.ForEachMaster(contextOf(w.T), func(ctx context.Context, master *redis.Client) error {
		keys, err := master.Keys(ctx, pattern).Result()
		mu.Lock()
		defer mu.Unlock()
		found = append(found, keys...)
		return err
	})
	return w.requireKeys(found, err)
}

func (w *World) requireKeys(found []string, err error) []string {
	w.T.Helper()
	if err != nil {
		w.T.Fatalf("audit: %v", err)
	}
	slices.Sort(found)
	return found
}
