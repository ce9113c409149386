package storetest

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/unixtime"
	"github.com/fermata-io/fermata/internal/redis/codec"
	"github.com/fermata-io/fermata/internal/redis/fsck"
	"github.com/fermata-io/fermata/internal/redis/redisstore"
)

// testAudit breaks what is stored in each way, and expects just that finding; one
// that can be repaired is gone after it.
func testAudit(w *World) {
	ctx := w.T.Context()
	ids := w.InShard(0, 7)
	for i, id := range ids {
		d := Definition(id)
		if i == 6 {
			d.MaxLag = time.Second
		}
		w.Add(d)
	}
	other := w.Key(0, "l:") + strings.Replace(Lane().String(), "mail", "bulk", 1)
	lane, states, defs := w.Key(0, "l:")+Lane().String(), w.Key(0, "st"), w.Key(0, "def")
	record := func(i int) string { return string(Definition(ids[i]).Record()) }
	text := func(i int) string { return w.Client.HGet(ctx, states, record(i)).Val() }
	score := func(i int) float64 { return w.Client.ZScore(ctx, lane, record(i)).Val() }
	for _, tt := range []struct {
		fault  job.Fault
		record job.RecordID
		broken func() func() // breaks, and returns how to undo that
	}{
		{job.FaultIndexRegion, job.RecordID(record(0)), func() func() {
			w.Client.ZAdd(ctx, lane, redis.Z{Member: record(0), Score: float64(job.Score(job.RegionPaused, 5))})
			w.Client.ZAdd(ctx, w.Key(0, "lanes"), redis.Z{Member: Lane().String(), Score: score(1)})
			return nil
		}},
		{job.FaultIndexRegion, job.RecordID(record(0)), func() func() {
			w.Client.ZAdd(ctx, lane, redis.Z{Member: record(0), Score: score(0) + 1}) // it would run too late
			w.Client.ZAdd(ctx, w.Key(0, "lanes"), redis.Z{Member: Lane().String(), Score: score(1)})
			return nil
		}},
		{job.FaultIndexRegion, job.RecordID(record(0)), func() func() {
			w.Client.ZAdd(ctx, lane, redis.Z{Member: record(0), Score: -1e300})
			w.Client.ZAdd(ctx, w.Key(0, "lanes"), redis.Z{Member: Lane().String(), Score: -1e300})
			return nil
		}},
		{job.FaultIndexRegion, job.RecordID(record(0)), func() func() {
			w.Client.ZAdd(ctx, lane, redis.Z{Member: record(0), Score: 1e300})
			w.Client.ZAdd(ctx, w.Key(0, "lanes"), redis.Z{Member: Lane().String(), Score: score(1)})
			return nil
		}},
		{job.FaultIndexMissing, job.RecordID(record(1)), func() func() {
			w.Client.ZRem(ctx, lane, record(1))
			return nil
		}},
		{job.FaultIndexExtra, job.RecordID(record(2)), func() func() {
			w.Client.ZAdd(ctx, other, redis.Z{Member: record(2), Score: 7})
			w.Client.ZAdd(ctx, w.Key(0, "lanes"), redis.Z{Member: "ns/bulk/5", Score: 7})
			return nil
		}},
		{job.FaultIndexExtra, "ns/nobody", func() func() {
			w.Client.ZAdd(ctx, lane, redis.Z{Member: "ns/nobody", Score: float64(job.Score(job.RegionDone, 7))})
			return nil
		}},
		{job.FaultLaneIndex, "", func() func() {
			w.Client.ZAdd(ctx, w.Key(0, "lanes"), redis.Z{Member: Lane().String(), Score: float64(job.NeverMS)})
			return nil
		}},
		{job.FaultLaneIndex, "", func() func() {
			w.Client.ZRem(ctx, w.Key(0, "lanes"), Lane().String())
			return nil
		}},
		{job.FaultHistory, "ns/nobody", func() func() {
			w.Client.HSet(ctx, w.Key(0, "hist"), "ns/nobody.0", "x")
			return nil
		}},
		{job.FaultRevisions, "ns/nobody", func() func() {
			w.Client.HSet(ctx, w.Key(0, "revisions"), "ns/nobody", "")
			return nil
		}},
		{job.FaultUnreadable, job.RecordID(record(4)), func() func() {
			w.Client.HSet(ctx, w.Key(0, "revisions"), record(4), "nonsense")
			return func() { w.Client.HDel(ctx, w.Key(0, "revisions"), record(4)) }
		}},
		{job.FaultNoState, "ns/nobody", func() func() {
			w.Client.HSet(ctx, defs, "ns/nobody", w.Client.HGet(ctx, defs, record(3)).Val())
			return func() { w.Client.HDel(ctx, defs, "ns/nobody") }
		}},
		{job.FaultNoDefinition, job.RecordID(record(3)), func() func() {
			before := w.Client.HGet(ctx, defs, record(3)).Val()
			w.Client.HDel(ctx, defs, record(3))
			return func() { w.Client.HSet(ctx, defs, record(3), before) }
		}},
		{job.FaultUnreadable, job.RecordID(record(4)), func() func() {
			before := w.Client.HGet(ctx, defs, record(4)).Val()
			w.Client.HSet(ctx, defs, record(4), "\xff\xff")
			return func() { w.Client.HSet(ctx, defs, record(4), before) }
		}},
		{job.FaultUnreadable, job.RecordID(record(4)), func() func() {
			before := text(4)
			w.Client.HSet(ctx, states, record(4), "nonsense")
			return func() { w.Client.HSet(ctx, states, record(4), before) }
		}},
		{job.FaultState, job.RecordID(record(4)), func() func() {
			before := text(4)
			w.Client.HSet(ctx, states, record(4), before+"c1") // a run that waits is being cancelled
			return func() { w.Client.HSet(ctx, states, record(4), before) }
		}},
		{job.FaultRuns, job.RecordID(record(5)), func() func() {
			before := text(5)
			w.Client.HSet(ctx, states, record(5), before+"C4") // a run in slot 2 that is not there
			return func() { w.Client.HSet(ctx, states, record(5), before) }
		}},
		{job.FaultObjective, job.RecordID(record(6)), func() func() {
			w.Client.ZRem(ctx, w.Key(0, "objectives"), record(6))
			return nil
		}},
		{job.FaultObjective, job.RecordID(record(6)), func() func() {
			looked := float64(w.Get(ids[6]).State.Due + 1002)
			w.Client.ZAdd(ctx, w.Key(0, "objectives"), redis.Z{Member: record(6), Score: looked})
			return nil
		}},
		{job.FaultUnsuccessful, "", func() func() {
			end := w.Clock.Load()
			entry, err := codec.EncodeEndedRun(&job.EndedRun{Key: job.Key{Namespace: Lane().Namespace, ID: "gone"},
				Run: job.Run{ID: "1-1", FinishedMS: unixtime.Milli(end)}})
			if err != nil {
				w.T.Fatal(err)
			}
			index := w.Key(0, "unsuccessful:") + Lane().Namespace + "/" + Lane().Queue
			w.Client.ZAdd(ctx, index, redis.Z{Member: entry, Score: float64(end)})
			return nil
		}},
		{job.FaultUnreadable, "", func() func() {
			index := w.Key(0, "unsuccessful:") + Lane().Namespace + "/" + Lane().Queue
			w.Client.ZAdd(ctx, index, redis.Z{Member: "\xff", Score: 7})
			return func() { w.Client.ZRem(ctx, index, "\xff") }
		}},
	} {
		undo := tt.broken()
		found := w.MustBeConsistent(0, false).Findings
		if len(found) != 1 || found[0].Fault != tt.fault || found[0].Record != tt.record || found[0].Repaired {
			w.T.Errorf("%s of %q: found %+v", tt.fault, tt.record, found)
		}
		found = w.MustBeConsistent(0, true).Findings
		if len(found) != 1 || found[0].Repaired != tt.fault.Repairable() {
			w.T.Errorf("%s: repaired %+v", tt.fault, found)
		}
		if undo != nil {
			undo()
		}
		if left := w.MustBeConsistent(0, false).Findings; len(left) > 0 {
			w.T.Fatalf("%s: left %+v", tt.fault, left)
		}
	}
	if n := w.MustBeConsistent(0, false).Records[job.RegionDue]; n != int64(len(ids)) {
		w.T.Errorf("%d records counted", n)
	}
}

