package registry_test

import (
	"encoding/base64"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fermata-io/fermata/internal/auth/payloadkeys"
	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/engine/registry"
	"github.com/fermata-io/fermata/internal/redis/fsck"
	"github.com/fermata-io/fermata/internal/test/keytest"
)

// backUp returns the backup of a job.
func (r *rig) backUp(t *testing.T, key job.Key) job.Backup {
	t.Helper()
	page, err := r.ExportJobs(t.Context(), job.Filter{Namespace: key.Namespace, IDPrefix: key.ID}, 0, "")
	if err != nil || len(page.Backups) != 1 {
		t.Fatalf("%+v, %v", page, err)
	}
	return page.Backups[0]
}

// restoreAnew deletes a job, restores it, and fails the test unless the restore has so many warnings.
func (r *rig) restoreAnew(t *testing.T, b job.Backup, warnings int) []string {
	t.Helper()
	record, err := r.Get(t.Context(), b.Definition.Key)
	if err == nil {
		err = r.Delete(t.Context(), record.Definition.Key, "")
	}
	if err != nil {
		t.Fatal(err)
	}
	a := r.Restore(t.Context(), []job.Backup{b}, job.ExistingFail)[0]
	if a.Err != nil || a.Outcome != job.RestoreCreated || len(a.Warnings) != warnings {
		t.Fatalf("%s: %+v, want %d warnings", b.Definition.ID, a, warnings)
	}
	report, err := fsck.New(r.store).CheckShard(t.Context(), r.store.ShardOf(b.Definition.Key), false)
	if err != nil || len(report.Findings) > 0 {
		t.Fatalf("%s: %+v, %v", b.Definition.ID, report.Findings, err)
	}
	return a.Warnings
}

// addRunsWithPayloads gives a job a dead letter with the payload "dead", and a waiting run with "waits".
func addRunsWithPayloads(t *testing.T, r *rig, key job.Key) {
	t.Helper()
	for _, id := range []string{"dead", "waits"} {
		if _, err := r.RunJobWithPayload(t.Context(), key, withPayload(id, id)); err != nil {
			t.Fatal(err)
		}
		if id == "dead" {
			r.die(t, key)
		}
	}
}

// storedPayload is the stored payload of a run or dead letter of a job.
func (r *rig) storedPayload(t *testing.T, record job.RecordID) *job.RunPayload {
	t.Helper()
	list, err := r.store.RunPayloads(t.Context(), r.store.ShardOf(record.Key()), []job.RecordID{record})
	if err != nil || list[0] == nil {
		t.Fatalf("the payload of %s: %v, %v", record, list, err)
	}
	return list[0]
}

// TestEditedJobsAreRestoredWithSealedRuns: whatever was edited since, a job comes back with its runs and dead letters.
// The payload of a dead letter opens with the fields that the job had, so that the job can be renamed. That of a waiting
// run is held back as before, and runs when the edit is undone.
func TestEditedJobsAreRestoredWithSealedRuns(t *testing.T) {
	s := newSealing(t)
	for name, change := range edits {
		key := put(t, s.bound, "edited-"+name, "job's")
		addRunsWithPayloads(t, s.bound, key)
		before := *s.stored(t, key)
		if _, err := s.bound.Update(t.Context(), definitionEdit(key, true, change)); err != nil {
			t.Fatal(err)
		}
		held := 1
		if name == "priority" {
			held = 0
		}
		b := s.bound.backUp(t, key)
		if len(b.Warnings) != held {
			t.Errorf("%s: the export warns of %q", name, b.Warnings)
		}
		if l := b.Checkpoint.DeadLetters[0]; (l.Binding != nil) != (held == 1 && name != "queue") || l.Queue != before.Queue {
			t.Errorf("%s: the dead letter was in %q, bound to %v", name, l.Queue, l.Binding)
		}
		s.bound.restoreAnew(t, b, held)
		s.wantPayload(t, key, "job's", "restoring it")
		run := s.bound.storedPayload(t, key.Record().Run(0))
		_, err := s.ring.Decrypt(run.ApplyTo(s.stored(t, key)))
		if (err != nil) != (held == 1) {
			t.Errorf("%s: the waiting run opens with the edited job: %v", name, err)
		}
		if text, err := s.ring.Decrypt(run.ApplyTo(&before)); err != nil || string(text) != "waits" {
			t.Errorf("%s: the waiting run has %q, %v", name, text, err)
		}
		if v, err := s.bound.CancelRun(t.Context(), key, "m-waits"); err != nil || v.Outcome != job.OutcomeCancelled {
			t.Errorf("%s: %+v, %v", name, v, err)
		}
		to := key.ID + "-renamed"
		if _, err := s.bound.Rename(t.Context(), job.RenameRequest{Key: key, NewID: to}); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		letter := s.bound.storedPayload(t, keyOf(to).Record().Letter(0))
		before.ID = to
		if text, err := s.ring.Decrypt(letter.ApplyTo(&before)); err != nil || string(text) != "dead" {
			t.Errorf("%s: the dead letter has %q, %v", name, text, err)
		}
	}
}

