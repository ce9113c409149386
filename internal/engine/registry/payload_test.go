package registry_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/engine/registry"
)

// checking is a registry that takes payloads "good" of the handler h only, on the Redis of another one.
func checking(t *testing.T, on *rig, sealer registry.Sealer) *rig {
	t.Helper()
	check := func(handler string, payload []byte) []job.Violation {
		if handler != "h" || strings.HasPrefix(string(payload), "good") {
			return nil
		}
		return []job.Violation{{Field: "a[0]", Description: "is bad"}, {Field: `["x"]`, Description: "is bad"}, {Description: "is bad"}}
	}
	r, err := registry.NewUnhurried(registry.Options{Store: on.store, SharedLimits: on.store.Limits(), Ledger: on.book, Sealer: sealer, CheckPayload: check})
	if err != nil {
		t.Fatal(err)
	}
	return &rig{Registry: r, store: on.store, book: on.book, redis: on.redis, admin: on.admin}
}

const badPayload = `job.payload.a[0]: is bad; job.payload["x"]: is bad; job.payload: is bad`

func wantBad(t *testing.T, what string, err error, bad bool) {
	t.Helper()
	var invalid *job.InvalidError
	if bad && (!errors.As(err, &invalid) || !strings.HasSuffix(err.Error(), badPayload)) || !bad && err != nil {
		t.Errorf("%s: got %v, want it refused: %v", what, err, bad)
	}
}

// TestPayloadsAreChecked wherever a definition comes in, and with whatever else is wrong; what is
// stored already may stay as it is.
func TestPayloadsAreChecked(t *testing.T) {
	s := newSealing(t)
	for name, r := range map[string]*rig{"plain": checking(t, s.plain, nil), "sealing": checking(t, s.plain, s.ring)} {
		t.Run(name, func(t *testing.T) {
			define := func(id, handler, payload string) job.Definition {
				d := owned(name+id, "x")
				d.Handler, d.Payload = handler, []byte(payload)
				return d
			}
			create := func(d job.Definition) error { _, err := r.Create(t.Context(), d, ""); return err }
			wantBad(t, "create", create(define("bad", "h", "bad")), true)
			wantBad(t, "create, empty", create(define("bad", "h", "")), true)
			wantBad(t, "create, another handler", create(define("other", "own", "bad")), false)
			wantBad(t, "create, good", create(define("good", "h", "good")), false)
			both := define("both", "h", "bad")
			both.Priority = job.MaxPriority + 1
			if err := create(both); err == nil || !strings.Contains(err.Error(), "job.priority") || !strings.HasSuffix(err.Error(), badPayload) {
				t.Errorf("two faults: %v", err)
			}
			answers := r.CreateBatch(t.Context(), []job.CreateRequest{{Definition: define("b1", "h", "good")}, {Definition: define("b2", "h", "bad")}})
			wantBad(t, "batch, good", answers[0].Err, false)
			wantBad(t, "batch, bad", answers[1].Err, true)

			update := func(id string, keeps bool, change func(*job.Definition)) error {
				_, err := r.Update(t.Context(), job.UpdateRequest{Key: define(id, "", "").Key, KeepsPayload: keeps,
					Merge: func(d job.Definition) (job.Definition, error) { change(&d); return d, nil }})
				return err
			}
			give := func(payload string) func(*job.Definition) {
				return func(d *job.Definition) { d.Payload, d.PayloadKey = []byte(payload), "" }
			}
			handle := func(by string) func(*job.Definition) { return func(d *job.Definition) { d.Handler = by } }
			wantBad(t, "update", update("good", false, give("bad")), true)
			wantBad(t, "update, good", update("good", false, give("good 2")), false)
			err := update("other", true, handle("h"))
			var unfit *job.InvalidError
			if name == "sealing" && (!errors.As(err, &unfit) || unfit.Violations[0].Field != "job.handler") {
				t.Errorf("update of the handler of a sealed payload: %v", err)
			} else if name == "plain" {
				wantBad(t, "update of the handler", err, true)
			}
			wantBad(t, "update of both", update("other", false, func(d *job.Definition) { handle("h")(d); give("good")(d) }), false)

			// As an earlier version stored it, by a node without the check.
			before := s.plain
			if name == "sealing" {
				before = s.bound
			}
			if _, err := before.Create(t.Context(), define("old", "h", "bad old"), ""); err != nil {
				t.Fatal(err)
			}
			wantBad(t, "edit of an old job", update("old", true, func(d *job.Definition) { d.Priority++ }), false)
			wantBad(t, "edit of an old job, payload repeated", update("old", false, func(d *job.Definition) { give("bad old")(d); d.Priority++ }), false)
			wantBad(t, "edit of an old payload", update("old", false, give("bad new")), true)

			for _, desiredJob := range []struct {
				id, payload string
				bad         bool
			}{{"w1", "bad", true}, {"w2", "good", false}, {"old", "bad old", false}, {"old", "bad new", true}} {
				desiredJobs := []job.DesiredJob{{Definition: define(desiredJob.id, "h", desiredJob.payload)}}
				wantBad(t, "plan "+desiredJob.id, r.seen(t, desiredJobs, true)[0].Err, desiredJob.bad)
				wantBad(t, "apply "+desiredJob.id, r.ApplyJobs(t.Context(), desiredJobs, true)[0].Err, desiredJob.bad)
			}
		})
	}
}

