package queuestats

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fermata-io/fermata/internal/core/job"
)

// TestAnswersAreShared: callers share one look, and its answer is served for twenty times as long as the look took.
func TestAnswersAreShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l sharedLook[int]
		var looks atomic.Int64
		fault := errors.New("fault")
		var failing atomic.Bool
		get := func() (int, error) {
			return l.get(t.Context(), t.Context(), func(context.Context) (int, error) {
				time.Sleep(50 * time.Millisecond)
				n := int(looks.Add(1))
				if failing.Load() {
					return n, fault
				}
				return n, nil
			})
		}
		var callers sync.WaitGroup
		for range 100 {
			callers.Go(func() {
				if n, err := get(); n != 1 || err != nil {
					t.Errorf("answer of look %d (%v), want the first one", n, err)
				}
			})
		}
		callers.Wait()
		time.Sleep(999 * time.Millisecond)
		if n, _ := get(); n != 1 {
			t.Errorf("after 20 times the look: answer of look %d, want 1", n)
		}
		time.Sleep(2 * time.Millisecond)
		if n, _ := get(); n != 2 {
			t.Errorf("later: answer of look %d, want 2", n)
		}
		failing.Store(true)
		time.Sleep(1001 * time.Millisecond)
		for range 3 {
			if n, err := get(); n != 3 || !errors.Is(err, fault) {
				t.Errorf("failed look: %d (%v), want the fault of look 3", n, err)
			}
		}
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		time.Sleep(1001 * time.Millisecond)
		if _, err := l.get(gone, t.Context(), func(context.Context) (int, error) { return 0, nil }); err == nil {
			synctest.Wait() // the look may end first
		}
		time.Sleep(time.Minute) // no timer is left
	})
}

var outputBytes = regexp.MustCompile(`total_net_output_bytes:(\d+)`)

// sentBytes is how many bytes Redis has sent.
func (b *countBed) sentBytes() int {
	b.t.Helper()
	text, err := b.client.Info(b.t.Context(), "stats").Result()
	b.must(err)
	n, err := strconv.Atoi(outputBytes.FindStringSubmatch(text)[1])
	b.must(err)
	return n
}

