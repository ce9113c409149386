package registry_test

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/schedule"
	"github.com/fermata-io/fermata/internal/engine/registry"
)

func withPayload(id, payload string) job.RunWithPayloadRequest {
	return job.RunWithPayloadRequest{RequestID: id, Payload: []byte(payload)}
}

// TestRunJobWithPayload: each request is a run of its own, and shows its payload; a repeated one returns the first run.
// The job, with its etag, stays as it is.
func TestRunJobWithPayload(t *testing.T) {
	first, second := newRigs(t)
	key := put(t, first, "digest", "job's")
	before, err := first.Get(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"a", "b"} {
		v, err := first.RunJobWithPayload(t.Context(), key, withPayload(id, "once "+id))
		if err != nil || v.ID != "m-"+id || v.Phase != job.RunWaiting || v.OwnPayload.Size != len("once a") {
			t.Errorf("%s: %+v, %v", id, v, err)
		}
	}
	if v, err := second.RunJobWithPayload(t.Context(), key, withPayload("a", "another")); err != nil || v.ID != "m-a" || v.OwnPayload.Size != len("once a") {
		t.Errorf("again: %+v, %v", v, err)
	}
	if v, err := second.GetRun(t.Context(), key, "m-b"); err != nil || string(v.Payload.Payload) != "once b" {
		t.Errorf("GetRun: %+v, %v", v.Payload, err)
	}
	runs, err := second.ListRuns(t.Context(), key)
	if err != nil || len(runs) != 3 || runs[0].OwnPayload != nil || runs[1].OwnPayload == nil || runs[1].Payload != nil {
		t.Errorf("ListRuns: %+v, %v", runs, err)
	}
	if v, joined, err := second.RunJob(t.Context(), key, job.RequestManualRun{RequestID: "plain"}); err != nil || joined || v.OwnPayload != nil {
		t.Errorf("a request without a payload: %+v, %v, %v", v, joined, err)
	}
	if e, err := second.Explain(t.Context(), key); err != nil || len(e.Runs) != 3 || e.Runs[1].OwnPayload == nil {
		t.Errorf("explained: %+v, %v", e.Runs, err)
	}
	if v, err := second.CancelRun(t.Context(), key, "m-b"); err != nil || v.Outcome != job.OutcomeCancelled {
		t.Errorf("cancelled: %+v, %v", v, err)
	}
	if v, err := second.GetRun(t.Context(), key, "m-b"); err != nil || v.OwnPayload == nil || v.Payload != nil {
		t.Errorf("after its end: %+v, %v", v, err)
	}
	after, err := first.Get(t.Context(), key)
	if err != nil || after.Definition.Etag() != before.Definition.Etag() || string(after.Definition.Payload) != "job's" {
		t.Errorf("the job: %+v, %v", after.Definition, err)
	}
}

// TestRunPayloadsAreValidated like those of jobs.
func TestRunPayloadsAreValidated(t *testing.T) {
	rig := newRig(t)
	old := []string{}
	r, err := registry.NewUnhurried(registry.Options{
		Store: rig.store, SharedLimits: rig.store.Limits(), Ledger: rig.book, Limits: job.Limits{MaxPayload: 100},
		CheckPayload: func(handler string, payload []byte) []job.Violation {
			if string(payload) == "bad" {
				return []job.Violation{{Field: "url", Description: "is not set"}}
			}
			return nil
		},
		NodesWithoutRunPayloads: func() []string { return old },
	})
	if err != nil {
		t.Fatal(err)
	}
	key := put(t, rig, "j", "{}")
	var invalid *job.InvalidError
	for payload, field := range map[string]string{"bad": "payload.url", strings.Repeat("x", 101): "payload"} {
		if _, err := r.RunJobWithPayload(t.Context(), key, withPayload("a", payload)); !errors.As(err, &invalid) || invalid.Violations[0].Field != field {
			t.Errorf("%.10s: %v", payload, err)
		}
	}
	if _, err := r.RunJobWithPayload(t.Context(), key, withPayload("not an id", "x")); !errors.As(err, &invalid) || invalid.Violations[0].Field != "request_id" {
		t.Errorf("request id: %v", err)
	}
	var refused *job.PreconditionError
	refuse := func(what string, key job.Key, reason string) {
		t.Helper()
		if _, err := r.RunJobWithPayload(t.Context(), key, withPayload("b", "x")); !errors.As(err, &refused) || refused.Reason != reason {
			t.Errorf("%s: %v", what, err)
		}
	}
	old = []string{"node-7"}
	refuse("beside an old node", key, job.ReasonNodesTooOld)
	if !strings.Contains(refused.Text, "node-7") {
		t.Errorf("the node is not named: %v", refused)
	}
	old = nil
	once := jobOf("once")
	once.Schedule = schedule.Spec{Kind: schedule.KindOnce, At: time.Now().Add(time.Hour)}
	if _, err := rig.Create(t.Context(), once, ""); err != nil {
		t.Fatal(err)
	}
	refuse("of a one-time job", once.Key, job.ReasonOneTimeJob)
	if _, err := rig.RunJobWithPayload(t.Context(), job.Key{Namespace: "default", ID: "none"}, withPayload("a", "x")); !errors.Is(err, job.ErrNotFound) {
		t.Errorf("of no job: %v", err)
	}
	if v, err := r.RunJobWithPayload(t.Context(), key, withPayload("empty", "")); err != nil || v.OwnPayload == nil || v.OwnPayload.Size != 0 {
		t.Errorf("an empty payload: %+v, %v", v, err)
	}
}

