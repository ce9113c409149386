package events

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/unixtime"
	"github.com/fermata-io/fermata/internal/lib/fairshare"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// memory is a store of three shards.
type memory struct {
	mu      sync.Mutex
	off     bool
	streams [3][]job.Event
	trimmed [3]int
	reads   int
	flushes int
	news    []job.Event
	calm    bool // nothing is in line; else there is always something
	away    [3]bool
	takes   time.Duration // of each read
	// meanwhile is done while the last places are read, once.
	meanwhile func()
}

func (m *memory) Shards() int         { return len(m.streams) }
func (m *memory) RecordsEvents() bool { return !m.off }

// happen appends an event of a job at an instant.
func (m *memory) happen(shard int, ms unixtime.Milli, kind, id string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	seq := uint64(len(m.streams[shard]) + 1)
	m.streams[shard] = append(m.streams[shard], job.Event{
		Shard: shard, Place: job.Place{MS: ms, Seq: seq}, Kind: kind, AtMS: ms, Key: job.Key{Namespace: "ns", ID: id},
	})
}

// setAway has the server of a shard go away, or come back.
func (m *memory) setAway(shard int, away bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.away[shard] = away
}

// opTimeout is what a read takes that asks for a shard that is away.
const opTimeout = 5 * time.Second

// awayLocked is the error of a read of these shards.
func (m *memory) awayLocked(shards ...int) error {
	if !slices.ContainsFunc(shards, func(shard int) bool { return m.away[shard] }) {
		return nil
	}
	m.mu.Unlock()
	time.Sleep(opTimeout)
	m.mu.Lock()
	return job.ErrUnavailable
}

func (m *memory) Events(_ context.Context, asks []job.EventsRequest) ([]job.EventsPage, error) {
	time.Sleep(m.takes)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.reads++
	shards := make([]int, len(asks))
	for i, a := range asks {
		shards[i] = a.Shard
	}
	err := m.awayLocked(shards...)
	pages := make([]job.EventsPage, len(asks))
	for i, a := range asks {
		if err != nil && m.away[a.Shard] {
			pages[i].Err = err
			continue
		}
		for _, h := range m.streams[a.Shard][m.trimmed[a.Shard]:] {
			if !a.After.Before(h.Place) || pages[i].Read == a.Limit {
				continue
			}
			if pages[i].Read == 0 && a.After.Exact() {
				pages[i].Gap = h.Place.Seq != a.After.Seq+1
			}
			pages[i].Read, pages[i].Last = pages[i].Read+1, h.Place
			pages[i].More = pages[i].Read == a.Limit
			if a.Filter == nil || a.Filter.Matches(&h) {
				pages[i].Events = append(pages[i].Events, h)
			}
		}
	}
	return pages, err
}

func (m *memory) LastEvents(context.Context) ([]job.Place, error) {
	if m.meanwhile != nil {
		m.meanwhile()
		m.meanwhile = nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.reads++
	err := m.awayLocked(0, 1, 2)
	places := make([]job.Place, len(m.streams))
	for i, s := range m.streams {
		switch {
		case err != nil && m.away[i]:
			places[i] = job.PlaceBefore(0)
		case len(s) > 0:
			places[i] = s[len(s)-1].Place
		}
	}
	return places, err
}

func (m *memory) Announce(h ...job.Event) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.news = append(m.news, h...)
}

func (m *memory) AnnouncedSignal() <-chan struct{} {
	always := make(chan struct{})
	if m.calm {
		return always
	}
	close(always)
	return always
}

func (m *memory) FlushEvents(context.Context) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.flushes++
	return m.awayLocked(0, 1, 2)
}

func (m *memory) readsSoFar() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.reads
}

// feed runs one until the test ends, in the bubble of the test.
func feed(t *testing.T, m *memory, watchers int) (*Feed, func()) {
	t.Helper()
	f, err := New(Options{Store: m, MaxWatchers: watchers})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = f.Run(ctx)
	}()
	return f, func() { cancel(); <-done }
}

// watcher collects the events that it is sent.
type watcher struct {
	told  []string // kind and job
	token string
	marks atomic.Int64
	err   error
	stop  func()
	done  chan struct{}
}

func (w *watcher) take(b job.EventBatch) error {
	for _, h := range b.Events {
		w.told = append(w.told, h.Kind+" "+h.Key.ID)
	}
	w.token = b.Token
	if len(b.Events) == 0 {
		w.marks.Add(1)
	}
	return nil
}

