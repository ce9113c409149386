package registry_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/engine/registry"
	"github.com/fermata-io/fermata/internal/redis/fsck"
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

// restoreAnew restores a job in place of which nothing is left, and wants so many warnings.
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

// TestRestoredDeadLettersStayInTheirQueue: who may see the queue alone to which a job was moved gets no dead letter of
// the queue before, after a restore either. A backup that does not say where they were is restored without those that
// may have been elsewhere.
func TestRestoredDeadLettersStayInTheirQueue(t *testing.T) {
	r := newRenameRig(t)
	limited, err := registry.NewUnhurried(registry.Options{
		Store: r.store, SharedLimits: r.store.Limits(), Ledger: r.book,
		Queues: func(context.Context) job.QueueScope {
			return func(q job.QueueKey) bool { return q == job.QueueKey{Namespace: "default", Queue: "mail"} }
		},
	})
	if err != nil {
		t.Fatal(err)
	}
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
	r.restoreAnew(t, b, 0)
	want("restored by its revisions", both, mail)
	for i := range b.Checkpoint.DeadLetters {
		b.Checkpoint.DeadLetters[i].Queue = ""
	}
	b.Revisions = nil
	r.restoreAnew(t, b, 1)
	want("restored without revisions", mail, mail)
}
