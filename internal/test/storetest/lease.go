package storetest

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/unixtime"
	"github.com/fermata-io/fermata/internal/redis/redisstore"
)

func leasedRecords(leased []job.Leased) []string {
	var out []string
	for _, l := range leased {
		out = append(out, string(l.Record))
	}
	return out
}

func testLeaseOrder(w *World) {
	ids := w.InShard(0, 5)
	for i, offset := range []time.Duration{50, 10, 30, 20, 40} {
		w.Add(Once(ids[i], offset*time.Second))
	}
	if got := w.Lease(0, 10); len(got) != 0 {
		w.T.Fatalf("nothing is due, leased %v", leasedRecords(got))
	}
	now := w.Advance(40 * time.Second)
	reply := w.Store.Lease(w.T.Context(), []job.LeaseRequest{LeaseRequest(0, 3, "a")})[0]
	want := []string{"ns/" + ids[1], "ns/" + ids[3], "ns/" + ids[2]}
	if reply.Err != nil || !slices.Equal(leasedRecords(reply.Leased), want) {
		w.T.Fatalf("leased %v, want %v (%v)", leasedRecords(reply.Leased), want, reply.Err)
	}
	if h := reply.Heads; len(h) != 1 || h[0].DueMS != unixtime.Milli(Start+40_000) ||
		reply.NowUS != unixtime.Micro(now*1000) {
		w.T.Errorf("heads %+v at %d", h, reply.NowUS)
	}
	for _, l := range reply.Leased {
		if l.Known.IndexMS != unixtime.Milli(now+lockTTL.Milliseconds()) ||
			l.Known.State.Region != job.RegionLeased || l.Known.State.Acked ||
			l.Known.State.Token < uint64(now)*1000 || l.Known.Definition.Handler != "send" || l.Shard != 0 {
			w.T.Errorf("lease %+v", l)
		}
		if got := w.Get(l.Known.Definition.ID); got.State.Token != l.Known.State.Token || got.IndexMS != l.Known.IndexMS {
			w.T.Errorf("stored %+v", got)
		}
	}
	if rest := w.Lease(0, 10); !slices.Equal(leasedRecords(rest), []string{"ns/" + ids[4]}) {
		w.T.Errorf("rest %v", leasedRecords(rest))
	}
}

// testLeaseInAdvance leases what is due soon, by a clock that goes at its full speed.
func testLeaseInAdvance(w *World) {
	ids := w.InShard(0, 3)
	for i, offset := range []time.Duration{1000, 1010, 1011} {
		w.Add(Once(ids[i], offset*time.Millisecond))
	}
	lease := func(advance time.Duration, want ...string) {
		w.T.Helper()
		request := LeaseRequest(0, 9, "")
		request.Advance = advance
		reply := w.Store.Lease(w.T.Context(), []job.LeaseRequest{request})[0]
		if got := leasedRecords(reply.Leased); reply.Err != nil || !slices.Equal(got, want) {
			w.T.Errorf("%v in advance at %d: leased %v, want %v (%v)", advance, w.Clock.Load()-Start, got, want, reply.Err)
		}
	}
	now := w.Advance(989 * time.Millisecond)
	lease(10 * time.Millisecond)
	w.Advance(time.Millisecond)
	lease(9 * time.Millisecond)
	lease(10*time.Millisecond, "ns/"+ids[0])
	got := w.Get(ids[0])
	if got.IndexMS != unixtime.Milli(now+1+lockTTL.Milliseconds()) || got.State.Due != unixtime.Milli(Start+1000) {
		w.T.Errorf("stored %+v", got)
	}
	w.Advance(9 * time.Millisecond) // to 999
	lease(11*time.Millisecond, "ns/"+ids[1])
	w.Clock.Add(-1000)
	lease(job.MaxAdvance) // the clock stands at 999, and goes on at half speed
	w.Advance(3 * time.Second)
	lease(0, "ns/"+ids[2])
	for _, wrong := range []time.Duration{-time.Millisecond, job.MaxAdvance + 1} {
		request := LeaseRequest(0, 9, "")
		request.Advance = wrong
		if reply := w.Store.Lease(w.T.Context(), []job.LeaseRequest{request})[0]; reply.Err == nil {
			w.T.Errorf("%v in advance is accepted", wrong)
		}
	}
}

// testLeaseDefinitions leases few, whose definitions come along, and many, whose
// definitions are read after that; a repeat brings the same.
func testLeaseDefinitions(w *World) {
	ids := w.InShard(0, 200)
	definitions := make([]job.Definition, len(ids))
	for i, id := range ids {
		definitions[i] = Once(id, time.Duration(i)*time.Millisecond)
		definitions[i].Payload = []byte("payload of " + id)
	}
	w.Add(definitions...)
	w.Advance(time.Second)
	for _, n := range []int{1, 64, 65} {
		request := LeaseRequest(0, n, fmt.Sprint("batch of ", n))
		for range 2 {
			reply := w.Store.Lease(w.T.Context(), []job.LeaseRequest{request})[0]
			if reply.Err != nil || len(reply.Leased) != n {
				w.T.Fatalf("leased %d of %d: %v", len(reply.Leased), n, reply.Err)
			}
			for _, l := range reply.Leased {
				if d := l.Known.Definition; d.Record() != l.Record || string(d.Payload) != "payload of "+d.ID {
					w.T.Errorf("%s came with the definition of %s, %q", l.Record, d.Record(), d.Payload)
				}
			}
		}
	}
}