// follow watches in the background until stop.
func follow(f *Feed, q job.EventQuery) *watcher {
	w := &watcher{done: make(chan struct{})}
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		defer close(w.done)
		w.err = f.Watch(ctx, q, w.take)
	}()
	w.stop = func() { cancel(); <-w.done }
	return w
}

func wantTold(t *testing.T, what string, w *watcher, want ...string) {
	t.Helper()
	if !slices.Equal(w.told, want) {
		t.Errorf("%s: %v, want %v", what, w.told, want)
	}
}

// TestNothingIsReadWithoutWatchers, and with watchers one look serves all of them.
func TestNothingIsReadWithoutWatchers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &memory{}
		f, stop := feed(t, m, 0)
		defer stop()
		m.happen(0, 1, job.KindRunDead, "a")
		time.Sleep(time.Minute)
		if n := m.readsSoFar(); n != 0 {
			t.Errorf("%d reads for nobody", n)
		}
		var all []*watcher
		for range 20 {
			all = append(all, follow(f, job.EventQuery{}))
		}
		time.Sleep(time.Second)
		before := m.readsSoFar()
		for i := range 10 {
			m.happen(i%3, unixtime.Milli(i+10), job.KindRunDead, fmt.Sprint(i))
			time.Sleep(DefaultPoll)
		}
		time.Sleep(time.Second)
		if n := m.readsSoFar() - before; n > 20 {
			t.Errorf("%d reads in three seconds for twenty watchers", n)
		}
		for _, w := range all {
			w.stop()
			if len(w.told) != 10 || !errors.Is(w.err, context.Canceled) {
				t.Errorf("told %v, %v", w.told, w.err)
			}
		}
		time.Sleep(time.Second)
		before = m.readsSoFar()
		time.Sleep(time.Minute)
		if n := m.readsSoFar() - before; n != 0 {
			t.Errorf("%d reads after the last one has gone", n)
		}
	})
}

// TestPlacesAreDroppedWithTheLastUser: who leaves while the feed begins to look does not leave
// it with places that the next user would begin at, whenever that is.
func TestPlacesAreDroppedWithTheLastUser(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &memory{}
		m.happen(0, 1000, job.KindRunDead, "a")
		asked := make(chan func(), 1)
		m.meanwhile = func() { (<-asked)() }
		f, stop := feed(t, m, 0)
		defer stop()
		asked <- f.Acquire()
		time.Sleep(time.Second)
		synctest.Wait()
		if m.readsSoFar() != 1 {
			t.Fatalf("%d reads", m.readsSoFar())
		}
		if last, _ := f.LastPlaces(); last != nil {
			t.Errorf("for nobody the feed knows %v", last)
		}
	})
}

// TestOrderAndResume: a watcher that is far behind receives events in the order of the clocks over all shards,
// however long their streams; a resumed watch continues after its token.
func TestOrderAndResume(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &memory{}
		for i := range 1000 { // shard 0 has most of them, and pages of the others reach further
			m.happen([]int{0, 0, 0, 0, 1, 0, 0, 0, 0, 2}[i%10], unixtime.Milli(i+1), job.KindRunDead, fmt.Sprint(i))
		}
		f, stop := feed(t, m, 0)
		defer stop()
		w := &watcher{}
		if err := f.Watch(t.Context(), job.EventQuery{FromMS: 101, StopAtEnd: true}, w.take); err != nil {
			t.Fatal(err)
		}
		var want []string
		for i := 100; i < 1000; i++ {
			want = append(want, fmt.Sprintf("run.dead %d", i))
		}
		wantTold(t, "from an instant to now", w, want...)
		m.happen(1, 2000, job.KindRunSucceeded, "x")
		m.happen(2, 2000, job.KindRunDead, "y")
		next := follow(f, job.EventQuery{Token: w.token, Filter: job.EventFilter{Kinds: []string{"run.*"}, Jobs: []string{"y", "z"}}})
		time.Sleep(time.Second)
		m.happen(0, 3000, job.KindRunDead, "z")
		m.happen(0, 3000, job.KindJobPaused, "z")
		time.Sleep(time.Second)
		next.stop()
		wantTold(t, "after the token", next, "run.dead y", "run.dead z")
	})
}

