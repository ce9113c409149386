package storetest

import (
	"reflect"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
)

func testApply(w *World) {
	ids := w.InShard(0, 3)
	for _, id := range ids {
		w.Add(Once(id, 0))
	}
	leased := w.Lease(0, 3)
	good, stale := w.Settle(leased[0], job.OutcomeFailed), w.Settle(leased[1], job.OutcomeFailed)
	stale.Revision++
	fenced := w.Settle(leased[2], job.OutcomeFailed)
	fenced.Token--
	gone := good
	gone.Record = "ns/gone"
	reply := w.Apply(0, stale, good, gone, fenced)
	for i, want := range []job.WriteCode{job.Conflict, job.Written, job.NotFound, job.Conflict} {
		if got := reply.Results[i].Code; got != want {
			w.T.Errorf("write %d: code %d, want %d", i, got, want)
		}
	}
	if !reflect.DeepEqual(*reply.Results[0].Current, leased[1].Known.State) ||
		!reflect.DeepEqual(*reply.Results[3].Current, leased[2].Known.State) {
		w.T.Errorf("conflicts answer %+v", reply.Results)
	}
	due := good.Decision.IndexMS
	want := []job.LaneHead{{Lane: Lane(), DueMS: due}}
	if !reflect.DeepEqual(reply.Earlier, want) || reply.Holder != lockValue {
		w.T.Errorf("news %+v of %q, want %+v", reply.Earlier, reply.Holder, want)
	}
	got := w.Get(leased[0].Known.Definition.ID)
	if !reflect.DeepEqual(got.State, good.Decision.State) || got.IndexMS != due {
		w.T.Errorf("stored\n%+v, want\n%+v", got.State, good.Decision.State)
	}
}

func testApplyRepeated(w *World) {
	ids := w.InShard(0, 2)
	w.Add(Definition(ids[0]), Once(ids[1], 0))
	w.Advance(time.Minute)
	leased := w.Lease(0, 2)
	settle := w.Settle(leased[0], job.OutcomeFailed)
	remove := w.Decide(leased[1].Record, leased[1].Known.Definition, w.MustReturn(leased[1]), job.Delete{})
	for range 3 {
		w.MustWrite(0, settle)
	}
	w.MustWrite(0, remove)
	if r := w.Apply(0, remove); r.Results[0].Code != job.NotFound {
		w.T.Errorf("a deletion whose reply was not lost: %+v", r)
	}
	// Once the record has moved on, a late repeat is a conflict, and the state
	// shows that its token was settled.
	w.Advance(time.Minute)
	w.Lease(0, 1)
	r := w.Apply(0, settle).Results[0]
	if r.Code != job.Conflict || r.Current.SettledToken != leased[0].Known.State.Token {
		w.T.Errorf("a late repeat: %+v", r)
	}
}

// MustReturn gives a lease back and returns the state after it.
func (w *World) MustReturn(l job.Leased) job.State {
	w.T.Helper()
	write := w.Decide(l.Record, l.Known.Definition, l.Known.State, job.ReturnLease{Token: l.Known.State.Token})
	w.MustWrite(w.Store.ShardOf(l.Known.Definition.Key), write)
	return write.Decision.State
}

func testApplyMoves(w *World) {
	id := w.InShard(0, 1)[0]
	d := Definition(id)
	w.Add(d)
	record := w.Get(id)
	edited := d
	edited.Queue, edited.Priority = "bulk", 1
	write := w.Decide(d.Record(), &d, record.State, job.Update{New: w.compileDefinition(&edited), RequestID: "edit"})
	reply := w.MustWrite(0, write)
	if len(reply.Earlier) != 1 || reply.Earlier[0].Lane != edited.Lane() {
		w.T.Errorf("news %+v", reply.Earlier)
	}
	heads, err := w.Store.Lanes(w.T.Context(), []int{0})
	if err != nil || len(heads[0]) != 1 || heads[0][0].Lane != edited.Lane() {
		w.T.Errorf("lanes %+v (%v)", heads, err)
	}
	got := w.Get(id)
	if got.Definition.Queue != "bulk" || got.Definition.Revision != 2 ||
		!got.Definition.UpdateRequestIDs.Has("edit") {
		w.T.Errorf("definition %+v", got.Definition)
	}
	w.MustWrite(0, write) // a repeat finds it moved
	// Another edit that leads to the same state is not that repeat.
	edited.Handler = "another"
	update := job.Update{New: w.compileDefinition(&edited), RequestID: "edit"}
	if r := w.Apply(0, w.Decide(d.Record(), &d, record.State, update)).Results[0]; r.Code != job.Conflict {
		w.T.Errorf("another edit of what was edited: %+v", r)
	}
}

func testApplyLive(w *World) {
	id := w.InShard(0, 1)[0]
	w.Add(Definition(id))
	w.Advance(time.Minute)
	l := w.Lease(0, 1)[0]
	ctx := w.T.Context()
	w.Store.Renew(ctx, []job.RenewRequest{{Shard: 0, TTL: lockTTL, Renewals: []job.Renewal{
		{Record: l.Record, Lane: Lane(), Token: l.Known.State.Token, Epoch: 7, Acked: true},
	}}})
	// Decided on what was read before the renewal, which changes no revision.
	pause := w.Decide(l.Record, l.Known.Definition, l.Known.State, job.Pause{Note: "hold"})
	w.MustWrite(0, pause)
	w.MustWrite(0, pause)
	got := w.Get(id)
	if !got.State.Paused || !got.State.Acked || got.State.Epoch != 7 ||
		got.State.Region != job.RegionLeased || got.IndexMS != l.Known.IndexMS {
		w.T.Errorf("after a pause: %+v", got)
	}
}

func testApplyTwice(w *World) {
	id := w.InShard(0, 1)[0]
	d := Definition(id)
	w.Add(d)
	s := w.Get(id).State
	first := w.Decide(d.Record(), &d, s, job.Pause{Note: "a"})
	second := w.Decide(d.Record(), &d, first.Decision.State, job.Resume{})
	third := w.Decide(d.Record(), &d, second.Decision.State, job.Pause{Note: "b"})
	w.MustWrite(0, first, second, third)
	if got := w.Get(id).State; got.PauseNote != "b" || got.Region != job.RegionPaused {
		w.T.Errorf("state %+v", got)
	}
}

func testApplyExpired(w *World) {
	ids := w.InShard(0, 1)
	w.Add(Definition(ids[0]))
	w.Advance(time.Minute)
	l := w.Lease(0, 1)[0]
	lose := w.Decide(l.Record, l.Known.Definition, l.Known.State, job.LoseLease{Token: l.Known.State.Token})
	lose.IfExpired = true
	if r := w.Apply(0, lose).Results[0]; r.Code != job.NotExpired {
		w.T.Errorf("a live lease: %+v", r)
	}
	w.Advance(lockTTL - time.Millisecond)
	if r := w.Apply(0, lose).Results[0]; r.Code != job.NotExpired {
		w.T.Errorf("a moment before its end: %+v", r)
	}
	w.Advance(time.Millisecond)
	w.MustWrite(0, lose)
	w.MustWrite(0, lose)
	if s := w.Get(ids[0]).State; s.Lost != 1 || s.Region != job.RegionDue {
		w.T.Errorf("state %+v", s)
	}
}
