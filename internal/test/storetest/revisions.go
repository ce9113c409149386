package storetest

import (
	"bytes"
	"fmt"
	"slices"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
)

// editJob changes a job by an edit of somebody, and returns the write.
func (w *World) editJob(id string, change func(*job.Definition), adjust ...func(*job.Write)) job.Write {
	w.T.Helper()
	r := w.Get(id)
	edited := *r.Definition
	change(&edited)
	by := job.Edit{Identity: fmt.Sprint("editor-", r.Definition.Revision), Method: "UpdateJob"}
	write := w.Decide(edited.Record(), r.Definition, r.State, job.Update{New: w.compileDefinition(&edited), By: by})
	for _, f := range adjust {
		f(&write)
	}
	w.MustWrite(0, write)
	return write
}

// earlier are the earlier definitions of a job of shard 0.
func (w *World) earlier(id string) []*job.Definition {
	w.T.Helper()
	current := w.Get(id).Definition
	lists, err := w.Store.Revisions(contextOf(w.T), 0, []job.RecordID{current.Record()})
	if err != nil || len(lists) != 1 {
		w.T.Fatalf("%d lists of revisions: %v", len(lists), err)
	}
	return job.EarlierRevisions(current, lists[0])
}

func (w *World) wantRevisions(id string, want ...uint32) []*job.Definition {
	w.T.Helper()
	list := w.earlier(id)
	var have []uint32
	for _, d := range list {
		have = append(have, d.Revision)
	}
	if !slices.Equal(have, want) {
		w.T.Errorf("revisions %v of %s, want %v", have, id, want)
	}
	return list
}

func testRevisions(w *World) {
	id := w.InShard(0, 1)[0]
	d := Definition(id)
	d.Payload, d.PayloadKey = []byte("\x02sealed\xff"), "key-1"
	w.Add(d)
	if n := w.Client.Exists(contextOf(w.T), w.Key(0, "revisions")).Val(); n != 0 {
		w.T.Error("a creation writes revisions")
	}
	var last job.Write
	for i := range 5 {
		last = w.editJob(id, func(d *job.Definition) { d.Handler = fmt.Sprint("h", i) })
	}
	w.MustWrite(0, last) // a repeat adds nothing
	list := w.wantRevisions(id, 5, 4, 3)
	for _, r := range list {
		by := job.Edit{Identity: fmt.Sprint("editor-", r.Revision-1), Method: "UpdateJob"}
		if r.Handler != fmt.Sprint("h", r.Revision-2) || r.LastEdit != by || string(r.Payload) != string(d.Payload) ||
			r.PayloadKey != "key-1" || r.CreateRequestID != "" || r.UpdatedMS == 0 {
			w.T.Errorf("revision %d: %+v", r.Revision, r)
		}
	}
	// A change of the state alone is no revision.
	r := w.Get(id)
	w.MustWrite(0, w.Decide(d.Record(), r.Definition, r.State, job.Pause{Note: "n"}))
	w.wantRevisions(id, 5, 4, 3)
	// An edit of a full namespace stores none, and removes none.
	w.editJob(id, func(d *job.Definition) { d.Handler = "full" }, func(w *job.Write) { w.Revisions = 0 })
	w.wantRevisions(id, 5, 4, 3)
	w.editJob(id, func(d *job.Definition) { d.Handler = "after" })
	w.wantRevisions(id, 7, 5, 4)
	// A conflict adds nothing.
	if r := w.Apply(0, last).Results[0]; r.Code != job.Conflict {
		w.T.Errorf("an old edit: %+v", r)
	}
	w.wantRevisions(id, 7, 5, 4)
	w.CheckConsistency()
}

