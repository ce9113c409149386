package events

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/unixtime"
)

// allowance is the memory that watchers of an identity may take.
type allowance struct {
	mu         sync.Mutex
	most, used int
	peak       int
}

func (a *allowance) TryTake(n int) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.used+n > a.most {
		return false
	}
	a.used += n
	a.peak = max(a.peak, a.used)
	return true
}

func (a *allowance) Give(n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.used -= n
}

// happenLarge appends events of several KiB to all shards.
func (m *memory) happenLarge(count int) {
	for i := range count {
		for shard := range m.streams {
			m.happen(shard, unixtime.Milli(1000+i), job.KindRunDead, fmt.Sprint(shard, "-", i))
			m.streams[shard][i].Error = strings.Repeat("x", 4<<10)
		}
	}
}

// TestWatchersTakeMemoryOfTheirIdentity: those that do not read end when there is none left, and give it back. One
// that reads gets everything in order, however little there is.
func TestWatchersTakeMemoryOfTheirIdentity(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &memory{}
		const each = 2 * pageSize
		m.happenLarge(each)
		f, stop := feed(t, m, 0)
		defer stop()
		memory := &allowance{most: 1 << 20}
		query := job.EventQuery{FromMS: 1, Memory: memory}

		ctx, cancel := context.WithCancel(t.Context())
		var unread sync.WaitGroup
		var mu sync.Mutex
		tooSlow := 0
		for range 50 {
			unread.Go(func() {
				err := f.Watch(ctx, query, func(b job.EventBatch) error {
					if len(b.Events) > 0 {
						<-ctx.Done()
					}
					return ctx.Err()
				})
				mu.Lock()
				defer mu.Unlock()
				if errors.Is(err, job.ErrWatchersTooSlow) {
					tooSlow++
				}
			})
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		mu.Lock()
		if tooSlow == 0 || memory.used == 0 {
			t.Errorf("%d watchers are too slow, and %d bytes are taken", tooSlow, memory.used)
		}
		mu.Unlock()
		cancel()
		unread.Wait()
		if memory.used != 0 {
			t.Errorf("%d bytes are taken of no watcher", memory.used)
		}

		memory.most = 64 << 10
		w := follow(f, query)
		time.Sleep(time.Minute)
		w.stop()
		var want []string
		for i := range each {
			for shard := range m.streams {
				want = append(want, fmt.Sprint(job.KindRunDead, " ", shard, "-", i))
			}
		}
		if !slices.Equal(w.told, want) || memory.used != 0 {
			t.Errorf("of %d events %d are sent, %v; %d bytes are taken", len(want), len(w.told), w.err, memory.used)
		}
	})
}

// TestBatchesHaveFewBytes: a client that does not read has one of them.
func TestBatchesHaveFewBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &memory{}
		m.happenLarge(pageSize)
		f, stop := feed(t, m, 0)
		defer stop()
		sent := 0
		err := f.Watch(t.Context(), job.EventQuery{FromMS: 1, StopAtEnd: true}, func(b job.EventBatch) error {
			sent += len(b.Events)
			if n := memorySize(b.Events); n > batchBytes+8<<10 {
				t.Errorf("a batch has %d bytes", n)
			}
			return nil
		})
		if err != nil || sent != len(m.streams)*pageSize {
			t.Errorf("%d events are sent, %v", sent, err)
		}
	})
}

// TestWindowsHaveFewBytes: the newest events stay, without gaps.
func TestWindowsHaveFewBytes(t *testing.T) {
	var w window
	const most = 1 << 20
	for seq := range uint64(2000) {
		w.add([]job.Event{{Place: job.Place{Seq: seq}, Error: strings.Repeat("x", 4<<10)}}, most)
		if n := memorySize(w.events); n > most || n != w.bytes {
			t.Fatalf("a window has %d bytes, and counts %d", n, w.bytes)
		}
	}
	last := w.events[len(w.events)-1].Place.Seq
	if last != 1999 || w.events[0].Place.Seq != last+1-uint64(len(w.events)) || len(w.events) < 50 {
		t.Errorf("%d events are kept, up to %d", len(w.events), last)
	}
}
