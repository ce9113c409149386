package limits

import (
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"math"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/unixtime"
	"github.com/fermata-io/fermata/internal/redis/codec"
	"github.com/fermata-io/fermata/internal/test/redistest"
)

func testCells(t *testing.T, w limitWorld) {
	s, clock := w.virtual(t)
	big := strings.Repeat("\x00é", maxCell/3)
	step := func(old, text string, swapped bool, now string) {
		t.Helper()
		r := s.SwapCells(t.Context(), []job.CellSwap{{Name: "c", Old: old, New: text}})[0]
		if r != (job.CellReply{Text: now, Swapped: swapped, NowMS: unixtime.Milli(clock.Load())}) {
			t.Fatalf("swap %.20q for %.20q: %.80v", old, text, r)
		}
		if r := s.ReadCells(t.Context(), []string{"c"})[0]; r != (job.CellReply{Text: now, NowMS: unixtime.Milli(clock.Load())}) {
			t.Fatalf("read: %.80v", r)
		}
	}
	step("x", "y", false, "")
	step("x", "", true, "") // deleted already
	step("", "a", true, "a")
	step("", "a", true, "a") // again
	step("", "b", false, "a")
	step("a", big, true, big)
	step("a", "c", false, big)
	step(big, "", true, "")
	step("", "week", true, "week")
	clock.pass(7*24*time.Hour - time.Millisecond)
	step("other", "another", false, "week")
	clock.pass(time.Millisecond)
	step("week", "x", false, "")
	step("", "new", true, "new")
	for _, bad := range []job.CellSwap{{New: "x"}, {Name: "c", New: strings.Repeat("x", maxCell+1)}, {Name: "c", Old: strings.Repeat("x", maxCell+1)}} {
		if r := s.SwapCells(t.Context(), []job.CellSwap{bad})[0]; r.Err == nil {
			t.Errorf("%.40v is accepted", bad)
		}
	}
	if r := s.ReadCells(t.Context(), []string{""})[0]; r.Err == nil {
		t.Error("a cell without a name is read")
	}
	real := w.store(t)
	real.SwapCells(t.Context(), []job.CellSwap{{Name: "c", New: "x"}})
	if ttl := real.client.PTTL(t.Context(), real.shards[real.homeShard("c")].Base+"cell:c").Val(); ttl < 335*time.Hour || ttl > 336*time.Hour {
		t.Errorf("cleared away in %v", ttl)
	}
	countInCell(t, real)
}

// countInCell lets goroutines count to a hundred in one cell.
func countInCell(t *testing.T, s limitBed) {
	const workers, each = 5, 20
	var wg sync.WaitGroup
	var tries atomic.Int64
	for range workers {
		wg.Go(func() {
			for done, text := 0, ""; done < each; tries.Add(1) {
				n := 0
				_, _ = fmt.Sscan(text, &n) // nothing is no count yet
				r := s.SwapCells(t.Context(), []job.CellSwap{{Name: "count", Old: text, New: fmt.Sprintf("%d by %s", n+1, rand.Text())}})[0]
				if r.Err != nil {
					t.Error(r.Err)
					return
				}
				if text = r.Text; r.Swapped {
					done++
				}
			}
		})
	}
	wg.Wait()
	if r := s.ReadCells(t.Context(), []string{"count"})[0]; !strings.HasPrefix(r.Text, fmt.Sprint(workers*each, " ")) {
		t.Errorf("counted %q in %d tries", r.Text, tries.Load())
	}
}

