package storetest

import (
	"reflect"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/unixtime"
)

// Overlapping is a recurring job whose runs may be live at the same time.
func Overlapping(id string) job.Definition {
	d := Definition(id)
	d.Overlap, d.OverlapLimit, d.Retry.MaxAttempts = job.OverlapAllowAll, 10, 1
	return d
}

// Spawn makes n runs of a job of shard 0 due, leases each and moves it into a
// record of its own. It returns what a node would deliver.
func (w *World) Spawn(d job.Definition, n int) []job.Leased {
	w.T.Helper()
	var live []job.Leased
	for range n {
		if due := w.Get(d.ID).IndexMS; due > unixtime.Milli(w.Clock.Load()) {
			w.Clock.Store(int64(due))
		}
		leased := w.Lease(0, 1)
		if len(leased) != 1 || leased[0].Record != d.Record() {
			w.T.Fatalf("leased %v, want %s", leasedRecords(leased), d.ID)
		}
		l := leased[0]
		write := w.Decide(l.Record, l.Known.Definition, l.Known.State, job.RunLeased{Token: l.Known.State.Token})
		run := write.Decision.Spawn
		if run == nil {
			w.T.Fatalf("arrival of %s: %+v", d.ID, write.Decision)
		}
		w.MustWrite(0, write)
		l.Record, l.Known.State = d.Record().Run(run.Slot), run.State
		live = append(live, l)
	}
	return live
}

// Family are the writes for an event on a run of its own as it is stored now.
func (w *World) Family(record job.RecordID, ev job.Input) []job.Write {
	w.T.Helper()
	found := w.Records(record.Job(), record)
	writes := w.DecideChild(record, found[0].Definition, found[0].State, found[1].State, ev)
	writes[0].Current = found[1].Definition // a dead letter has its own
	return writes
}

func (w *World) recordScore(record job.RecordID, lane job.Lane) int64 {
	w.T.Helper()
	score, err := w.Client.ZScore(w.T.Context(), w.Key(0, "l:")+lane.String(), string(record)).Result()
	if err != nil {
		w.T.Fatalf("%s is not in lane %v: %v", record, lane, err)
	}
	return int64(score)
}

func testSpawn(w *World) {
	d := Overlapping(w.InShard(0, 1)[0])
	w.Add(d)
	w.Advance(time.Minute)
	l := w.Lease(0, 1)[0]
	arrive := w.Decide(l.Record, &d, l.Known.State, job.RunLeased{Token: l.Known.State.Token})
	// The lease is prolonged between the decision and its write.
	w.Advance(10 * time.Second)
	w.Store.Renew(w.T.Context(), []job.RenewRequest{{Shard: 0, TTL: lockTTL, Renewals: []job.Renewal{
		{Record: l.Record, Lane: Lane(), Token: l.Known.State.Token, Epoch: 7, Acked: true},
	}}})
	for range 3 {
		w.MustWrite(0, arrive)
	}
	child := d.Record().Run(0)
	run := w.Records(child)[0]
	want := arrive.Decision.Spawn.State
	want.Acked, want.Epoch = true, 7
	if !reflect.DeepEqual(run.State, want) || run.State.Token != l.Known.State.Token || !run.State.Live() {
		w.T.Errorf("run\n%+v, want\n%+v", run.State, want)
	}
	if !reflect.DeepEqual(run.Definition, w.Get(d.ID).Definition) {
		w.T.Errorf("its definition %+v", run.Definition)
	}
	if got := w.recordScore(child, Lane()); got != job.Score(job.RegionLeased, l.Known.IndexMS+10_000) {
		w.T.Errorf("its score is %d, the lease ended at %d", got, l.Known.IndexMS+10_000)
	}
	if s := w.Get(d.ID); s.State.Children != 1 || s.State.Region != job.RegionDue || s.IndexMS != arrive.Decision.IndexMS {
		w.T.Errorf("parent %+v", s)
	}
	jobs, _, err := w.Store.List(w.T.Context(), "ns", "", 5000)
	if err != nil || len(jobs) != 1 {
		w.T.Errorf("listed %+v (%v)", jobs, err)
	}
	w.loseSpawned(d, child)
}

