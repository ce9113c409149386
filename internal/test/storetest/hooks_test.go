package storetest_test

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/unixtime"
	"github.com/fermata-io/fermata/internal/redis/redisstore"
	"github.com/fermata-io/fermata/internal/test/redistest"
	"github.com/fermata-io/fermata/internal/test/storetest"
)

// TestOnlyLockHolderMovesWebhookPosition: only the holder of the lock moves it, and what it gave
// up on is stored with that, once.
func TestOnlyLockHolderMovesWebhookPosition(t *testing.T) {
	onServers(t, func(t *testing.T, w *storetest.World) {
		ctx := t.Context()
		holder, err := w.Client.Get(ctx, w.Store.LockKey(2)).Result()
		if err != nil {
			t.Fatal(err)
		}
		state := job.WebhookProgress{After: job.Place{MS: 7, Seq: 3}, Attempts: 2, FirstMS: 5, RetryMS: 9, UpdatedMS: 6}
		letter := &job.UndeliveredEvent{
			Webhook: "ops", Attempts: 12, AtMS: 6, Reason: "status 500",
			Event: job.Event{Shard: 2, Place: job.Place{MS: 7, Seq: 3}, Kind: job.KindRunDead, AtMS: 7, Key: job.Key{Namespace: "ns", ID: "a"}},
		}
		if _, err := w.Store.SaveWebhookProgress(ctx, 2, "somebody else", "ops", state, letter); !errors.Is(err, job.ErrNotHolder) {
			t.Errorf("%v", err)
		}
		for range 2 { // the second is a copy of the first
			if evicted, err := w.Store.SaveWebhookProgress(ctx, 2, holder, "ops", state, letter); err != nil || evicted != 0 {
				t.Error(evicted, err)
			}
		}
		states, err := w.Store.WebhookProgress(ctx, []int{1, 2})
		if err != nil || len(states[1]) != 0 || states[2]["ops"] != state {
			t.Errorf("%v, %v", states, err)
		}
		letters, err := w.Store.UndeliveredEvents(ctx, job.UndeliveredQuery{Webhook: "ops", Limit: 10})
		if err != nil || len(letters) != 1 || letters[0].Event.ID() != "2-7-3" || letters[0].Reason != "status 500" || letters[0].Attempts != 12 {
			t.Fatalf("%+v, %v", letters, err)
		}
		if other, err := w.Store.UndeliveredEvents(ctx, job.UndeliveredQuery{Webhook: "other", Limit: 10}); err != nil || len(other) != 0 {
			t.Errorf("%v, %v", other, err)
		}
		if all, err := w.Store.UndeliveredEvents(ctx, job.UndeliveredQuery{Limit: 10}); err != nil || !reflect.DeepEqual(all, letters) {
			t.Errorf("%v, %v", all, err)
		}
		if err := w.Store.DeleteUndeliveredEvent(ctx, letters[0]); err != nil {
			t.Error(err)
		}
		if counts, err := w.Store.CountUndeliveredEvents(ctx, []string{"ops"}); err != nil || counts["ops"] != 0 {
			t.Errorf("%v, %v", counts, err)
		}
		if _, err := w.Store.SaveWebhookProgress(ctx, 2, holder, "ops", state, letter); err != nil {
			t.Error(err)
		}
		err = w.Store.DeleteWebhooks(ctx, 2, []string{"ops"})
		counts, err2 := w.Store.CountUndeliveredEvents(ctx, []string{"ops"})
		states, err3 := w.Store.WebhookProgress(ctx, []int{2})
		if err := errors.Join(err, err2, err3); err != nil || counts["ops"]+len(states[2]) != 0 {
			t.Errorf("%v, %v, %v", counts, states, err)
		}
	})
}

// TestWebhookStatesOfHealthyServers loses a master without a replica: how far webhooks are
// with the shards of the others is answered beside the error.
func TestWebhookStatesOfHealthyServers(t *testing.T) {
	cluster := redistest.StartCluster(t, 3, 0, redistest.WithConfig("cluster-require-full-coverage", "no"))
	w := storetest.NewWorld(t, newObserver(t, cluster.Nodes()[0], clusterURL(cluster)), asOptions(t, clusterURL(cluster)), func(o *redisstore.Options) { o.Shards = 3 })
	w.Damaged()
	state := job.WebhookProgress{After: job.Place{MS: 7, Seq: 3}}
	holder := w.Client.Get(t.Context(), w.Store.LockKey(2)).Val()
	if _, err := w.Store.SaveWebhookProgress(t.Context(), 2, holder, "ops", state, nil); err != nil {
		t.Fatal(err)
	}
	cluster.KillMaster(1)
	states, err := w.Store.WebhookProgress(t.Context(), []int{2, 1, 0})
	if !errors.Is(err, job.ErrUnavailable) || len(states) != 2 || states[0] == nil || states[2]["ops"] != state {
		t.Errorf("%v, %v", states, err)
	}
}