func testQueueSettings(t *testing.T, w limitWorld) {
	s := w.store(t)
	ctx := t.Context()
	expect := func(want map[job.QueueKey]job.QueueSettings) {
		t.Helper()
		if got, err := s.QueueSettings(ctx); err != nil || !maps.Equal(got, want) {
			t.Fatalf("settings %v (%v), want %v", got, err, want)
		}
	}
	put := func(q job.QueueKey, settings job.QueueSettings) {
		t.Helper()
		if err := s.PutQueueSettings(ctx, q, settings, ""); err != nil {
			t.Fatal(err)
		}
	}
	a, b := job.QueueKey{Namespace: "n", Queue: "a"}, job.QueueKey{Namespace: "n2", Queue: "b"}
	full := job.QueueSettings{MaxConcurrency: 100_000, Rate: 0.001, Burst: 7, RecoveryRate: 12.5, Paused: true}
	expect(map[job.QueueKey]job.QueueSettings{})
	put(a, full)
	put(b, job.QueueSettings{Rate: 100_000})
	put(b, job.QueueSettings{Burst: 1})
	expect(map[job.QueueKey]job.QueueSettings{a: full, b: {Burst: 1}})
	put(b, job.QueueSettings{Paused: true}) // that is something
	expect(map[job.QueueKey]job.QueueSettings{a: full, b: {Paused: true}})
	put(b, job.QueueSettings{})
	put(b, job.QueueSettings{})
	expect(map[job.QueueKey]job.QueueSettings{a: full})
	// A swap asks for what was seen; its repetition finds what it left.
	for _, swap := range []struct {
		old, next job.QueueSettings
		want      error
	}{
		{job.QueueSettings{Burst: 9}, full, job.ErrSettingsChanged}, {job.QueueSettings{}, job.QueueSettings{Burst: 2}, nil},
		{job.QueueSettings{}, job.QueueSettings{Burst: 2}, nil}, {job.QueueSettings{}, full, job.ErrSettingsChanged},
		{job.QueueSettings{Burst: 2, Paused: true}, job.QueueSettings{}, job.ErrSettingsChanged},
		{job.QueueSettings{Burst: 2}, job.QueueSettings{Burst: 2, Paused: true}, nil},
		{job.QueueSettings{Burst: 2}, job.QueueSettings{}, job.ErrSettingsChanged},
		{job.QueueSettings{Burst: 2, Paused: true}, job.QueueSettings{}, nil},
	} {
		if err := s.SwapQueueSettings(ctx, b, swap.old, swap.next, ""); !errors.Is(err, swap.want) {
			t.Errorf("%+v to %+v: %v", swap.old, swap.next, err)
		}
	}
	expect(map[job.QueueKey]job.QueueSettings{a: full})
	for _, bad := range []job.QueueSettings{{MaxConcurrency: -1}, {Burst: -1}, {Rate: -1}, {Rate: math.NaN()}, {RecoveryRate: math.Inf(1)}} {
		if err := s.PutQueueSettings(ctx, b, bad, ""); err == nil {
			t.Errorf("%+v is accepted", bad)
		}
	}
	for _, bad := range []job.QueueKey{{}, {Namespace: "n"}, {Queue: "q"}, {Namespace: "n/m", Queue: "q"}} {
		if err := s.PutQueueSettings(ctx, bad, full, ""); err == nil {
			t.Errorf("%+v is accepted", bad)
		}
	}
	// What cannot be read does not hide the rest.
	odd, _ := codec.EncodeQueueSettings(job.QueueSettings{Rate: 1})
	s.client.HSet(ctx, queuesKey(s.prefix), "n/odd", "\xff", "nameless", odd, "n/nan", "\x11\x00\x00\x00\x00\x00\x00\xf8\x7f")
	expect(map[job.QueueKey]job.QueueSettings{a: full})
	for q, want := range map[job.QueueKey]job.QueueSettings{a: full, b: {}, {Namespace: "n", Queue: "odd"}: {}} {
		if got, err := s.ReadQueueSettings(ctx, q); err != nil || got != want {
			t.Errorf("settings of %v are %+v (%v), want %+v", q, got, err, want)
		}
	}
	var fields []any
	for i := range maxQueueSettings / 2 {
		fields = append(fields, fmt.Sprint("n/", i), odd)
	}
	s.client.HSet(ctx, queuesKey(s.prefix), fields...)
	if err := s.PutQueueSettings(ctx, job.QueueKey{Namespace: "n", Queue: "more"}, full, ""); !errors.Is(err, job.ErrTooManyQueuesOfNamespace) {
		t.Errorf("more than half for one namespace: %v", err)
	}
	put(b, full) // that of another one, whose name begins alike
	put(b, job.QueueSettings{})
	for i := range maxQueueSettings / 2 {
		fields = append(fields, fmt.Sprint("n/", maxQueueSettings+i), odd)
	}
	s.client.HSet(ctx, queuesKey(s.prefix), fields...)
	if err := s.PutQueueSettings(ctx, b, full, ""); !errors.Is(err, job.ErrTooManyQueues) {
		t.Errorf("one too many: %v", err)
	}
	if err := s.PutQueueSettings(ctx, job.QueueKey{Namespace: "n", Queue: "1"}, full, ""); err != nil {
		t.Errorf("settings of a queue that has some: %v", err)
	}
	put(a, job.QueueSettings{Burst: 3})
	if got, err := s.QueueSettings(ctx); err != nil || len(got) != maxQueueSettings+1 || got[a].Burst != 3 {
		t.Errorf("%d settings, %+v (%v)", len(got), got[a], err)
	}
}

