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
