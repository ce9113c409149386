package storetest

import (
	"slices"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/unixtime"
)

func testRenew(w *World) {
	ids := w.InShard(0, 4)
	for _, id := range ids {
		w.Add(Once(id, 0))
	}
	leased := w.Lease(0, 3)
	now := w.Advance(10 * time.Second)
	ctx := w.T.Context()
	renew := func(renewals ...job.Renewal) []job.RenewResult {
		w.T.Helper()
		reply := w.Store.Renew(ctx, []job.RenewRequest{{Shard: 0, TTL: lockTTL, Renewals: renewals}})[0]
		if reply.Err != nil || len(reply.Results) != len(renewals) || reply.NowUS != unixtime.Micro(now*1000) {
			w.T.Fatalf("renew: %+v", reply)
		}
		return reply.Results
	}
	of := func(l job.Leased) job.Renewal {
		return job.Renewal{Record: l.Record, Lane: Lane(), Token: l.Known.State.Token, Epoch: 1}
	}
	acked, stopped, fenced, unknown := of(leased[0]), of(leased[1]), of(leased[2]), of(leased[0])
	acked.Acked = true
	stopped.HardStopMS = unixtime.Milli(now + 1000)
	fenced.Token++
	unknown.Record = "ns/unknown"
	codes := renew(acked, stopped, fenced, unknown)
	for i, want := range []job.RenewCode{job.Renewed, job.Renewed, job.LeaseLost, job.LeaseLost} {
		if codes[i].Code != want {
			w.T.Errorf("renewal %d: %+v, want code %d", i, codes[i], want)
		}
	}
	if codes[0].Revision != leased[0].Known.State.Revision {
		w.T.Errorf("revision %d", codes[0].Revision)
	}
	first, second := w.Get(leased[0].Known.Definition.ID), w.Get(leased[1].Known.Definition.ID)
	if !first.State.Acked || first.State.Epoch != 1 || first.IndexMS != unixtime.Milli(now+lockTTL.Milliseconds()) {
		w.T.Errorf("renewed: %+v", first)
	}
	if second.State.Acked || second.IndexMS != unixtime.Milli(now+1000) {
		w.T.Errorf("hard stop: %+v", second)
	}
	adopt, late := of(leased[0]), of(leased[0])
	adopt.Epoch = 5
	if got := renew(adopt, late); got[0].Code != job.Renewed || got[1].Code == job.LeaseLost {
		w.T.Errorf("adoption: %+v", got)
	}
	if got := renew(late); got[0].Code != job.Moved {
		w.T.Errorf("the session before: %+v", got)
	}
	if s := w.Get(leased[0].Known.Definition.ID).State; s.Epoch != 5 || !s.Acked {
		w.T.Errorf("adopted: %+v", s)
	}
	// A session that has ended leaves its leases less than they had; not those of a later one.
	rest := func(r job.Renewal, ttl time.Duration) job.RenewCode {
		w.T.Helper()
		reply := w.Store.Renew(ctx, []job.RenewRequest{{Shard: 0, TTL: ttl, Renewals: []job.Renewal{r}}})[0]
		if reply.Err != nil {
			w.T.Fatal(reply.Err)
		}
		return reply.Results[0].Code
	}
	if got := rest(adopt, 2*time.Second); got != job.Renewed {
		w.T.Errorf("rest of the session: code %d", got)
	}
	if got := rest(late, time.Second); got != job.Moved {
		w.T.Errorf("rest of the session before: code %d", got)
	}
	if got := w.Get(leased[0].Known.Definition.ID).IndexMS; got != unixtime.Milli(now+2000) {
		w.T.Errorf("the lease ends %d ms after now, want 2000", int64(got-unixtime.Milli(now)))
	}
	w.MustReturn(leased[2])
	if got := renew(of(leased[2])); got[0].Code != job.LeaseLost {
		w.T.Errorf("returned: %+v", got)
	}
}

func testExpired(w *World) {
	ids := w.InShard(0, 5)
	for _, id := range ids {
		w.Add(Once(id, 0))
	}
	ctx, lanes := w.T.Context(), []job.Lane{{Namespace: "ns", Queue: "none"}, Lane()}
	leased := w.Lease(0, 3)
	expired := func(limit int) (out []string) {
		w.T.Helper()
		found, err := w.Store.Expired(ctx, 0, lockValue, lanes, limit)
		if err != nil {
			w.T.Fatal(err)
		}
		for _, o := range found {
			out = append(out, string(o.Record))
		}
		return out
	}
	if got := expired(10); len(got) != 0 {
		w.T.Errorf("live leases: %v", got)
	}
	w.Advance(lockTTL)
	if got := expired(10); !slices.Equal(got, leasedRecords(leased)) {
		w.T.Errorf("expired %v, want %v", got, leasedRecords(leased))
	}
	if got := expired(2); len(got) != 2 {
		w.T.Errorf("two of them: %v", got)
	}
	found, err := w.Store.Expired(ctx, 0, lockValue, lanes, 1)
	if err != nil || found[0].State.Token != leased[0].Known.State.Token || found[0].State.Lane != Lane() {
		w.T.Errorf("state %+v (%v)", found, err)
	}
}