// TestRunPayloadsCountForTheQuota of bytes of the namespace.
func TestRunPayloadsCountForTheQuota(t *testing.T) {
	rig := newRig(t)
	key := put(t, rig, "j", "{}")
	var limit atomic.Int64
	limit.Store(3000)
	r, _ := withByteQuota(t, rig, &limit)
	if _, err := r.RunJobWithPayload(t.Context(), key, withPayload("a", strings.Repeat("x", 1000))); err != nil {
		t.Fatal(err)
	}
	var full *job.QuotaError
	if _, err := r.RunJobWithPayload(t.Context(), key, withPayload("b", strings.Repeat("x", 2500))); !errors.As(err, &full) || !full.Bytes {
		t.Errorf("beyond the quota: %v", err)
	}
	if v, err := r.RunJobWithPayload(t.Context(), key, withPayload("a", strings.Repeat("x", 2500))); err != nil || v.ID != "m-a" {
		t.Errorf("a repeated request takes nothing: %v", err)
	}
}

// TestRunPayloadsAreSealed like that of the job, bound to the same fields, and shown to nobody. Backups have them as
// they are stored, and restore them to the same job.
func TestRunPayloadsAreSealed(t *testing.T) {
	s := newSealing(t)
	key := put(t, s.bound, "j", "job's")
	v, err := s.bound.RunJobWithPayload(t.Context(), key, withPayload("a", "secret"))
	if err != nil || !v.OwnPayload.Sealed || v.OwnPayload.Size != len("secret") {
		t.Fatalf("%+v, %v", v.OwnPayload, err)
	}
	if v, err := s.bound.GetRun(t.Context(), key, "m-a"); err != nil || v.Payload != nil {
		t.Errorf("GetRun shows %+v, %v", v.Payload, err)
	}
	record := key.Record().Run(0)
	opened := func() (string, error) {
		payloads, err := s.bound.store.RunPayloads(t.Context(), s.bound.store.ShardOf(key), []job.RecordID{record})
		if err != nil || payloads[0] == nil {
			t.Fatalf("%v, %v", payloads, err)
		}
		if strings.Contains(string(payloads[0].Payload), "secret") {
			t.Error("it is stored as it was given")
		}
		text, err := s.ring.Decrypt(payloads[0].ApplyTo(s.stored(t, key)))
		return string(text), err
	}
	if text, err := opened(); text != "secret" || err != nil {
		t.Errorf("opened %q, %v", text, err)
	}
	page, err := s.bound.ExportJobs(t.Context(), job.Filter{Namespace: key.Namespace}, 0, "")
	if err != nil || len(page.Backups) != 1 || len(page.Backups[0].Checkpoint.Children) != 1 {
		t.Fatalf("%+v, %v", page, err)
	}
	if own := page.Backups[0].Checkpoint.Children[0].Own; own == nil || own.Key != "k1" {
		t.Errorf("the backup has %v", own)
	}
	if err := s.bound.Delete(t.Context(), key, ""); err != nil {
		t.Fatal(err)
	}
	if a := s.bound.Restore(t.Context(), page.Backups, job.ExistingFail)[0]; a.Err != nil {
		t.Fatal(a.Err)
	}
	if text, err := opened(); text != "secret" || err != nil {
		t.Errorf("restored %q, %v", text, err)
	}
	forged := page.Backups[0]
	forged.Definition.ID = "another"
	var invalid *job.InvalidError
	if a := s.bound.Restore(t.Context(), []job.Backup{forged}, job.ExistingFail)[0]; !errors.As(a.Err, &invalid) {
		t.Errorf("restored to another job: %v", a.Err)
	}
}
