package storetest

import (
	"fmt"
	"strings"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/redis/codec"
)

// ownPayloadOf is the payload of the run of a request in these tests.
func ownPayloadOf(requestID string) string { return "own payload of " + requestID }

func requestWithPayload(id string) job.RequestManualRun {
	return job.RequestManualRun{RequestID: id, Payload: &job.RunPayload{Payload: []byte(ownPayloadOf(id))}}
}

// hasOwnDefinition reports whether a definition is stored for a record: of a run its own payload, if it has one.
func hasOwnDefinition(id job.RecordID, text string) bool {
	state, err := codec.DecodeState(id, text)
	return !isRun(id) || err == nil && state.OwnPayload != nil
}

// testRunPayloads: a run with a payload of its own is leased with it, also after an edit of the job; so are its dead
// letter and what a redrive makes of that. When all of it is over, nothing of it is left.
func testRunPayloads(w *World) {
	d := Definition(w.InShard(0, 1)[0])
	d.Retry.MaxAttempts = 1
	w.Add(d)
	for range 3 { // the reply was lost twice
		w.MustWrite(0, w.Decide(d.Record(), &d, w.Get(d.ID).State, requestWithPayload("p")))
	}
	edited := *w.Get(d.ID).Definition
	edited.Payload, edited.Queue = []byte("edited"), "bulk"
	w.MustWrite(0, w.Decide(d.Record(), w.Get(d.ID).Definition, w.Get(d.ID).State,
		job.Update{New: w.compileDefinition(&edited)}))
	run, letter := d.Record().Run(0), d.Record().Letter(0)
	leaseRun := func() job.Leased {
		w.T.Helper()
		state := w.Records(run)[0].State
		w.Clock.Store(max(w.Clock.Load(), int64(state.Due)))
		reply := w.Store.Lease(w.T.Context(), []job.LeaseRequest{LeaseRequest(0, 1, "", state.Lane)})[0]
		if reply.Err != nil || len(reply.Leased) != 1 || reply.Leased[0].Record != run {
			w.T.Fatalf("leased %+v", reply)
		}
		l := reply.Leased[0]
		if l.Own == nil || string(l.Own.Payload) != ownPayloadOf("p") || string(l.Known.Definition.Payload) != "edited" {
			w.T.Fatalf("leased with %+v and %q", l.Own, l.Known.Definition.Payload)
		}
		return l
	}
	l := leaseRun()
	w.MustWrite(0, w.Family(run, job.LoseLease{Token: l.Known.State.Token})...)
	l = leaseRun()
	failed := w.Family(run, job.FinishAttempt{Token: l.Known.State.Token, Outcome: job.OutcomeFailed, StartedMS: w.now()})
	for range 2 {
		w.MustWrite(0, failed...)
	}
	got := w.Records(letter)[0]
	if string(got.Definition.Payload) != ownPayloadOf("p") || got.Definition.Queue != "bulk" ||
		got.State.OwnPayload == nil {
		w.T.Errorf("dead letter: %+v", got)
	}
	w.mustHaveFields("def", string(d.Record()), string(letter))
	redriven := w.Family(letter, job.Redrive{})
	for range 2 {
		w.MustWrite(0, redriven...)
	}
	w.mustHaveFields("def", string(d.Record()), string(run))
	w.mustHaveOwnParts(true, d.Record(), run)
	w.mustHaveOwnParts(false, letter)
	l = leaseRun()
	w.MustWrite(0, w.Family(run, w.finish(l, job.OutcomeSucceeded))...)
	w.mustHaveFields("def", string(d.Record()))
	w.mustHaveOwnParts(false, run)
	runs, err := w.Store.Runs(w.T.Context(), d.Key, d.HistoryLimit)
	if err != nil || len(runs) != 2 || runs[0].OwnPayload == nil || runs[0].OwnPayload.Size != len(ownPayloadOf("p")) {
		w.T.Errorf("history: %+v, %v", runs, err)
	}
	if got := w.Get(d.ID); string(got.Definition.Payload) != "edited" || got.State.OwnBytes != 0 {
		w.T.Errorf("the job: %+v", got)
	}
}