// TestOtherNamespacesCostACallNothing: what a namespace's calls read does not grow with the lanes of others, beyond
// the look at the indexes that all callers share.
func TestOtherNamespacesCostACallNothing(t *testing.T) {
	b := newCountBed(t, 8000) // lanes of namespace ns in each of eight shards
	for shard := range countShards {
		var index []redis.Z
		for i := range 8000 {
			index = append(index, redis.Z{Score: 1000, Member: countLane(i).String()})
		}
		b.must(b.client.ZAdd(t.Context(), b.key(shard, "lanes"), index...).Err())
	}
	const apart = 1_000_000 // ms: shards are read one after the other, and ranked by how late their jobs are then
	for i := range 3 {
		lane := job.Lane{Namespace: "b", Queue: fmt.Sprint("q", i)}.String()
		due := redis.Z{Score: float64(2000 + i*apart), Member: fmt.Sprintf("b/job%d", i)}
		b.must(b.client.ZAdd(t.Context(), b.key(i, "l:"+lane), due).Err())
		b.must(b.client.ZAdd(t.Context(), b.key(i, "lanes"), redis.Z{Score: due.Score, Member: lane}).Err())
		for k := range 500 {
			b.must(b.client.ZAdd(t.Context(), b.key(i, "failing"), redis.Z{Score: float64(9000 + k), Member: fmt.Sprint("ns/j", k)}).Err())
		}
		b.must(b.client.ZAdd(t.Context(), b.key(i, "failing"), redis.Z{Score: float64(1000 + i), Member: fmt.Sprintf("b/job%d", i)}).Err())
	}
	o := NewOverview(b.store)
	t.Cleanup(o.Stop)
	check := func() {
		t.Helper()
		counts, err := o.Counts(t.Context(), "b")
		b.must(err)
		if len(counts.Queues) != 3 || counts.Queues[job.QueueKey{Namespace: "b", Queue: "q1"}].Backlog != 1 {
			t.Errorf("counts: %+v", counts)
		}
		late, err := o.ListOverdue(t.Context(), nil, "b", 2)
		b.must(err)
		if len(late) != 2 || late[0].Record != "b/job0" || late[1].Record != "b/job1" {
			t.Errorf("overdue: %+v", late)
		}
		failing, err := o.ListRanked(t.Context(), nil, job.RankingFailing, "b", 2)
		b.must(err)
		if len(failing) != 2 || failing[0].Record != "b/job2" {
			t.Errorf("failing: %+v", failing)
		}
		lanes, _, err := o.FindLanes(t.Context(), job.LaneQuery{Namespace: "b"})
		b.must(err)
		if len(lanes) != 3 || lanes[0].DueMS != 2000 || lanes[2].DueMS != 2000+2*apart {
			t.Errorf("lanes: %+v", lanes)
		}
		ofB := func(q job.QueueKey) bool { return q.Namespace == "b" }
		lanes, _, err = o.FindLanes(t.Context(), job.LaneQuery{Wants: ofB})
		b.must(err)
		names, err := o.Namespaces(t.Context(), ofB)
		b.must(err)
		if len(lanes) != 3 || len(names) != 1 || names[0] != "b" {
			t.Errorf("lanes of namespaces %v: %+v", names, lanes)
		}
		all, isFull, err := o.ListFailing(t.Context(), "b")
		b.must(err)
		if len(all) != 3 || isFull {
			t.Errorf("failing: %+v, full %v", all, isFull)
		}
	}
	check() // reads the indexes
	o.lanes.hold()
	o.rankings[job.RankingFailing].hold()
	before := b.sentBytes()
	for range 20 {
		check()
	}
	if bytes := (b.sentBytes() - before) / 20; bytes > 5000 { // 64,000 lanes are 2 MB
		t.Errorf("Redis sent %d bytes a call", bytes)
	}
	if counts, err := o.Counts(t.Context(), "none"); err != nil || len(counts.Queues) > 0 || len(o.counts) > 1 {
		t.Errorf("a namespace without lanes: %v (%v), %d kept", counts, err, len(o.counts))
	}
	all, err := o.Counts(t.Context(), "")
	b.must(err)
	if len(all.Queues) != 3+8000 {
		t.Errorf("all: %d queues", len(all.Queues))
	}
	if all.Shards[1].Jobs != 1 || all.Shards[1].Lag <= 0 || all.Shards[5].Jobs != 0 {
		t.Errorf("shards: %+v", all.Shards)
	}
}

// hold keeps serving the present answer, however slow the machine is.
func (l *sharedLook[T]) hold() {
	l.mu.Lock()
	defer l.mu.Unlock()
	held := l.current
	if held == nil {
		return
	}
	pinned := &lookResult[T]{number: held.number, done: held.done, value: held.value}
	l.pending = pinned // whoever comes after the answer was forgotten joins a look that has ended
}

// TestAllLanesAreCounted: an overview and a sample for autoscalers count lanes beyond the first page of a shard.
func TestAllLanesAreCounted(t *testing.T) {
	b := newCountBed(t, job.LanesPerRead+500)
	last := job.Lane{Namespace: "ns", Queue: "zz"}
	b.must(b.client.ZAdd(t.Context(), b.key(0, "l:"+last.String()), redis.Z{Score: float64(job.Score(job.RegionLeased, 1)), Member: "ns/job"}).Err())
	b.must(b.client.ZAdd(t.Context(), b.key(0, "lanes"), redis.Z{Score: float64(job.NeverMS), Member: last.String()}).Err())
	o := NewOverview(b.store)
	t.Cleanup(o.Stop)
	index, err := o.laneIndex(t.Context())
	b.must(err)
	if n := len(index["ns"]); n != countShards*(job.LanesPerRead+500)+1 {
		t.Errorf("%d lanes in the index", n)
	}
	key := job.QueueKey{Namespace: "ns", Queue: "zz"}
	sizes, err := CountSizes(t.Context(), b.store, []int{0, 1}, []job.QueueKey{key}, func(job.QueueKey) bool { return false })
	if err != nil || sizes[key].Running != 1 {
		t.Errorf("sizes: %+v (%v)", sizes, err)
	}
}

