package forecast

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fermata-io/fermata/internal/core/forecast"
	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/schedule"
	"github.com/fermata-io/fermata/internal/core/unixtime"
)

// fakeStore has jobs that run every hour, as if each shard had so many pages of ten.
type fakeStore struct {
	mu       sync.Mutex
	pages    int
	takes    time.Duration // a page of definitions, and one of the due index
	fails    bool
	busy     time.Duration
	walked   int
	duePages int
}

func (s *fakeStore) work() error {
	time.Sleep(s.takes)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.busy += s.takes
	if s.fails {
		return errors.New("no answer")
	}
	return nil
}

// walks returns how many pages of definitions were read.
func (s *fakeStore) walks() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.walked
}

func (s *fakeStore) WalkShard(_ context.Context, shard int, at string) (jobs []job.Record, next string, err error) {
	if err := s.work(); err != nil {
		return nil, "", err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.walked++
	page, _ := strconv.Atoi(at)
	now := time.Now()
	for i := range 10 {
		d := &job.Definition{Key: job.Key{Namespace: "ns", ID: fmt.Sprintf("%d-%d-%d", shard, page, i)}, Queue: "q",
			Schedule: schedule.Spec{Kind: schedule.KindCron, Cron: []string{"0 * * * *"}}}
		state := job.State{Nominal: unixtime.MilliOf(now.Truncate(time.Hour).Add(time.Hour))}
		state.Due = state.Nominal
		jobs = append(jobs, job.Record{Definition: d, State: state})
	}
	if page+1 < s.pages {
		next = strconv.Itoa(page + 1)
	}
	return jobs, next, nil
}

func (s *fakeStore) LanePages(_ context.Context, from map[int]job.LaneCursor) (map[int]job.LanePage, error) {
	pages := map[int]job.LanePage{}
	for shard := range from {
		pages[shard] = job.LanePage{Heads: []job.LaneHead{{Lane: job.Lane{Namespace: "ns", Queue: "q"}, DueMS: 1},
			{Lane: job.Lane{Namespace: "ns", Queue: "far"}, DueMS: job.NeverMS}}}
	}
	return pages, nil
}

func (s *fakeStore) DuePages(ctx context.Context, reads []job.DueRead, _ unixtime.Milli) ([]job.DuePage, error) {
	if err := cmp.Or(s.work(), ctx.Err()); err != nil {
		return nil, err
	}
	pages := make([]job.DuePage, len(reads))
	at := unixtime.MilliOf(time.Now().Truncate(time.Hour).Add(time.Hour))
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, r := range reads {
		if r.Lane.Queue != "q" {
			return nil, fmt.Errorf("lane %v has nothing within reach", r.Lane)
		}
		s.duePages++
		page, next := r.Ties, r
		next.Ties++
		pages[i] = job.DuePage{DueMS: slices.Repeat([]unixtime.Milli{at}, 10), Next: next, More: page+1 < s.pages}
	}
	return pages, nil
}

// startForecaster runs a forecaster until the end of the test.
func startForecaster(t *testing.T, store Store, change func(*Options)) *Forecaster {
	t.Helper()
	o := Options{Store: store, Shards: 4, Held: func() []int { return []int{0, 1, 2, 3} }}
	if change != nil {
		change(&o)
	}
	f, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); _ = f.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-ended })
	return f
}

func query() forecast.Query {
	now := time.Now()
	return forecast.Query{NowMS: unixtime.MilliOf(now), StartMS: unixtime.MilliOf(now.Truncate(time.Minute)),
		ResolutionMS: time.Minute.Milliseconds(),
		Buckets:      24 * 60, HerdJobs: 10}
}

