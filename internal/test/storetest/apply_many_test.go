package storetest_test

import (
	"sync"
	"testing"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/redis/redisstore"
	"github.com/fermata-io/fermata/internal/test/redistest"
	"github.com/fermata-io/fermata/internal/test/storetest"
)

// applyMany calls ApplyMany and returns the replies. Each has to come once.
func applyMany(t *testing.T, s *redisstore.Store, requests []job.ShardWrites) []job.ApplyReply {
	t.Helper()
	var mu sync.Mutex
	replies, count := make([]job.ApplyReply, len(requests)), make([]int, len(requests))
	s.ApplyMany(t.Context(), requests, func(i int, r job.ApplyReply) {
		mu.Lock()
		defer mu.Unlock()
		replies[i] = r
		count[i]++
	})
	for i, n := range count {
		if n != 1 {
			t.Errorf("request %d has %d replies", i, n)
		}
	}
	return replies
}

// Each request of a call for several shards has the reply that Apply gives.
func TestRequestsOfSeveralShards(t *testing.T) {
	w := storetest.NewWorld(t, redistest.Start(t).Client())
	var settle []job.ShardWrites
	for shard := range 4 {
		id := w.InShard(shard, 1)[0]
		w.Add(storetest.Once(id, 0))
		write := w.Settle(w.Lease(shard, 1)[0], job.OutcomeFailed)
		settle = append(settle, job.ShardWrites{Shard: shard, Writes: []job.Write{write}})
	}
	settle[1].Writes[0].Token--            // a conflict
	settle[2].Writes[0].Record = "ns/gone" // not found
	settle[3].Writes[0].Together = true    // invalid: there is no write before it
	replies := applyMany(t, w.Store, append(settle, job.ShardWrites{Shard: 1}))
	for i, want := range []job.WriteCode{job.Written, job.Conflict, job.NotFound} {
		if r := replies[i]; r.Err != nil || r.Results[0].Code != want {
			t.Errorf("request %d: %+v, want code %d", i, r, want)
		}
	}
	if len(replies[0].Earlier) != 1 || replies[0].Holder == "" {
		t.Errorf("the lane of a retry: %+v", replies[0])
	}
	if replies[3].Err == nil || replies[4].Err != nil {
		t.Errorf("an invalid request: %v, an empty one: %v", replies[3].Err, replies[4].Err)
	}
}

// The answers to a call for several shards are lost: each request is repeated, and recognises what it wrote, also where
// it deleted the record.
func TestLostReplyOfSeveralShards(t *testing.T) {
	w, proxy, faulty, _ := behindProxy(t, redistest.Start(t))
	var requests []job.ShardWrites
	var keys []job.Key
	for shard := range 4 {
		id := w.InShard(shard, 1)[0]
		d := storetest.Once(id, 0)
		w.Add(d)
		settle := w.Settle(w.Lease(shard, 1)[0], job.OutcomeFailed)
		if shard%2 == 1 {
			w.MustWrite(shard, settle)
			settle = w.Decide(d.Record(), &d, settle.Decision.State, job.Delete{})
		}
		requests, keys = append(requests, job.ShardWrites{Shard: shard, Writes: []job.Write{settle}}), append(keys, d.Key)
		if _, err := faulty.Now(t.Context(), shard); err != nil {
			t.Fatal(err)
		}
	}
	cut := proxy.Counters().Cut
	proxy.CutNextReplies(1)
	for i, r := range applyMany(t, faulty, requests) {
		if r.Err != nil || r.Results[0].Code != job.Written {
			t.Errorf("request %d: %+v", i, r)
		}
	}
	if proxy.Counters().Cut != cut+1 {
		t.Error("no answer was lost")
	}
	records, err := w.Store.Get(t.Context(), keys)
	if err != nil {
		t.Fatal(err)
	}
	for i, r := range records {
		if exists := r != nil; exists != (i%2 == 0) {
			t.Errorf("%s exists: %v", keys[i].ID, exists)
		}
	}
}