func testRevisionBytes(w *World) {
	id := w.InShard(0, 1)[0]
	w.Add(Definition(id))
	many := func(w *job.Write) { w.Revisions = job.MaxRevisions }
	payload := func(n int, text byte) func(*job.Definition) {
		return func(d *job.Definition) { d.Payload = bytes.Repeat([]byte{text}, n) }
	}
	const third = job.MaxRevisionBytes/3 - 1000
	for i, size := range []int{third, 127, 128, third, third, 10} {
		w.editJob(id, payload(size, byte('a'+i)), many)
	}
	w.wantRevisions(id, 6, 5, 4, 3, 2, 1)
	w.editJob(id, payload(2*third, 'x'), many) // revision 8
	w.editJob(id, payload(10, 'y'), many)      // puts the large one before the others
	w.wantRevisions(id, 8, 7, 6)
	w.editJob(id, payload(job.MaxRevisionBytes, 'z'), many)
	w.wantRevisions(id, 9, 8, 7, 6)
	w.editJob(id, payload(10, 'z'), many) // what is too large by itself is left out
	w.wantRevisions(id, 9, 8, 7, 6)
	if n := len(w.Client.HGet(contextOf(w.T), w.Key(0, "revisions"), "ns/"+id).Val()); n > job.MaxRevisionBytes {
		w.T.Errorf("%d bytes of revisions", n)
	}
	w.CheckConsistency()
}

func testRevisionRemoval(w *World) {
	ids := w.InShard(0, 2)
	id, key := ids[0], w.Key(0, "revisions")
	w.Add(Definition(id), Definition(ids[1]))
	edit := func(name string) func(*job.Definition) { return func(d *job.Definition) { d.Handler = name } }
	w.editJob(ids[1], edit("other"))
	for name, adjust := range map[string]func(*job.Write){
		"off":    func(w *job.Write) { w.Revisions = job.RemoveRevisions },
		"sealed": func(w *job.Write) { w.Decision.RemoveRevisions = true },
	} {
		w.editJob(id, edit(name))
		w.editJob(id, edit("next"))
		if len(w.earlier(id)) == 0 {
			w.T.Error("no revisions")
		}
		w.editJob(id, edit(name+" now"), adjust)
		w.wantRevisions(id)
	}
	w.editJob(id, edit("last"))
	r := w.Get(id)
	w.MustWrite(0, w.Decide(r.Definition.Record(), r.Definition, r.State, job.Delete{}))
	if w.Client.HExists(contextOf(w.T), key, "ns/"+id).Val() {
		w.T.Error("revisions of a deleted job")
	}
	w.wantRevisions(ids[1], 1)
	// What an older node has left of a deleted job belongs to no job of its id.
	w.Client.HSet(contextOf(w.T), key, "ns/"+id, w.Client.HGet(contextOf(w.T), key, "ns/"+ids[1]).Val())
	w.Advance(time.Minute)
	again := Definition(id)
	again.CreatedMS += 1000
	w.Add(again)
	w.wantRevisions(id)
	w.editJob(id, edit("again"))
	w.wantRevisions(id, 1)
	w.CheckConsistency()
}

func testRestoredRevisions(w *World) {
	id := w.InShard(0, 1)[0]
	w.Add(Definition(id))
	w.editJob(id, func(d *job.Definition) { d.Handler = "second" })
	kept, given := w.readBackups([]string{id})[id], w.earlier(id)
	w.editJob(id, func(d *job.Definition) { d.Handler = "third" })

	present := w.Get(id)
	plan := w.planRestore(kept, present)
	plan.Replaced, plan.Keep = present.Definition, 2
	w.mustRestore(plan)
	w.mustRestore(plan) // a repeat adds nothing
	w.wantRevisions(id, 3, 2)

	present = w.Get(id)
	w.MustWrite(0, w.Decide(present.Definition.Record(), present.Definition, present.State, job.Delete{}))
	plan = w.planRestore(kept, nil)
	plan.Revisions = given
	w.mustRestore(plan)
	if list := w.wantRevisions(id, 1); len(list) == 1 && list[0].Handler != Definition(id).Handler {
		w.T.Errorf("restored %+v", list[0])
	}
	present = w.Get(id)
	plan = w.planRestore(kept, present)
	plan.RemoveRevisions = true
	plan.Record.Definition = new(*plan.Record.Definition)
	plan.Record.Definition.Handler = "another"
	w.mustRestore(plan)
	w.wantRevisions(id)
	w.CheckConsistency()
}