// loseSpawned ends the lease of a run of its own, and leases it again.
func (w *World) loseSpawned(d job.Definition, child job.RecordID) {
	w.T.Helper()
	w.Advance(lockTTL)
	overdue, err := w.Store.Expired(w.T.Context(), 0, lockValue, []job.Lane{Lane()}, 10)
	if err != nil || len(overdue) != 1 || overdue[0].Record != child {
		w.T.Fatalf("overdue %+v (%v)", overdue, err)
	}
	lose := w.Family(child, job.LoseLease{Token: overdue[0].State.Token})
	lose[0].IfExpired = true
	w.MustWrite(0, lose...)
	w.MustWrite(0, lose...)
	again := w.Lease(0, 1)
	if len(again) != 1 || again[0].Record != child ||
		!reflect.DeepEqual(again[0].Known.Definition, w.Get(d.ID).Definition) {
		w.T.Fatalf("leased again: %+v", again)
	}
	// It was leased since: a late repeat still finds its own work.
	w.MustWrite(0, lose...)
	if s := w.Get(d.ID).State; s.Lost != 1 {
		w.T.Errorf("parent %+v", s)
	}
}

func testSpawnTaken(w *World) {
	w.Damaged()
	d := Overlapping(w.InShard(0, 1)[0])
	w.Add(d)
	w.Advance(time.Minute)
	l := w.Lease(0, 1)[0]
	child, ctx := d.Record().Run(0), w.T.Context()
	stray := w.Client.HGet(ctx, w.Key(0, "st"), string(l.Record)).Val()
	w.Client.HSet(ctx, w.Key(0, "st"), string(child), stray)
	r := w.Apply(0, w.Decide(l.Record, &d, l.Known.State, job.RunLeased{Token: l.Known.State.Token})).Results[0]
	if r.Code != job.Conflict || !reflect.DeepEqual(*r.Current, l.Known.State) {
		w.T.Errorf("a run in the slot was overwritten: %+v", r)
	}
	stored := w.Client.HGet(ctx, w.Key(0, "st"), string(child)).Val()
	if stored != stray || w.Get(d.ID).State.Region != job.RegionLeased {
		w.T.Errorf("something was written: %s", stored)
	}
}

// testSpawnOfAnother: two nodes decide alike on a job, but at different times, so
// that only the runs that they spawn tell them apart.
func testSpawnOfAnother(w *World) {
	d := Definition(w.InShard(0, 1)[0])
	w.Add(d)
	before := w.Get(d.ID).State
	ask := job.RequestManualRun{RequestID: "m", Mode: job.ManualKeep}
	first := w.Decide(d.Record(), &d, before, ask)
	w.Advance(time.Second)
	second := w.Decide(d.Record(), &d, before, ask)
	if !reflect.DeepEqual(first.Decision.State, second.Decision.State) ||
		reflect.DeepEqual(first.Decision.Spawn, second.Decision.Spawn) {
		w.T.Fatalf("decisions\n%+v\n%+v", first.Decision, second.Decision)
	}
	w.MustWrite(0, first)
	w.MustWrite(0, first)
	if r := w.Apply(0, second).Results[0]; r.Code != job.Conflict {
		w.T.Errorf("the other one's: %+v", r)
	}
	if l := w.Lease(0, 1); len(l) != 1 || l[0].Known.State.RunID() != "m-m" || l[0].Known.Definition.Handler != d.Handler {
		w.T.Errorf("leased %+v", l)
	}
	w.MustWrite(0, first) // it was leased since, but it is that one
}

