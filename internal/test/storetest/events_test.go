package storetest_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/redis/go-redis/v9"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/unixtime"
	"github.com/fermata-io/fermata/internal/redis/redisstore"
	"github.com/fermata-io/fermata/internal/test/faultproxy"
	"github.com/fermata-io/fermata/internal/test/redistest"
	"github.com/fermata-io/fermata/internal/test/storetest"
)

func recordPolicy(o *redisstore.Options) { o.KeepEvents = 1000 }

// onServers runs a test on a server of its own, under the user of the keyspace, and on
// the embedded one.
func onServers(t *testing.T, test func(t *testing.T, w *storetest.World)) {
	t.Run("redis", func(t *testing.T) {
		server := redistest.Start(t)
		test(t, storetest.NewWorld(t, server.Client(), asOptions(t, server.URL()), recordPolicy))
	})
	t.Run("embedded", func(t *testing.T) {
		url := "redis://" + miniredis.RunT(t).Addr()
		test(t, storetest.NewWorld(t, dialRedis(t, url), recordPolicy))
	})
}

// eventsAfter are all that follow a place.
func eventsAfter(t *testing.T, w *storetest.World, shard int, p job.Place) (list []job.Event) {
	t.Helper()
	for {
		pages, err := w.Store.Events(t.Context(), []job.EventsRequest{{Shard: shard, After: p, Limit: 10_000}})
		if err != nil {
			t.Fatal(err)
		}
		if pages[0].Gap {
			t.Errorf("a gap after %v", p)
		}
		list = append(list, pages[0].Events...)
		if !pages[0].More {
			return list
		}
		p = pages[0].Last
	}
}

func kindsOf(list []job.Event) (kinds []string) {
	for _, h := range list {
		kinds = append(kinds, h.Kind)
	}
	return kinds
}

