package storetest

import (
	"reflect"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/unixtime"
)

func testCreate(w *World) {
	ids := w.InShard(0, 2)
	first, second := w.Record(Once(ids[0], time.Hour)), w.Record(Once(ids[1], 2*time.Hour))
	reply := Create(w.T.Context(), w.Store, 0, []job.Record{second})
	due := Start + (2 * time.Hour).Milliseconds()
	want := []job.LaneHead{{Lane: Lane(), DueMS: unixtime.Milli(due)}}
	if reply.Err != nil || !reflect.DeepEqual(reply.Earlier, want) || reply.Holder != lockValue {
		w.T.Fatalf("first record of a lane: %+v", reply)
	}
	if reply.NowUS != unixtime.Micro(Start*1000) {
		w.T.Errorf("clock %d, want %d: %+v", reply.NowUS, Start*1000, reply)
	}
	reply = Create(w.T.Context(), w.Store, 0, []job.Record{first})
	if len(reply.Earlier) != 1 || reply.Earlier[0].DueMS != first.IndexMS {
		w.T.Errorf("an earlier record: %+v", reply)
	}
	third := Once(w.InShard(0, 3)[2], 3*time.Hour)
	reply = Create(w.T.Context(), w.Store, 0, []job.Record{w.Record(third)})
	if len(reply.Earlier) != 0 || reply.Holder != "" {
		w.T.Errorf("a later record is no news: %+v", reply)
	}
	got := w.Get(ids[0])
	if got == nil || !reflect.DeepEqual(*got, first) {
		w.T.Errorf("stored\n%+v, want\n%+v", got, first)
	}
	if w.Get("nobody") != nil {
		w.T.Error("a job that does not exist was found")
	}
}

func testCreateExists(w *World) {
	ids := w.InShard(1, 3)
	r := w.Record(Definition(ids[0]))
	ctx := w.T.Context()
	batch := []job.Record{r, w.Record(Definition(ids[1])), r}
	other, d := r, *r.Definition
	other.Definition = &d
	other.Definition.Handler = "another"
	other.Definition.CreateRequestID = "another"
	batch[2] = other
	reply := Create(ctx, w.Store, 1, batch)
	if reply.Err != nil || reply.Results[0].Code != job.Created ||
		reply.Results[1].Code != job.Created || reply.Results[2].Code != job.Exists {
		w.T.Fatalf("same id twice in a batch: %+v", reply)
	}
	if e := reply.Results[2].Existing; e == nil || e.Definition.Handler != r.Definition.Handler {
		w.T.Errorf("existing record: %+v", e)
	}
	if reply = Create(ctx, w.Store, 1, []job.Record{r}); reply.Results[0].Code != job.Created {
		w.T.Errorf("an identical creation is the same creation: %+v", reply)
	}
	w.Advance(time.Minute)
	live := w.Lease(1, 1)[0]
	w.MustWrite(1, w.Decide(live.Record, live.Known.Definition, live.Known.State, job.Delete{}))
	again := w.Record(*live.Known.Definition)
	reply = Create(ctx, w.Store, 1, []job.Record{again})
	if reply.Results[0].Code != job.Tombstone || reply.Results[0].Existing == nil {
		w.T.Errorf("deleted while live: %+v", reply)
	}
}

func testCreateLarge(w *World) {
	const n = 450
	var records []job.Record
	for _, id := range w.InShard(2, n) {
		d := Once(id, time.Minute)
		d.Payload = make([]byte, 8<<10) // three megabytes: cut by bytes, too
		records = append(records, w.Record(d))
	}
	reply := Create(w.T.Context(), w.Store, 2, records)
	if reply.Err != nil || len(reply.Results) != n {
		w.T.Fatalf("create %d: %v", n, reply.Err)
	}
	for i, r := range reply.Results {
		if r.Code != job.Created {
			w.T.Fatalf("record %d: %+v", i, r)
		}
	}
	if len(reply.Earlier) != 1 {
		w.T.Errorf("one lane, news %+v", reply.Earlier)
	}
	w.Advance(time.Minute)
	if got := len(w.Lease(2, job.MaxLeasesPerCall)); got != job.MaxLeasesPerCall {
		w.T.Errorf("leased %d", got)
	}
}

func testCreateMends(w *World) {
	ids := w.InShard(0, 2)
	w.Add(Definition(ids[0]), Definition(ids[1]))
	ctx := w.T.Context()
	w.Client.HSet(ctx, w.Key(0, "st"), "ns/"+ids[0], "garbage")
	w.Client.HSet(ctx, w.Key(0, "def"), "ns/"+ids[1], "\xff\xff")
	for _, id := range ids {
		if w.Get(id) != nil {
			w.T.Errorf("%s can be read", id)
		}
		r := w.Record(Definition(id))
		reply := Create(ctx, w.Store, 0, []job.Record{r})
		if reply.Err != nil || reply.Results[0].Code != job.Created {
			w.T.Fatalf("registered again: %+v", reply)
		}
		if got := w.Get(id); got == nil || !reflect.DeepEqual(*got, r) {
			w.T.Errorf("after that: %+v", got)
		}
	}
}