func testTogether(w *World) {
	d := Overlapping(w.InShard(0, 1)[0])
	w.Add(d)
	live := w.Spawn(d, 2)
	child := live[1].Record // its lease has not ended
	settle := w.Family(child, w.finish(live[1], job.OutcomeSucceeded))
	before := w.Records(d.Record(), child)
	adjusted := func(adjust func(run, parent *job.Write)) []job.Write {
		writes := append([]job.Write(nil), settle...)
		adjust(&writes[0], &writes[1])
		return writes
	}
	tests := map[string]struct {
		writes []job.Write
		want   [2]job.WriteCode
	}{
		"parent has changed": {adjusted(func(_, parent *job.Write) { parent.Revision++ }),
			[2]job.WriteCode{job.Conflict, job.Conflict}},
		"run has changed": {adjusted(func(run, _ *job.Write) { run.Token++ }),
			[2]job.WriteCode{job.Conflict, job.Conflict}},
		"run is not there": {adjusted(func(run, _ *job.Write) { run.Record += "3" }),
			[2]job.WriteCode{job.NotFound, job.Conflict}},
		"parent is not there": {adjusted(func(_, parent *job.Write) { parent.Record = "ns/gone" }),
			[2]job.WriteCode{job.Conflict, job.NotFound}},
		"lease has not ended": {adjusted(func(run, _ *job.Write) { run.IfExpired = true }),
			[2]job.WriteCode{job.NotExpired, job.Conflict}},
	}
	for name, tt := range tests {
		// Others in the same call are not held up.
		other := job.Write{Record: "ns/other", From: Lane(), Current: settle[1].Current, Decision: settle[1].Decision}
		r := w.Apply(0, append([]job.Write{other}, tt.writes...)...).Results
		if got := [2]job.WriteCode{r[1].Code, r[2].Code}; got != tt.want || r[0].Code != job.NotFound {
			w.T.Errorf("%s: codes %v, want %v", name, got, tt.want)
		}
		if got := w.Records(d.Record(), child); !reflect.DeepEqual(got, before) {
			w.T.Errorf("%s: one of two was written: %+v", name, got)
		}
	}
	for range 3 {
		w.MustWrite(0, settle...)
	}
	if s := w.Get(d.ID).State; s.Succeeded != 1 || s.Children != 1 || s.Started != 1 {
		w.T.Errorf("parent %+v", s)
	}
	runs, err := w.Store.Runs(w.T.Context(), d.Key, 3)
	if err != nil || len(runs) != 1 || runs[0].ID != settle[1].Decision.Ended.ID {
		w.T.Errorf("history %+v (%v)", runs, err)
	}
	back := w.Family(live[0].Record, job.ReturnLease{Token: live[0].Known.State.Token})
	w.MustWrite(0, back...)
	w.MustWrite(0, back...)
	malformed := map[string][]job.Write{"nothing before": settle[1:], "three": append(settle[:2:2], settle[1])}
	for name, writes := range malformed {
		if r := w.Store.Apply(w.T.Context(), 0, writes); r.Err == nil {
			w.T.Errorf("%s: %+v", name, r)
		}
	}
}

// testSlotReused ends a run and writes the next one into its slot at once.
func testSlotReused(w *World) {
	for _, id := range w.InShard(0, 2) {
		d := Overlapping(id)
		w.Add(d)
		w.Advance(10 * time.Minute)
		parent := w.Get(id)
		from := parent.State.Due - 1
		w.MustWrite(0, w.Decide(d.Record(), &d, parent.State, job.Pause{}))
		start := job.StartBackfill{Backfill: job.Backfill{ID: "b", NextMS: from, ToMS: from + 600_000, Concurrency: 1}}
		w.MustWrite(0, w.Decide(d.Record(), &d, w.Get(id).State, start))
		l := w.Lease(0, 1)[0]
		child := d.Record().Run(0)
		if l.Record != child || l.Known.State.Trigger != job.TriggerBackfill {
			w.T.Fatalf("leased %+v", l)
		}
		w.MustWrite(0, w.Family(child, job.RunLeased{Token: l.Known.State.Token})...)
		lane := Lane()
		if id == w.InShard(0, 2)[1] { // the next one is in another lane
			edited := d
			edited.Queue = "bulk"
			lane = edited.Lane()
			w.MustWrite(0, w.Decide(d.Record(), &d, w.Get(id).State, job.Update{New: w.compileDefinition(&edited)}))
		}
		settle := w.Family(child, w.finish(l, job.OutcomeSucceeded))
		if s := settle[1].Decision.Spawn; s == nil || s.Slot != 0 {
			w.T.Fatalf("the slot is not used again: %+v", s)
		}
		for range 3 {
			w.MustWrite(0, settle...)
		}
		run := w.Records(child)[0]
		if run.State.Nominal <= l.Known.State.Nominal || run.State.Lane != lane ||
			unixtime.Milli(w.recordScore(child, lane)) != run.State.Due {
			w.T.Errorf("the next run %+v, score %d", run.State, w.recordScore(child, lane))
		}
		w.CheckConsistency()
		leased := w.Store.Lease(w.T.Context(), []job.LeaseRequest{LeaseRequest(0, 1, "", lane)})[0].Leased
		if len(leased) != 1 || leased[0].Record != child {
			w.T.Fatalf("leased %v", leasedRecords(leased))
		}
		w.MustWrite(0, settle...) // late, but nothing else has happened
		w.MustWrite(0, w.Decide(d.Record(), w.Get(id).Definition, w.Get(id).State, job.StopBackfill{ID: "b"}))
		if r := w.Apply(0, settle...).Results; r[0].Code != job.Conflict || r[1].Code != job.Conflict {
			w.T.Errorf("later still: %+v", r)
		}
	}
}