func testLeaseReplay(w *World) {
	ids := w.InShard(0, 10)
	for i, id := range ids {
		w.Add(Once(id, time.Duration(i)*time.Millisecond))
	}
	w.Advance(time.Second)
	ctx := w.T.Context()
	first := w.Store.Lease(ctx, []job.LeaseRequest{LeaseRequest(0, 4, "batch-1")})[0]
	w.MustWrite(0, w.Settle(first.Leased[0], job.OutcomeSucceeded))
	other := w.Open().Lease(ctx, []job.LeaseRequest{LeaseRequest(0, 2, "batch-2")})[0]
	if other.Err != nil || len(other.Leased) != 2 || other.Leased[0].Known.IndexMS != first.Leased[0].Known.IndexMS {
		w.T.Fatalf("another caller in the same millisecond: %+v", other)
	}
	// A process that has lost the answer repeats the batch, however late, and even
	// if its lock has gone: what it was given is its own.
	w.Advance(time.Second)
	w.SetLock(0, "somebody else")
	again := w.Store.Lease(ctx, []job.LeaseRequest{LeaseRequest(0, 4, "batch-1")})[0]
	if again.Err != nil || !slices.Equal(leasedRecords(again.Leased), leasedRecords(first.Leased)[1:]) {
		w.T.Fatalf("again %v (%v), want %v", leasedRecords(again.Leased), again.Err, leasedRecords(first.Leased)[1:])
	}
	for i, l := range again.Leased {
		if !reflect.DeepEqual(l, first.Leased[i+1]) {
			w.T.Errorf("lease %d: %+v, first time %+v", i, l, first.Leased[i+1])
		}
	}
	w.SetLock(0, lockValue)
	if next := w.Lease(0, 100); len(next) != 4 {
		w.T.Errorf("another batch took %d of 4", len(next))
	}
}

func testLeaseLock(w *World) {
	w.Add(Once(w.InShard(0, 1)[0], 0))
	ctx := w.T.Context()
	refused := func(when string) {
		w.T.Helper()
		reply := w.Store.Lease(ctx, []job.LeaseRequest{LeaseRequest(0, 1, "")})[0]
		if !errors.Is(reply.Err, job.ErrNotHolder) || len(reply.Leased) != 0 {
			w.T.Errorf("%s: %+v", when, reply)
		}
		if _, err := w.Store.Expired(ctx, 0, lockValue, []job.Lane{Lane()}, 10); !errors.Is(err, job.ErrNotHolder) {
			w.T.Errorf("%s: expired: %v", when, err)
		}
		if _, err := w.Store.Sweep(ctx, 0, lockValue, []job.Lane{Lane()}, 10); !errors.Is(err, job.ErrNotHolder) {
			w.T.Errorf("%s: sweep: %v", when, err)
		}
	}
	w.SetLock(0, lockValue+"x")
	refused("another holder")
	w.Client.Del(ctx, w.Store.LockKey(0))
	refused("no holder")
	w.SetLock(0, lockValue)
	if got := w.Lease(0, 1); len(got) != 1 {
		w.T.Errorf("holder leased %d", len(got))
	}
}

func testLeaseRefuses(w *World) {
	many := LeaseRequest(0, 1, "")
	for i := range job.MaxLanesPerCall + 1 {
		many.Quotas = append(many.Quotas, job.LaneQuota{Lane: job.Lane{Namespace: "ns", Queue: fmt.Sprint("q", i)}, N: 1})
	}
	twice := LeaseRequest(0, 1, "", Lane(), Lane())
	forever := LeaseRequest(0, 1, "")
	forever.TTL = 0
	for _, r := range []job.LeaseRequest{many, twice, forever, LeaseRequest(4, 1, ""), LeaseRequest(0, 201, "")} {
		if reply := w.Store.Lease(w.T.Context(), []job.LeaseRequest{r})[0]; reply.Err == nil {
			w.T.Errorf("request %+v was carried out", r)
		}
	}
}

// testLeaseOfNothing: a batch is remembered although it brought nothing, so that a
// copy of the call that arrives later brings nothing either; and who asks for
// nothing under the id of a batch gets what that has leased.
func testLeaseOfNothing(w *World) {
	ids := w.InShard(0, 2)
	w.Add(Once(ids[0], -2*time.Hour), Once(ids[1], -time.Hour))
	leased := func(n int, batch string) int {
		w.T.Helper()
		reply := w.Store.Lease(w.T.Context(), []job.LeaseRequest{LeaseRequest(0, n, batch)})[0]
		if reply.Err != nil {
			w.T.Fatalf("%d of batch %s: %v", n, batch, reply.Err)
		}
		return len(reply.Leased)
	}
	for _, step := range []struct {
		n     int
		batch string
		want  int
	}{{0, "a", 0}, {5, "a", 0}, {1, "b", 1}, {0, "b", 1}, {5, "b", 1}, {5, "c", 1}, {5, "d", 0}} {
		if got := leased(step.n, step.batch); got != step.want {
			w.T.Errorf("%d of batch %s: %d leases, want %d", step.n, step.batch, got, step.want)
		}
	}
}

