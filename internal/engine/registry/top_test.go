package registry

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/schedule"
	"github.com/fermata-io/fermata/internal/core/unixtime"
)

// put stores a job in a state.
func (f *fake) put(namespace, id string, maxLag time.Duration, s job.State) {
	key := job.Key{Namespace: namespace, ID: id}
	f.records[key] = job.Record{Definition: &job.Definition{
		Key: key, Queue: "q", MaxLag: maxLag, Schedule: schedule.Spec{Kind: schedule.KindInterval, Every: time.Minute},
	}, State: s}
}

func topNames(jobs []job.TopJob) (names []string) {
	for _, j := range jobs {
		text := string(j.Definition.Record())
		if j.Lag > 0 {
			text += fmt.Sprintf(" %v", j.Lag)
		}
		if j.Waiting {
			text += " waiting"
		}
		names = append(names, text)
	}
	return names
}

func TestTheLongestFailingComeFirst(t *testing.T) {
	f, r := newFake(t)
	f.put("a", "three", 0, job.State{Failures: 3})
	f.put("a", "seven", 0, job.State{Failures: 7})
	f.put("b", "five", 0, job.State{Failures: 5})
	f.put("a", "mended", 0, job.State{})
	f.put("a", "going", 0, job.State{Failures: 9, Deleting: true})
	f.worst[job.RankingFailing] = []job.Ranked{
		// Out of date, and in another order than the jobs are by now.
		{Record: "a/mended", Rank: 9000}, {Record: "a/gone", Rank: 9000}, {Record: "a/going", Rank: 9000},
		{Record: "a/three", Rank: 6000}, {Record: "b/five", Rank: 5000}, {Record: "a/seven", Rank: 1000},
	}
	for _, tt := range []struct {
		q    job.TopQuery
		want []string
	}{
		{job.TopQuery{Ranking: job.RankingFailing}, []string{"a/seven", "b/five", "a/three"}},
		{job.TopQuery{Ranking: job.RankingFailing, Limit: 1}, []string{"a/seven"}},
		{job.TopQuery{Ranking: job.RankingFailing, Namespace: "b"}, []string{"b/five"}},
		{job.TopQuery{Ranking: job.RankingFailing, Shards: []int{f.ShardOf(job.Key{Namespace: "b", ID: "five"})}, Namespace: "b"}, []string{"b/five"}},
		{job.TopQuery{Ranking: job.RankingFailing, Shards: []int{}}, nil},
		{job.TopQuery{Ranking: job.RankingLate}, nil},
	} {
		got, err := r.TopJobs(t.Context(), tt.q)
		if err != nil || !slices.Equal(topNames(got.Jobs), tt.want) {
			t.Errorf("%+v: %v (%v), want %v", tt.q, topNames(got.Jobs), err, tt.want)
		}
	}
	for _, record := range []string{"a/mended", "a/gone", "a/going"} {
		if !slices.Contains(f.unranked, record) {
			t.Errorf("%s stays in the index: %v", record, f.unranked)
		}
	}
	if slices.Contains(f.unranked, "a/seven") {
		t.Error("a failing job was taken off the index")
	}
}

func TestTheLatestComeFirst(t *testing.T) {
	f, r := newFake(t)
	due := func(ago time.Duration) job.State {
		at := int64(f.now - unixtime.Milli(ago.Milliseconds()))
		return job.State{Region: job.RegionDue, Nominal: unixtime.Milli(at), Due: unixtime.Milli(at)}
	}
	f.put("a", "waits", 0, due(time.Minute))
	f.put("a", "soon", time.Hour, due(time.Minute)) // within its objective
	f.put("a", "hardly", 0, due(300*time.Millisecond))
	broke := due(-time.Minute)
	broke.LateMS = 20_000
	f.put("a", "broke", time.Second, broke)
	held := job.State{
		Region: job.RegionDue, Nominal: f.now - 90_000, Due: f.now + 1000, Source: job.DelayHeld, LateMS: 80_000,
		Held: job.Hold{Reason: job.HeldLock, Key: "db", DueMS: f.now - 90_000},
	}
	f.put("b", "held", time.Second, held)
	f.worst[job.RankingLate] = []job.Ranked{{Record: "b/held", Rank: 80_000}, {Record: "a/broke", Rank: 20_000}}
	f.overdue = []job.Ranked{
		{Record: "a/waits", Rank: 60_000}, {Record: "a/soon", Rank: 60_000}, {Record: "a/hardly", Rank: 300},
		{Record: "a/broke#r3", Rank: 5000}, {Record: "a/deleted", Rank: 5},
	}
	got, err := r.TopJobs(t.Context(), job.TopQuery{Ranking: job.RankingLate})
	want := []string{"b/held 1m30s waiting", "a/waits 1m0s waiting", "a/broke 5s waiting"}
	if err != nil || !slices.Equal(topNames(got.Jobs), want) {
		t.Errorf("%v (%v), want %v", topNames(got.Jobs), err, want)
	}
	f.overdue = nil
	if got, err = r.TopJobs(t.Context(), job.TopQuery{Ranking: job.RankingLate, Namespace: "a"}); err != nil || !slices.Equal(topNames(got.Jobs), []string{"a/broke 20s"}) {
		t.Errorf("%v (%v)", topNames(got.Jobs), err)
	}
	if len(f.unranked) > 0 {
		t.Errorf("taken off the index: %v", f.unranked)
	}
}

