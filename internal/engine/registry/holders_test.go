package registry

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/fermata-io/fermata/internal/core/backoff"
	"github.com/fermata-io/fermata/internal/core/job"
)

// newHeld has a job "waiter" of queue mail that waits for something that job "owner" of queue web has.
func newHeld(t *testing.T, reason job.HoldReason) (*fake, job.Key) {
	t.Helper()
	f, r := newFake(t)
	change := func(id string, change func(*job.Record)) job.Key {
		queue := map[string]string{"waiter": "mail", "owner": "web"}[id]
		key := hourly(t, r, id, func(d *job.Definition) { d.Queue, d.Target = queue, "api" })
		record := f.records[key]
		change(&record)
		f.records[key] = record
		return key
	}
	change("owner", func(*job.Record) {})
	waiter := change("waiter", func(record *job.Record) {
		record.State.Source, record.State.Due = job.DelayHeld, f.now+5000
		record.State.Held = job.Hold{Reason: reason, Key: "ledger", By: "owner", SinceMS: f.now}
		record.State.Children = 1
	})
	run := f.records[waiter].State
	run.Children, run.Trigger, run.ManualID = 0, job.TriggerManual, "x"
	f.children[waiter.Record().Run(0)] = run
	circuit := backoff.Circuit{Failures: 2, OpenUntilMS: f.now + 5000, FailedJob: "owner", Error: "secret text"}
	f.cells[job.TargetName("default", "api")] = circuit.Encode()
	return f, waiter
}

// seesQueues is the registry of a caller of these queues; none: of all.
func (f *fake) seesQueues(t *testing.T, queues ...string) *Registry {
	t.Helper()
	r, err := NewUnhurried(Options{Store: f, Rankings: f, SharedLimits: f, Ledger: f, Cluster: f,
		Queues: func(context.Context) job.QueueScope {
			if len(queues) == 0 {
				return nil
			}
			return func(q job.QueueKey) bool { return strings.Contains(strings.Join(queues, " "), q.Queue) }
		}})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestExplainHidesHolders: an explanation names a holder, or the job whose failure closed a target, to callers who may
// see that job, and to no others.
func TestExplainHidesHolders(t *testing.T) {
	for reason, hidden := range map[job.HoldReason]string{
		job.HeldLock:   "lock ledger is held by a job that you may not see; waiting since",
		job.HeldTarget: "target ledger backs off after 2 failures, until",
		job.HeldQueue:  "",
	} {
		f, waiter := newHeld(t, reason)
		all := []job.ExplainedJob{}
		for _, queues := range [][]string{nil, {"mail", "web"}} {
			e, err := f.seesQueues(t, queues...).Explain(t.Context(), waiter)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, e)
		}
		for _, e := range all {
			first := e.Explanation.Reasons[0]
			if e.Record.State.Held.By != "owner" || len(e.Runs) != 2 || e.Runs[0].Hold.By != "owner" ||
				e.Runs[1].Hold.By != "owner" ||
				hidden != "" && (first.By != "owner" || !strings.Contains(first.Message, "job owner")) {
				t.Errorf("%v: a caller who may see the holder gets %+v", reason, e)
			}
		}
		e, err := f.seesQueues(t, "mail").Explain(t.Context(), waiter)
		if err != nil {
			t.Fatal(err)
		}
		texts := e.Explanation.Summary
		for _, r := range e.Explanation.Reasons {
			texts += "\n" + r.Message + r.By
		}
		if strings.Contains(texts, "owner") || strings.Contains(texts, "secret text") || !strings.Contains(texts, hidden) {
			t.Errorf("%v: a caller who may not see the holder reads %s", reason, texts)
		}
		if len(e.Runs) != 2 || e.Record.State.Held.By+e.Runs[0].Hold.By+e.Runs[1].Hold.By != "" {
			t.Errorf("%v: a caller who may not see the holder gets %+v", reason, e)
		}
		if f.records[waiter].State.Held.By != "owner" {
			t.Error("the stored record was changed")
		}
	}
}

// TestFindVisibleJobs: missing jobs and those of other queues are not visible. A caller of all queues costs no read.
func TestFindVisibleJobs(t *testing.T) {
	f, waiter := newHeld(t, job.HeldLock)
	owner, none := job.Key{Namespace: "default", ID: "owner"}, job.Key{Namespace: "default", ID: "none"}
	keys := []job.Key{waiter, owner, none, owner}
	got, err := f.seesQueues(t, "mail").FindVisibleJobs(t.Context(), keys)
	if err != nil || !got[waiter] || got[owner] || got[none] {
		t.Errorf("%v, %v", got, err)
	}
	before := f.got
	if got, err := f.seesQueues(t).FindVisibleJobs(t.Context(), keys); err != nil || !got[owner] || f.got != before {
		t.Errorf("%v, %v after %d reads", got, err, f.got-before)
	}
	f.err = job.ErrUnavailable
	got, err = f.seesQueues(t, "mail").FindVisibleJobs(t.Context(), keys)
	if !errors.Is(err, job.ErrUnavailable) || len(got) != 0 {
		t.Errorf("no Redis: %v, %v", got, err)
	}
}

// TestVisibilityReadsFewBytes: which jobs a caller may see is asked in few reads, of some MiB of definitions. What is
// beyond them counts as hidden.
func TestVisibilityReadsFewBytes(t *testing.T) {
	for name, c := range map[string]struct{ payload, jobs, fewest, most int }{
		"small": {10, 1000, 1000, 1000}, "large": {256 << 10, 100, 32, 33}, "huge": {2 << 20, 100, 32, 32},
	} {
		f, r := newFake(t)
		var keys []job.Key
		for i := range c.jobs {
			d := definition(fmt.Sprintf("j%04d", i))
			d.Payload = make([]byte, 1)
			if _, err := r.Create(t.Context(), d, ""); err != nil {
				t.Fatal(err)
			}
			record := f.records[d.Key]
			larger := *record.Definition
			larger.Payload = make([]byte, c.payload)
			record.Definition = &larger
			f.records[d.Key], keys = record, append(keys, d.Key)
		}
		before := f.got
		visible, err := f.seesQueues(t, "default").FindVisibleJobs(t.Context(), keys)
		if err != nil {
			t.Fatal(err)
		}
		maps.DeleteFunc(visible, func(_ job.Key, sees bool) bool { return !sees })
		if read := f.got - before; read < c.fewest || read > c.most || len(visible) != read {
			t.Errorf("%s: %d jobs were read, %d are visible", name, read, len(visible))
		}
	}
}