func testTokens(w *World) {
	ids := w.InShard(0, 300)
	for _, id := range ids {
		w.Add(Once(id, -2*time.Hour))
	}
	last := uint64(0)
	lease := func(n int) {
		w.T.Helper()
		leased := w.Lease(0, n)
		if len(leased) != n {
			w.T.Fatalf("leased %d of %d", len(leased), n)
		}
		for _, l := range leased {
			if l.Known.State.Token <= last {
				w.T.Fatalf("token %d after %d", l.Known.State.Token, last)
			}
			last = l.Known.State.Token
		}
	}
	lease(100) // many in one millisecond
	lease(1)
	if last < uint64(Start)*1000+100 {
		w.T.Errorf("token %d does not contain the time", last)
	}
	w.Advance(-time.Hour)
	lease(1)
	// A failover loses what the shard knew, to a host whose clock is behind.
	w.Client.HDel(w.T.Context(), w.Key(0, "meta"), "c")
	lease(1)
	lease(50)
}

func testLeaseCorrupt(w *World) {
	w.Damaged()
	ids := w.InShard(0, 6)
	for i, id := range ids {
		w.Add(Once(id, time.Duration(i)*time.Millisecond))
	}
	ctx := w.T.Context()
	w.Client.HDel(ctx, w.Key(0, "st"), "ns/"+ids[0])
	w.Client.HSet(ctx, w.Key(0, "st"), "ns/"+ids[1], "garbage")
	text := w.Client.HGet(ctx, w.Key(0, "st"), "ns/"+ids[2]).Val()
	w.Client.HSet(ctx, w.Key(0, "st"), "ns/"+ids[2], text+"q99:cut off")
	w.Client.HDel(ctx, w.Key(0, "def"), "ns/"+ids[3])
	w.Advance(time.Second)
	if got := w.Lease(0, 10); !slices.Equal(leasedRecords(got), []string{"ns/" + ids[4], "ns/" + ids[5]}) {
		w.T.Fatalf("leased %v", leasedRecords(got))
	}
	aside := w.readScores(w.Key(0, "l:") + Lane().String())
	for _, id := range []string{ids[0], ids[1], ids[3]} {
		if got := aside["ns/"+id]; got != job.Score(job.RegionDead, job.NeverMS) {
			w.T.Errorf("%s is at %d", id, got)
		}
	}
	w.Advance(lockTTL + time.Second)
	overdue, err := w.Store.Expired(ctx, 0, lockValue, []job.Lane{Lane()}, 10)
	if err != nil || len(overdue) != 2 {
		w.T.Errorf("expired %+v (%v): corrupt records come back", overdue, err)
	}
	if got := w.readScores(w.Key(0, "l:") + Lane().String())["ns/"+ids[2]]; got != job.Score(job.RegionDead, job.NeverMS) {
		w.T.Errorf("%s is at %d", ids[2], got)
	}
}

func testLeaseMany(w *World) {
	var lanes []job.Lane
	var requests []job.LeaseRequest
	for shard := range w.Store.Shards() {
		for i, id := range w.InShard(shard, 8) {
			d := Once(id, 0)
			d.Queue, d.Priority = fmt.Sprint("q", i), uint8(i)
			w.Add(d)
			if shard == 0 {
				lanes = append(lanes, d.Lane())
			}
		}
		requests = append(requests, LeaseRequest(shard, 5, "", lanes...))
	}
	for shard, reply := range w.Store.Lease(w.T.Context(), requests) {
		if reply.Err != nil || len(reply.Leased) != 8 || len(reply.Heads) != 8 {
			w.T.Fatalf("shard %d: %+v", shard, reply)
		}
		for i, h := range reply.Heads {
			if h.Lane != lanes[i] || h.DueMS != job.NeverMS {
				w.T.Errorf("shard %d: head %+v", shard, h)
			}
		}
	}
}

func testCallersForgotten(w *World) {
	ids := w.InShard(0, 90)
	for _, id := range ids {
		w.Add(Once(id, 0))
	}
	for i := range len(ids) {
		s := w.Open(func(o *redisstore.Options) { o.Caller = fmt.Sprint("pod-", i) })
		if reply := s.Lease(w.T.Context(), []job.LeaseRequest{LeaseRequest(0, 1, "")})[0]; len(reply.Leased) != 1 {
			w.T.Fatalf("caller %d: %+v", i, reply)
		}
		w.Advance(time.Second)
	}
	if n := w.Client.HLen(w.T.Context(), w.Key(0, "meta")).Val(); n > 70 {
		w.T.Errorf("the shard remembers %d callers", n)
	}
}