// TestTopReadsFewBytes: a list ends after some megabytes of payloads, whether the caller may see the jobs or not, says
// so, and reads no job twice.
func TestTopReadsFewBytes(t *testing.T) {
	f, r := newFake(t)
	var entries []job.Ranked
	for i := range 200 {
		id := fmt.Sprintf("j%03d", i)
		f.put("a", id, 0, job.State{Failures: uint32(1000 - i)})
		key := job.Key{Namespace: "a", ID: id}
		record := f.records[key]
		record.Definition.Payload = make([]byte, 256<<10)
		if i%2 == 0 {
			record.Definition.Queue = "hidden"
		}
		entries = append(entries, job.Ranked{Record: record.Definition.Record(), Rank: int64(1000 - i)})
	}
	f.worst[job.RankingFailing] = entries
	shown := func(q string) bool { return q != "hidden" }
	got, err := r.TopJobs(t.Context(), job.TopQuery{Ranking: job.RankingFailing, Namespace: "a", Limit: 100, Covers: shown})
	if err != nil || !got.Incomplete || len(got.Jobs) < 8 || len(got.Jobs) > 16 || got.Jobs[0].Definition.ID != "j001" {
		t.Errorf("%d jobs, incomplete %v (%v), want those of 6 MB", len(got.Jobs), got.Incomplete, err)
	}
	if f.got > 32 {
		t.Errorf("%d jobs were read", f.got)
	}
	got, err = r.TopJobs(t.Context(), job.TopQuery{Ranking: job.RankingFailing, Namespace: "a", Limit: 2})
	if err != nil || len(got.Jobs) != 2 || got.Jobs[0].Definition.Payload != nil {
		t.Errorf("%d jobs (%v), want 2 without payloads", len(got.Jobs), err)
	}
	if stored := f.records[job.Key{Namespace: "a", ID: "j000"}]; len(stored.Definition.Payload) == 0 {
		t.Error("the stored job has lost its payload")
	}
}

// TestLettersReadFewBytes: a page of dead letters ends after 2 MiB of definitions that were read, also where no job has
// a dead letter.
func TestLettersReadFewBytes(t *testing.T) {
	f, r := newFake(t)
	for i := range 3000 {
		letter := job.DeadLetter{Record: job.RecordID(fmt.Sprintf("a/j%04d#d0", i)), Queue: "q"}
		f.letters[letter.Record] = letter
	}
	f.letterBytes = 1 << 20
	page, err := r.ListDeadLetters(t.Context(), job.Filter{Namespace: "a", Queue: "none"}, 10, "")
	if err != nil || page.Next == "" || f.letterReads != 2 {
		t.Errorf("a page made %d reads of 1 MiB each (%v), want 2 and a next page", f.letterReads, err)
	}
}

func TestTopRefuses(t *testing.T) {
	f, r := newFake(t)
	for field, q := range map[string]job.TopQuery{
		"limit": {Limit: job.MaxTopJobs + 1}, "kind": {Ranking: job.RankingCount}, "parent": {Namespace: "a b"},
	} {
		_, err := r.TopJobs(t.Context(), q)
		var invalid *job.InvalidError
		if !errors.As(err, &invalid) || len(invalid.Violations) != 1 || invalid.Violations[0].Field != field {
			t.Errorf("%+v: %v", q, err)
		}
	}
	f.err = job.ErrUnavailable
	if _, err := r.TopJobs(t.Context(), job.TopQuery{}); !errors.Is(err, job.ErrUnavailable) {
		t.Errorf("without Redis: %v", err)
	}
}
