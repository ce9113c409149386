package registry_test

import (
	"bytes"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/engine/ledger"
)

// runOnce has a job run by hand, with an output of n bytes, and end as told by a ledger.
func (r *rig) runOnce(t *testing.T, book *ledger.Ledger, key job.Key, id string, n int, permanent bool) {
	t.Helper()
	if _, _, err := r.RunJob(t.Context(), key, job.RequestManualRun{RequestID: id}); err != nil {
		t.Fatal(err)
	}
	leased := r.lease(t, key)
	outcome := job.OutcomeSucceeded
	if permanent {
		outcome = job.OutcomeFailed
	}
	settled := book.SubmitAndWait(t.Context(), job.Change{Record: leased.Record, Input: job.FinishAttempt{
		Token: leased.Known.State.Token, Outcome: outcome, Permanent: permanent, Output: bytes.Repeat([]byte("o"), n), Error: "e",
	}})[0]
	if settled.Err != nil || settled.Answer != job.Applied {
		t.Fatalf("%+v", settled)
	}
}

// stored adds up what the shards hold: all ids and definitions, histories, and the states of records
// that are no jobs.
func (r *rig) stored(t *testing.T) (sum, runs, letters int) {
	t.Helper()
	for shard := range r.store.Shards() {
		base := strings.TrimSuffix(r.store.LockKey(shard), "lock")
		hash := func(name string) map[string]string {
			fields, err := r.admin.HGetAll(t.Context(), base+name).Result()
			if err != nil {
				t.Fatal(err)
			}
			return fields
		}
		for id, text := range hash("def") {
			sum += len(id) + len(text)
		}
		for id, text := range hash("st") {
			if strings.Contains(id, "#") {
				sum += len(text)
				letters++
			}
		}
		for field, text := range hash("hist") {
			sum += len(field) + len(text)
			runs++
		}
	}
	return sum, runs, letters
}

// TestWhatRunsLeaveBehindCounts: histories and dead letters count for the bytes of a namespace, and what
// they take is free when they go.
func TestWhatRunsLeaveBehindCounts(t *testing.T) {
	var limit atomic.Int64
	limit.Store(1 << 20)
	r, _ := newRigs(t)
	limited, q := withByteQuota(t, r, &limit)
	book := ledger.New(ledger.Options{Store: r.store, Observer: quiet{}, Nudger: quiet{}, Full: q.Full})
	t.Cleanup(book.Stop)
	counted := func() int {
		t.Helper()
		if _, err := r.store.Limits().ByteCounts().Census(t.Context(), 0, func(string) bool { return true }); err != nil {
			t.Fatal(err)
		}
		if err := q.Refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
		counts, _, err := r.store.Limits().ByteCounts().Counts(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return counts["default"]
	}
	same := func(what string) int {
		t.Helper()
		n := counted()
		if sum, _, _ := r.stored(t); n != sum {
			t.Errorf("%s: %d bytes are counted, %d are stored", what, n, sum)
		}
		return n
	}
	d := sized("runs", 500)
	d.HistoryLimit = 12
	for _, definition := range []job.Definition{d, sized("other", 500)} {
		if _, err := limited.Create(t.Context(), definition, ""); err != nil {
			t.Fatal(err)
		}
	}
	registered := same("jobs that have not run")
	for i := range 4 {
		r.runOnce(t, book, d.Key, fmt.Sprint("good", i), 1000, false)
	}
	if n := same("with a history"); n < registered+4000 {
		t.Errorf("%d bytes after four runs, %d before", n, registered)
	}
	before := counted()
	for i := range 5 {
		r.runOnce(t, book, d.Key, fmt.Sprint("bad", i), 1000, true)
	}
	_, runs, letters := r.stored(t)
	if letters != job.DeadLettersPerJob || runs != 9+letters {
		t.Fatalf("%d runs and %d letters", runs, letters)
	}
	withLetters := same("with dead letters")
	if withLetters < before+5000+3*1500 {
		t.Errorf("%d bytes with letters, %d before", withLetters, before)
	}
	other := job.Key{Namespace: "default", ID: "other"}
	var gap []any
	for slot := 40; slot < 60; slot++ { // as after its limit was raised
		gap = append(gap, fmt.Sprintf("%s.%d", other.Record(), slot), "a run")
	}
	base := strings.TrimSuffix(r.store.LockKey(r.store.ShardOf(other)), "lock")
	if err := r.admin.HSet(t.Context(), base+"hist", gap...).Err(); err != nil {
		t.Fatal(err)
	}
	same("beyond a gap")

	// Full: what ends is counted by the job, and kept nowhere.
	limit.Store(int64(withLetters) / 2)
	if counted(); !q.Full("default") || q.Full("another") {
		t.Fatal("the namespace is not full")
	}
	_, runs, letters = r.stored(t)
	r.runOnce(t, book, d.Key, "full-good", 1000, false)
	r.runOnce(t, book, d.Key, "full-bad", 1000, true)
	if _, now, lettersNow := r.stored(t); now != runs || lettersNow != letters {
		t.Errorf("%d runs and %d letters, %d and %d before", now, lettersNow, runs, letters)
	}
	record, err := r.Get(t.Context(), d.Key)
	if err != nil || record.State.Succeeded != 5 || record.State.Dead != 6 {
		t.Errorf("%+v, %v", record.State, err)
	}
	if _, err := limited.Create(t.Context(), sized("more", 10), ""); !overBytes(err) {
		t.Errorf("one more job: %v", err)
	}
	if _, err := r.ListRuns(t.Context(), d.Key); err != nil {
		t.Errorf("its runs: %v", err)
	}

	// What goes is free, with all that it left behind.
	if err := limited.Delete(t.Context(), d.Key, ""); err != nil {
		t.Fatal(err)
	}
	same("after the job is deleted")
	if q.Full("default") {
		t.Error("the namespace is still full")
	}
	_, runs, _ = r.stored(t)
	r.runOnce(t, book, other, "again", 1000, false)
	if _, now, _ := r.stored(t); now != runs+1 {
		t.Errorf("%d runs, %d before: with room they are kept", now, runs)
	}
}