// TestAWatcherWithoutEventsReceivesTokens: its token does not grow old.
func TestAWatcherWithoutEventsReceivesTokens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &memory{}
		f, stop := feed(t, m, 0)
		defer stop()
		w := follow(f, job.EventQuery{Filter: job.EventFilter{Jobs: []string{"other"}}})
		time.Sleep(time.Second)
		synctest.Wait()
		first := w.token
		m.happen(0, 5, job.KindRunDead, "a")
		time.Sleep(2 * tokenPeriod)
		w.stop()
		places, ok := job.DecodePlaces(w.token)
		if first == "" || w.token == first || !ok || places[0].Seq != 1 || len(w.told) != 0 {
			t.Errorf("token %q after %q: %v", w.token, first, places)
		}
	})
}

// TestSlowWatcherEndsWithEventsGone: the next entries were trimmed, or lost by Redis. A watcher that does not
// read delays no other, and ends in the same way.
func TestSlowWatcherEndsWithEventsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &memory{}
		for i := range 10 {
			m.happen(0, unixtime.Milli(i+1), job.KindRunDead, "a")
		}
		f, stop := feed(t, m, 0)
		defer stop()
		m.trimmed[0] = 5
		for _, place := range []job.Place{{}, {MS: 3, Seq: 3}, {MS: 100, Seq: 100}} {
			w := &watcher{}
			err := f.Watch(t.Context(), job.EventQuery{Token: job.EncodePlaces([]job.Place{place, {}, {}})}, w.take)
			if !errors.Is(err, job.ErrEventsGone) || len(w.told) != 0 {
				t.Errorf("after %v: %v, %v", place, err, w.told)
			}
		}
		reading, asleep := make(chan struct{}), make(chan error, 1)
		go func() {
			first := true
			asleep <- f.Watch(context.Background(), job.EventQuery{Token: job.EncodePlaces([]job.Place{{MS: 5, Seq: 5}, {}, {}})}, func(job.EventBatch) error {
				if first {
					first = false
					<-reading
				}
				return nil
			})
		}()
		for i := range 1000 {
			m.happen(0, unixtime.Milli(i+20), job.KindRunDead, "a")
		}
		m.mu.Lock()
		m.trimmed[0] = 900
		m.mu.Unlock()
		awake := follow(f, job.EventQuery{})
		time.Sleep(time.Second)
		m.happen(0, 5000, job.KindRunDead, "b")
		time.Sleep(time.Second)
		awake.stop()
		wantTold(t, "beside one who does not read", awake, "run.dead b")
		close(reading)
		if err := <-asleep; !errors.Is(err, job.ErrEventsGone) {
			t.Errorf("%v", err)
		}
	})
}

// TestAWatchToNowSendsAllEvents: also what the feed has not looked at yet, beside what it
// has at hand.
func TestAWatchToNowSendsAllEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &memory{}
		f, stop := feed(t, m, 0)
		defer stop()
		there := follow(f, job.EventQuery{})
		time.Sleep(time.Second)
		synctest.Wait()
		begin := there.token
		m.happen(0, 1, job.KindRunDead, "a")
		time.Sleep(time.Second)
		synctest.Wait()
		m.happen(0, 2, job.KindRunDead, "b")
		m.happen(1, 3, job.KindRunDead, "c")
		for token, want := range map[string][]string{there.token: {"run.dead b", "run.dead c"}, begin: {"run.dead a", "run.dead b", "run.dead c"}} {
			w := &watcher{}
			if err := f.Watch(t.Context(), job.EventQuery{Token: token, StopAtEnd: true}, w.take); err != nil {
				t.Error(err)
			}
			wantTold(t, "to now", w, want...)
		}
		there.stop()
	})
}

