package storetest

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/lease"
	"github.com/fermata-io/fermata/internal/core/unixtime"
	"github.com/fermata-io/fermata/internal/redis/rediserr"
	"github.com/fermata-io/fermata/internal/redis/redisstore"
)

func testLanesAndStats(w *World) {
	ids := w.InShard(0, 8)
	for i, id := range ids {
		d := Once(id, time.Duration(i)*time.Second)
		d.Retry.MaxAttempts = 1
		w.Add(d)
	}
	ctx := w.T.Context()
	w.Advance(4500 * time.Millisecond)
	w.runTo(ids[0], job.OutcomeSucceeded) // done
	w.runTo(ids[1], job.OutcomeFailed)    // dead
	w.Lease(0, 1)
	paused := w.Get(ids[7])
	w.MustWrite(0, w.Decide(job.RecordID("ns/"+ids[7]), paused.Definition, paused.State, job.Pause{}))
	later := Once(w.InShard(0, 9)[8], 9*time.Second)
	later.Queue = "later"
	w.Add(later)
	lane := Lane()
	lane.Queue = later.Queue
	counts, err := w.Store.Stats(ctx, map[int][]job.Lane{0: {Lane(), {Namespace: "ns", Queue: "none"}, lane}})
	if err != nil {
		w.T.Fatal(err)
	}
	stats := counts[0]
	got := stats[0]
	want := job.LaneStat{
		Lane: Lane(), Backlog: 2, Scheduled: 2, Leased: 1, Paused: 1, Dead: 1, Done: 1, Overdue: 1,
		OldestDueMS: unixtime.Milli(Start + 3000), DeadUntilMS: w.Get(ids[1]).IndexMS,
		OldestDeadMS: w.Get(ids[1]).State.LastFinished,
	}
	if got != want {
		w.T.Errorf("stats\n%+v, want\n%+v", got, want)
	}
	if empty := stats[1]; empty.Backlog+empty.Scheduled+empty.Done != 0 || empty.OldestDueMS != 0 || empty.NextDueMS != 0 {
		w.T.Errorf("a lane without records: %+v", empty)
	}
	if want := (job.LaneStat{Lane: lane, Scheduled: 1, NextDueMS: unixtime.Milli(Start + 9000)}); stats[2] != want {
		w.T.Errorf("a lane of the future\n%+v, want\n%+v", stats[2], want)
	}
	broken := w.Key(1, "l:"+lane.String())
	w.Client.Set(ctx, broken, "no lane", 0)
	counts, err = w.Store.Stats(ctx, map[int][]job.Lane{0: {Lane()}, 1: {Lane(), lane}, 2: nil})
	if empty, counted := counts[2]; err == nil || len(counts) != 2 || len(empty) != 0 || !counted || counts[0][0] != got {
		w.T.Errorf("beside a shard that cannot be counted: %+v (%v)", counts, err)
	}
	w.Client.Del(ctx, broken)
	heads, err := w.Store.Lanes(ctx, []int{0, 1})
	if err != nil || len(heads[0]) != 2 || len(heads[1]) != 0 || heads[0][0].DueMS != got.OldestDueMS {
		w.T.Errorf("lanes %+v (%v)", heads, err)
	}
	for within, want := range map[time.Duration]int{0: 1, 9 * time.Second: 2} {
		heads, err := w.Store.DueLanes(ctx, []int{0, 1}, within)
		list, read := heads[1]
		if err != nil || len(heads[0]) != want || len(list) != 0 || !read || heads[0][0].DueMS != got.OldestDueMS {
			w.T.Errorf("lanes that are due within %v: %+v (%v), want %d", within, heads, err, want)
		}
	}
	if now, err := w.Store.Now(ctx, 0); err != nil || now != w.now() {
		w.T.Errorf("clock %d (%v), want %d", now, err, w.now())
	}
}

func testEnded(w *World) {
	ids := w.InShard(0, 3)
	for i, id := range ids {
		w.Add(Once(id, time.Duration(i)*time.Second))
	}
	var many []job.Lane // more than one script looks at
	for i := range 700 {
		many = append(many, job.Lane{Namespace: "ns", Queue: fmt.Sprint("none", i)})
	}
	many = append(many, Lane())
	expect := func(want int, regions ...job.Region) {
		w.T.Helper()
		heads, err := w.Store.FirstEnds(w.T.Context(), map[int][]job.Lane{0: many, 1: {Lane()}}, regions...)
		ended := 0
		for _, h := range heads[0] {
			if h.Lane != Lane() {
				w.T.Errorf("in %v there is something in lane %v", regions, h.Lane)
			}
			if h.DueMS <= w.now() {
				ended++
			}
		}
		if list, read := heads[1]; err != nil || ended != want || len(list) > 0 || !read {
			w.T.Errorf("in %v something has ended in %v (%v), want it in %d regions", regions, heads, err, want)
		}
	}
	w.runTo(ids[0], job.OutcomeSucceeded) // done
	w.Advance(1500 * time.Millisecond)
	w.Lease(0, 1)
	expect(0, job.RegionLeased)
	expect(0, job.RegionDead, job.RegionDone)
	w.Advance(2 * lockTTL)
	expect(1, job.RegionLeased)
	expect(0, job.RegionDead, job.RegionDone)
	w.Advance(2 * time.Hour)
	expect(1, job.RegionDead, job.RegionDone)
	expect(2, job.RegionDead, job.RegionDone, job.RegionLeased)
	expect(0, job.RegionDead)
}

