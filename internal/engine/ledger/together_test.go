package ledger

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
)

// manyShards is a store with a shard for each first letter of an id. It notes the calls that were made for several
// shards.
type manyShards struct {
	twoServers
	unknownClock int // a shard whose clock has to be asked for; 0: none
	together     [][]int
}

func (s *manyShards) NowIsKnown(shard int) bool {
	return s.unknownClock == 0 || shard != s.unknownClock
}

func (s *manyShards) Apply(ctx context.Context, shard int, writes []job.Write) job.ApplyReply {
	return s.fakeStore.Apply(ctx, shard, writes)
}

func (s *manyShards) ApplyMany(ctx context.Context, requests []job.ShardWrites, done func(int, job.ApplyReply)) {
	var shards []int
	for _, r := range requests {
		shards = append(shards, r.Shard)
	}
	s.mu.Lock()
	s.together = append(s.together, shards)
	s.mu.Unlock()
	applyEach(ctx, s.Apply, requests, done)
}

func newManyShards() *manyShards {
	return &manyShards{twoServers: twoServers{fakeStore{records: map[job.RecordID]*job.Record{}}}}
}

// knownChange pauses a job whose record the caller knows, as it does of a run that has ended.
func (f *fakeStore) knownChange(id string) job.Change {
	f.records[job.RecordID("ns/"+id)] = record(id)
	return job.Change{Record: job.RecordID("ns/" + id), Known: record(id), Input: job.Pause{Note: id}}
}

// commitAll submits changes and waits for their answers.
func commitAll(t *testing.T, l *Ledger, changes []job.Change) {
	t.Helper()
	commitAllThen(t, l, changes, func(int) {})
}

// commitAllThen is commitAll, and calls then with the index of each change when it is answered.
func commitAllThen(t *testing.T, l *Ledger, changes []job.Change, then func(int)) {
	t.Helper()
	var answered sync.WaitGroup
	answered.Add(len(changes))
	l.SubmitAll(changes, func(answers []job.ChangeSummary) {
		for _, a := range answers {
			if a.Err != nil {
				t.Errorf("change %d: %v", a.Nth, a.Err)
			}
			then(a.Nth)
			answered.Done()
		}
	})
	answered.Wait()
}

func TestSmallBatchesAreCommittedTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, rec := newManyShards(), &recorder{}
		l := New(Options{Store: s, Observer: rec, Nudger: rec})
		commitAll(t, l, []job.Change{s.knownChange("a1"), s.knownChange("b1"), s.knownChange("b2"), s.knownChange("d1")})
		if len(s.together) != 1 || !slices.Equal(s.together[0], []int{0, 1, 3}) || len(s.batches) != 3 {
			t.Errorf("together %v, %d calls", s.together, len(s.batches))
		}
		if len(rec.notices) != 4 || rec.nudges != 3 {
			t.Errorf("%d notices, %d nudges", len(rec.notices), rec.nudges)
		}
		for id, r := range s.records {
			if !r.State.Paused {
				t.Errorf("%s was not changed", id)
			}
		}
		l.Stop()
	})
}

// Batches that are large, or for which something has to be read first, go alone.
func TestOtherBatchesGoAlone(t *testing.T) {
	for name, test := range map[string]func(s *manyShards) []job.Change{
		"large": func(s *manyShards) (changes []job.Change) {
			for i := range smallBatch + 1 {
				changes = append(changes, s.knownChange("c"+string(rune('a'+i))))
			}
			return changes
		},
		"unknown record": func(s *manyShards) []job.Change {
			c := s.knownChange("c")
			c.Known = nil
			return []job.Change{c}
		},
		"unknown clock": func(s *manyShards) []job.Change {
			s.unknownClock = 2
			return []job.Change{s.knownChange("c")}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, rec := newManyShards(), &recorder{}
				l := New(Options{Store: s, Observer: rec, Nudger: rec})
				changes := append([]job.Change{s.knownChange("a"), s.knownChange("b")}, test(s)...)
				commitAll(t, l, append(changes, s.knownChange("d")))
				if len(s.together) != 1 || !slices.Equal(s.together[0], []int{0, 1, 3}) || len(s.batches) != 4 {
					t.Errorf("together %v, %d calls", s.together, len(s.batches))
				}
				l.Stop()
			})
		})
	}
}

// The changes of a job keep their order, and a conflict of one shard is decided again without the others.
func TestOrderIsKeptTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, rec := newManyShards(), &recorder{}
		races := 3
		s.before = func(writes []job.Write) {
			if races > 0 && writes[0].Record == "ns/b" {
				races--
				s.records["ns/b"].State.Revision++
			}
		}
		l := New(Options{Store: s, Observer: rec, Nudger: rec})
		first, second := s.knownChange("a"), s.knownChange("a")
		second.Input = job.Resume{}
		commitAll(t, l, []job.Change{first, s.knownChange("b"), second, s.knownChange("c")})
		if s.records["ns/a"].State.Paused || !s.records["ns/b"].State.Paused || !s.records["ns/c"].State.Paused {
			t.Errorf("stored %+v", s.records)
		}
		if len(rec.notices) != 4 {
			t.Errorf("%d notices", len(rec.notices))
		}
		l.Stop()
	})
}