// mustHaveOwnParts checks that records have a state and a definition of their own, or neither.
func (w *World) mustHaveOwnParts(want bool, ids ...job.RecordID) {
	w.T.Helper()
	parts, err := w.Store.StoredOwnParts(w.T.Context(), 0, ids)
	for i, p := range parts {
		if p.State != want || p.Definition != want {
			w.T.Errorf("parts of %s: %+v", ids[i], p)
		}
	}
	if err != nil || len(parts) != len(ids) {
		w.T.Errorf("%v, %v", parts, err)
	}
}

// mustHaveFields checks the names of the fields of a hash.
func (w *World) mustHaveFields(hash string, want ...string) {
	w.T.Helper()
	got, err := w.Client.HKeys(w.T.Context(), w.Key(0, hash)).Result()
	if err != nil || !sameElements(got, want) {
		w.T.Errorf("%s has %q, want %q (%v)", hash, got, want, err)
	}
}

func sameElements(a, b []string) bool {
	seen := map[string]int{}
	for _, x := range a {
		seen[x]++
	}
	for _, x := range b {
		seen[x]--
	}
	for _, n := range seen {
		if n != 0 {
			return false
		}
	}
	return true
}

// testWrongRunPayload: a run whose payload is gone, or another one, is not leased: it must not run with another one.
// The audit finds it.
func testWrongRunPayload(w *World) {
	w.Damaged()
	for i, damage := range []func(field string) error{
		func(field string) error { return w.Client.HDel(w.T.Context(), w.Key(0, "def"), field).Err() },
		func(field string) error { return w.Client.HSet(w.T.Context(), w.Key(0, "def"), field, "").Err() },
		func(field string) error { return w.Client.HSet(w.T.Context(), w.Key(0, "def"), field, "\xff").Err() },
	} {
		d := Definition(w.InShard(0, 3)[i])
		w.Add(d)
		w.MustWrite(0, w.Decide(d.Record(), &d, w.Get(d.ID).State, requestWithPayload("p")))
		run := d.Record().Run(0)
		if err := damage(string(run)); err != nil {
			w.T.Fatal(err)
		}
		if leased := w.Lease(0, 5); len(leased) != 0 {
			w.T.Errorf("leased %+v", leased[0])
		}
		found := false
		for _, f := range w.MustBeConsistent(0, false).Findings {
			found = found || f.Record == run && (f.Fault == job.FaultNoDefinition || f.Fault == job.FaultUnreadable)
		}
		if !found {
			w.T.Errorf("damage %d is not found", i)
		}
	}
}

// ExplorePayloads is Explore for runs with payloads of their own: what two nodes can do to a job, its runs and its dead
// letters, each by what it knew when it last looked.
func ExplorePayloads(w *World, depth int) (states, steps int) {
	e := &payloadExplorer{explorer: &explorer{
		World: w, id: w.InShard(0, 1)[0], seen: map[string]bool{}, done: map[string]int{},
	}}
	w.Damaged() // each state is audited on the way
	d := e.newDefinition()
	d.Retry.MaxAttempts = 1
	w.Add(d)
	first := &payloadScene{scene: scene{clock: e.Clock.Load(), lock: lockOf(0)}}
	e.SetLock(0, first.lock)
	e.updateScene(&first.scene)
	frontier := []*payloadScene{first, e.deadScene(first)}
	for range depth {
		var next []*payloadScene
		for _, s := range frontier {
			for _, a := range e.listActs() {
				e.restoreScene(&s.scene)
				after := *s
				after.story = append(append([]string{}, s.story...), a.name)
				a.apply(&after)
				steps++
				after.clock = e.Clock.Load()
				e.updateScene(&after.scene)
				e.held = &after.scene
				key := e.stateKey(&after)
				if e.seen[key] {
					continue
				}
				e.seen[key] = true
				if after.stored != s.stored {
					e.done[a.name]++
				}
				if err := e.checkPayloads(&after); err != nil {
					w.T.Errorf("%v: %s", err, after.stored)
				}
				if w.T.Failed() {
					w.T.Fatalf("after: %s", strings.Join(after.story, ", "))
				}
				next = append(next, &after)
			}
		}
		frontier = next
	}
	for _, a := range e.listActs() {
		if e.done[a.name] == 0 && a.name != "reads" && !strings.HasSuffix(a.name, "looks") {
			w.T.Errorf("%q never had an effect", a.name)
		}
	}
	return len(e.seen), steps
}

