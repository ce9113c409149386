package admission

import (
	"encoding/base64"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/fermata-io/fermata/internal/auth/payloadkeys"
	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/test/keytest"
)

// keyRing has one key. What it seals is of version 1 unless it is strict.
func keyRing(t *testing.T, o payloadkeys.Options) *payloadkeys.Ring {
	t.Helper()
	path := filepath.Join(t.TempDir(), "keys")
	line := "k1 " + base64.StdEncoding.EncodeToString(keytest.Key("one"))
	if err := os.WriteFile(path, []byte(line), 0o600); err != nil {
		t.Fatal(err)
	}
	r, err := payloadkeys.Load(path, o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func sealedBy(r *payloadkeys.Ring) func(*job.Definition) {
	return func(d *job.Definition) { d.Payload, d.PayloadKey = r.Encrypt(d, []byte("secret")) }
}

func given(payload string) func(*job.Definition) {
	return func(d *job.Definition) { d.Payload = []byte(payload) }
}

// wantPayloads fails unless these runs were delivered, each with this payload.
func (b *bed) wantPayloads(payload string, records ...job.RecordID) {
	b.t.Helper()
	b.wantGot(records...)
	for _, l := range b.slots.delivered {
		a := job.Assignment{Record: l.Known, Opened: l.Opened}
		if string(a.Payload()) != payload {
			b.t.Errorf("%s came with %q, want %q", l.Record, a.Payload(), payload)
		}
	}
}

// TestNodesThatRequireSealedPayloads hold back what is not sealed, is empty, or is sealed by
// version 1, as they do what cannot be opened; other nodes hand it out.
func TestNodesThatRequireSealedPayloads(t *testing.T) {
	loose, strict := keyRing(t, payloadkeys.Options{}), keyRing(t, payloadkeys.Options{RequireVersion2: true})
	run(t, func(b *bed) {
		b.a.o.Opener = strict
		b.put(recurring("bound", sealedBy(strict)), recurring("plain", given("made up")), recurring("empty"), recurring("first", sealedBy(loose)))
		b.deliver("ns/bound", "ns/plain", "ns/empty", "ns/first")
		b.wantPayloads("secret", "ns/bound")
		for record, key := range map[job.RecordID]string{"ns/plain": "", "ns/empty": "", "ns/first": "k1"} {
			b.wantHeld(record, job.HeldPayload, key, "")
			if s := b.store.state(record); dueIn(s) < pollPayload || s.Attempt != 0 {
				t.Errorf("%s: due in %v, %d attempts used up", record, dueIn(s), s.Attempt)
			}
		}
	})
	run(t, func(b *bed) {
		b.a.o.Opener = loose
		b.put(recurring("bound", sealedBy(strict)), recurring("plain", given("secret")), recurring("first", sealedBy(loose)))
		b.deliver("ns/bound", "ns/plain", "ns/first")
		b.wantPayloads("secret", "ns/bound", "ns/first", "ns/plain")
	})
}

// TestPayloadsGoToWorkersOfTheirQueueOnly: a record in the lane of another queue, or of another
// namespace, goes back to the queue of its job.
func TestPayloadsGoToWorkersOfTheirQueueOnly(t *testing.T) {
	strict := keyRing(t, payloadkeys.Options{RequireVersion2: true})
	mail := func(d *job.Definition) { d.Queue = "mail" }
	elsewhere := recurring("c")
	elsewhere.Namespace = "victim"
	sealedBy(strict)(&elsewhere)
	run(t, func(b *bed) {
		b.a.o.Opener = strict
		b.put(recurring("a", mail, sealedBy(strict)), recurring("b", sealedBy(strict)), elsewhere)
		b.store.set(func() { b.store.records["ns/a"].State.Lane.Queue = "q" })
		b.deliver("ns/a", "ns/b", "victim/c")
		b.wantPayloads("secret", "ns/b")
		for _, record := range []job.RecordID{"ns/a", "victim/c"} {
			b.wantEvents(record, "ReturnLease")
		}
		if s := b.store.state("ns/a"); s.Lane.Queue != "mail" || s.Region != job.RegionDue || dueIn(s) > time.Second {
			t.Errorf("put back into %s, due in %v", s.Lane, dueIn(s))
		}
		if len(b.slots.abandoned) > 0 || b.limits.count("acquire") > 0 {
			t.Error("it has passed other gates")
		}
	})
}

// TestRunsOfMovedJobsGoToTheirQueue: waiting runs that an edit of the queue left in another lane go back, whatever
// their payload and their gates. From the lane of their job they are delivered.
func TestRunsOfMovedJobsGoToTheirQueue(t *testing.T) {
	first := keyRing(t, payloadkeys.Options{})
	retry, fresh := job.RecordID("ns/a").Run(0), job.RecordID("ns/a").Run(1)
	for name, payload := range map[string]func(*job.Definition){
		"plain": given("secret"), "sealed by version 1": sealedBy(first),
	} {
		t.Run(name, func(t *testing.T) {
			run(t, func(b *bed) {
				b.a.o.Opener = first
				b.put(recurring("a", overlap(job.OverlapAllowAll)), recurring("other", given("secret")))
				b.putChildren("ns/a", 0b11, 0b01)
				leases := b.lease(retry, "ns/other", fresh)
				b.moveTo("mail", "ns/a", payload)
				// Of a run that has begun the lease has the definition; of another one it is read at the gates.
				leases[0].Known = &job.Record{Definition: b.store.records["ns/a"].Definition, State: leases[0].Known.State}
				b.a.Reserve("ns", "q", len(leases)).Deliver(leases)
				after(0)
				b.wantPayloads("secret", "ns/other")
				for _, record := range []job.RecordID{retry, fresh} {
					b.wantEvents(record, "ReturnLease")
					s := b.store.state(record)
					if s.Lane.Queue != "mail" || s.Region != job.RegionDue || dueIn(s) > time.Second || s.Attempt != 0 {
						t.Errorf("%s is put back into %s, due in %v, %d attempts", record, s.Lane, dueIn(s), s.Attempt)
					}
				}
				b.a.Reserve("ns", "mail", 2).Deliver(b.lease(retry, fresh))
				after(0)
				b.wantPayloads("secret", retry, fresh, "ns/other")
			})
		})
	}
}

// putChildren stores waiting child runs of a job in these slots. Some of them have begun.
func (b *bed) putChildren(parent job.RecordID, slots, begun uint64) {
	b.store.set(func() {
		p := b.store.records[parent]
		for slot := range 32 {
			if bit := uint64(1) << slot; slots&bit != 0 {
				s := p.State
				s.Children, s.Started = bit, begun&bit
				b.store.records[parent.Run(slot)] = &job.Record{Definition: p.Definition, State: s}
			}
		}
		p.State.Children, p.State.Started = slots, begun
	})
}

// moveTo edits the queue and the payload of a stored job. Its children stay in their lanes.
func (b *bed) moveTo(queue string, record job.RecordID, payload func(*job.Definition)) {
	b.store.set(func() {
		d := *b.store.records[record].Definition
		d.Queue = queue
		payload(&d)
		for r, stored := range b.store.records {
			if r.Job() == record {
				stored.Definition = &d
			}
		}
	})
}

// TestPayloadsAreOpenedWithTheDeliveredDefinition: what is read of the job at the gates is what
// the payload is opened with, so that nothing can be exchanged in between.
func TestPayloadsAreOpenedWithTheDeliveredDefinition(t *testing.T) {
	strict := keyRing(t, payloadkeys.Options{RequireVersion2: true})
	child := job.RecordID("ns/a").Run(0)
	for name, change := range map[string]func(*job.Definition){
		"another handler": func(d *job.Definition) { d.Handler = "exec" },
		"not sealed":      func(d *job.Definition) { d.Payload, d.PayloadKey = []byte("made up"), "" },
		"an edit":         func(d *job.Definition) { d.Handler = "exec"; sealedBy(strict)(d) },
	} {
		run(t, func(b *bed) {
			b.a.o.Opener = strict
			b.put(recurring("a", overlap(job.OverlapAllowAll), sealedBy(strict)))
			b.store.set(func() {
				parent := b.store.records["ns/a"]
				s := parent.State
				s.Children, s.Lane = 1, parent.Definition.Lane()
				b.store.records[child] = &job.Record{Definition: parent.Definition, State: s}
				parent.State.Children = 1
			})
			leases := b.lease(child)
			b.store.set(func() {
				d := *b.store.records["ns/a"].Definition
				change(&d)
				b.store.records["ns/a"].Definition = &d
			})
			b.a.Reserve("ns", "q", 1).Deliver(leases)
			after(0)
			if name != "an edit" {
				b.wantGot()
				return
			}
			b.wantPayloads("secret", child)
			if h := b.slots.delivered[0].Known.Definition.Handler; h != "exec" {
				t.Errorf("delivered for handler %s", h)
			}
		})
	}
}