// Of shards that are committed together one has no answer. The others take further changes at once.
func TestAMissingAnswerHoldsUpNoOtherShard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &twoServers{fakeStore{records: map[job.RecordID]*job.Record{}}}
		rec := &recorder{}
		l := New(Options{Store: s, Observer: rec, Nudger: rec, Committers: 1})
		started := time.Now()
		var answered sync.WaitGroup
		submit := func(ids ...string) {
			var changes []job.Change
			for _, id := range ids {
				changes = append(changes, s.knownChange(id))
			}
			answered.Add(len(ids))
			l.SubmitAll(changes, func(answers []job.ChangeSummary) {
				for _, a := range answers {
					switch took := time.Since(started); {
					case ids[a.Nth] == "a" && !errors.Is(a.Err, job.ErrUnavailable):
						t.Errorf("the shard without an answer: %v", a.Err)
					case ids[a.Nth] != "a" && (a.Err != nil || took > 2*slowBatch):
						t.Errorf("%s: %v after %v", ids[a.Nth], a.Err, took)
					}
					answered.Done()
				}
			})
		}
		submit("a", "b", "d")
		synctest.Wait()
		submit("b2", "d2")
		answered.Wait()
		l.Stop()
	})
}

// A change that needs another round when its slow batch returns is committed, although the ledger was stopped
// meanwhile.
func TestStopCommitsWhatSlowBatchesLeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, store, _ := setup(t, Options{}, "a")
		store.delay = 3 * slowBatch
		raced := false
		store.before = func([]job.Write) {
			if !raced {
				raced = true
				store.records["ns/a"].State.Revision++
			}
		}
		answer := make(chan job.ChangeResult, 1)
		l.Submit(job.Change{Record: "ns/a", Input: job.Pause{}}, func(r job.ChangeResult) { answer <- r })
		synctest.Wait()
		l.Stop()
		select {
		case r := <-answer:
			if r.Err != nil || !store.records["ns/a"].State.Paused {
				t.Errorf("%+v", r)
			}
		default:
			t.Error("Stop returned before the change was answered")
		}
	})
}

// longChange is knownChange for a job with an exclusion, whose decision takes so long.
func (f *fakeStore) longChange(id string, takes time.Duration) job.Change {
	c := f.knownChange(id)
	d := *c.Known.Definition
	d.Schedule.Exclude.Dates = []string{"12-25"}
	f.records[c.Record].Definition, c.Known.Definition = &d, &d
	c.Begin = func() bool { time.Sleep(takes); return true }
	return c
}

// TestDecisionsOfShardsTogetherAreShort checks that no shard waits until the long decisions of all others are made: what
// is decided together is decided for a short time, and changes that are decided at once do not go with long ones.
func TestDecisionsOfShardsTogetherAreShort(t *testing.T) {
	for name, long := range map[string]bool{"plain": false, "with exclusions": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, rec := newManyShards(), &recorder{}
				l := New(Options{Store: s, Observer: rec, Nudger: rec})
				const takes = 30 * time.Millisecond
				var changes []job.Change
				for _, shard := range "abcdefghijklmno" {
					for i := range smallBatch {
						changes = append(changes, s.longChange(fmt.Sprint(string(shard), i), takes))
					}
				}
				other, bound := s.knownChange("p"), time.Duration(0)
				if long {
					// It waits for the decisions that were made together, and for a committer.
					other, bound = s.longChange("p", 0), maxTogetherTime+takes+slowBatch
				}
				started := time.Now()
				var took time.Duration
				commitAllThen(t, l, append(changes, other), func(nth int) {
					if nth == len(changes) {
						took = time.Since(started)
					}
				})
				if took > bound {
					t.Errorf("a change alone in its shard took %v, want %v at most", took, bound)
				}
				for id, r := range s.records {
					if !r.State.Paused {
						t.Errorf("%s was not changed", id)
					}
				}
				l.Stop()
			})
		})
	}
}

// TestChangesThatExpireBlameTheNode checks that changes which expire while others are decided, or they themselves, are
// not written, and that Redis is not blamed for it.
func TestChangesThatExpireBlameTheNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, rec := newManyShards(), &recorder{}
		l := New(Options{Store: s, Observer: rec, Nudger: rec, Timeout: 300 * time.Millisecond})
		changes := []job.Change{s.longChange("a1", 200*time.Millisecond), s.longChange("a2", 200*time.Millisecond),
			s.longChange("a3", 0)}
		var answered sync.WaitGroup
		answered.Add(len(changes))
		l.SubmitAll(changes, func(answers []job.ChangeSummary) { // at once, so that they are in one batch
			for _, a := range answers {
				if record := changes[a.Nth].Record; !errors.Is(a.Err, job.ErrNodeBusy) || s.records[record].State.Paused {
					t.Errorf("%s: %v", record, a.Err)
				}
				answered.Done()
			}
		})
		answered.Wait()
		l.Stop()
	})
}
