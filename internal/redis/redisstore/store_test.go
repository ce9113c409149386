package redisstore

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/redis/conn"
	"github.com/fermata-io/fermata/internal/redis/runner"
)

func embedded(t testing.TB, adjust ...func(*Options)) (*Store, *miniredis.Miniredis) {
	t.Helper()
	server := miniredis.RunT(t)
	client, err := conn.NewClient(conn.ClientOptions{URL: "redis://" + server.Addr()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	o := Options{Client: client, Shards: 2}
	for _, f := range adjust {
		f(&o)
	}
	s, err := Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return s, server
}

// replaceRunner gives a store a runner with other options, which knows nothing of the clocks yet.
func replaceRunner(t testing.TB, s *Store, adjust func(*runner.Options)) {
	t.Helper()
	o, err := Options{Client: s.client, Prefix: s.prefix}.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	other := o.runnerOptions(s.scripts.clocks)
	adjust(&other)
	s.runner, err = runner.New(other)
	if err != nil {
		t.Fatal(err)
	}
	s.addShards(len(s.shards))
}

func TestBatchSlots(t *testing.T) {
	var b batchSlots
	now, answered := time.Unix(1000, 0), time.Time{}
	first, second := b.acquire("a", now), b.acquire("b", now)
	if first == second {
		t.Fatal("two calls in flight share a place")
	}
	b.release(first, false, answered)
	b.release(second, true, answered)
	if got := b.acquire("a", now); got != first {
		t.Errorf("a failed batch had place %d, its repeat has %d", first, got)
	}
	b.release(first, true, answered)
	for i := range 100 {
		b.release(b.acquire(fmt.Sprint("lost-", i), now), false, answered)
	}
	if len(b.slots) > maxRememberedBatches {
		t.Errorf("%d places", len(b.slots))
	}
}

// A batch keeps its place while a copy of its call may arrive: in a place that has another batch by then, the copy
// would lease records that nobody receives.
func TestBatchKeepsItsSlotWhileCopiesMayArrive(t *testing.T) {
	var b batchSlots
	now := time.Unix(1000, 0)
	late := now.Add(2 * time.Second)
	place := b.acquire("lost", now)
	b.release(place, false, late)
	if got := b.acquire("lost", now); got != place {
		t.Fatalf("the repetition has place %d, the call had %d", got, place)
	}
	b.release(place, true, time.Time{}) // the repetition was answered at once
	for range 3 {
		got := b.acquire("next", late.Add(-time.Millisecond))
		if got == place {
			t.Fatal("another batch has the place while a copy may arrive")
		}
		b.release(got, true, time.Time{})
	}
	for i := range 2 * maxRememberedBatches { // with all other places taken
		if got := b.acquire(fmt.Sprint(i), late); got == place {
			return
		}
	}
	t.Error("the place is never used again")
}

// TestCreateReplacesOnlyWhatItSaw: a record that was unreadable when it was read,
// but has changed since, is not overwritten.
func TestCreateReplacesOnlyWhatItSaw(t *testing.T) {
	s, server := embedded(t)
	server.HSet(s.shards[0].State, "ns/job", "changed")
	r := &newRecord{id: "ns/job", state: "new", def: []byte("new"), replaces: "garbage"}
	o, _ := s.createOp(0, []*newRecord{r})
	if err := s.runner.Run(t.Context(), o); err != nil || o.Reply.TextAt(2) != "1" {
		t.Errorf("answer %v (%v)", o.Reply, err)
	}
	r.replaces = "changed"
	o, _ = s.createOp(0, []*newRecord{r})
	if err := s.runner.Run(t.Context(), o); err != nil || o.Reply.TextAt(2) != "0" {
		t.Errorf("answer %v (%v)", o.Reply, err)
	}
}

func TestOptions(t *testing.T) {
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	defer client.Close()
	for _, o := range []Options{
		{}, {Client: client, Prefix: "a{b}"}, {Client: client, Shards: -1}, {Client: client, Shards: MaxShards + 1},
		{Client: client, Durability: 9}, {Client: client, Replicas: -1}, {Client: client, WaitTimeout: 1}, {Client: client, OpTimeout: -1},
	} {
		if _, err := Open(t.Context(), o); err == nil || errors.Is(err, job.ErrUnavailable) {
			t.Errorf("%+v: %v", o, err)
		}
	}
	for name, want := range map[string]conn.Durability{"memory": conn.DurabilityMemory, "Local": conn.DurabilityLocal, "replica": conn.DurabilityReplica} {
		if got, err := conn.ParseDurability(name); err != nil || got != want || !strings.EqualFold(got.String(), name) {
			t.Errorf("%s is %v (%v)", name, got, err)
		}
	}
	if _, err := conn.ParseDurability("disk"); err == nil {
		t.Error("durability disk exists")
	}
}