// TestTheFirstTokenOfAnInstantKnowsWhatFollows: what is trimmed behind it is missed, as it is
// behind any other. A token that knows an instant only is good as long as nothing after
// that can be missing.
func TestTheFirstTokenOfAnInstantKnowsWhatFollows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &memory{}
		for i := range 10 {
			m.happen(0, unixtime.Milli(i+1), job.KindRunDead, fmt.Sprint(i+1))
		}
		f, stop := feed(t, m, 0)
		defer stop()
		begun := errors.New("begun")
		token := func(q job.EventQuery) (token string) {
			err := f.Watch(t.Context(), q, func(b job.EventBatch) error {
				token = b.Token
				return begun
			})
			if !errors.Is(err, begun) {
				t.Fatal(err)
			}
			return token
		}
		first, tenth := token(job.EventQuery{FromMS: 1}), token(job.EventQuery{FromMS: 10})
		vague := func(ms unixtime.Milli) string { return job.EncodePlaces([]job.Place{job.PlaceBefore(ms), {}, {}}) }
		for _, c := range []struct {
			trimmed int
			token   string
			gone    bool
			told    int
		}{
			{0, first, false, 10}, {0, vague(3), false, 8}, {0, vague(20), false, 0},
			{5, first, true, 0}, {5, tenth, false, 1}, {5, vague(3), true, 0}, {5, vague(8), false, 3},
		} {
			m.mu.Lock()
			m.trimmed[0] = c.trimmed
			m.mu.Unlock()
			w := &watcher{}
			err := f.Watch(t.Context(), job.EventQuery{Token: c.token, StopAtEnd: true}, w.take)
			if errors.Is(err, job.ErrEventsGone) != c.gone || !c.gone && err != nil || len(w.told) != c.told {
				t.Errorf("%+v: told %v, %v", c, w.told, err)
			}
		}
	})
}

// TestTrimmedBeforeTheFirstRead: a watch from an instant receives the events of a shard that are kept, also if
// its oldest ones are trimmed while the watch begins; later gaps end the watch.
func TestTrimmedBeforeTheFirstRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &memory{}
		for i := range 10 {
			m.happen(0, unixtime.Milli(i+1), job.KindRunDead, fmt.Sprint(i+1))
		}
		f, stop := feed(t, m, 0)
		defer stop()
		w, first := &watcher{}, true
		err := f.Watch(t.Context(), job.EventQuery{FromMS: 1, StopAtEnd: true}, func(b job.EventBatch) error {
			if first {
				first = false
				m.mu.Lock()
				m.trimmed[0] = 7
				m.mu.Unlock()
			}
			return w.take(b)
		})
		if wantTold(t, "what is kept", w, "run.dead 8", "run.dead 9", "run.dead 10"); err != nil {
			t.Error(err)
		}
		w = &watcher{}
		err = f.Watch(t.Context(), job.EventQuery{FromMS: 1}, func(b job.EventBatch) error {
			if len(b.Events) > 0 {
				m.happen(0, 20, job.KindRunDead, "missed")
				m.happen(0, 21, job.KindRunDead, "late")
				m.mu.Lock()
				m.trimmed[0] = 11
				m.mu.Unlock()
			}
			return w.take(b)
		})
		if !errors.Is(err, job.ErrEventsGone) {
			t.Errorf("missed later: %v, told %v", err, w.told)
		}
		beside := follow(f, job.EventQuery{}) // so that shards without new entries are not read
		defer beside.stop()
		time.Sleep(time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		w = &watcher{}
		err = f.Watch(ctx, job.EventQuery{FromMS: 1}, func(b job.EventBatch) error {
			if len(b.Events) > 0 && len(m.streams[1]) == 0 { // meanwhile a shard that had none has more than it keeps
				m.happen(1, 30, job.KindRunDead, "missed")
				m.happen(1, 31, job.KindRunDead, "late")
				m.mu.Lock()
				m.trimmed[1] = 1
				m.mu.Unlock()
			}
			return w.take(b)
		})
		if !errors.Is(err, job.ErrEventsGone) {
			t.Errorf("missed of a shard that had none: %v, told %v", err, w.told)
		}
	})
}

