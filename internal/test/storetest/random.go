package storetest

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/unixtime"
)

// Random drives a shard through a long random history of jobs and of runs that
// are records of their own, with stale writes among the good ones, and keeps beside
// it what each record should be.
func Random(w *World) {
	const seed1, seed2 = 20, 26
	h := newHistory(w, seed1, seed2)
	for step := range 2500 {
		h.applyRandomStep()
		if step%250 == 249 {
			w.CheckConsistency()
			h.compareRecords()
		}
	}
	counts := map[string]int{
		"spawned": h.spawned, "ended": h.ended, "redriven": h.redriven, "in the same slot": h.reused,
		"failing": h.ranked[job.RankingFailing], "late": h.ranked[job.RankingLate], "counted while they waited": h.late,
	}
	for what, n := range counts {
		if n < 3 {
			w.T.Errorf("runs of their own: %d %s", n, what)
		}
	}
}

func newHistory(w *World, seed1, seed2 uint64) *history {
	return &history{
		World: w, rng: rand.New(rand.NewPCG(seed1, seed2)), ids: w.InShard(0, 12),
		known: map[job.RecordID]*job.Record{}, live: map[job.RecordID]job.Leased{},
	}
}

type history struct {
	*World
	rng   *rand.Rand
	ids   []string
	known map[job.RecordID]*job.Record // by record; none: not there
	live  map[job.RecordID]job.Leased
	seq   int
	// created is called for each new job.
	created func(*job.Record)

	spawned, ended, redriven, reused, late int
	ranked                                 [job.RankingCount]int
}

func (h *history) applyRandomStep() {
	h.seq++
	id := h.ids[h.rng.IntN(len(h.ids))]
	switch h.rng.IntN(11) {
	case 0, 1:
		h.createJob(id)
	case 2, 3:
		h.Advance(time.Duration(h.rng.IntN(40_000)) * time.Millisecond)
		h.leaseDue()
	case 4, 5, 6:
		h.settleRecord(h.oneOf(id))
	case 7:
		h.operateJob(h.oneOf(id))
	case 8:
		h.reapExpired()
		h.findLate()
	case 9:
		h.redriveLetters(id)
	default:
		h.renewLease(h.oneOf(id))
	}
}

// oneOf picks the job's record or that of one of its runs.
func (h *history) oneOf(id string) job.RecordID {
	records := []job.RecordID{job.RecordID("ns/" + id)}
	if known := h.known[records[0]]; known != nil {
		for _, slot := range known.State.ChildSlots() {
			records = append(records, records[0].Run(slot))
		}
	}
	return records[h.rng.IntN(len(records))]
}

func (h *history) createJob(id string) {
	d := Definition(id)
	switch h.rng.IntN(3) {
	case 0:
		d = Once(id, time.Duration(h.Clock.Load()-Start)*time.Millisecond)
	case 1:
		d.Overlap = job.Overlap(h.rng.IntN(int(job.OverlapTerminateOther) + 1))
	}
	d.Queue, d.CreateRequestID = fmt.Sprint("q", h.rng.IntN(3)), fmt.Sprint(h.seq)
	if h.seq%2 == 0 {
		d.MaxLag = 5 * time.Second
	}
	r := h.Record(d)
	reply := Create(h.T.Context(), h.Store, 0, []job.Record{r})
	if reply.Err != nil {
		h.T.Fatal(reply.Err)
	}
	want := job.Created
	if known := h.known[d.Record()]; known != nil {
		want = job.Exists
		if known.State.Deleting {
			want = job.Tombstone
		}
	} else {
		h.known[d.Record()] = &r
		if h.created != nil {
			h.created(&r)
		}
	}
	if got := reply.Results[0].Code; got != want {
		h.T.Fatalf("create %s: code %d, want %d", id, got, want)
	}
}

func (h *history) listLanes() []job.Lane {
	var out []job.Lane
	for i := range 4 {
		out = append(out, job.Lane{Namespace: "ns", Queue: fmt.Sprint("q", i), Priority: 5})
	}
	return out
}

// leaseDue leases, and lets overlap and misfire policy decide on most of what is
// leased, as a node does.
func (h *history) leaseDue() {
	reply := h.Store.Lease(h.T.Context(), []job.LeaseRequest{LeaseRequest(0, 1+h.rng.IntN(4), "", h.listLanes()...)})[0]
	if reply.Err != nil {
		h.T.Fatal(reply.Err)
	}
	for _, l := range reply.Leased {
		known, parent := h.known[l.Record], h.known[l.Record.Job()]
		if known == nil || known.State.Region != job.RegionDue || known.State.Due > unixtime.Milli(h.Clock.Load()) {
			h.T.Fatalf("leased %s, known as %+v", l.Record, known)
		}
		if fmt.Sprintf("%+v", l.Known.Definition) != fmt.Sprintf("%+v", parent.Definition) {
			h.T.Fatalf("leased %s with\n%+v, want\n%+v", l.Record, l.Known.Definition, parent.Definition)
		}
		own := known.State.OwnPayload
		if (own != nil) != (l.Own != nil) ||
			own != nil && string(l.Own.Payload) != ownPayloadOf(known.State.ManualID) {
			h.T.Fatalf("leased %s with its own payload %+v, want %v", l.Record, l.Own, own)
		}
		known.State = known.State.Leased(l.Known.State.Token)
		h.live[l.Record] = l
	}
	for _, l := range reply.Leased {
		if h.rng.IntN(8) > 0 {
			h.applyEvent(l.Record, job.RunLeased{Token: l.Known.State.Token})
		}
	}
}