// TestRunsWhosePayloadsDoNotOpenAreRestored: a key that is gone costs no job. Its sealed payloads are stored as they
// are, and open when the key is back.
func TestRunsWhosePayloadsDoNotOpenAreRestored(t *testing.T) {
	s := newSealing(t)
	key := put(t, s.bound, "j", "job's")
	addRunsWithPayloads(t, s.bound, key)
	b := s.bound.backUp(t, key)
	path := filepath.Join(t.TempDir(), "keys")
	text := "k2 " + base64.StdEncoding.EncodeToString(keytest.Key("two")) + "\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	ring, err := payloadkeys.Load(path, payloadkeys.Options{})
	if err != nil {
		t.Fatal(err)
	}
	ring.UseVersion2()
	r := withRevisions(t, s.plain, 3, func(o *registry.Options) { o.Sealer = ring })
	b.Definition.Payload, b.Definition.PayloadKey = []byte("job's"), ""
	warnings := r.restoreAnew(t, b, 2)
	if text := strings.Join(warnings, "\n"); !strings.Contains(text, "m-dead") || !strings.Contains(text, "m-waits") {
		t.Errorf("warnings: %s", text)
	}
	if again := r.backUp(t, key); len(again.Warnings) != 2 {
		t.Errorf("the export warns of %q", again.Warnings)
	}
	d := s.stored(t, key)
	if payload, err := ring.Decrypt(d); err != nil || string(payload) != "job's" {
		t.Errorf("the job has %q, %v", payload, err)
	}
	for record, want := range map[job.RecordID]string{key.Record().Run(0): "waits", key.Record().Letter(0): "dead"} {
		own := r.storedPayload(t, record).ApplyTo(d)
		if _, err := ring.Decrypt(own); err == nil {
			t.Errorf("%s opens without its key", record)
		}
		if text, err := s.ring.Decrypt(own); err != nil || string(text) != want {
			t.Errorf("%s has %q, %v with its key", record, text, err)
		}
	}
}

// TestStrictNodesRestoreNoUnsealedRuns: the job comes back without the runs whose payloads would not be handed out.
func TestStrictNodesRestoreNoUnsealedRuns(t *testing.T) {
	s := newSealing(t)
	key := put(t, s.plain, "j", "job's")
	addRunsWithPayloads(t, s.plain, key)
	b := s.plain.backUp(t, key)
	if _, err := s.bound.Update(t.Context(), definitionEdit(key, false, func(d *job.Definition) {
		d.Payload = []byte("job's")
	})); err != nil {
		t.Fatal(err)
	}
	sealed := s.bound.backUp(t, put(t, s.bound, "sealed", "job's"))
	b.Definition, b.Definition.ID = sealed.Definition, "sealed"
	warnings := s.strict.restoreAnew(t, b, 2)
	if !strings.Contains(strings.Join(warnings, "\n"), "left out") {
		t.Errorf("warnings: %q", warnings)
	}
	again := s.strict.backUp(t, keyOf("sealed"))
	if cp := again.Checkpoint; len(cp.Children)+len(cp.DeadLetters) != 0 || len(again.Warnings) != 0 {
		t.Errorf("restored %+v, %q", cp, again.Warnings)
	}
}