// TestQueuesOfANamespaceAreCountedSeldom: how many queues a namespace has is kept beside, and
// found out by reading all of them only where an older node has changed some, or a namespace is
// refused that may have got room meanwhile.
func TestQueuesOfANamespaceAreCountedSeldom(t *testing.T) {
	s, ctx := limitWorld{url: redistest.Start(t).URL()}.store(t), t.Context()
	text, err := codec.EncodeQueueSettings(job.QueueSettings{Rate: 1})
	if err != nil {
		t.Fatal(err)
	}
	older := func(namespace string, from, to int) {
		t.Helper()
		fields := make([]any, 0, 2*(to-from))
		for i := from; i < to; i++ {
			fields = append(fields, fmt.Sprint(namespace, "/old", i), text)
		}
		if err := s.client.HSet(ctx, queuesKey(s.prefix), fields...).Err(); err != nil {
			t.Fatal(err)
		}
	}
	put := func(namespace string, i int, settings job.QueueSettings) error {
		return s.PutQueueSettings(ctx, job.QueueKey{Namespace: namespace, Queue: fmt.Sprint("q", i)}, settings, "")
	}
	kept := func(namespace string) int64 {
		n, _ := s.client.HGet(ctx, queueCountsKey(s.prefix), namespace).Int64()
		return n
	}
	wholeReads := func() int {
		t.Helper()
		text, err := s.client.Info(ctx, "commandstats").Result()
		if err != nil {
			t.Fatal(err)
		}
		_, after, _ := strings.Cut(text, "cmdstat_hgetall:calls=")
		number, _, _ := strings.Cut(after, ",")
		n, _ := strconv.Atoi(number)
		return n
	}
	older("a", 0, maxQueueSettings/2-10)
	before, taken := wholeReads(), 0
	for i := range 200 {
		switch err := put("a", i, job.QueueSettings{Burst: 1}); {
		case err == nil:
			taken++
		case !errors.Is(err, job.ErrTooManyQueues):
			t.Fatalf("queue %d of a: %v", i, err)
		}
		if err := put("b", i, job.QueueSettings{Burst: 1}); err != nil {
			t.Fatalf("queue %d of b: %v", i, err)
		}
	}
	for i := range 200 {
		for range 2 { // the second call finds nothing to do
			if err := put("b", i, job.QueueSettings{}); err != nil {
				t.Fatal(err)
			}
		}
	}
	if taken == 0 || taken > 20 {
		t.Errorf("a got %d places more", taken)
	}
	if n := (wholeReads() - before) / 2; n > 3 { // each count reads settings and owners
		t.Errorf("600 changes counted all settings %d times", n)
	}
	if n, err := s.client.HLen(ctx, queuesKey(s.prefix)).Result(); err != nil || kept("a") != n || kept("b") != 0 {
		t.Errorf("of %d queues of a (%v) %d are counted, and %d of b", n, err, kept("a"), kept("b"))
	}
	// An older node changes settings, and does not count: what it left is noticed by the sum.
	older("c", 0, 3000)
	if err := put("b", 0, job.QueueSettings{Burst: 1}); err != nil || kept("c") != 3000 {
		t.Errorf("%d queues of c are counted (%v)", kept("c"), err)
	}
	if err := put("c", 0, job.QueueSettings{Burst: 1}); !errors.Is(err, job.ErrTooManyQueues) {
		t.Errorf("3,000 queues of c, 2,000 are free: %v", err)
	}
	// Where the sum is right and the parts are not, a refusal counts again after a minute.
	if err := s.client.HSet(ctx, queueCountsKey(s.prefix), "b", maxQueueSettings).Err(); err != nil {
		t.Fatal(err)
	}
	if err := put("b", 1, job.QueueSettings{Burst: 1}); !errors.Is(err, job.ErrTooManyQueues) {
		t.Errorf("within the minute: %v", err)
	}
	if err := s.client.HSet(ctx, queueCountsKey(s.prefix), "#counted", 1).Err(); err != nil {
		t.Fatal(err)
	}
	if err := put("b", 1, job.QueueSettings{Burst: 1}); err != nil || kept("b") != 2 {
		t.Errorf("after it: %v, %d are counted", err, kept("b"))
	}
}