// planWrites are what an event asks for: one write, or two that go together.
func (h *history) planWrites(record job.RecordID, ev job.Input) []job.Write {
	parent, known := h.known[record.Job()], h.known[record]
	if parent == nil || known == nil {
		return nil
	}
	if parent == known {
		return changedWrites(h.Decide(record, known.Definition, known.State, ev))
	}
	writes := h.DecideChild(record, parent.Definition, parent.State, known.State, ev)
	if known.Definition != nil {
		writes[0].Current = known.Definition // a dead letter has its own
	}
	return changedWrites(writes...)
}

// applyEvent applies a decision, or a stale copy of it, and follows it if it has to
// be written.
func (h *history) applyEvent(record job.RecordID, ev job.Input) {
	h.applyWrites(h.planWrites(record, ev))
}

func (h *history) applyWrites(writes []job.Write) {
	if len(writes) == 0 {
		return
	}
	if h.rng.IntN(4) == 0 {
		stale := append([]job.Write(nil), writes...)
		at := &stale[h.rng.IntN(len(stale))]
		if h.rng.IntN(2) == 0 {
			at.Token++
		} else {
			at.Revision += 1 + uint32(h.rng.IntN(3))
		}
		for i, r := range h.Apply(0, stale...).Results {
			if r.Code != job.Conflict {
				h.T.Fatalf("stale write of %s: %+v", stale[i].Record, r)
			}
		}
	}
	h.MustWrite(0, writes...)
	for i := range writes {
		h.trackWrite(&writes[i])
	}
	if last := writes[len(writes)-1]; !last.Decision.Delete && h.rng.IntN(3) == 0 {
		h.MustWrite(0, writes...) // an answer was lost
	}
}

func (h *history) trackWrite(w *job.Write) {
	d, run := w.Decision, w.Record.Job() != w.Record
	if d.Delete {
		delete(h.known, w.Record)
		delete(h.live, w.Record)
		if run {
			h.ended++
		}
	} else if known := h.known[w.Record]; known != nil {
		known.State = d.State
		if d.Definition != nil {
			known.Definition = d.Definition
		}
	}
	if d.Spawn == nil {
		return
	}
	h.spawned++
	child := w.Record.Run(d.Spawn.Slot)
	h.known[child] = &job.Record{State: d.Spawn.State}
	if l, ok := h.live[w.Record]; ok && d.Spawn.State.Live() {
		delete(h.live, w.Record)
		l.Record, l.Known.State = child, d.Spawn.State
		h.live[child] = l
	}
}

// compareRecords holds what is stored against what is known.
func (h *history) compareRecords() {
	var records []job.RecordID
	for _, id := range h.ids {
		records = append(records, job.RecordID("ns/"+id))
	}
	for record := range h.known {
		if record.Job() != record {
			records = append(records, record)
		}
	}
	stored, err := h.Store.GetRecords(h.T.Context(), 0, records)
	if err != nil {
		h.T.Fatal(err)
	}
	for i, record := range records {
		got, known := stored[i], h.known[record]
		switch {
		case (got == nil) != (known == nil):
			h.T.Fatalf("%s: stored %+v, known %+v", record, got, known)
		case got == nil:
		case FormatState(got.State) != FormatState(known.State):
			h.T.Fatalf("%s: stored\n%s, known\n%s", record, FormatState(got.State), FormatState(known.State))
		}
	}
	h.compareRanks()
	h.compareObjectives()
}

// FormatState formats all values of a state, those behind its pointer as well.
func FormatState(s job.State) string {
	var log job.AttemptLog
	if s.AttemptLog != nil {
		log, s.AttemptLog = *s.AttemptLog, nil
	}
	return fmt.Sprintf("%+v %+v", s, log)
}

// compareRanks: the indexes of the worst have the jobs with a rank, and no others.
func (h *history) compareRanks() {
	h.T.Helper()
	for _, which := range []job.Ranking{job.RankingFailing, job.RankingLate} {
		indexed := map[job.RecordID]int64{}
		for _, e := range h.readWorst(which, 100) {
			indexed[e.Record] = e.Rank
		}
		for record, r := range h.known {
			if r == nil || record.Job() != record {
				continue
			}
			rank := r.State.Ranks().Failing
			if which == job.RankingLate {
				rank = r.State.Ranks().Late
			}
			if indexed[record] != rank {
				h.T.Fatalf("index %d has %s with rank %d, want %d: %+v", which, record, indexed[record], rank, r.State)
			}
			if rank > 0 {
				h.ranked[which]++
			}
			delete(indexed, record)
		}
		if len(indexed) > 0 {
			h.T.Fatalf("index %d has what has no rank: %v", which, indexed)
		}
	}
}