// deadScene is a scene in which both nodes know a dead letter that has a payload of its own.
func (e *payloadExplorer) deadScene(first *payloadScene) *payloadScene {
	s := *first
	for _, name := range []string{
		"node 1 looks", "node 1 requests a run", "node 1 leases", "node 1 reports a failure", "node 0 looks",
		"node 1 looks",
	} {
		for _, a := range e.listActs() {
			if a.name == name {
				s.story = append(s.story, name)
				a.apply(&s)
			}
		}
	}
	s.clock = e.Clock.Load()
	e.updateScene(&s.scene)
	if s.known[0][job.RecordID(e.recordID()).Letter(0)] == nil {
		e.T.Fatalf("no dead letter: %s", s.stored)
	}
	return &s
}

type payloadExplorer struct{ *explorer }

// payloadScene is a scene with what each node knows of the job and its records.
type payloadScene struct {
	scene
	known [explorers]map[job.RecordID]*job.Record
	live  [explorers]*job.Leased
}

type payloadAct struct {
	name  string
	apply func(*payloadScene)
}

func (e *payloadExplorer) records() []job.RecordID {
	id := job.RecordID(e.recordID())
	return []job.RecordID{id, id.Run(0), id.Run(1), id.Letter(0), id.Letter(1)}
}

func (e *payloadExplorer) look() map[job.RecordID]*job.Record {
	known := map[job.RecordID]*job.Record{}
	stored, err := e.Store.GetRecords(e.T.Context(), 0, e.records())
	if err != nil {
		e.T.Fatal(err)
	}
	for i, r := range stored {
		if r != nil {
			known[e.records()[i]] = r
		}
	}
	return known
}

func (e *payloadExplorer) listActs() (acts []payloadAct) {
	id := job.RecordID(e.recordID())
	for n := range explorers {
		add := func(what string, apply func(s *payloadScene)) {
			acts = append(acts, payloadAct{fmt.Sprintf("node %d %s", n, what), apply})
		}
		decide := func(what string, record job.RecordID, ev job.Input) {
			add(what, func(s *payloadScene) { e.decide(s.known[n], record, ev) })
		}
		add("looks", func(s *payloadScene) { s.known[n] = e.look() })
		add("leases", func(s *payloadScene) { s.live[n] = e.lease() })
		decide("requests a run", id, requestWithPayload(fmt.Sprint("node-", n)))
		decide("redrives", id.Letter(0), job.Redrive{})
		for what, end := range map[string]func(uint64) job.Input{
			"reports a failure": func(token uint64) job.Input {
				return job.FinishAttempt{Token: token, Outcome: job.OutcomeFailed, StartedMS: e.now()}
			},
			"reports a loss": func(token uint64) job.Input { return job.LoseLease{Token: token} },
		} {
			add(what, func(s *payloadScene) {
				if l := s.live[n]; l != nil {
					known := e.look() // the ledger decides on what is stored
					e.decide(known, l.Record, end(l.Known.State.Token))
				}
			})
		}
	}
	edited := e.newDefinition()
	edited.Payload, edited.Queue, edited.Revision = []byte("edited"), "bulk", 2
	acts = append(acts,
		payloadAct{"the job is edited", func(*payloadScene) {
			e.decide(e.look(), id, job.Update{New: e.compileDefinition(&edited)})
		}},
		payloadAct{"node 0 cancels", func(s *payloadScene) {
			e.decide(s.known[0], id.Run(0), job.CancelRun{RunID: "m-node-0"})
		}},
		payloadAct{"node 0 discards", func(s *payloadScene) {
			e.decide(s.known[0], id.Letter(0), job.Discard{RunID: "m-node-1"})
		}},
		payloadAct{"the job is deleted", func(*payloadScene) { e.decide(e.look(), id, job.Delete{}) }},
	)
	return acts
}

