package storetest

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/fermata-io/fermata/internal/job"
)

// testRandom drives a shard through a long random history, with stale writes
// among the good ones, and keeps beside it what each record should be.
func testRandom(w *World) {
	const seed1, seed2 = 20, 26
	h := &history{World: w, rng: rand.New(rand.NewPCG(seed1, seed2)), known: map[string]*job.Record{}, live: map[string]job.Leased{}}
	h.ids = w.InShard(0, 12)
	for step := range 1500 {
		h.step()
		if step%250 == 249 {
			w.Audit()
			h.compare()
		}
	}
}

type history struct {
	*World
	rng   *rand.Rand
	ids   []string
	known map[string]*job.Record // nil entry or none: not there
	live  map[string]job.Leased
	seq   int
}

func (h *history) step() {
	h.seq++
	id := h.ids[h.rng.IntN(len(h.ids))]
	switch h.rng.IntN(10) {
	case 0, 1:
		h.create(id)
	case 2, 3:
		h.Advance(time.Duration(h.rng.IntN(40_000)) * time.Millisecond)
		h.lease()
	case 4, 5, 6:
		h.settle(id)
	case 7:
		h.operate(id)
	case 8:
		h.reap()
	default:
		h.renew(id)
	}
}

func (h *history) create(id string) {
	d := Definition(id)
	if h.rng.IntN(2) == 0 {
		d = Once(id, time.Duration(h.Clock.Load()-Start)*time.Millisecond)
	}
	d.Queue, d.CreateRequestID = fmt.Sprint("q", h.rng.IntN(3)), fmt.Sprint(h.seq)
	r := h.Record(d)
	reply := h.Store.Create(h.T.Context(), 0, []job.Record{r})
	if reply.Err != nil {
		h.T.Fatal(reply.Err)
	}
	want := job.Created
	if known := h.known[id]; known != nil {
		if want = job.Exists; known.State.Deleting {
			want = job.Tombstone
		}
	} else {
		h.known[id] = &r
	}
	if got := reply.Results[0].Code; got != want {
		h.T.Fatalf("create %s: code %d, want %d", id, got, want)
	}
}

func (h *history) lanes() []job.Lane {
	var out []job.Lane
	for i := range 4 {
		out = append(out, job.Lane{Namespace: "ns", Queue: fmt.Sprint("q", i), Priority: 5})
	}
	return out
}

func (h *history) lease() {
	reply := h.Store.Lease(h.T.Context(), []job.LeaseRequest{LeaseRequest(0, 1+h.rng.IntN(4), "", h.lanes()...)})[0]
	if reply.Err != nil {
		h.T.Fatal(reply.Err)
	}
	for _, l := range reply.Leased {
		known := h.known[l.Definition.ID]
		if known == nil || known.State.Region != job.RegionDue || known.State.Due > h.Clock.Load() {
			h.T.Fatalf("leased %s, known as %+v", l.Record, known)
		}
		known.State = known.State.Leased(l.State.Token)
		h.live[l.Definition.ID] = l
	}
}

// write applies a decision, or a stale copy of it, and follows it if it has to
// be written.
func (h *history) write(id string, ev job.Event) {
	known := h.known[id]
	if known == nil {
		return
	}
	write := h.Decide("ns/"+id, known.Definition, known.State, ev)
	if !write.Decision.Changed {
		return
	}
	if h.rng.IntN(4) == 0 {
		stale := write
		if stale.Revision += 1 + uint32(h.rng.IntN(3)); h.rng.IntN(2) == 0 {
			stale.Revision, stale.Token = write.Revision, write.Token+1
		}
		if r := h.Apply(0, stale).Results[0]; r.Code != job.Conflict {
			h.T.Fatalf("stale write of %s: %+v", id, r)
		}
	}
	h.MustWrite(0, write)
	if write.Decision.Delete {
		delete(h.known, id)
		return
	}
	if h.rng.IntN(3) == 0 {
		h.MustWrite(0, write)
	}
	known.State = write.Decision.State
	if d := write.Decision.Definition; d != nil {
		known.Definition = *d
	}
}

func (h *history) settle(id string) {
	l, ok := h.live[id]
	if !ok {
		return
	}
	outcomes := []job.Outcome{job.OutcomeSucceeded, job.OutcomeFailed, job.OutcomeFailed}
	h.write(id, job.Settle{Token: l.State.Token, Outcome: outcomes[h.rng.IntN(3)], StartedMS: h.Clock.Load()})
	delete(h.live, id)
}

func (h *history) operate(id string) {
	known := h.known[id]
	if known == nil {
		return
	}
	edited := known.Definition
	edited.Queue = fmt.Sprint("q", h.rng.IntN(4))
	events := []job.Event{
		job.Pause{Note: fmt.Sprint(h.seq)}, job.Resume{}, job.RunNow{RequestID: fmt.Sprint(h.seq)},
		job.CancelRun{RunID: known.State.RunID()}, job.Update{New: h.compile(edited)}, job.Delete{},
	}
	h.write(id, events[h.rng.IntN(len(events))])
}

func (h *history) reap() {
	h.Advance(time.Duration(h.rng.IntN(35_000)) * time.Millisecond)
	overdue, err := h.Store.Expired(h.T.Context(), 0, lock, h.lanes(), 10)
	if err != nil {
		h.T.Fatal(err)
	}
	for _, o := range overdue {
		h.write(o.Record[len("ns/"):], job.Lose{Token: o.State.Token})
	}
	// Sweeping is for records whose time has come: those that this history knows
	// come back as not there.
	if _, err := h.Store.Sweep(h.T.Context(), 0, lock, h.lanes(), 10); err != nil {
		h.T.Fatal(err)
	}
	for id := range h.known {
		if h.Get(id) == nil {
			if r := h.known[id].State.Region; r != job.RegionDone && r != job.RegionDead {
				h.T.Fatalf("%s was swept in region %v", id, r)
			}
			delete(h.known, id)
		}
	}
}

func (h *history) renew(id string) {
	l, ok := h.live[id]
	known := h.known[id]
	if !ok || known == nil {
		return
	}
	r := job.Renewal{Record: l.Record, Lane: l.State.Lane, Token: l.State.Token, Epoch: known.State.Epoch, Acked: h.rng.IntN(2) == 0}
	got := h.Store.Renew(h.T.Context(), []job.RenewRequest{{Shard: 0, TTL: ttl, Renewals: []job.Renewal{r}}})[0]
	want := job.LeaseLost
	if known.State.Live() && known.State.Token == l.State.Token {
		want = job.Renewed
		known.State.Acked = known.State.Acked || r.Acked
	}
	if got.Err != nil || got.Results[0].Code != want {
		h.T.Fatalf("renew %s: %+v, want %d", id, got, want)
	}
}

// compare holds what is stored against what is known.
func (h *history) compare() {
	for _, id := range h.ids {
		got, known := h.Get(id), h.known[id]
		switch {
		case (got == nil) != (known == nil):
			h.T.Fatalf("%s: stored %+v, known %+v", id, got, known)
		case got == nil:
		case fmt.Sprintf("%+v", got.State) != fmt.Sprintf("%+v", known.State):
			h.T.Fatalf("%s: stored\n%+v, known\n%+v", id, got.State, known.State)
		}
	}
}