// TestBackupsKeepTheirPayloads: a job that was can be restored, whatever its payload.
func TestBackupsKeepTheirPayloads(t *testing.T) {
	r := checking(t, newRig(t), nil)
	d := jobOf("restored")
	d.Handler, d.Payload = "h", []byte("bad")
	if a := r.Restore(t.Context(), []job.Backup{{Definition: d}}, job.ExistingFail); a[0].Err != nil {
		t.Error(a[0].Err)
	}
}

// TestSealedPayloadsAreInNoError: what the check of a payload finds quotes it. Of a sealed one, an error says only that
// it does not fit, and says so only to callers who may edit the job.
func TestSealedPayloadsAreInNoError(t *testing.T) {
	const canary = "canary-4711"
	s := newSealing(t)
	r, err := registry.NewUnhurried(registry.Options{Store: s.plain.store, SharedLimits: s.plain.store.Limits(),
		Ledger: s.plain.book, Sealer: s.ring,
		CheckPayload: func(handler string, payload []byte) []job.Violation {
			if handler == "other" {
				return []job.Violation{{Field: canary, Description: "is " + string(payload)}}
			}
			return nil
		}})
	if err != nil {
		t.Fatal(err)
	}
	key := put(t, s.bound, "pin", canary)
	plan := func(handler string, mayCompare bool) job.ApplyResult {
		d := *s.stored(t, key)
		d.Payload, d.PayloadKey, d.Handler = nil, "", handler
		desired := job.DesiredJob{Definition: d, AsRead: true, MayCompare: func(*job.Definition) bool { return mayCompare }}
		return r.PlanJobs(t.Context(), []job.DesiredJob{desired}, false)[0]
	}
	if got := plan("other", false); got.Err != nil || got.Action != job.ApplyUpdate {
		t.Errorf("a plan of a caller who may not edit: %+v", got)
	}
	_, updateErr := r.Update(t.Context(), definitionEdit(key, true, func(d *job.Definition) { d.Handler = "other" }))
	for name, err := range map[string]error{"plan": plan("other", true).Err, "update": updateErr} {
		var invalid *job.InvalidError
		if !errors.As(err, &invalid) || len(invalid.Violations) != 1 || invalid.Violations[0].Field != "job.handler" ||
			strings.Contains(err.Error(), canary) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if got := plan("third", true); got.Err != nil || got.Action != job.ApplyUpdate {
		t.Errorf("a plan with a handler that takes the payload: %+v", got)
	}
}