// TestUnreachableShardDoesNotDelayOthers beyond the poll that finds out: watchers receive events of other
// shards, none is lost, and events of the late shard are sent in their order when it is reachable again. This
// holds for a watcher from before, for one that begins meanwhile, and for one that resumes.
func TestUnreachableShardDoesNotDelayOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &memory{}
		m.happen(0, 5, job.KindRunDead, "old")
		m.happen(1, 2, job.KindRunDead, "late old")
		f, stop := feed(t, m, 0)
		defer stop()
		there := follow(f, job.EventQuery{})
		time.Sleep(time.Second)
		synctest.Wait()
		token := there.token
		m.happen(1, 10, job.KindRunDead, "late 1")
		m.setAway(1, true)
		time.Sleep(2 * opTimeout)
		begun, from, resumed := follow(f, job.EventQuery{}), follow(f, job.EventQuery{FromMS: 11}), follow(f, job.EventQuery{Token: token})
		time.Sleep(2 * opTimeout)
		if err := f.Watch(t.Context(), job.EventQuery{StopAtEnd: true}, (&watcher{}).take); !errors.Is(err, job.ErrUnavailable) {
			t.Errorf("what there is now: %v", err)
		}
		all := []*watcher{there, begun, from, resumed}
		var want []string
		for i := range 5 * windowSize { // a minute and more
			m.happen(0, unixtime.Milli(20+i), job.KindRunDead, fmt.Sprint(i))
			want = append(want, fmt.Sprintf("run.dead %d", i))
			time.Sleep(DefaultPoll)
			synctest.Wait()
			for n, w := range all {
				if !slices.Equal(w.told, want) {
					t.Fatalf("watcher %d is told %d events of %d", n, len(w.told), len(want))
				}
			}
		}
		m.happen(1, 20_000, job.KindRunDead, "late 2")
		m.setAway(1, false)
		time.Sleep(2 * opTimeout)
		synctest.Wait()
		late := []string{"run.dead late 1", "run.dead late 2"}
		for n, more := range [][]string{late, late, late[1:], late} {
			all[n].stop()
			if got := all[n].told[len(want):]; !slices.Equal(got, more) {
				t.Errorf("watcher %d is told %v, want %v", n, got, more)
			}
		}
	})
}

// TestAFeedBeginsWithAnUnreachableShard: it knows where that ends when it is back.
func TestAFeedBeginsWithAnUnreachableShard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &memory{}
		m.happen(0, 5, job.KindRunDead, "old")
		m.happen(1, 6, job.KindRunDead, "late")
		m.setAway(1, true)
		f, stop := feed(t, m, 0)
		defer stop()
		w := follow(f, job.EventQuery{})
		time.Sleep(2 * opTimeout)
		m.happen(0, 7, job.KindRunDead, "new")
		time.Sleep(time.Second)
		synctest.Wait()
		wantTold(t, "meanwhile", w, "run.dead new")
		if last, _ := f.LastPlaces(); last == nil || last[1].Exact() || last[0].Seq != 2 {
			t.Errorf("the feed knows %v", last)
		}
		m.setAway(1, false)
		time.Sleep(2 * opTimeout)
		m.happen(1, 8, job.KindRunDead, "later")
		time.Sleep(time.Second)
		if last, _ := f.LastPlaces(); last == nil || last[1].Seq != 2 {
			t.Errorf("the feed knows %v", last)
		}
		w.stop()
		wantTold(t, "when it is back", w, "run.dead new", "run.dead late", "run.dead later")
	})
}

// TestWatchesEnd where they must: too many, off, a token of another cluster, a node that
// stops, a store that fails.
func TestWatchesEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &memory{}
		f, stop := feed(t, m, 2)
		one, two := follow(f, job.EventQuery{}), follow(f, job.EventQuery{})
		time.Sleep(time.Second)
		nobody := func(job.EventBatch) error { return nil }
		if err := f.Watch(t.Context(), job.EventQuery{}, nobody); !errors.Is(err, job.ErrTooManyWatchers) {
			t.Errorf("a third: %v", err)
		}
		one.stop()
		var invalid *job.InvalidError
		for _, token := range []string{"x", job.EncodePlaces([]job.Place{{}}), job.EncodePlaces(make([]job.Place, 3))[1:]} {
			if err := f.Watch(t.Context(), job.EventQuery{Token: token}, nobody); !errors.As(err, &invalid) {
				t.Errorf("token %q: %v", token, err)
			}
		}
		full := errors.New("full")
		if err := f.Watch(t.Context(), job.EventQuery{}, func(job.EventBatch) error { return full }); !errors.Is(err, full) {
			t.Errorf("%v", err)
		}
		stop()
		synctest.Wait()
		two.stop()
		if !errors.Is(two.err, job.ErrDraining) {
			t.Errorf("a node that stops: %v", two.err)
		}
		if err := f.Watch(t.Context(), job.EventQuery{}, nobody); !errors.Is(err, job.ErrDraining) {
			t.Errorf("a node that has stopped: %v", err)
		}
		off, end := feed(t, &memory{off: true}, 0)
		if err := off.Watch(t.Context(), job.EventQuery{}, nobody); !errors.Is(err, job.ErrEventsOff) {
			t.Errorf("%v", err)
		}
		end()
		failing := &memory{away: [3]bool{true, true, true}}
		broken, end := feed(t, failing, 0)
		if err := broken.Watch(t.Context(), job.EventQuery{}, nobody); !errors.Is(err, job.ErrUnavailable) {
			t.Errorf("%v", err)
		}
		end()
	})
}