// decide decides on what is known, and writes it twice: the first reply was lost.
func (e *payloadExplorer) decide(known map[job.RecordID]*job.Record, record job.RecordID, ev job.Input) {
	parent, own := known[job.RecordID(e.recordID())], known[record]
	if parent == nil || own == nil {
		return
	}
	var writes []job.Write
	if record.IsJob() {
		writes = changedWrites(e.Decide(record, parent.Definition, parent.State, ev))
	} else {
		writes = e.DecideChild(record, parent.Definition, parent.State, own.State, ev)
		writes[0].Current = own.Definition
		writes = changedWrites(writes...)
	}
	if len(writes) == 0 {
		return
	}
	for range 2 {
		if reply := e.Apply(0, writes...); reply.Err != nil {
			e.T.Fatal(reply.Err)
		}
	}
}

// lease leases one run that has a payload of its own, of which there are two at most.
func (e *payloadExplorer) lease() *job.Leased {
	bulk := Lane()
	bulk.Queue = "bulk"
	request := LeaseRequest(0, 1, "", Lane(), bulk)
	request.LockValue = lockOf(0)
	reply := e.Store.Lease(e.T.Context(), []job.LeaseRequest{request})[0]
	if reply.Err != nil {
		e.T.Fatal(reply.Err)
	}
	if len(reply.Leased) == 0 {
		return nil
	}
	l := &reply.Leased[0]
	own := l.Known.State.OwnPayload != nil
	if own != (l.Own != nil) || own && string(l.Own.Payload) != ownPayloadOf(l.Known.State.ManualID) {
		e.T.Errorf("leased %s of %s with %+v", l.Record, l.Known.State.ManualID, l.Own)
	}
	return l
}

// checkPayloads: what is stored of payloads is what the states describe, and nothing else.
func (e *payloadExplorer) checkPayloads(s *payloadScene) error {
	states, definitions := s.texts[e.Key(0, "st")], s.texts[e.Key(0, "def")]
	ownBytes := uint64(0)
	for field, text := range states {
		id := job.RecordID(field)
		state, err := codec.DecodeState(id, text)
		if err != nil {
			return err
		}
		definition, defined := definitions[field]
		switch own := state.OwnPayload; {
		case own == nil && id.IsRun() && defined:
			return fmt.Errorf("%s has a payload that its state does not describe", id)
		case own == nil:
		default:
			payload, err := codec.DecodeRunPayload(definition)
			if err != nil || !defined || !own.Describes(payload) || string(payload.Payload) != ownPayloadOf(state.ManualID) {
				return fmt.Errorf("%s of %s has the payload %+v (%v)", id, state.ManualID, payload, err)
			}
			if id.IsRun() {
				ownBytes += uint64(own.Size)
			}
		}
	}
	for field := range definitions {
		if _, ok := states[field]; !ok {
			return fmt.Errorf("%s has a definition and no state", field)
		}
	}
	if text, ok := states[e.recordID()]; ok {
		state, err := codec.DecodeState(job.RecordID(e.recordID()), text)
		if err != nil || state.OwnBytes != ownBytes {
			return fmt.Errorf("the job counts %d bytes of payloads, there are %d (%v)", state.OwnBytes, ownBytes, err)
		}
	}
	for _, f := range e.MustBeConsistent(0, false).Findings {
		return fmt.Errorf("audit: %+v", f)
	}
	return nil
}

// stateKey names a scene by what matters for all that can follow.
func (e *payloadExplorer) stateKey(s *payloadScene) string {
	var b strings.Builder
	show := func(r *job.Record) {
		if r == nil {
			b.WriteString("none|")
			return
		}
		state := r.State
		state.Token, state.SettledToken, state.Revision = 0, 0, 0
		fmt.Fprintf(&b, "%+v %s|", state, r.Definition.Payload)
	}
	stored := e.look()
	for _, id := range e.records() {
		show(stored[id])
		for n := range explorers {
			known := s.known[n][id]
			current := known != nil && stored[id] != nil && known.State.Revision == stored[id].State.Revision &&
				known.State.Token == stored[id].State.Token
			fmt.Fprintf(&b, "%v%v|", known != nil, current)
		}
	}
	for n := range explorers {
		l := s.live[n]
		current := l != nil && stored[l.Record] != nil && stored[l.Record].State.Token == l.Known.State.Token
		fmt.Fprintf(&b, "%v%v|", l != nil, current)
	}
	return b.String()
}