// testReapPastUnreadable: a lost run whose definition cannot be read can be neither
// decided nor settled. It must not come first among the expired for ever.
func testReapPastUnreadable(w *World) {
	w.Damaged()
	ids := w.InShard(0, 4)
	for _, id := range ids {
		w.Add(Once(id, 0))
	}
	ctx := w.T.Context()
	states := map[string]string{}
	expired := func(limit int) (names []string) {
		w.T.Helper()
		found, err := w.Store.Expired(ctx, 0, lockValue, []job.Lane{Lane()}, limit)
		if err != nil {
			w.T.Fatal(err)
		}
		for _, o := range found {
			names = append(names, string(o.Record))
		}
		return names
	}
	if got := w.Lease(0, 4); len(got) != 4 {
		w.T.Fatalf("leased %v", leasedRecords(got))
	}
	w.Advance(lockTTL)
	all := expired(10)
	if len(all) != 4 {
		w.T.Fatalf("expired %v", all)
	}
	bad, good := all[:2], all[2:]
	for _, id := range bad {
		states[id] = w.Client.HGet(ctx, w.Key(0, "st"), id).Val()
	}
	w.Client.HDel(ctx, w.Key(0, "def"), bad[0])
	w.Client.HSet(ctx, w.Key(0, "def"), bad[1], "garbage")
	if got := expired(2); !slices.Equal(got, bad) {
		w.T.Fatalf("expired %v, want %v", got, bad)
	}
	got, err := w.Store.GetRecords(ctx, 0, []job.RecordID{
		"ns/none", job.RecordID(all[0]), job.RecordID(all[1]), job.RecordID(all[2]), job.RecordID(all[3]),
	})
	if err != nil || len(got) != 5 || got[0] != nil || got[1] != nil || got[2] != nil || got[3] == nil || got[4] == nil {
		w.T.Fatalf("records %v (%v)", got, err)
	}
	if got := expired(2); !slices.Equal(got, good) {
		w.T.Errorf("expired %v, want %v", got, good)
	}
	w.Advance(1000 * time.Hour)
	if n, err := w.Store.Sweep(ctx, 0, lockValue, []job.Lane{Lane()}, 100); err != nil || n != 0 {
		w.T.Errorf("swept %d (%v)", n, err)
	}
	scores := w.readScores(w.Key(0, "l:") + Lane().String())
	for _, id := range bad {
		state := w.Client.HGet(ctx, w.Key(0, "st"), id).Val()
		if scores[id] != job.Score(job.RegionDead, job.NeverMS) || state != states[id] {
			w.T.Errorf("%s is at %d; its state must be kept", id, scores[id])
		}
	}
	if len(scores) != 4 {
		w.T.Errorf("index %v", scores)
	}
}

func testSweep(w *World) {
	ids := w.InShard(0, 4)
	w.Add(Once(ids[0], 0)) // will be done
	w.runTo(ids[0], job.OutcomeSucceeded)
	w.Add(Once(ids[1], 0)) // will be dead
	w.runTo(ids[1], job.OutcomeFailed)
	w.Add(Definition(ids[2])) // goes on, with a dead letter
	w.runTo(ids[2], job.OutcomeFailed)
	manual := Definition(ids[3]) // waits for ever
	manual.Schedule.Kind, manual.Schedule.Every = 0, 0
	w.Add(manual)
	ctx, lanes := w.T.Context(), []job.Lane{Lane()}
	sweep := func(want int) {
		w.T.Helper()
		if n, err := w.Store.Sweep(ctx, 0, lockValue, lanes, 100); err != nil || n != want {
			w.T.Errorf("swept %d (%v), want %d", n, err, want)
		}
	}
	sweep(0)
	w.Advance(time.Hour) // Retention
	sweep(1)
	if w.Get(ids[0]) != nil || w.Get(ids[1]) == nil {
		w.T.Error("the finished job goes first")
	}
	w.Advance(24 * time.Hour) // DeadLetterTTL
	sweep(2)
	if w.Get(ids[1]) != nil || w.Get(ids[2]) == nil || w.Get(ids[3]) == nil {
		w.T.Error("after the dead letters' time")
	}
	sweep(0)
}

func testSweepMends(w *World) {
	id := w.InShard(0, 1)[0]
	d := Definition(id)
	d.Retry.MaxAttempts = 1
	w.Add(d)
	w.runTo(id, job.OutcomeFailed)
	// The job moves to another lane; three dead runs later the slot of the first
	// letter is taken by one in the new lane.
	edited := d
	edited.Queue = "bulk"
	w.MustWrite(0, w.Decide(d.Record(), &d, w.Get(id).State, job.Update{New: w.compileDefinition(&edited)}))
	other := edited.Lane()
	for range 3 {
		r := w.Get(id)
		w.Clock.Store(int64(r.IndexMS))
		l := w.Store.Lease(w.T.Context(), []job.LeaseRequest{LeaseRequest(0, 1, "", other)})[0].Leased[0]
		w.MustWrite(0, w.Settle(l, job.OutcomeFailed))
	}
	w.Advance(25 * time.Hour)
	n, err := w.Store.Sweep(w.T.Context(), 0, lockValue, []job.Lane{Lane(), other}, 100)
	if err != nil || n != job.DeadLettersPerJob {
		w.T.Errorf("swept %d (%v)", n, err)
	}
	if left := w.readScores(w.Key(0, "l:") + Lane().String()); len(left) != 0 {
		w.T.Errorf("the old lane still has %v", left)
	}
}