// testAuditOfWork audits, with repair, while jobs are created, run and deleted: a
// false finding would break what is right.
func testAuditOfWork(w *World) {
	ids := w.InShard(0, 40)
	done := make(chan struct{})
	var auditor sync.WaitGroup
	audits := 0
	var findings []job.Finding
	auditor.Go(func() {
		for {
			r, err := fsck.New(w.Store).CheckShard(w.T.Context(), 0, true)
			if err != nil {
				w.T.Errorf("audit: %v", err)
				return
			}
			audits++
			findings = append(findings, r.Findings...)
			select {
			case <-done:
				return
			default:
			}
		}
	})
	for round := range 10 {
		for i, id := range ids {
			if (i+round)%4 == 0 && w.Get(id) == nil {
				w.Add(Definition(id))
			}
		}
		w.Advance(2 * time.Minute)
		for _, l := range slices.Backward(w.Lease(0, 30)) {
			outcome := job.OutcomeSucceeded
			if l.Known.State.Token%3 == 0 {
				outcome = job.OutcomeFailed
			}
			w.MustWrite(0, w.Settle(l, outcome))
		}
		for i, id := range ids {
			if r := w.Get(id); r != nil && (i+round)%5 == 0 {
				w.MustWrite(0, w.Decide(r.Definition.Record(), r.Definition, r.State, job.Delete{}))
			}
		}
	}
	close(done)
	auditor.Wait()
	if audits == 0 || len(findings) > 0 {
		w.T.Errorf("%d audits found %+v", audits, findings)
	}
}

