package queuestats

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/fermata-io/fermata/internal/core/autoscale"
	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/lib/fairshare"
)

// town is queues that can be counted.
type town struct {
	mu    sync.Mutex
	sizes map[job.QueueKey]autoscale.Demand
	err   error
	took  time.Duration
	looks int
	last  int // queues of the last look
}

func (w *town) count(ctx context.Context, keys []job.QueueKey) (map[job.QueueKey]autoscale.Demand, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.looks++
	w.last = len(keys)
	out := map[job.QueueKey]autoscale.Demand{}
	for _, key := range keys {
		out[key] = w.sizes[key]
	}
	if w.took > 0 {
		select {
		case <-time.After(w.took):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return out, w.err
}

func (w *town) set(key job.QueueKey, waiting int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sizes[key] = autoscale.Demand{Waiting: waiting}
}

func (w *town) seen() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.looks
}

func (w *town) fail(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.err = err
}

var mail, web = job.QueueKey{Namespace: "n", Queue: "mail"}, job.QueueKey{Namespace: "n", Queue: "web"}

func one(key job.QueueKey) []job.QueueKey { return []job.QueueKey{key} }

func inBubble(t *testing.T, f func(t *testing.T, w *town, l *Sampler)) {
	synctest.Test(t, func(t *testing.T) {
		w := &town{sizes: map[job.QueueKey]autoscale.Demand{}}
		l, err := New(Options{Count: w.count, Registerer: prometheus.NewRegistry()})
		if err != nil {
			t.Fatal(err)
		}
		defer l.Stop()
		f(t, w, l)
	})
}

// collectUpdates collects the updates of a watch until the test ends it.
func collectUpdates(t *testing.T, l *Sampler, key job.QueueKey) (told func() []int64, end func() error) {
	ctx, cancel := context.WithCancel(t.Context())
	var mu sync.Mutex
	var all []int64
	done := make(chan error, 1)
	go func() {
		done <- l.Watch(ctx, fairshare.Holder{}, one(key), func(s autoscale.Demand) error {
			mu.Lock()
			defer mu.Unlock()
			all = append(all, s.Waiting)
			return nil
		})
	}()
	return func() []int64 {
			mu.Lock()
			defer mu.Unlock()
			return all
		}, func() error {
			cancel()
			return <-done
		}
}

func TestOneSampleServesAllWatches(t *testing.T) {
	inBubble(t, func(t *testing.T, w *town, l *Sampler) {
		w.set(mail, 1)
		var tolds []func() []int64
		var ends []func() error
		for i := range 100 {
			told, end := collectUpdates(t, l, []job.QueueKey{mail, web}[i%2])
			tolds, ends = append(tolds, told), append(ends, end)
		}
		time.Sleep(10*samplePeriod + samplePeriod/2)
		w.set(mail, 7)
		time.Sleep(samplePeriod)
		if looks := w.seen(); looks < 10 || looks > 14 {
			t.Errorf("%d looks in 11 seconds", looks)
		}
		for i, told := range tolds {
			all := told()
			if first, last := all[0], all[len(all)-1]; i%2 == 0 && (first != 1 || last != 7) || i%2 == 1 && (first != 0 || last != 0) {
				t.Errorf("watch %d was told %v", i, all)
			}
		}
		if n := testutil.ToFloat64(l.metrics.watches); n != 100 {
			t.Errorf("%v watches are shown", n)
		}
		for _, end := range ends {
			if err := end(); !errors.Is(err, context.Canceled) {
				t.Errorf("%v", err)
			}
		}
		synctest.Wait()
		time.Sleep(samplePeriod)
		before := w.seen()
		time.Sleep(time.Hour)
		if after := w.seen(); after != before {
			t.Errorf("%d looks for nobody", after-before)
		}
	})
}

func TestAskingSharesAndRemembers(t *testing.T) {
	inBubble(t, func(t *testing.T, w *town, l *Sampler) {
		w.set(mail, 3)
		ask := func(key job.QueueKey, want int64) {
			t.Helper()
			if size, err := l.Size(t.Context(), fairshare.Holder{}, one(key)); err != nil || size.Waiting != want {
				t.Errorf("%v: %+v (%v), want %d", key, size, err, want)
			}
		}
		ask(mail, 3)
		w.set(mail, 4)
		ask(mail, 3) // as it was a moment ago
		if w.seen() != 1 {
			t.Errorf("%d looks", w.seen())
		}
		time.Sleep(samplePeriod)
		ask(mail, 4)
		time.Sleep(30 * time.Second)
		ask(web, 0)
		before := w.seen()
		ask(mail, 4) // counted along with the other
		if w.seen() != before {
			t.Error("the look for one queue left another out")
		}
		time.Sleep(queueRetention + samplePeriod)
		ask(web, 0)
		if w.last != 1 {
			t.Errorf("%d queues are still counted", w.last)
		}
		var all sync.WaitGroup
		time.Sleep(samplePeriod)
		before = w.seen()
		for range 100 {
			all.Go(func() { ask(web, 0) })
		}
		all.Wait()
		if looks := w.seen() - before; looks != 1 {
			t.Errorf("%d looks for 100 at once", looks)
		}
	})
}

func TestSeveralQueuesAreOneNumber(t *testing.T) {
	inBubble(t, func(t *testing.T, w *town, l *Sampler) {
		w.set(mail, 3)
		w.set(web, 4)
		for range 2 {
			if size, err := l.Size(t.Context(), fairshare.Holder{}, []job.QueueKey{mail, web}); err != nil || size.Waiting != 7 {
				t.Errorf("%+v (%v)", size, err)
			}
		}
		var last int64
		enough := errors.New("enough")
		err := l.Watch(t.Context(), fairshare.Holder{}, []job.QueueKey{mail, web}, func(s autoscale.Demand) error {
			if last = s.Waiting; last == 7 {
				w.set(web, 5)
				return nil
			}
			return enough
		})
		if !errors.Is(err, enough) || last != 8 {
			t.Errorf("told %d (%v)", last, err)
		}
	})
}

func TestAFailedSampleSendsNothing(t *testing.T) {
	inBubble(t, func(t *testing.T, w *town, l *Sampler) {
		w.set(mail, 5)
		told, end := collectUpdates(t, l, mail)
		time.Sleep(samplePeriod / 2)
		broken := errors.New("away")
		w.fail(broken)
		time.Sleep(samplePeriod)
		n := len(told())
		began := time.Now()
		if _, err := l.Size(t.Context(), fairshare.Holder{}, one(web)); !errors.Is(err, broken) || time.Since(began) > 2*samplePeriod {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		time.Sleep(5 * samplePeriod)
		if len(told()) != n {
			t.Errorf("told %v while nothing could be counted", told()[n:])
		}
		if got := testutil.ToFloat64(l.metrics.failures); got < 5 {
			t.Errorf("%v failures are shown", got)
		}
		w.fail(nil)
		time.Sleep(2 * samplePeriod)
		if all := told(); len(all) == n || all[len(all)-1] != 5 {
			t.Errorf("told %v", all)
		}
		_ = end()
	})
}

func TestSlowSamplesAreRare(t *testing.T) {
	inBubble(t, func(t *testing.T, w *town, l *Sampler) {
		w.took = 500 * time.Millisecond
		_, end := collectUpdates(t, l, mail)
		time.Sleep(time.Minute)
		if looks := w.seen(); looks < 10 || looks > 12 { // each with a pause of five seconds
			t.Errorf("%d looks of half a second in a minute", looks)
		}
		_ = end()
		time.Sleep(time.Minute)
		w.mu.Lock()
		w.took = time.Hour
		w.mu.Unlock()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := l.Size(ctx, fairshare.Holder{}, one(web)); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("waiting for a look that hangs: %v", err)
		}
		began := time.Now()
		if _, err := l.Size(t.Context(), fairshare.Holder{}, one(web)); !errors.Is(err, job.ErrUnavailable) || time.Since(began) > sampleTimeout {
			t.Errorf("after a look that was cut off: %v, %v", err, time.Since(began))
		}
		before := w.seen()
		for range 10 {
			if _, err := l.Size(t.Context(), fairshare.Holder{}, one(web)); !errors.Is(err, job.ErrUnavailable) {
				t.Errorf("shortly after: %v", err)
			}
		}
		if w.seen() != before {
			t.Error("everybody who asks waits for Redis anew")
		}
	})
}

func TestBounds(t *testing.T) {
	inBubble(t, func(t *testing.T, w *town, l *Sampler) {
		for i := range maxQueues {
			if _, err := l.trackQueuesLocked(fairshare.Holder{}, one(job.QueueKey{Namespace: "n", Queue: fmt.Sprint(i)})); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := l.Size(t.Context(), fairshare.Holder{}, one(mail)); !errors.Is(err, job.ErrTooManyWatches) {
			t.Errorf("one queue too many: %v", err)
		}
		time.Sleep(queueRetention + time.Second)
		if _, err := l.Size(t.Context(), fairshare.Holder{}, one(mail)); err != nil {
			t.Errorf("when the others have gone: %v", err)
		}
		var ends []func() error
		for range maxWatches {
			_, end := collectUpdates(t, l, mail)
			ends = append(ends, end)
		}
		synctest.Wait()
		if err := l.Watch(t.Context(), fairshare.Holder{}, one(mail), nil); !errors.Is(err, job.ErrTooManyWatches) {
			t.Errorf("one watch too many: %v", err)
		}
		for _, end := range ends {
			_ = end()
		}
	})
}

func TestStopEndsAllWaits(t *testing.T) {
	inBubble(t, func(t *testing.T, w *town, l *Sampler) {
		w.took = time.Minute
		watched, asked := make(chan error, 1), make(chan error, 1)
		go func() { watched <- l.Watch(t.Context(), fairshare.Holder{}, one(mail), nil) }()
		go func() { _, err := l.Size(t.Context(), fairshare.Holder{}, one(web)); asked <- err }()
		synctest.Wait()
		l.Stop()
		if err := <-watched; err != nil {
			t.Errorf("a watch ends with %v", err)
		}
		if err := <-asked; !errors.Is(err, job.ErrUnavailable) {
			t.Errorf("who asked hears %v", err)
		}
		if _, err := l.Size(t.Context(), fairshare.Holder{}, one(mail)); !errors.Is(err, job.ErrUnavailable) {
			t.Errorf("who asks later hears %v", err)
		}
	})
}

func TestAFailedCallbackEndsTheWatch(t *testing.T) {
	inBubble(t, func(t *testing.T, _ *town, l *Sampler) {
		enough := errors.New("enough")
		if err := l.Watch(t.Context(), fairshare.Holder{}, one(mail), func(autoscale.Demand) error { return enough }); !errors.Is(err, enough) {
			t.Errorf("%v", err)
		}
	})
}

// TestAdviceIsExported: for queues with due runs, for as long as a caller asks. That workers are needed
// overrides that they are not.
func TestAdviceIsExported(t *testing.T) {
	inBubble(t, func(t *testing.T, w *town, l *Sampler) {
		ask := func(key job.QueueKey, needed bool) {
			t.Helper()
			if _, err := l.Size(t.Context(), fairshare.Holder{}, one(key)); err != nil {
				t.Fatal(err)
			}
			l.RecordAdvice(one(key), needed)
		}
		exported := func(want map[job.QueueKey]float64) {
			t.Helper()
			if got := l.lastAdvice(time.Now()); !maps.Equal(got, want) {
				t.Errorf("exported %v, want %v", got, want)
			}
		}
		w.set(mail, 3)
		ask(web, false)
		ask(mail, false)
		exported(map[job.QueueKey]float64{mail: 0})
		if got := testutil.CollectAndCount(adviceCollector{l}, "fermata_scaler_wants_workers"); got != 1 {
			t.Errorf("%d series", got)
		}
		ask(mail, true)
		ask(mail, false)
		exported(map[job.QueueKey]float64{mail: 1})
		for range 5 {
			time.Sleep(queueRetention / 4)
			ask(mail, false)
		}
		exported(map[job.QueueKey]float64{mail: 0})
		time.Sleep(queueRetention + time.Second)
		exported(map[job.QueueKey]float64{})

		var many []job.QueueKey
		for i := range maxAdviceSeries + 5 {
			many = append(many, job.QueueKey{Namespace: "n", Queue: fmt.Sprintf("q%03d", i)})
			w.set(many[i], 1)
		}
		if _, err := l.Size(t.Context(), fairshare.Holder{}, many); err != nil {
			t.Fatal(err)
		}
		l.RecordAdvice(many, true)
		got := l.lastAdvice(time.Now())
		if _, first := got[job.QueueKey{Namespace: "n", Queue: "q000"}]; len(got) != maxAdviceSeries || !first {
			t.Errorf("%d are told of, the first %v", len(got), first)
		}
	})
}

// TestGhostsTakeNoPlacesOfOthers: who asks for queues that do not exist gets its share, keeps
// it for as long as it waits for a look, and leaves places for others meanwhile.
func TestGhostsTakeNoPlacesOfOthers(t *testing.T) {
	inBubble(t, func(t *testing.T, w *town, l *Sampler) {
		ask := func(identity string) (asked int) {
			for ; ; asked++ {
				key := job.QueueKey{Namespace: "a", Queue: fmt.Sprint("ghost of ", identity, asked)}
				l.mu.Lock()
				_, err := l.trackQueuesLocked(fairshare.Holder{Namespace: "a", Identity: identity}, one(key))
				l.mu.Unlock()
				if err != nil {
					return asked
				}
			}
		}
		first, second := ask("token:first"), ask("token:second")
		if first != maxQueues/4 || second == 0 || first+second > maxQueues/2 {
			t.Errorf("two identities of a namespace got %d and %d of %d places", first, second, maxQueues)
		}
		victim := fairshare.Holder{Namespace: "b", Identity: "token:scaler-b"}
		w.set(mail, 3)
		if size, err := l.Size(t.Context(), victim, one(mail)); err != nil || size.Waiting != 3 {
			t.Errorf("another namespace: %+v, %v", size, err)
		}
		// The look has found nothing in the ghosts: the next one forgets them.
		time.Sleep(maxPause + time.Second)
		if _, err := l.Size(t.Context(), victim, one(web)); err != nil {
			t.Fatal(err)
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		if n := len(l.queues); n != 2 || l.queueShares.TakenSlots() != 2 {
			t.Errorf("%d queues are counted along, %d places are used, want those of the other namespace", n, l.queueShares.TakenSlots())
		}
	})
}

// TestWatchesAreShared between namespaces, and between the identities of a namespace.
func TestWatchesAreShared(t *testing.T) {
	inBubble(t, func(t *testing.T, w *town, l *Sampler) {
		watch := func(identity string) (held int) {
			for ; ; held++ {
				who := fairshare.Holder{Namespace: "a", Identity: identity}
				_, err := l.addWatch(who, one(job.QueueKey{Namespace: "a", Queue: "q"}))
				if err != nil {
					return held
				}
			}
		}
		first, second := watch("token:first"), watch("token:second")
		if first != maxWatches/4 || second == 0 || first+second > maxWatches/2 {
			t.Errorf("two identities of a namespace have %d and %d of %d streams", first, second, maxWatches)
		}
		if _, err := l.addWatch(fairshare.Holder{Namespace: "b", Identity: "token:scaler-b"}, one(mail)); err != nil {
			t.Errorf("another namespace: %v", err)
		}
	})
}