// TestDeadLettersOfMovedJobsAreHidden: who may see the queue alone where a run died sees no dead letter of a job that was
// moved away since, neither in lists nor in a count.
func TestDeadLettersOfMovedJobsAreHidden(t *testing.T) {
	r := newRenameRig(t)
	for _, id := range []string{"moved", "stays"} {
		d := jobOf(id)
		d.Queue, d.Schedule.Every = "mail", 10_000*time.Hour
		if _, err := r.Create(t.Context(), d, ""); err != nil {
			t.Fatal(err)
		}
		if _, err := r.RunJobWithPayload(t.Context(), d.Key, withPayload("r", "x")); err != nil {
			t.Fatal(err)
		}
		r.die(t, d.Key)
	}
	moved, stays := jobOf("moved").Key, jobOf("stays").Key
	see := func(queues ...string) (seen []string) {
		t.Helper()
		f := job.Filter{Namespace: moved.Namespace, Covers: func(queue string) bool { return slices.Contains(queues, queue) }}
		page, err := r.ListDeadLetters(t.Context(), f, 0, "")
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range page.DeadLetters {
			seen = append(seen, l.Record.Key().ID)
		}
		slices.Sort(seen)
		for _, records := range [][]job.RecordID{nil, {moved.Record().Letter(0), stays.Record().Letter(0)}} {
			done, err := r.RedriveDeadLetters(t.Context(), job.RedriveRequest{Filter: f, Records: records, DryRun: true})
			if err != nil || done.Done != len(seen) {
				t.Errorf("a dry run of %q counts %d dead letters, %v", records, done.Done, err)
			}
		}
		return seen
	}
	want := func(what string, seen []string, queues ...string) {
		t.Helper()
		if got := see(queues...); !slices.Equal(got, seen) {
			t.Errorf("%s: callers of %q see %q, want %q", what, queues, got, seen)
		}
	}
	want("before", []string{"moved", "stays"}, "mail")
	r.edit(t, moved, "", func(d *job.Definition) { d.Queue = "web" })
	want("moved", []string{"stays"}, "mail")
	want("moved", nil, "web")
	want("moved", []string{"moved", "stays"}, "mail", "web")
}

// TestRestoredDeadLettersStayInTheirQueue: who may see the queue alone to which a job was moved gets no dead letter of
// the queue before, after a restore either. A backup that does not say where they were is restored without those that
// may have been elsewhere.
func TestRestoredDeadLettersStayInTheirQueue(t *testing.T) {
	r := newRenameRig(t)
	limited := r.limitedTo(t, "mail")
	d := jobOf("moved")
	d.Queue, d.Schedule.Every = "web", 10_000*time.Hour
	if _, err := r.Create(t.Context(), d, ""); err != nil {
		t.Fatal(err)
	}
	die := func(id string) {
		t.Helper()
		r.advance(time.Hour)
		if _, err := r.RunJobWithPayload(t.Context(), d.Key, withPayload(id, id)); err != nil {
			t.Fatal(err)
		}
		r.die(t, d.Key)
		r.advance(time.Hour)
	}
	move := func(queue string) {
		t.Helper()
		r.edit(t, d.Key, "", func(d *job.Definition) { d.Queue = queue })
	}
	dead := func(r *registry.Registry) (ids []string) {
		t.Helper()
		runs, err := r.ListRuns(t.Context(), d.Key)
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range runs {
			if v.DeadLetter {
				ids = append(ids, v.ID)
			}
		}
		slices.Sort(ids)
		return ids
	}
	want := func(what string, all, some []string) {
		t.Helper()
		if gotAll, gotSome := dead(r.Registry), dead(limited); !slices.Equal(gotAll, all) || !slices.Equal(gotSome, some) {
			t.Errorf("%s: dead letters %v, for a caller of queue mail %v", what, gotAll, gotSome)
		}
	}
	both, mail := []string{"m-in-mail", "m-in-web"}, []string{"m-in-mail"}
	die("in-web")
	move("mail")
	die("in-mail")
	want("before", both, mail)
	b := r.backUp(t, d.Key)
	r.restoreAnew(t, b, 0)
	want("restored", both, mail)

	for i := range b.Checkpoint.DeadLetters { // as earlier builds wrote it
		b.Checkpoint.DeadLetters[i].Queue = ""
	}
	r.restoreAnew(t, b, 2)
	want("restored from an earlier build", nil, nil)
}