// TestIdleFeedDoesNotCallTheStore: the store is neither read nor written without a watcher and without announced
// events.
func TestIdleFeedDoesNotCallTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &memory{calm: true}
		f, stop := feed(t, m, 0)
		f.Acquire()()
		time.Sleep(time.Second)
		reads := m.readsSoFar()
		time.Sleep(time.Minute)
		if m.flushes > 0 || m.readsSoFar() > reads {
			t.Errorf("%d flushes, %d reads", m.flushes, m.readsSoFar()-reads)
		}
		stop()
	})
}

// TestOnlyStartsAreAnnounced: all else is stored with its decision.
func TestOnlyStartsAreAnnounced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &memory{}
		f, stop := feed(t, m, 0)
		f.Observe([]job.Notice{{Kind: job.AttemptStarted, Attempt: 2, Labels: map[string]string{"a": "b"}}, {Kind: job.RunSucceeded}, {Kind: job.StaleRefused},
			{Kind: job.LagBreached, Reason: job.LagMissed}, {Kind: job.LagBreached, Reason: job.LagLate}})
		time.Sleep(time.Second)
		stop()
		if len(m.news) != 1 || m.news[0].Kind != job.KindRunStarted || m.news[0].Labels["a"] != "b" || m.flushes < 9 {
			t.Errorf("%+v, %d flushes", m.news, m.flushes)
		}
	})
}

// fill opens watches of a holder until one is refused.
func fill(f *Feed, h fairshare.Holder) (open []*watcher) {
	for {
		w := follow(f, job.EventQuery{Watcher: h})
		time.Sleep(time.Millisecond)
		synctest.Wait()
		if w.err != nil {
			w.stop()
			return open
		}
		open = append(open, w)
	}
}

// TestPlacesOfWatchersAreShared: neither one identity nor one namespace keeps others from
// watching, nor do all of them together the administrators of the cluster.
func TestPlacesOfWatchersAreShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, stop := feed(t, &memory{}, 100)
		defer stop()
		open := fill(f, fairshare.Holder{Namespace: "a", Identity: "viewer"})
		if len(open) == 0 || len(open) > 25 {
			t.Errorf("one identity has %d of 100 places", len(open))
		}
		for i := range 10 {
			open = append(open, fill(f, fairshare.Holder{Namespace: "a", Identity: fmt.Sprint("viewer", i)})...)
		}
		if len(open) > 50 {
			t.Errorf("one namespace has %d of 100 places", len(open))
		}
		other := fill(f, fairshare.Holder{Namespace: "b", Identity: "viewer of b"})
		if len(other) == 0 {
			t.Error("another namespace has none")
		}
		open = append(open, other...)
		for i := range 100 {
			open = append(open, fill(f, fairshare.Holder{Namespace: fmt.Sprint("n", i), Identity: fmt.Sprint("i", i)})...)
		}
		root := follow(f, job.EventQuery{Watcher: fairshare.Holder{Namespace: "*", Identity: "root", Admin: true}})
		time.Sleep(time.Millisecond)
		synctest.Wait()
		if root.err != nil || len(open) > 90 {
			t.Errorf("beside %d watches an administrator: %v", len(open), root.err)
		}
		for _, w := range append(open, root) {
			w.stop()
		}
	})
}

// Who waits for a rate of their own keeps no other reader of the namespace waiting.
func TestAChargedScanDelaysNoOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &memory{}
		for i := range 4 * pageSize {
			m.happen(0, unixtime.Milli(1000+i), job.KindRunSucceeded, "x")
		}
		f, stop := feed(t, m, 100)
		defer stop()
		release := make(chan struct{})
		query := func(identity string, charge func(int) error) job.EventQuery {
			return job.EventQuery{
				FromMS: 1, StopAtEnd: true, Filter: job.EventFilter{Namespaces: []string{"a"}},
				Watcher: fairshare.Holder{Namespace: "a", Identity: identity}, Charge: charge,
			}
		}
		slow := follow(f, query("slow", func(int) error { <-release; return nil }))
		synctest.Wait()
		quick := follow(f, query("quick", func(int) error { return nil }))
		<-quick.done
		if quick.stop(); quick.err != nil {
			t.Error(quick.err)
		}
		close(release)
		<-slow.done
		slow.stop()
	})
}