func testList(w *World) {
	const n = 60
	want := map[job.RecordID]bool{}
	for i := range n {
		d := Definition(fmt.Sprint("listed-", i))
		w.Add(d)
		want[d.Record()] = true
		other := Definition(fmt.Sprint("other-", i))
		other.Namespace = "ns2"
		w.Add(other)
	}
	id := "listed-0"
	w.Clock.Store(int64(w.Get(id).IndexMS))
	l := w.Lease(w.Store.ShardOf(job.Key{Namespace: "ns", ID: id}), 1)[0]
	l.Known.Definition.Retry.MaxAttempts = 1
	w.MustWrite(l.Shard, w.Settle(l, job.OutcomeFailed)) // a dead letter, which is not listed
	walk := func(namespace string, budget int) map[job.RecordID]bool {
		w.T.Helper()
		seen, cursor := map[job.RecordID]bool{}, ""
		for range 1000 {
			page, next, err := w.Store.List(w.T.Context(), namespace, cursor, budget)
			if err != nil {
				w.T.Fatal(err)
			}
			for _, r := range page {
				seen[r.Definition.Record()] = true
			}
			cursor = next
			if cursor == "" {
				return seen
			}
		}
		w.T.Fatal("the walk does not end")
		return nil
	}
	for _, budget := range []int{1, 7, 5000} {
		if got := walk("ns", budget); len(got) != n {
			w.T.Errorf("budget %d: %d jobs, want %d", budget, len(got), n)
		}
		for record := range walk("ns", budget) {
			if !want[record] {
				w.T.Errorf("budget %d: %s is listed", budget, record)
			}
		}
	}
	if got := walk("", 100); len(got) != 2*n {
		w.T.Errorf("all namespaces: %d jobs", len(got))
	}
	if got := walk("n*", 100); len(got) != 0 {
		w.T.Errorf("a namespace is no pattern: %v", got)
	}
	for _, bad := range []string{"x", "1", "9.0", "-1.0", "0.x", "0.-1"} {
		if _, _, err := w.Store.List(w.T.Context(), "", bad, 1); !errors.Is(err, job.ErrCursor) {
			w.T.Errorf("cursor %q: %v", bad, err)
		}
	}
}

// testClock compares the script's clock with the one in Go.
func testClock(w *World) {
	c := lease.Clock{MS: unixtime.Milli(Start)} // as the store has read it at its opening
	steps := []int64{
		10_000, 1, 1, 1000, -500, 100, 100, 100, 600, 1, -10_000, 1, 2, 3, 5000, -1000, 500, -20_000, 40_000, 7, -1,
		0, 1, 1, 0,
	}
	for i, step := range steps {
		var err error
		if c, err = c.Advance(unixtime.Milli(w.Clock.Add(step)), lease.Expectation{}, false); err != nil {
			w.T.Fatal(err)
		}
		renewals := []job.Renewal{{Record: "ns/x", Lane: Lane()}}
		request := job.RenewRequest{Shard: 0, TTL: lockTTL, Renewals: renewals}
		reply := w.Store.Renew(w.T.Context(), []job.RenewRequest{request})[0]
		if reply.Err != nil || reply.NowUS != c.MS.Micro() {
			w.T.Fatalf("step %d: the script returns %d (%v), Go %d", i, reply.NowUS, reply.Err, c.MS.Micro())
		}
		stored := w.Client.HGet(w.T.Context(), w.Key(0, "meta"), "c").Val()
		if want := fmt.Sprintf("%016d%016d%016d", c.MS, c.AnchorReal, c.AnchorClock); !strings.HasPrefix(stored, want) {
			w.T.Fatalf("step %d: stored %s, want %s", i, stored, want)
		}
	}
}

func testKeyspace(w *World) {
	ctx := w.T.Context()
	open := func(f func(*redisstore.Options)) error {
		o := redisstore.Options{Client: w.Client, Prefix: w.Prefix, Virtual: w.now}
		f(&o)
		s, err := redisstore.Open(ctx, o)
		if err == nil && s.Shards() != 4 {
			w.T.Errorf("%d shards", s.Shards())
		}
		return err
	}
	if err := open(func(*redisstore.Options) {}); err != nil {
		w.T.Errorf("as it is: %v", err)
	}
	err := open(func(o *redisstore.Options) { o.Shards = 5 })
	if !errors.Is(err, rediserr.ErrKeyspace) || !strings.Contains(err.Error(), "4") ||
		!strings.Contains(err.Error(), "5") {
		w.T.Errorf("another number of shards: %v", err)
	}
	if err := open(func(o *redisstore.Options) { o.Virtual = nil }); !errors.Is(err, rediserr.ErrKeyspace) {
		w.T.Errorf("a real clock: %v", err)
	}
	meta := w.Prefix + ":{meta}"
	w.Client.HSet(ctx, meta, "virtual", "0")
	if err := open(func(o *redisstore.Options) { o.Virtual = nil }); !errors.Is(err, rediserr.ErrKeyspace) {
		w.T.Errorf("a real clock in virtual shards: %v", err)
	}
	w.Client.HSet(ctx, meta, "virtual", "1", "schema", redisstore.SchemaVersion+1)
	err = open(func(*redisstore.Options) {})
	if !errors.Is(err, rediserr.ErrKeyspace) || !strings.Contains(err.Error(), "newer") {
		w.T.Errorf("a later schema: %v", err)
	}
	w.Client.HSet(ctx, meta, "schema", redisstore.SchemaVersion)
}