// testRepairsAreReported: the store reports a lane that a repair makes due earlier, with the lock value
// of its holder, who sleeps until later otherwise.
func testRepairsAreReported(w *World) {
	ids := w.InShard(0, 2)
	w.Add(Definition(ids[0]), Definition(ids[1]))
	due := w.Get(ids[0]).State.Due
	ctx, index, lane := w.T.Context(), w.Key(0, "lanes"), w.Key(0, "l:")+Lane().String()
	record := Definition(ids[0]).Record()
	var told []string
	s := w.Open(func(o *redisstore.Options) {
		o.OnLanesDueEarlier = func(shard int, heads []job.LaneHead, holder string) {
			told = append(told, fmt.Sprint(shard, heads, holder))
		}
	})
	audit := func() error {
		_, err := fsck.New(s).CheckShard(ctx, 0, true)
		return err
	}
	for name, c := range map[string]struct {
		damage func()
		repair func() error
	}{
		"the index of lanes": {func() {
			w.Client.ZAdd(ctx, index, redis.Z{Member: Lane().String(), Score: float64(job.NeverMS)})
		}, audit},
		"an entry that is missing": {func() {
			w.Client.Del(ctx, lane)
			w.Client.ZAdd(ctx, index, redis.Z{Member: Lane().String(), Score: float64(job.NeverMS)})
		}, audit},
		"an entry of what is no record": {func() {
			w.Client.ZAdd(ctx, lane, redis.Z{Member: "ns/nobody", Score: float64(job.Score(job.RegionDone, 7))})
			w.Client.ZAdd(ctx, index, redis.Z{Member: Lane().String(), Score: float64(job.NeverMS)})
		}, audit},
		"an entry in another region": {func() {
			for _, id := range ids {
				w.Client.ZAdd(ctx, lane, redis.Z{Member: "ns/" + id, Score: float64(job.Score(job.RegionLeased, 5))})
			}
			w.Client.ZAdd(ctx, index, redis.Z{Member: Lane().String(), Score: float64(job.NeverMS)})
		}, func() error {
			_, err := s.Expired(ctx, 0, lockValue, []job.Lane{Lane()}, 10)
			return err
		}},
	} {
		told = nil
		c.damage()
		if err := c.repair(); err != nil {
			w.T.Fatalf("%s: %v", name, err)
		}
		want := fmt.Sprint(0, []job.LaneHead{{Lane: Lane(), DueMS: due}}, lockValue)
		if !slices.Contains(told, want) {
			w.T.Errorf("%s: reported %q of %s, want %q", name, told, record, want)
		}
	}
}