func wantKinds(t *testing.T, what string, list []job.Event, want ...string) {
	t.Helper()
	if got := kindsOf(list); !slices.Equal(got, want) {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

// TestEventsMatchStoredChanges: an event is in the stream if and only if its
// decision is stored, once, after what was announced before; its place grows by one.
func TestEventsMatchStoredChanges(t *testing.T) {
	onServers(t, func(t *testing.T, w *storetest.World) {
		ids := w.InShard(0, 3)
		for _, id := range ids {
			d := storetest.Definition(id)
			d.Labels = map[string]string{"team": "ops"}
			d.Retry.MaxAttempts = 1
			record := w.Record(d)
			for range 2 { // the second finds the work of the first
				if r := storetest.Create(t.Context(), w.Store, 0, []job.Record{record}); r.Err != nil {
					t.Fatal(r.Err)
				}
			}
		}
		wantKinds(t, "creations", eventsAfter(t, w, 0, job.Place{}), job.KindJobCreated, job.KindJobCreated, job.KindJobCreated)
		w.Advance(61 * time.Second)
		leased := w.Lease(0, 3)
		place := func() job.Place {
			last, err := w.Store.LastEvents(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			return last[0]
		}

		before := place()
		w.Store.Announce(job.Event{Kind: job.KindRunStarted, Key: leased[0].Known.Definition.Key, AtMS: unixtime.Milli(w.Clock.Load())})
		settle := w.Settle(leased[0], job.OutcomeFailed)
		w.MustWrite(0, settle)
		got := eventsAfter(t, w, 0, before)
		wantKinds(t, "a failed run", got, job.KindRunStarted, job.KindRunFailed, job.KindRunDead, job.KindJobBackoff)
		if h := got[1]; h.Error != "no luck" || h.Worker != "w1" || h.Labels["team"] != "ops" || h.Key != leased[0].Known.Definition.Key || h.AtMS != unixtime.Milli(w.Clock.Load()) {
			t.Errorf("%+v", h)
		}
		for i, h := range got {
			if h.Place.Seq != before.Seq+1+uint64(i) || h.ID() != fmt.Sprintf("0-%d-%d", h.Place.MS, h.Place.Seq) {
				t.Errorf("event %d is at %v after %v", i, h.Place, before)
			}
		}

		before = place()
		w.MustWrite(0, settle) // it is written already
		stale := w.Settle(leased[1], job.OutcomeSucceeded)
		stale.Revision++
		if r := w.Apply(0, stale, w.Settle(leased[2], job.OutcomeSucceeded)); r.Results[0].Code != job.Conflict || r.Results[1].Code != job.Written {
			t.Fatalf("%+v", r.Results)
		}
		got = eventsAfter(t, w, 0, before)
		wantKinds(t, "a copy, a conflict and a success", got, job.KindRunSucceeded)
		if len(got) > 0 && got[0].Key != leased[2].Known.Definition.Key {
			t.Errorf("of %v", got[0].Key)
		}
		if err := w.Store.FlushEvents(t.Context()); err != nil || len(eventsAfter(t, w, 0, place())) != 0 {
			t.Errorf("nothing was announced: %v", err)
		}
	})
}

// TestEventsOfMovedJobsBelongToOneQueue: no event has the queue of one definition and the labels of another. Readers
// of the queue that a job leaves learn that it has left, and those of the new one everything from then on.
func TestEventsOfMovedJobsBelongToOneQueue(t *testing.T) {
	onServers(t, func(t *testing.T, w *storetest.World) {
		d := storetest.Definition(w.InShard(0, 1)[0])
		d.Labels = map[string]string{"project": "apollo"}
		w.Add(d)
		w.Advance(61 * time.Second)
		leased := w.Lease(0, 1)[0]
		before, err := w.Store.LastEvents(t.Context())
		if err != nil {
			t.Fatal(err)
		}

		moved := d
		moved.Queue, moved.Labels = "secret", map[string]string{"project": "manhattan"}
		compiled, err := job.Compile(&moved)
		if err != nil {
			t.Fatal(err)
		}
		for _, ev := range []job.Input{job.Update{New: compiled}, job.FinishAttempt{
			Token: leased.Known.State.Token, Outcome: job.OutcomeFailed, Error: "no luck", Worker: "w1",
		}} {
			now := w.Get(d.ID)
			w.MustWrite(0, w.Decide(d.Record(), now.Definition, now.State, ev))
		}
		got := eventsAfter(t, w, 0, before[0])
		old := job.EventFilter{Covers: func(queue string) bool { return queue == d.Queue }}
		var seen []job.Event
		for _, h := range got {
			project := map[string]string{d.Queue: "apollo", moved.Queue: "manhattan"}[h.Queue]
			if project == "" || h.Labels["project"] != project {
				t.Errorf("%s of queue %q has the labels %v", h.Kind, h.Queue, h.Labels)
			}
			if old.Matches(&h) {
				seen = append(seen, h)
			}
		}
		wantKinds(t, "a move and a failed run", got[:min(3, len(got))],
			job.KindJobUpdated, job.KindJobUpdated, job.KindRunFailed)
		wantKinds(t, "for readers of the old queue", seen, job.KindJobUpdated)
		if len(seen) == 1 && seen[0].Reason != job.ReasonMoved {
			t.Errorf("they receive %+v", seen[0])
		}
	})
}

// heldPipelines holds up the first pipeline that carries a text.
type heldPipelines struct {
	text          string
	held, release chan struct{}
	once          sync.Once
}

func (h *heldPipelines) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (h *heldPipelines) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (h *heldPipelines) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if slices.ContainsFunc(cmds, h.holdsCommand) {
			h.once.Do(func() {
				close(h.held)
				<-h.release
			})
		}
		return next(ctx, cmds)
	}
}

func (h *heldPipelines) holdsCommand(cmd redis.Cmder) bool {
	return slices.ContainsFunc(cmd.Args(), func(a any) bool {
		text, ok := a.(string)
		return ok && strings.Contains(text, h.text)
	})
}

// TestSweepSendsNoEvents: it is under way beside the decisions of the shard, and what it
// held up would come after the end of its run.
func TestSweepSendsNoEvents(t *testing.T) {
	server := redistest.Start(t)
	client := dialRedis(t, server.URL())
	hook := &heldPipelines{text: job.KindJobDeleted, held: make(chan struct{}), release: make(chan struct{})}
	client.AddHook(hook)
	w := storetest.NewWorld(t, server.Client(), recordPolicy, func(o *redisstore.Options) { o.Client = client })
	ids := w.InShard(0, 2)
	w.Add(storetest.Once(ids[0], 0))
	w.MustWrite(0, w.Settle(w.Lease(0, 1)[0], job.OutcomeSucceeded))
	w.Advance(time.Hour) // which is how long it is kept
	w.Add(storetest.Once(ids[1], time.Hour))
	leased := w.Lease(0, 1)
	if len(leased) != 1 {
		t.Fatalf("leased %v", leased)
	}
	before, err := w.Store.LastEvents(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	w.Store.Announce(job.Event{Kind: job.KindRunStarted, Key: leased[0].Known.Definition.Key})
	swept := make(chan error, 1)
	go func() {
		holder := w.Client.Get(t.Context(), w.Store.LockKey(0)).Val()
		n, err := w.Store.Sweep(t.Context(), 0, holder, []job.Lane{storetest.Lane()}, 10)
		if n != 1 {
			err = errors.Join(err, fmt.Errorf("%d are swept", n))
		}
		swept <- err
	}()
	select {
	case <-hook.held:
	case err := <-swept:
		t.Fatal("not held up: ", err)
	}
	w.MustWrite(0, w.Settle(leased[0], job.OutcomeSucceeded))
	close(hook.release)
	if err := <-swept; err != nil {
		t.Fatal(err)
	}
	wantKinds(t, "beside a sweep", eventsAfter(t, w, 0, before[0]), job.KindRunStarted, job.KindRunSucceeded, job.KindJobDeleted)
}

// TestRestoreEventHasTimeOfRestore, not when the job was last edited.
func TestRestoreEventHasTimeOfRestore(t *testing.T) {
	onServers(t, func(t *testing.T, w *storetest.World) {
		d := storetest.Definition(w.InShard(0, 1)[0])
		d.UpdatedMS = unixtime.Milli(storetest.Start - (90 * 24 * time.Hour).Milliseconds())
		w.Advance(time.Minute)
		reply := w.Store.Restore(t.Context(), 0, []job.Restoration{{Record: w.Record(d)}})
		if reply.Err != nil || reply.Results[0].Code != job.Created {
			t.Fatalf("%+v", reply)
		}
		got := eventsAfter(t, w, 0, job.Place{})
		wantKinds(t, "a restore", got, job.KindJobRestored)
		if len(got) == 1 && got[0].AtMS != unixtime.Milli(w.Clock.Load()) {
			t.Errorf("its event has the time %v", got[0].AtMS.Time().UTC())
		}
	})
}

// TestRepeatedStartIsRecognized: after a lost reply it is reported twice, with all but its id
// the same.
func TestRepeatedStartIsRecognized(t *testing.T) {
	server := redistest.Start(t)
	proxy := faultproxy.New(t, server.Addr())
	w := storetest.NewWorld(t, server.Client(), recordPolicy)
	faulty := w.Open(recordPolicy, func(o *redisstore.Options) { o.Client = dialRedis(t, "redis://"+proxy.Addr()) })
	key := job.Key{Namespace: "ns", ID: w.InShard(0, 1)[0]}
	faulty.Announce(job.Event{Kind: job.KindShardTaken, Shard: 1, Node: "n"})
	if err := faulty.FlushEvents(t.Context()); err != nil { // the server has the script by now
		t.Fatal(err)
	}
	faulty.Announce(job.Event{Kind: job.KindRunStarted, AtMS: unixtime.Milli(storetest.Start - 7), Key: key, RunID: "1-1", Attempt: 2})
	proxy.CutNextReplies(1)
	if err := faulty.FlushEvents(t.Context()); err != nil {
		t.Fatal(err)
	}
	if proxy.Counters().Cut != 1 {
		t.Fatal("no answer was lost")
	}
	got := eventsAfter(t, w, 0, job.Place{})
	wantKinds(t, "after a lost answer", got, job.KindRunStarted, job.KindRunStarted)
	if len(got) == 2 && (got[0].ID() == got[1].ID() || got[0].Correlation() != got[1].Correlation() ||
		got[0].Attempt != got[1].Attempt || got[0].AtMS != unixtime.Milli(storetest.Start-7) || got[1].AtMS != got[0].AtMS) {
		t.Errorf("%+v", got)
	}
}

// TestStreamsOfEventsAreBounded: what is trimmed is a gap for those who come too late,
// and by no one else.
func TestStreamsOfEventsAreBounded(t *testing.T) {
	onServers(t, func(t *testing.T, w *storetest.World) {
		for range 2000 {
			w.Store.Announce(job.Event{Kind: job.KindShardTaken, Shard: 1, Node: "n"})
		}
		for range 5 {
			if err := w.Store.FlushEvents(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		n, err := w.Client.XLen(t.Context(), w.Key(1, "events")).Result()
		if err != nil || n < 250 || n > 400 { // a quarter of 1000 for each of four shards, and what a node of the stream holds
			t.Errorf("%d are kept, %v", n, err)
		}
		last, err := w.Store.LastEvents(t.Context())
		if err != nil || last[1].Seq != 2000 {
			t.Fatalf("%v, %v", last, err)
		}
		for _, c := range []struct {
			after job.Place
			gap   bool
		}{
			{job.Place{}, true}, {job.Place{MS: last[1].MS, Seq: 1000}, true}, {job.PlaceBefore(1), false},
			{job.Place{MS: last[1].MS, Seq: 1900}, false}, {last[1], false},
		} {
			pages, err := w.Store.Events(t.Context(), []job.EventsRequest{{Shard: 1, After: c.after, Limit: 10}})
			if err != nil || pages[0].Gap != c.gap {
				t.Errorf("after %v: gap %v, %v", c.after, pages[0].Gap, err)
			}
		}
	})
}

// largeEvent is an event of shard 1 with as many bytes of labels as an event carries.
func largeEvent() job.Event {
	labels := map[string]string{}
	for i := range 32 {
		labels[fmt.Sprintf("%02d", i)+strings.Repeat("<", 30)] = strings.Repeat("<", 100)
	}
	return job.Event{Kind: job.KindShardTaken, Shard: 1, Node: "n", Error: strings.Repeat("e", 512), Labels: labels}
}

// storedBytes is the sum of the texts of a stream of events.
func storedBytes(t *testing.T, w *storetest.World, shard int) (entries, bytes int) {
	t.Helper()
	all, err := w.Client.XRange(t.Context(), w.Key(shard, "events"), "-", "+").Result()
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range all {
		bytes += len(entry.Values["e"].(string))
	}
	return len(all), bytes
}

// announce records copies of an event.
func announce(t *testing.T, w *storetest.World, event job.Event, copies int) {
	t.Helper()
	for ; copies > 0; copies -= 500 {
		w.Store.Announce(slices.Repeat([]job.Event{event}, min(copies, 500))...)
		if err := w.Store.FlushEvents(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// TestStreamsOfEventsHaveFewBytes: 1 KiB for each event that is kept, also where an older version has written some.
// Small events are kept by number.
func TestStreamsOfEventsHaveFewBytes(t *testing.T) {
	const bound = 250 << 10 // a quarter of 1000 for each of four shards
	small := job.Event{Kind: job.KindShardTaken, Shard: 1, Node: "n"}
	onServers(t, func(t *testing.T, w *storetest.World) {
		for seq := range 300 {
			err := w.Client.XAdd(t.Context(), &redis.XAddArgs{
				Stream: w.Key(1, "events"), ID: fmt.Sprintf("1-%d", seq+1), Values: []any{"e", `{"k":"shard.taken"}`},
			}).Err()
			if err != nil {
				t.Fatal(err)
			}
		}
		announce(t, w, small, 100)
		if n, _ := storedBytes(t, w, 1); n < 250 {
			t.Errorf("of small events %d are kept", n)
		}
		for range 5 {
			announce(t, w, largeEvent(), 500)
			entries, bytes := storedBytes(t, w, 1)
			if bytes > bound+bound/4 || bytes < bound/2 {
				t.Errorf("%d events of %d bytes are kept", entries, bytes)
			}
		}
		announce(t, w, small, 1000)
		if n, _ := storedBytes(t, w, 1); n < 250 {
			t.Errorf("of small events %d are kept again", n)
		}
	})
}

// TestEventsAreRecordedByThoseWhoMayNotReadThem: without the right to read events, their stream is bounded by number.
func TestEventsAreRecordedByThoseWhoMayNotReadThem(t *testing.T) {
	server := redistest.Start(t, redistest.WithACL("default off"))
	url := setUser(t, server, "a", "fermata")
	w := storetest.NewWorldAt(t, server.Client(), "fermata", storetest.Start, recordPolicy,
		func(o *redisstore.Options) { o.Client = dialRedis(t, url) })
	if err := server.Client().Do(t.Context(), "acl", "setuser", "a", "-xrange").Err(); err != nil {
		t.Fatal(err)
	}
	announce(t, w, largeEvent(), 1000)
	if n, err := w.Client.XLen(t.Context(), w.Key(1, "events")).Result(); err != nil || n < 250 || n > 400 {
		t.Errorf("%d events are kept, %v", n, err)
	}
}

// TestPagesOfEventsHaveFewBytes: as many as were asked for, or fewer if they are large; then there are more.
func TestPagesOfEventsHaveFewBytes(t *testing.T) {
	onServers(t, func(t *testing.T, w *storetest.World) {
		announce(t, w, largeEvent(), 500)
		ask := []job.EventsRequest{{Shard: 1, After: job.PlaceBefore(1), Limit: 128}}
		read, last := 0, job.Place{}
		for more := true; more; {
			pages, err := w.Store.Events(t.Context(), ask)
			if err != nil {
				t.Fatal(err)
			}
			bytes := 0
			for i := range pages[0].Events {
				bytes += pages[0].Events[i].MemorySize()
			}
			if bytes > 200<<10 {
				t.Errorf("a page of %d events takes %d bytes", pages[0].Read, bytes)
			}
			read, more = read+pages[0].Read, pages[0].More
			if pages[0].Read > 0 {
				last = pages[0].Last
				ask[0].After = last
			}
		}
		if entries, _ := storedBytes(t, w, 1); read != entries || last.Seq != 500 {
			t.Errorf("%d of %d events are read, up to %v", read, entries, last)
		}
	})
}

// TestDisabledEventsLeaveNoTrace: no key, and no argument more.
func TestDisabledEventsLeaveNoTrace(t *testing.T) {
	server := redistest.Start(t)
	w := storetest.NewWorld(t, server.Client(), asOptions(t, server.URL()))
	w.Add(storetest.Definition(w.InShard(0, 1)[0]))
	w.Store.Announce(job.Event{Kind: job.KindNodeJoined, Node: "n"})
	if err := w.Store.FlushEvents(t.Context()); err != nil {
		t.Error(err)
	}
	if n, err := w.Client.Exists(t.Context(), w.Key(0, "events")).Result(); n != 0 || err != nil {
		t.Errorf("%d streams, %v", n, err)
	}
	if _, err := w.Store.LastEvents(t.Context()); !errors.Is(err, job.ErrEventsOff) {
		t.Errorf("%v", err)
	}
}

// TestDecisionsWinOverEventsAtMaxmemory: at maxmemory decisions are stored without their events,
// which are counted; those that follow leave no gap.
func TestDecisionsWinOverEventsAtMaxmemory(t *testing.T) {
	server := redistest.Start(t)
	registry := prometheus.NewRegistry()
	w := storetest.NewWorld(t, server.Client(), asOptions(t, server.URL()), recordPolicy, func(o *redisstore.Options) { o.Registerer = registry })
	for _, id := range w.InShard(0, 2) {
		w.Add(storetest.Definition(id))
	}
	w.Advance(61 * time.Second)
	leased := w.Lease(0, 2)
	before, err := w.Store.LastEvents(t.Context())
	if err != nil || len(leased) != 2 {
		t.Fatal(leased, err)
	}
	w.Store.Announce(job.Event{Kind: job.KindRunStarted, Key: leased[0].Known.Definition.Key})
	fillMemory(t, server.Client(), "1")
	w.MustWrite(0, w.Settle(leased[0], job.OutcomeSucceeded))
	fillMemory(t, server.Client(), "0")
	w.MustWrite(0, w.Settle(leased[1], job.OutcomeSucceeded))
	got := eventsAfter(t, w, 0, before[0])
	wantKinds(t, "after memory was short", got, job.KindRunSucceeded)
	if len(got) > 0 && got[0].Key != leased[1].Known.Definition.Key {
		t.Errorf("of %v", got[0].Key)
	}
	const lost = `
# HELP fermata_events_lost_total Events that were not recorded: memory was short, or too many waited for Redis.
# TYPE fermata_events_lost_total counter
fermata_events_lost_total 2
`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(lost), "fermata_events_lost_total"); err != nil {
		t.Error(err)
	}
}

// TestAnnouncementsSurviveOutage: they wait in line.
func TestAnnouncementsSurviveOutage(t *testing.T) {
	server := redistest.Start(t)
	w := storetest.NewWorld(t, server.Client(), asOptions(t, server.URL()), recordPolicy)
	waits := func() bool {
		select {
		case <-w.Store.AnnouncedSignal():
			return true
		default:
			return false
		}
	}
	w.Store.Announce(job.Event{Kind: job.KindShardTaken, Shard: 3, Node: "n"})
	if !waits() {
		t.Error("no signal that something is queued")
	}
	away, cancel := context.WithCancel(t.Context())
	cancel()
	if err := w.Store.FlushEvents(away); err == nil {
		t.Error("no error")
	}
	if !waits() {
		t.Error("no signal that something is queued again")
	}
	if err := w.Store.FlushEvents(t.Context()); err != nil {
		t.Error(err)
	}
	if waits() {
		t.Error("something is in line after all is written")
	}
	wantKinds(t, "announced", eventsAfter(t, w, 3, job.Place{}), job.KindShardTaken)
}