func ask(t *testing.T, f *Forecaster) forecast.Answer {
	t.Helper()
	a, err := f.Query(t.Context(), query())
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func sums(a forecast.Answer) (planned, computed int64) {
	for _, s := range a.Queues {
		for i := range s.Planned {
			planned, computed = planned+s.Planned[i], computed+s.Computed[i]
		}
	}
	return planned, computed
}

func TestQueryReadsWhatIsNotFresh(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &fakeStore{pages: 3, takes: time.Millisecond}
		var held atomic.Int64
		held.Store(4)
		f := startForecaster(t, store, func(o *Options) { o.Held = func() []int { return []int{0, 1, 2, 3}[:held.Load()] } })
		answer := ask(t, f)
		if planned, computed := sums(answer); planned != 120 || computed != 120*22 || len(answer.Shards) != 4 {
			t.Errorf("%d planned, %d computed, shards %v", planned, computed, answer.Shards)
		}
		if len(answer.Herds) != 1 || answer.Herds[0].Jobs != 120 {
			t.Errorf("herds %+v", answer.Herds)
		}
		walked := store.walks()
		ask(t, f)
		if store.walks() != walked {
			t.Error("what is fresh was read again")
		}
		held.Store(2)
		if planned, _ := sums(ask(t, f)); planned != 60 {
			t.Errorf("%d planned of two shards, want 60", planned)
		}
		time.Sleep(2 * fresh)
		if planned, _ := sums(ask(t, f)); planned != 60 || store.walks() != walked+6 {
			t.Errorf("%d planned, %d pages were read", planned, store.walks()-walked)
		}
	})
}

func TestFailedReadsLeaveTheLastOnes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &fakeStore{pages: 3, takes: time.Millisecond, fails: true}
		f := startForecaster(t, store, nil)
		if answer := ask(t, f); len(answer.Shards) != 0 || len(answer.Queues) != 0 {
			t.Errorf("without reads: %+v", answer)
		}
		store.mu.Lock()
		store.fails = false
		store.mu.Unlock()
		before := ask(t, f)
		store.mu.Lock()
		store.fails = true
		store.mu.Unlock()
		time.Sleep(time.Minute)
		answer := ask(t, f)
		if planned, _ := sums(answer); planned != 120 || answer.Shards[0] != before.Shards[0] {
			t.Errorf("%d planned, read at %v and %v", planned, before.Shards, answer.Shards)
		}
	})
}

// TestReadsTakeAShareOfACore: with a million jobs, queries all the time, and three nodes at one Redis.
func TestReadsTakeAShareOfACore(t *testing.T) {
	for _, nodes := range []int{1, 3} {
		t.Run(fmt.Sprint(nodes, " nodes"), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := &fakeStore{pages: 400, takes: 10 * time.Millisecond}
				f := startForecaster(t, store, func(o *Options) { o.Nodes = func() int { return nodes } })
				const passes = 3 * time.Hour
				for range passes / time.Minute {
					ask(t, f)
					time.Sleep(time.Minute)
				}
				// Each allowance begins with what it saves up, and one round of the due index may exceed it.
				round := 400 * 10 * time.Millisecond
				most := passes/100/time.Duration(nodes) + 2*savedTime + round
				store.mu.Lock()
				busy := store.busy
				store.mu.Unlock()
				if busy > most || busy < passes/200/time.Duration(nodes) {
					t.Errorf("reads took %v of %v, at most %v", busy, passes, most)
				}
				if answer := ask(t, f); len(answer.Shards) != 4 {
					t.Errorf("only shards %v were read", answer.Shards)
				}
			})
		})
	}
}

// TestReadsThatNobodyAsksForTakeLess: before the first query, and an hour after the last one, definitions are read at
// the lower share; in between, at the higher one.
func TestReadsThatNobodyAsksForTakeLess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &fakeStore{pages: 4000, takes: 10 * time.Millisecond}
		f := startForecaster(t, store, nil)
		readFor := func(d time.Duration) time.Duration {
			before := store.walks()
			time.Sleep(d)
			return time.Duration(store.walks()-before) * store.takes
		}
		within := func(when string, read time.Duration, share float64) {
			t.Helper()
			want := time.Duration(share * float64(time.Hour))
			if read < want*9/10 || read > want*11/10 {
				t.Errorf("%s, reads took %v of an hour, want %v", when, read, want)
			}
		}
		readFor(time.Minute) // what was saved up
		within("before the first query", readFor(time.Hour), unaskedShare)
		ask(t, f)
		within("after a query", readFor(time.Hour), definitionsShare)
		within("an hour after it", readFor(time.Hour), unaskedShare)
	})
}

func TestQueriesDoNotWaitForLongReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &fakeStore{pages: 5000, takes: 10 * time.Millisecond}
		f := startForecaster(t, store, nil)
		ask(t, f)
		for range 10 {
			began := time.Now()
			ask(t, f)
			if took := time.Since(began); took > queryWait {
				t.Errorf("a query took %v", took)
			}
			time.Sleep(10 * time.Second)
		}
	})
}

// TestEqualQueriesShareAnAnswer: callers who ask the same within a second get one answer, and one who goes does not end
// the work for the others.
func TestEqualQueriesShareAnAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &fakeStore{pages: 3, takes: time.Millisecond}
		f := startForecaster(t, store, nil)
		gone, cancel := context.WithCancel(t.Context())
		q := query()
		loads := make([]*forecast.Load, 10)
		var callers sync.WaitGroup
		callers.Go(func() {
			if _, err := f.Query(gone, q); !errors.Is(err, context.Canceled) {
				t.Errorf("a caller who has gone: %v", err)
			}
		})
		time.Sleep(time.Microsecond)
		for i := range loads {
			callers.Go(func() {
				a, err := f.Query(t.Context(), q)
				if err != nil {
					t.Error(err)
				}
				loads[i] = a.Load
			})
		}
		time.Sleep(time.Microsecond)
		cancel()
		callers.Wait()
		other := q
		other.Queue = "other"
		if a, err := f.Query(t.Context(), other); err != nil || a.Load == loads[0] {
			t.Errorf("another query got the same answer: %v", err)
		}
		for _, l := range loads {
			if l == nil || l != loads[0] {
				t.Error("equal queries did not share an answer")
			}
		}
		time.Sleep(answerAge + time.Millisecond)
		if a, err := f.Query(t.Context(), q); err != nil || a.Load == loads[0] {
			t.Errorf("an old answer is served: %v", err)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		f.answersMu.Lock()
		defer f.answersMu.Unlock()
		if len(f.answers) != 0 {
			t.Errorf("%d answers are kept", len(f.answers))
		}
	})
}

// TestWorkForNobodyEnds: when all callers of an answer have gone, it is not made.
func TestWorkForNobodyEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &fakeStore{pages: 3, takes: time.Millisecond}
		f := startForecaster(t, store, nil)
		f.building <- struct{}{} // another answer takes its time
		for range 50 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			if _, err := f.Query(ctx, query()); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%v, want the deadline of the caller", err)
			}
			cancel()
		}
		synctest.Wait()
		f.answersMu.Lock()
		left := len(f.answers)
		f.answersMu.Unlock()
		if left != 0 {
			t.Errorf("work for %d answers goes on", left)
		}
		<-f.building
		ask(t, f)
	})
}

// TestLongDueRoundsComeToTheirEnd: a due index that takes longer to read than a query waits is complete after some
// queries.
func TestLongDueRoundsComeToTheirEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shards := make([]int, 64)
		for i := range shards {
			shards[i] = i
		}
		store := &fakeStore{pages: 1, takes: time.Millisecond}
		f := startForecaster(t, store, func(o *Options) {
			o.Shards, o.Held = len(shards), func() []int { return shards }
		})
		f.refreshDefinitions(t.Context())
		store.mu.Lock()
		store.takes = 3 * time.Second // for 32 pages at once, of 64
		store.mu.Unlock()
		answer := forecast.Answer{}
		for range 40 {
			answer = ask(t, f)
			time.Sleep(time.Hour)
		}
		if len(answer.Shards) != len(shards) {
			t.Errorf("%d of %d shards are in the forecast", len(answer.Shards), len(shards))
		}
	})
}
