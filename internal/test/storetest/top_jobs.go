package storetest

import (
	"fmt"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fermata-io/fermata/internal/core/job"
)

func (w *World) readWorst(which job.Ranking, n int) []job.Ranked {
	w.T.Helper()
	found, err := w.Store.ListRanked(w.T.Context(), []int{0, 1}, which, n)
	if err != nil {
		w.T.Fatal(err)
	}
	return found
}

func rankedNames(list []job.Ranked) (names []string) {
	for _, e := range list {
		names = append(names, fmt.Sprintf("%s=%d", e.Record, e.Rank))
	}
	return names
}

// testWorst: jobs come onto the index with their decisions and leave it the same way.
func testWorst(w *World) {
	ids := w.InShard(0, 3)
	for i, id := range ids {
		d := Definition(id)
		d.Retry.MaxAttempts = 1
		w.Add(d)
		for range i + 1 {
			w.runTo(id, job.OutcomeFailed)
		}
		if i < 2 { // out of the way of the next one
			record := w.Get(id)
			w.MustWrite(0, w.Decide(job.RecordID("ns/"+id), record.Definition, record.State, job.Pause{}))
		}
	}
	expect := func(which job.Ranking, n int, want ...string) {
		w.T.Helper()
		if got := rankedNames(w.readWorst(which, n)); !slices.Equal(got, want) {
			w.T.Errorf("index %d: %v, want %v", which, got, want)
		}
	}
	a, b, c := "ns/"+ids[0], "ns/"+ids[1], "ns/"+ids[2]
	expect(job.RankingFailing, 2, c+"=3000", b+"=2000")
	expect(job.RankingFailing, 9, c+"=3000", b+"=2000", a+"=1000")
	expect(job.RankingLate, 9)
	ranks := []int64{1, job.RankOfFailures(2), job.RankOfFailures(4)}
	counts, err := w.Store.CountRanked(w.T.Context(), []int{0, 1}, job.RankingFailing, ranks)
	if err != nil || !slices.Equal(counts, []int64{3, 2, 0}) {
		w.T.Errorf("counts %v (%v)", counts, err)
	}

	w.runTo(ids[2], job.OutcomeSucceeded)
	record := w.Get(ids[1])
	w.MustWrite(0, w.Decide(job.RecordID(b), record.Definition, record.State, job.Delete{}))
	expect(job.RankingFailing, 9, a+"=1000")
	if err := w.Store.RemoveRanked(w.T.Context(), job.RankingFailing, w.readWorst(job.RankingFailing, 9)); err != nil {
		w.T.Error(err)
	}
	expect(job.RankingFailing, 9)

	// Of more than it holds, the index loses those with the least rank.
	const most = 1000
	key := w.Key(0, "failing")
	for i := range most {
		entry := redis.Z{Member: fmt.Sprintf("ns/old-%d", i), Score: float64(1001 + i)}
		if err := w.Client.ZAdd(w.T.Context(), key, entry).Err(); err != nil {
			w.T.Fatal(err)
		}
	}
	w.runTo(ids[2], job.OutcomeFailed)
	w.runTo(ids[2], job.OutcomeFailed)
	found := w.readWorst(job.RankingFailing, 2*most)
	if len(found) != most || !slices.Contains(rankedNames(found), c+"=2000") || found[most-1].Rank != 1002 {
		w.T.Errorf("%d entries, the last %+v", len(found), found[len(found)-1])
	}
}

// testOverdue: the records that have waited longest, over all lanes.
func testOverdue(w *World) {
	ids := w.InShard(0, 6)
	for i, id := range ids {
		d := Once(id, time.Duration(i)*time.Second)
		d.Priority = uint8(i % 3)
		w.Add(d)
	}
	w.Advance(4500 * time.Millisecond)
	found, err := w.Store.ListOverdue(w.T.Context(), []int{0, 1}, 3)
	want := []string{"ns/" + ids[0] + "=4500", "ns/" + ids[1] + "=3500", "ns/" + ids[2] + "=2500"}
	if got := rankedNames(found); err != nil || !slices.Equal(got, want) {
		w.T.Errorf("overdue: %v (%v), want %v", got, err, want)
	}
	if all, err := w.Store.ListOverdue(w.T.Context(), []int{0}, 9); err != nil || len(all) != 5 {
		w.T.Errorf("overdue: %v (%v)", all, err)
	}
}