// TestLanesThatBecameLateAreRead: due times of lanes are read again, so that an old index hides no late run.
func TestLanesThatBecameLateAreRead(t *testing.T) {
	b := newCountBed(t, 100)
	o := NewOverview(b.store)
	t.Cleanup(o.Stop)
	_, err := o.laneIndex(t.Context())
	b.must(err)
	o.lanes.hold()
	b.put(3, 1000)
	late, err := o.ListOverdue(t.Context(), nil, "ns", 2)
	if err != nil || len(late) != 1 || late[0].Record != "ns/job" || late[0].Shard != 3 {
		t.Errorf("overdue: %+v (%v)", late, err)
	}
}

// TestCallersGetALookThatBeganAfterTheirs: who needs what is stored now does not get an older answer, and callers
// share looks.
func TestCallersGetALookThatBeganAfterTheirs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l sharedLook[int]
		var stored, looks atomic.Int64
		look := func(context.Context) (int, error) {
			looks.Add(1)
			seen := stored.Load()
			time.Sleep(50 * time.Millisecond)
			return int(seen), nil
		}
		get := func(suffices bool) (int, bool) {
			n, isNew, err := l.getUpToDate(t.Context(), t.Context(), look, func(int) bool { return suffices })
			if err != nil {
				t.Error(err)
			}
			return n, isNew
		}
		if n, isNew := get(false); n != 0 || !isNew {
			t.Errorf("the first look: %d, new %v", n, isNew)
		}
		stored.Store(1)
		if n, isNew := get(true); n != 0 || isNew {
			t.Errorf("an answer that suffices: %d, new %v", n, isNew)
		}
		if n, isNew := get(false); n != 1 || !isNew {
			t.Errorf("after a change: %d, new %v", n, isNew)
		}
		var callers sync.WaitGroup
		callers.Go(func() { get(false) })
		time.Sleep(time.Millisecond)
		stored.Store(2)
		looks.Store(0)
		for range 100 {
			callers.Go(func() {
				if n, _ := get(false); n != 2 {
					t.Errorf("a caller during a look got %d, want what is stored since", n)
				}
			})
		}
		callers.Wait()
		if n := looks.Load(); n != 1 {
			t.Errorf("%d looks for 100 callers", n)
		}
		time.Sleep(time.Minute)
	})
}

// TestLanesOfACallAreCurrent: a lane that is new, and one that is due earlier, are found at once in a keyspace of few
// lanes, and by their queue in any.
func TestLanesOfACallAreCurrent(t *testing.T) {
	for name, lanes := range map[string]int{"few lanes": 10, "many lanes": maxListedAnew} {
		b := newCountBed(t, lanes)
		o := NewOverview(b.store)
		t.Cleanup(o.Stop)
		find := func(q job.LaneQuery) []job.ShardLane {
			found, _, err := o.FindLanes(t.Context(), q)
			b.must(err)
			return found
		}
		add := func(queue string, due int) {
			lane := job.Lane{Namespace: "b", Queue: queue}.String()
			b.must(b.client.ZAdd(t.Context(), b.key(1, "lanes"), redis.Z{Score: float64(due), Member: lane}).Err())
		}
		if n := len(find(job.LaneQuery{Namespace: "b"})); n != 0 {
			t.Errorf("%s: %d lanes of b", name, n)
		}
		if lanes >= maxListedAnew {
			o.lanes.hold()
		}
		add("new", 7)
		byQueue := find(job.LaneQuery{Namespace: "b", Queues: []string{"new", "none"}})
		if len(byQueue) != 1 || byQueue[0].Shard != 1 || byQueue[0].DueMS != 7 {
			t.Errorf("%s: by queue %+v", name, byQueue)
		}
		hidden := find(job.LaneQuery{Namespace: "b", Queues: []string{"new"}, Wants: func(job.QueueKey) bool { return false }})
		if len(hidden) != 0 {
			t.Errorf("%s: hidden lanes %+v", name, hidden)
		}
		if lanes < maxListedAnew {
			if n := len(find(job.LaneQuery{Namespace: "b"})); n != 1 {
				t.Errorf("%s: %d lanes of b after the first job", name, n)
			}
			continue
		}
		if n := len(find(job.LaneQuery{})); n != countShards*lanes {
			t.Errorf("%s: %d lanes of all namespaces", name, n)
		}
	}
}
