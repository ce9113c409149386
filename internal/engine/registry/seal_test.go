package registry_test

import (
	"encoding/base64"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fermata-io/fermata/internal/auth/payloadkeys"
	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/engine/registry"
	"github.com/fermata-io/fermata/internal/test/keytest"
)

// sealing are the registries of nodes on one Redis: without keys, in a keyspace of which older
// nodes may be (version 1), in one of the latest schema, and one that requires sealed payloads.
type sealing struct {
	plain, first, bound, strict *rig
	ring, strictRing            *payloadkeys.Ring
}

func newSealing(t *testing.T) *sealing {
	t.Helper()
	path := filepath.Join(t.TempDir(), "keys")
	if err := os.WriteFile(path, []byte("k1 "+base64.StdEncoding.EncodeToString(keytest.Key("one"))+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	load := func(o payloadkeys.Options) *payloadkeys.Ring {
		ring, err := payloadkeys.Load(path, o)
		if err != nil {
			t.Fatal(err)
		}
		return ring
	}
	s := &sealing{plain: newRig(t), ring: load(payloadkeys.Options{}), strictRing: load(payloadkeys.Options{RequireVersion2: true})}
	with := func(ring *payloadkeys.Ring) *rig {
		r, err := registry.NewUnhurried(registry.Options{Store: s.plain.store, SharedLimits: s.plain.store.Limits(), Ledger: s.plain.book, Sealer: ring})
		if err != nil {
			t.Fatal(err)
		}
		return &rig{Registry: r, store: s.plain.store, book: s.plain.book, redis: s.plain.redis, admin: s.plain.admin}
	}
	s.first, s.bound, s.strict = with(load(payloadkeys.Options{})), with(s.ring), with(s.strictRing)
	s.ring.UseVersion2()
	return s
}

// put registers a job of owner x by one of the registries.
func put(t *testing.T, r *rig, id, payload string) job.Key {
	t.Helper()
	d := owned(id, "x")
	if d.Payload = []byte(payload); payload == "" {
		d.Payload = nil
	}
	if _, err := r.Create(t.Context(), d, ""); err != nil {
		t.Fatal(err)
	}
	return d.Key
}

// forge writes a job as somebody does who can write to Redis.
func (s *sealing) forge(t *testing.T, key job.Key, change func(*job.Definition)) {
	t.Helper()
	d := *s.stored(t, key)
	change(&d)
	compiled, err := job.Compile(&d)
	if err != nil {
		t.Fatal(err)
	}
	if r := s.plain.book.SubmitAndWait(t.Context(), job.Change{Record: key.Record(), Input: job.Update{New: compiled, Base: s.stored(t, key).Etag()}})[0]; r.Err != nil || r.Answer != job.Applied {
		t.Fatalf("%+v", r)
	}
}

func (s *sealing) stored(t *testing.T, key job.Key) *job.Definition {
	t.Helper()
	record, err := s.plain.Get(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	return record.Definition
}

// wantPayload fails unless strict nodes would hand out what is stored.
func (s *sealing) wantPayload(t *testing.T, key job.Key, want, after string) {
	t.Helper()
	if payload, err := s.strictRing.Decrypt(s.stored(t, key)); err != nil || string(payload) != want {
		t.Errorf("after %s strict nodes find %q, %v; want %q", after, payload, err, want)
	}
}

func definitionEdit(key job.Key, keeps bool, change func(*job.Definition)) job.UpdateRequest {
	return job.UpdateRequest{Key: key, KeepsPayload: keeps, Merge: func(d job.Definition) (job.Definition, error) {
		change(&d)
		return d, nil
	}}
}

// edits are one edit of each field that a payload is bound to, and one of another field.
var edits = map[string]func(*job.Definition){
	"queue":    func(d *job.Definition) { d.Queue = "bulk" },
	"handler":  func(d *job.Definition) { d.Handler = "exec" },
	"timeout":  func(d *job.Definition) { d.Timeout = time.Hour },
	"labels":   func(d *job.Definition) { d.Labels = map[string]string{job.OwnerLabel: "x", "more": "y"} },
	"attempts": func(d *job.Definition) { d.Retry.MaxAttempts = 7 },
	"priority": func(d *job.Definition) { d.Priority = 9 },
}

func TestEditsSealPayloadsAnew(t *testing.T) {
	s := newSealing(t)
	for name, change := range edits {
		for _, payload := range []string{"secret", ""} {
			r := s.bound
			if name == "queue" {
				r = s.strict
			}
			id := name + "-" + payload
			key := put(t, r, id, payload)
			s.wantPayload(t, key, payload, "creation")
			if _, err := r.Update(t.Context(), definitionEdit(key, true, change)); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			s.wantPayload(t, key, payload, "an update of "+name)
			desiredJob := job.DesiredJob{Definition: owned(id, "x")}
			desiredJob.Definition.Payload = []byte(payload)
			if _, a := r.one(t, desiredJob); a.Err != nil || a.Action != job.ApplyUpdate { // and back
				t.Errorf("%s: %v %v", name, a.Action, a.Err)
			}
			s.wantPayload(t, key, payload, "an applied file")
			if again, _ := r.one(t, desiredJob); again.Action != job.ApplyUnchanged {
				t.Errorf("%s: once more it is %v", name, again.Action)
			}
			change(&desiredJob.Definition)
			desiredJob.AsRead, desiredJob.Definition.Payload = true, nil
			planned, a := r.one(t, desiredJob)
			if a.Err != nil || a.Action != job.ApplyUpdate {
				t.Errorf("%s as read: %v %v", name, a.Action, a.Err)
			}
			if p := planned.After.Definition; p.PayloadKey == "" || string(p.Payload) == payload {
				t.Errorf("%s: a plan shows the payload", name)
			}
			s.wantPayload(t, key, payload, "an applied export of "+name)
		}
	}
}

// TestWhatIsNotHandedOutIsNotSealed: whoever can write to Redis cannot have a strict node seal
// what they have put there, by whatever edit comes along.
func TestWhatIsNotHandedOutIsNotSealed(t *testing.T) {
	s := newSealing(t)
	plain := func(text string) func(*testing.T, string) job.Key {
		return func(t *testing.T, id string) job.Key {
			key := put(t, s.strict, id, "secret")
			s.forge(t, key, func(d *job.Definition) { d.Payload, d.PayloadKey = []byte(text), "" })
			return key
		}
	}
	for name, forged := range map[string]func(*testing.T, string) job.Key{
		"plain":     plain("made up"),
		"empty":     plain(""),
		"version-1": func(t *testing.T, id string) job.Key { return put(t, s.first, id, "secret") },
		"moved": func(t *testing.T, id string) job.Key {
			key := put(t, s.strict, id, "secret")
			s.forge(t, key, func(d *job.Definition) { d.Queue = "bulk" })
			return key
		},
	} {
		key := forged(t, name)
		before := s.stored(t, key)
		refused := func(what string, err error) {
			t.Helper()
			wantUnreadable(t, name+": "+what, err)
			if after := s.stored(t, key); after.Etag() != before.Etag() {
				t.Errorf("%s: %s has changed the job", name, what)
			}
		}
		for field, change := range edits {
			_, err := s.strict.Update(t.Context(), definitionEdit(key, true, change))
			refused("an update of "+field, err)
		}
		_, err := s.strict.Update(t.Context(), job.UpdateRequest{Key: key, Reseal: true, Merge: func(d job.Definition) (job.Definition, error) { return d, nil }})
		refused("to reseal", err)
		desiredJob := job.DesiredJob{Definition: *before, AsRead: true}
		desiredJob.Definition.Priority++
		_, a := s.strict.one(t, desiredJob)
		refused("an applied export", a.Err)

		_, err = s.strict.Update(t.Context(), definitionEdit(key, false, giveNewPayload))
		refused("a payload alone", err)
		_, err = s.strict.RunJobWithPayload(t.Context(), key, job.RunWithPayloadRequest{Payload: []byte("new secret")})
		refused("a run with a payload", err)

		desiredJob = job.DesiredJob{Definition: *before}
		desiredJob.Definition.Payload, desiredJob.Definition.PayloadKey = []byte("from its file"), ""
		if name == "plain" || name == "empty" { // the very same, which has to be sealed all the same
			desiredJob.Definition.Payload = before.Payload
		}
		if planned, a := s.strict.one(t, desiredJob); a.Err != nil || a.Action != job.ApplyUpdate || planned.Action != job.ApplyUpdate {
			t.Errorf("%s: a payload that is given: %v %v", name, a.Action, a.Err)
		}
		s.wantPayload(t, key, string(desiredJob.Definition.Payload), name+" and a file that has it")
	}
	key := put(t, s.plain, "given", "made up")
	whole := definitionEdit(key, false, giveNewPayload)
	whole.NamesBoundFields = true
	if _, err := s.strict.Update(t.Context(), whole); err != nil {
		t.Error(err)
	}
	s.wantPayload(t, key, "new secret", "an update with a whole definition")
}

func giveNewPayload(d *job.Definition) { d.Payload, d.PayloadKey = []byte("new secret"), "" }

// wantUnreadable fails unless an error refuses what a stored payload does not authenticate, and asks for the whole
// definition.
func wantUnreadable(t *testing.T, what string, err error) {
	t.Helper()
	var unmet *job.PreconditionError
	if !errors.As(err, &unmet) || unmet.Reason != job.ReasonPayloadUnreadable ||
		!strings.Contains(unmet.Text, "give the whole definition") {
		t.Errorf("%s: %v", what, err)
	}
}

// TestNewPayloadsAreNotSealedForForgedFields: a node with keys seals no given payload together with stored fields that
// somebody has changed in Redis, whether or not it requires sealed payloads. A job with an empty payload is
// authenticated like any other.
func TestNewPayloadsAreNotSealedForForgedFields(t *testing.T) {
	s := newSealing(t)
	give := map[string]func(*rig, job.Key) error{
		"update": func(r *rig, key job.Key) error {
			_, err := r.Update(t.Context(), definitionEdit(key, false, giveNewPayload))
			return err
		},
		"update-and-queue": func(r *rig, key job.Key) error {
			_, err := r.Update(t.Context(), definitionEdit(key, false, func(d *job.Definition) {
				giveNewPayload(d)
				d.Queue = "other"
			}))
			return err
		},
		"run": func(r *rig, key job.Key) error {
			_, err := r.RunJobWithPayload(t.Context(), key, job.RunWithPayloadRequest{Payload: []byte("new secret")})
			return err
		},
	}
	for node, r := range map[string]*rig{"strict": s.strict, "bound": s.bound} {
		for payload, size := range map[string]string{"secret": "full", "": "empty"} {
			for field, forge := range edits {
				for how, call := range give {
					key := put(t, r, node+"-"+size+"-"+field+"-"+how, payload)
					s.forge(t, key, forge)
					before := s.stored(t, key).Etag()
					err := call(r, key)
					if field == "priority" { // no payload is bound to it
						if err != nil {
							t.Errorf("%s: %v", key.ID, err)
						}
						continue
					}
					wantUnreadable(t, key.ID, err)
					if s.stored(t, key).Etag() != before {
						t.Errorf("%s has changed the job", key.ID)
					}
				}
			}
		}
	}
}

// TestEarlierPayloadsAreReplaced: nodes with keys seal a payload that is given to a job from before the keys. Nothing
// authenticates its fields, so that nodes that require sealed payloads refuse it.
func TestEarlierPayloadsAreReplaced(t *testing.T) {
	s := newSealing(t)
	for name, before := range map[string]*rig{"plain": s.plain, "version-1": s.first} {
		for _, payload := range []string{"earlier", ""} {
			key := put(t, before, name+payload, payload)
			edit := definitionEdit(key, false, giveNewPayload)
			run := job.RunWithPayloadRequest{Payload: []byte("new secret")}
			_, err := s.strict.RunJobWithPayload(t.Context(), key, run)
			wantUnreadable(t, name, err)
			_, err = s.strict.Update(t.Context(), edit)
			wantUnreadable(t, name, err)
			if _, err := s.bound.RunJobWithPayload(t.Context(), key, run); err != nil {
				t.Errorf("%s: a run: %v", name, err)
			}
			if _, err := s.bound.Update(t.Context(), edit); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			s.wantPayload(t, key, "new secret", "an update of the payload")
		}
	}
}

// TestNodesWithoutKeysKeepSealedPayloads: a node that cannot open a payload edits what it is
// not bound to, and nothing else.
func TestNodesWithoutKeysKeepSealedPayloads(t *testing.T) {
	s := newSealing(t)
	key, old := put(t, s.bound, "a", "secret"), put(t, s.first, "old", "secret")
	for name, change := range edits {
		_, err := s.plain.Update(t.Context(), definitionEdit(key, true, change))
		if refused := err != nil; refused != (name != "priority") {
			t.Errorf("%s: %v", name, err)
		}
		s.wantPayload(t, key, "secret", "an edit of "+name)
		if _, err := s.plain.Update(t.Context(), definitionEdit(old, true, change)); err != nil {
			t.Errorf("version 1, %s: %v", name, err)
		}
		if payload, err := s.ring.Decrypt(s.stored(t, old)); err != nil || string(payload) != "secret" {
			t.Errorf("version 1 after an edit of %s: %q, %v", name, payload, err)
		}
	}
}

// TestResealBindsPayloads: what is stored from before is sealed by version 2, empty payloads
// too; as long as older nodes may be there, by version 1, as those have it.
func TestResealBindsPayloads(t *testing.T) {
	s := newSealing(t)
	reseal := func(r *rig, key job.Key) (changed bool) {
		t.Helper()
		before := s.stored(t, key).Etag()
		if _, err := r.Update(t.Context(), job.UpdateRequest{Key: key, Reseal: true, Merge: func(d job.Definition) (job.Definition, error) { return d, nil }}); err != nil {
			t.Fatal(err)
		}
		return s.stored(t, key).Etag() != before
	}
	keys := map[string]job.Key{"": put(t, s.plain, "empty", ""), "text": put(t, s.plain, "plain", "text"), "secret": put(t, s.first, "first", "secret")}
	for payload, key := range keys {
		if changed := reseal(s.first, key); changed != (payload == "text") {
			t.Errorf("%q by version 1: changed: %v", payload, changed)
		}
		if d := s.stored(t, key); payload != "" && d.SealVersion() != job.SealOfJob || payload == "" && d.PayloadKey != "" {
			t.Errorf("%q is sealed by version %d, where older nodes may be", payload, d.SealVersion())
		}
		if !reseal(s.bound, key) || reseal(s.bound, key) || reseal(s.strict, key) {
			t.Errorf("%q: was not sealed once by version 2", payload)
		}
		s.wantPayload(t, key, payload, "resealing")
	}
}

// TestRestoreSealsPayloads: what comes sealed has to fit its definition, and is sealed by
// version 2. A strict node takes what it would hand out: a backup may have what somebody wrote to Redis.
func TestRestoreSealsPayloads(t *testing.T) {
	s := newSealing(t)
	restore := func(r *rig, d job.Definition) error {
		return r.Restore(t.Context(), []job.Backup{{Definition: d}}, job.ExistingReplace)[0].Err
	}
	bound, first, plain := *s.stored(t, put(t, s.bound, "bound", "secret")), *s.stored(t, put(t, s.first, "first", "secret")), owned("plain", "x")
	plain.Payload = []byte("secret")
	for _, d := range []job.Definition{bound, first} {
		if err := s.plain.Delete(t.Context(), d.Key, ""); err != nil {
			t.Fatal(err)
		}
	}
	for name, change := range edits {
		if name == "priority" {
			continue
		}
		moved := bound
		change(&moved)
		for _, r := range []*rig{s.bound, s.strict} {
			if err := restore(r, moved); err == nil {
				t.Errorf("another %s was taken", name)
			}
		}
	}
	if restore(s.plain, bound) == nil || restore(s.strict, first) == nil || restore(s.strict, plain) == nil {
		t.Error("taken by a node that would not hand it out")
	}
	for range 2 {
		for _, d := range []job.Definition{bound, first, plain} {
			if err := restore(s.bound, d); err != nil {
				t.Errorf("%s: %v", d.ID, err)
			}
			s.wantPayload(t, d.Key, "secret", "restoring "+d.ID)
			d.Queue = "bulk"
			if d.ID == "bound" {
				continue
			}
			if err := restore(s.bound, d); err != nil { // in place of what is there
				t.Errorf("%s: %v", d.ID, err)
			}
			s.wantPayload(t, d.Key, "secret", "restoring another "+d.ID)
		}
	}
}
