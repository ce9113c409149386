package registry

import (
	"context"
	"errors"
	"reflect"
	"testing"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
)

// leaving is a ledger whose callers leave while it still works on their changes.
type leaving struct{ kept []*job.Record }

func (l *leaving) SubmitAndWait(_ context.Context, changes ...job.Change) []job.ChangeResult {
	results := make([]job.ChangeResult, len(changes))
	for i, c := range changes {
		l.kept = append(l.kept, c.Known)
		results[i].Err = context.Canceled
	}
	return results
}

// What a caller believes to be stored is what the store compares with: the ledger
// may still read it when the caller has given up.
func TestChangesStayWhatTheyWereWhenCallersLeave(t *testing.T) {
	f, r := newFake(t)
	present := mustCreate(t, r, "ping", "")
	l := &leaving{}
	r.o.Ledger = l
	edits := map[string]func() error{
		"update": func() error {
			_, err := r.Update(t.Context(), job.UpdateRequest{
				Key: ping, Merge: merge(func(d *job.Definition) { d.Queue = "mail" }),
			})
			return err
		},
		"delete": func() error { return r.Delete(t.Context(), ping, present.Definition.Etag()) },
		"hint": func() error {
			_, err := r.Hint(t.Context(), ping, job.Hint{Source: job.HintOperator, AtMS: f.now.Add(time.Minute)})
			return err
		},
	}
	for name, edit := range edits {
		l.kept = nil
		if err := edit(); !errors.Is(err, context.Canceled) {
			t.Fatalf("%s: %v", name, err)
		}
		if len(l.kept) != 1 || l.kept[0] == nil {
			t.Fatalf("%s: %d records are known", name, len(l.kept))
		}
		if !reflect.DeepEqual(*l.kept[0], present) {
			t.Errorf("%s: what was believed to be stored became %+v", name, *l.kept[0])
		}
	}
}

// answering is a ledger with the answers that a test wants, in turn.
type answering []job.ChangeResult

func (a answering) SubmitAndWait(_ context.Context, changes ...job.Change) []job.ChangeResult {
	return a[:len(changes)]
}

// One job that keeps changing does not hide what became of the others: a call that failed
// as a whole would leave no record of it.
func TestOneConflictHidesNoOtherChange(t *testing.T) {
	_, r := newFake(t)
	r.o.Ledger = answering{{Answer: job.Applied}, {Err: job.ErrConflict}, {Answer: job.Applied}}
	if got, err := r.commitInParts(t.Context(), make([]job.Change, 3), nil); err != nil || got.Done != 2 || got.Refused != 1 {
		t.Errorf("%+v, %v", got, err)
	}
	r.o.Ledger = answering{{Answer: job.Applied}, {Err: job.ErrUnavailable}}
	if _, err := r.commitInParts(t.Context(), make([]job.Change, 2), nil); !errors.Is(err, job.ErrUnavailable) {
		t.Errorf("%v; want the call to be repeated", err)
	}
}
