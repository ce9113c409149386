package ledger

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/schedule"
)

func TestUnconfirmedChangesAreReported(t *testing.T) {
	l, store, rec := setup(t, Options{}, "a")
	store.unconfirmed = true
	r := l.SubmitAndWait(t.Context(), job.Change{Record: "ns/a", Input: job.Pause{Note: "n"}})[0]
	if !errors.Is(r.Err, job.ErrDurability) {
		t.Fatalf("%+v", r)
	}
	if len(rec.notices) != 1 || rec.nudges != 1 {
		t.Errorf("a stored change was told %d times, nudged %d times", len(rec.notices), rec.nudges)
	}
	// Asking again finds it done, which is no confirmation.
	if r := l.SubmitAndWait(t.Context(), job.Change{Record: "ns/a", Input: job.Pause{Note: "n"}})[0]; !errors.Is(r.Err, job.ErrDurability) {
		t.Errorf("%+v", r)
	}
	store.mu.Lock()
	store.unconfirmed = false
	store.mu.Unlock()
	if r := l.SubmitAndWait(t.Context(), job.Change{Record: "ns/a", Input: job.Pause{Note: "n"}})[0]; r.Err != nil {
		t.Errorf("%+v", r)
	}
}

var errType = errors.New("WRONGTYPE operation against a key holding the wrong kind of value")

// One change that the store cannot take must not hold up those beside it.
func TestAPoisonedChangeFailsAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ids := []string{"a", "b", "poison", "c"}
		l, store, _ := setup(t, Options{}, append(ids, "first")...)
		store.delay = time.Millisecond
		store.refuse = func(w job.Write) error {
			if w.Record == "ns/poison" {
				return errType
			}
			return nil
		}
		var wg sync.WaitGroup
		errs := map[string]error{}
		submit := func(id string) {
			wg.Add(1)
			l.Submit(job.Change{Record: job.RecordID("ns/" + id), Input: job.Pause{}}, func(r job.ChangeResult) {
				errs[id] = r.Err
				wg.Done()
			})
		}
		submit("first")
		synctest.Wait() // on its way: what follows makes one batch
		for _, id := range ids {
			submit(id)
		}
		wg.Wait()
		for id, err := range errs {
			if want := id == "poison"; want != errors.Is(err, errType) || !want && err != nil {
				t.Errorf("%s: %v", id, err)
			}
		}
		l.Stop()
	})
}

// twoServers is a store whose even shards are on a server that does not answer.
type twoServers struct{ fakeStore }

func (s *twoServers) Shards() int { return 16 }

func (s *twoServers) ShardOf(k job.Key) int { return int(k.ID[0] - 'a') }

func (s *twoServers) Apply(ctx context.Context, shard int, writes []job.Write) job.ApplyReply {
	if shard%2 == 0 {
		<-ctx.Done()
		return job.ApplyReply{Err: fmt.Errorf("%w: %w", job.ErrUnavailable, ctx.Err())}
	}
	return s.fakeStore.Apply(ctx, shard, writes)
}

func (s *twoServers) ApplyMany(ctx context.Context, requests []job.ShardWrites, done func(int, job.ApplyReply)) {
	applyEach(ctx, s.Apply, requests, done)
}

func TestAServerThatIsAwayDoesNotHoldUpOtherShards(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &twoServers{fakeStore{records: map[job.RecordID]*job.Record{}}}
		rec := &recorder{}
		l := New(Options{Store: store, Observer: rec, Nudger: rec, Committers: 2})
		var wg sync.WaitGroup
		for shard := range 16 {
			id := string(rune('a' + shard))
			store.records[job.RecordID("ns/"+id)] = record(id)
		}
		started := time.Now()
		for _, odd := range []int{0, 1} { // the dead server's shards first
			for shard := odd; shard < 16; shard += 2 {
				wg.Add(1)
				l.Submit(job.Change{Record: job.RecordID("ns/" + string(rune('a'+shard))), Input: job.Pause{}}, func(r job.ChangeResult) {
					took := time.Since(started)
					if odd == 1 && (r.Err != nil || took > time.Second) {
						t.Errorf("shard %d: %v after %v", shard, r.Err, took)
					}
					if odd == 0 && !errors.Is(r.Err, job.ErrUnavailable) {
						t.Errorf("shard %d: %v", shard, r.Err)
					}
					wg.Done()
				})
			}
		}
		wg.Wait()
		l.Stop()
	})
}

func TestARecordThatCannotBeUsedIsPutAsideAndMended(t *testing.T) {
	l, store, rec := setup(t, Options{}, "a")
	r := store.records["ns/a"]
	r.State = r.State.Leased(7)
	r.Definition = edited(r.Definition)
	r.Definition.Schedule = schedule.Spec{Kind: schedule.KindCron, Cron: []string{"* * * * *"}, TimeZone: "Mars/Olympus"}

	settle := job.Change{Record: "ns/a", Input: job.FinishAttempt{Token: 7, Outcome: job.OutcomeSucceeded}}
	if got := l.SubmitAndWait(t.Context(), settle)[0]; !errors.Is(got.Err, job.ErrCorrupt) {
		t.Errorf("%+v", got)
	}
	if s := store.records["ns/a"].State; s.Region != job.RegionDead || s.LastError == "" || len(rec.notices) != 1 {
		t.Errorf("not put aside: %+v, notices %+v", s, rec.notices)
	}
	if got := l.SubmitAndWait(t.Context(), job.Change{Record: "ns/a", Input: job.RequestManualRun{RequestID: "m"}})[0]; !errors.Is(got.Err, job.ErrCorrupt) {
		t.Errorf("%+v", got)
	}
	good, err := job.Compile(record("a").Definition)
	if err != nil {
		t.Fatal(err)
	}
	if got := l.SubmitAndWait(t.Context(), job.Change{Record: "ns/a", Input: job.Update{New: good}})[0]; got.Err != nil || got.Record.State.Region != job.RegionDue {
		t.Errorf("%+v", got)
	}
}