// TestScansOfAnIdentityLeaveTurnsToOthers: an identity with many streams, which read kept entries of a namespace, keeps
// another one waiting for one read before each of its own.
func TestScansOfAnIdentityLeaveTurnsToOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &memory{takes: 100 * time.Millisecond}
		const pages = 40
		for i := range pages * pageSize {
			m.happen(0, unixtime.Milli(1000+i), job.KindRunSucceeded, "x")
		}
		f, stop := feed(t, m, 100)
		defer stop()
		scan := func(identity string) *watcher {
			return follow(f, job.EventQuery{
				FromMS: 1, StopAtEnd: true, Filter: job.EventFilter{Namespaces: []string{"a"}},
				Watcher: fairshare.Holder{Namespace: "a", Identity: identity},
			})
		}
		var greedy []*watcher
		for range 20 {
			greedy = append(greedy, scan("greedy"))
		}
		synctest.Wait()
		began := time.Now()
		modest := scan("modest")
		<-modest.done
		if took, most := time.Since(began), (pages+2)*3*m.takes; took > most || modest.err != nil {
			t.Errorf("a scan of %d pages of %v took %v, want %v at most; %v", pages, m.takes, took, most, modest.err)
		}
		for _, w := range append(greedy, modest) {
			w.stop()
		}
	})
}

// TestScansTakeTurns: streams of an identity that read kept entries of one namespace read one at a time, each page is
// charged for, and a watcher without matching events receives tokens. Watchers of other namespaces do not wait.
func TestScansTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &memory{takes: 100 * time.Millisecond}
		const kept = 40 * pageSize
		for i := range kept {
			m.happen(0, unixtime.Milli(1000+i), job.KindRunSucceeded, "x")
		}
		f, stop := feed(t, m, 100)
		defer stop()
		scan := func(namespace, identity string, pages *atomic.Int64) *watcher {
			return follow(f, job.EventQuery{
				FromMS: 1, StopAtEnd: true, Filter: job.EventFilter{Namespaces: []string{namespace}},
				Watcher: fairshare.Holder{Namespace: namespace, Identity: identity},
				Charge:  func(n int) error { pages.Add(int64(n)); return nil },
			})
		}
		var one, two, other atomic.Int64
		began := time.Now()
		first, second, third := scan("a", "ann", &one), scan("a", "ann", &two), scan("b", "ann", &other)
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if first.marks.Load() < 2 {
			t.Errorf("after 5 s of a scan that finds nothing it was told %d times how far it is", first.marks.Load())
		}
		<-third.done
		took := time.Since(began)
		synctest.Wait() // the others rest
		if took < 40*2*m.takes-time.Second || took > 40*3*m.takes {
			t.Errorf("a scan of 40 pages of %v took %v, want about as much rest as reading", m.takes, took)
		}
		if one.Load() > 25 || two.Load() > 25 {
			t.Errorf("two scans of one identity have read %d and %d pages in the time of 40", one.Load(), two.Load())
		}
		<-first.done
		<-second.done
		for _, w := range []*watcher{first, second, third} {
			if w.stop(); w.err != nil || len(w.told) > 0 {
				t.Errorf("%v, %v", w.told, w.err)
			}
		}
		for _, pages := range []int64{one.Load(), two.Load(), other.Load()} {
			if pages < 40 || pages > 42 {
				t.Errorf("%d pages were charged for, want 40", pages)
			}
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		if len(f.namedScans) > 0 {
			t.Errorf("%d scans are remembered", len(f.namedScans))
		}
	})
}

// TestNothingIsReadTwice: what waits for other shards is kept meanwhile.
func TestNothingIsReadTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &memory{}
		for shard := range m.streams {
			for i := range 10 * pageSize {
				m.happen(shard, unixtime.Milli(1000+(shard*10*pageSize)+i), job.KindRunSucceeded, fmt.Sprint(shard, "-", i))
			}
		}
		f, stop := feed(t, m, 0)
		defer stop()
		pages := 0
		w := follow(f, job.EventQuery{FromMS: 1, StopAtEnd: true, Charge: func(n int) error { pages += n; return nil }})
		<-w.done
		w.stop()
		if w.err != nil || len(w.told) != 30*pageSize || pages > 33 {
			t.Errorf("%d events in %d pages, %v; want %d in 30", len(w.told), pages, w.err, 30*pageSize)
		}
	})
}