// gaveUp stores that a webhook gave up on the n-th event of shard 2.
func gaveUp(t *testing.T, w *storetest.World, hook string, n int) (evicted int) {
	t.Helper()
	holder, err := w.Client.Get(t.Context(), w.Store.LockKey(2)).Result()
	if err != nil {
		t.Fatal(err)
	}
	place := job.Place{MS: 7, Seq: uint64(n)}
	evicted, err = w.Store.SaveWebhookProgress(t.Context(), 2, holder, hook, job.WebhookProgress{After: place}, &job.UndeliveredEvent{
		Webhook: hook, AtMS: unixtime.Milli(n), Reason: strings.Repeat("x", 500), Event: job.Event{Shard: 2, Place: place},
	})
	if err != nil {
		t.Fatal(err)
	}
	return evicted
}

// TestNewestDeadLettersAreKept: what a webhook gave up on is bounded in each shard, and what
// had to go is returned; what others gave up on stays. No more is read than was asked for.
func TestNewestDeadLettersAreKept(t *testing.T) {
	server := redistest.Start(t)
	w := storetest.NewWorld(t, server.Client(), asOptions(t, server.URL()), recordPolicy)
	ctx := t.Context()
	gaveUp(t, w, "quiet", 1)
	const kept, more = 1000, 5
	evicted := 0
	for i := range kept + more {
		evicted += gaveUp(t, w, "noisy", 2+i)
	}
	if evicted != more {
		t.Errorf("%d are reported", evicted)
	}
	letters, err := w.Store.UndeliveredEvents(ctx, job.UndeliveredQuery{Webhook: "noisy", Limit: 2 * kept})
	if err != nil || len(letters) != kept || letters[0].AtMS != kept+more+1 || letters[kept-1].AtMS != more+2 {
		t.Errorf("%d are kept, %v", len(letters), err)
	}
	sent := func() int64 {
		text, err := w.Client.Info(ctx, "stats").Result()
		if err != nil {
			t.Fatal(err)
		}
		_, text, _ = strings.Cut(text, "total_net_output_bytes:")
		n, err := strconv.ParseInt(strings.TrimSpace(text[:strings.IndexByte(text, '\r')]), 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	before := sent()
	counts, err := w.Store.CountUndeliveredEvents(ctx, []string{"noisy", "quiet", "other"})
	if err != nil || counts["noisy"] != kept || counts["quiet"] != 1 || counts["other"] != 0 {
		t.Errorf("%v, %v", counts, err)
	}
	for _, c := range []struct {
		q    job.UndeliveredQuery
		want int64
	}{
		{job.UndeliveredQuery{Limit: 1}, kept + more + 1},
		{job.UndeliveredQuery{Limit: 1, Oldest: true}, 1},
		{job.UndeliveredQuery{Webhook: "noisy", Limit: 1, Oldest: true}, more + 2},
		{job.UndeliveredQuery{Webhook: "quiet", Limit: 5}, 1},
	} {
		if letters, err := w.Store.UndeliveredEvents(ctx, c.q); err != nil || len(letters) != 1 || letters[0].AtMS != unixtime.Milli(c.want) {
			t.Errorf("%+v: %+v, %v", c.q, letters, err)
		}
	}
	if n := sent() - before; n > 100*500 {
		t.Errorf("%d bytes were read of some letters", n)
	}
	for id, want := range map[string]int{"2-7-500": 1, "2-7-5000": 0, "3-7-500": 0, "9-7-500": 0, "x": 0} {
		letters, err := w.Store.UndeliveredEvents(ctx, job.UndeliveredQuery{Webhook: "noisy", Event: id, Limit: 10})
		if err != nil || len(letters) != want {
			t.Errorf("%s: %+v, %v", id, letters, err)
		}
	}
}

// TestDeadLettersHaveFewBytes: 1 KiB for each letter that is kept, as far as a sample tells. Letters of an older
// version may be large, and few of them are read at once.
func TestDeadLettersHaveFewBytes(t *testing.T) {
	onServers(t, func(t *testing.T, w *storetest.World) {
		ctx, key := t.Context(), w.Key(2, "hookdead:ops")
		for i := range 100 {
			text := fmt.Sprintf(`{"h":"ops","e":"{\"k\":\"run.dead\"}","p":"7-%d","r":"%s"}`, i+1, strings.Repeat("x", 30<<10))
			if err := w.Client.ZAdd(ctx, key, redis.Z{Score: float64(i), Member: text}).Err(); err != nil {
				t.Fatal(err)
			}
		}
		letters, err := w.Store.UndeliveredEvents(ctx, job.UndeliveredQuery{Webhook: "ops", Limit: 1000, Oldest: true})
		if err != nil || len(letters) != 100 || letters[0].Event.Place.Seq != 1 || letters[99].Event.Place.Seq != 100 {
			t.Errorf("%d are listed, %v", len(letters), err)
		}
		evicted := gaveUp(t, w, "ops", 1000)
		kept, err := w.Client.ZRange(ctx, key, 0, -1).Result()
		bytes := 0
		for _, text := range kept {
			bytes += len(text)
		}
		if err != nil || bytes > 1200<<10 || bytes < 500<<10 || evicted != 101-len(kept) {
			t.Errorf("%d letters of %d bytes are kept, and %d evicted, %v", len(kept), bytes, evicted, err)
		}
	})
}

// TestDeadLettersOfOlderVersion, which keeps those of all webhooks together: they are listed,
// counted, and deleted when they were delivered, beside those of this version.
func TestDeadLettersOfOlderVersion(t *testing.T) {
	onServers(t, func(t *testing.T, w *storetest.World) {
		ctx, old := t.Context(), w.Key(2, "hookdead")
		for i, hook := range []string{"ops", "other", "ops"} {
			text := fmt.Sprintf(`{"h":%q,"e":"{\"k\":\"run.dead\",\"t\":7,\"ns\":\"ns\",\"job\":\"a\"}","p":"7-%d","n":12,"at":%d,"r":"status 500"}`, hook, i+1, 10*i)
			if err := w.Client.ZAdd(ctx, old, redis.Z{Score: float64(10 * i), Member: text}).Err(); err != nil {
				t.Fatal(err)
			}
		}
		gaveUp(t, w, "ops", 15)
		letters, err := w.Store.UndeliveredEvents(ctx, job.UndeliveredQuery{Webhook: "ops", Limit: 10})
		var got []string
		for _, l := range letters {
			got = append(got, l.Event.ID())
		}
		if err != nil || !slices.Equal(got, []string{"2-7-3", "2-7-15", "2-7-1"}) || letters[0].Attempts != 12 || letters[0].Event.Key.ID != "a" {
			t.Errorf("%v, %v", got, err)
		}
		if all, err := w.Store.UndeliveredEvents(ctx, job.UndeliveredQuery{Limit: 10}); err != nil || len(all) != 4 {
			t.Errorf("%+v, %v", all, err)
		}
		// One of each that is put off comes last.
		for i, l := range letters[1:] {
			if err := w.Store.DeferUndeliveredEvent(ctx, l, unixtime.Milli(100+i)); err != nil {
				t.Error(err)
			}
		}
		gone := letters[0]
		gone.ID = "gone"
		if err := w.Store.DeferUndeliveredEvent(ctx, gone, 100); err != nil {
			t.Error(err)
		}
		got = nil
		letters, err = w.Store.UndeliveredEvents(ctx, job.UndeliveredQuery{Webhook: "ops", Oldest: true, Limit: 10})
		for _, l := range letters {
			got = append(got, fmt.Sprintf("%s at %d", l.Event.ID(), l.AtMS))
		}
		if err != nil || !slices.Equal(got, []string{"2-7-3 at 20", "2-7-15 at 100", "2-7-1 at 101"}) {
			t.Errorf("%v, %v", got, err)
		}
		one, err := w.Store.UndeliveredEvents(ctx, job.UndeliveredQuery{Webhook: "ops", Event: "2-7-1", Limit: 10})
		if err != nil || len(one) != 1 {
			t.Fatalf("%+v, %v", one, err)
		}
		if err := w.Store.DeleteUndeliveredEvent(ctx, one[0]); err != nil {
			t.Error(err)
		}
		if counts, err := w.Store.CountUndeliveredEvents(ctx, []string{"ops", "other"}); err != nil || counts["ops"] != 2 || counts["other"] != 1 {
			t.Errorf("%v, %v", counts, err)
		}
	})
}
