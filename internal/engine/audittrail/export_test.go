package audittrail

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/fermata-io/fermata/internal/core/job"
)

// TestAcknowledgementsSkipNothingUnseen: an acknowledgement creates no export. The identity that opened the export moves
// it from its position without a record. Every other move that may skip records leaves one, or is refused.
func TestAcknowledgementsSkipNothingUnseen(t *testing.T) {
	store := &memory{now: 1_000_000}
	r := recorder(t, Options{Store: store})
	defer r.Stop(context.Background())
	write := func(n int) {
		for n > 0 {
			batch := min(n, maxBatch)
			r.appendRecords(make([]job.TrailRecord, batch))
			n -= batch
		}
	}
	write(2500)
	id := func(seq int) string { return store.records[seq-1].ID }
	for i, c := range []struct {
		identity string
		previous *string
		seq      int // of the record; 0: none
		want     int // position afterwards
		notes    string
		err      error
	}{
		{"ann", nil, 5, 0, "", job.ErrNoTrailExport},
		{"ann", new(""), 5, 0, "", job.ErrNoTrailExport},
		{"ann", nil, 0, 0, "created=true", nil},
		{"ann", nil, 0, 0, "", nil}, // a lost answer, or a later start
		{"bob", new(""), 5, 0, "", job.ErrTrailExportChanged},
		{"ann", new(id(4)), 5, 0, "", job.ErrTrailExportChanged},
		{"ann", new(""), 1000, 1000, "", nil},
		{"ann", new(""), 1000, 1000, "", nil}, // once more
		{"ann", nil, 500, 1000, "", nil},
		{"ann", new(""), 1500, 0, "", job.ErrTrailExportChanged}, // a second process
		{"bob", new(id(1000)), 1500, 0, "", job.ErrTrailExportChanged},
		{"bob", nil, 0, 1000, "previous_identity=ann", nil},
		{"ann", new(id(1000)), 1500, 0, "", job.ErrTrailExportChanged},
		{"ann", nil, 0, 1000, "previous_identity=bob", nil},
		{"ann", nil, 1200, 1200, "", nil}, // an exporter of an earlier build
		{"ann", new(id(1200)), 2201, 2201, "from_sequence=1201 to_sequence=2201", nil},
	} {
		a := job.TrailAcknowledgement{Export: "siem", Identity: c.identity, Previous: c.previous}
		if c.seq > 0 {
			a.RecordID, a.Seq = id(c.seq), int64(c.seq)
		}
		e, notes, err := r.Acknowledge(t.Context(), a)
		if !errors.Is(err, c.err) || strings.Join(notes, " ") != c.notes || err == nil && e.Seq != int64(c.want) {
			t.Errorf("%d: %+v, %q, %v", i, e, notes, err)
		}
	}
	ack := func(id string, seq int64) (job.TrailExport, []string, error) {
		return r.Acknowledge(t.Context(), job.TrailAcknowledgement{Export: "siem", Identity: "ann", RecordID: id, Seq: seq})
	}
	if e, _, err := ack(id(2202), 2400); err != nil || e.Seq != 2202 {
		t.Errorf("it takes a sequence that is not that of the record: %+v, %v", e, err)
	}
	if _, _, err := ack(strings.Replace(id(2300), "-", "-9", 1), 2300); err == nil {
		t.Error("it takes a record that never was")
	}
	// What is removed between delivery and acknowledgement was delivered, and later removals are no jump.
	removed, kept := store.records[2299], store.records[2399]
	store.records = store.records[2390:]
	if e, notes, err := ack(removed.ID, removed.Seq); err != nil || e.Seq != 2300 || notes != nil {
		t.Errorf("%+v, %q, %v", e, notes, err)
	}
	write(1000)
	store.records = store.records[900:]
	last := store.records[len(store.records)-1]
	if e, notes, err := ack(last.ID, last.Seq); err != nil || e.ID == kept.ID || notes != nil {
		t.Errorf("%+v, %q, %v", e, notes, err)
	}
	store.exports["siem"] = job.TrailExport{Name: "siem", ID: removed.ID, Seq: removed.Seq} // by a node of an earlier build
	if _, notes, err := ack(last.ID, last.Seq); err != nil || !slices.Equal(notes, []string{"previous_identity=unknown"}) {
		t.Errorf("%q, %v", notes, err)
	}
}

// TestIDsHaveOneForm: another one of the same number is refused. Redis would not take some of them, and an export would
// store it.
func TestIDsHaveOneForm(t *testing.T) {
	store := &memory{now: 1_000_000}
	r := recorder(t, Options{Store: store})
	defer r.Stop(context.Background())
	r.appendRecords(make([]job.TrailRecord, 3))
	open := job.TrailAcknowledgement{Export: "siem", Identity: "ann"}
	_, _, err := r.Acknowledge(t.Context(), open)
	if err != nil {
		t.Fatal(err)
	}
	right := store.records[1].ID
	ms, seq := job.SplitTrailID(right)
	for _, id := range []string{
		"0" + right, strings.Repeat("0", 150) + right, fmt.Sprintf("%d-0%d", ms, seq), "+" + right, right + "-", right + " ", right + "\n",
		fmt.Sprint(ms), fmt.Sprintf("%d-", ms), "-", "0-0", "x-1", "18446744073709551616-1",
	} {
		var invalid *job.InvalidError
		next := open
		next.RecordID = id
		if _, _, err := r.Acknowledge(t.Context(), next); !errors.As(err, &invalid) {
			t.Errorf("acknowledged %q: %v", id, err)
		}
		next.RecordID, next.Previous = right, &id
		if _, _, err := r.Acknowledge(t.Context(), next); !errors.As(err, &invalid) {
			t.Errorf("acknowledged after %q: %v", id, err)
		}
		if _, err := r.Read(t.Context(), id, 0); !errors.As(err, &invalid) {
			t.Errorf("read after %q: %v", id, err)
		}
		if _, err := r.List(t.Context(), job.TrailFilter{}, 0, id); !errors.As(err, &invalid) {
			t.Errorf("listed after %q: %v", id, err)
		}
	}
	next := open
	next.RecordID, next.Previous = right, new("")
	e, _, err := r.Acknowledge(t.Context(), next)
	if err != nil || e.ID != right {
		t.Errorf("%+v, %v", e, err)
	}
}

// TestAcknowledgementsOfTwoNodes do not overwrite each other.
func TestAcknowledgementsOfTwoNodes(t *testing.T) {
	store := &memory{now: 1_000_000}
	r := recorder(t, Options{Store: store})
	defer r.Stop(context.Background())
	r.appendRecords(make([]job.TrailRecord, 10))
	ack := func(seq int) (job.TrailExport, error) {
		a := job.TrailAcknowledgement{Export: "siem", Identity: "ann"}
		if seq > 0 {
			a.RecordID, a.Seq = store.records[seq-1].ID, int64(seq)
		}
		e, _, err := r.Acknowledge(t.Context(), a)
		return e, err
	}
	if _, err := ack(0); err != nil {
		t.Fatal(err)
	}
	store.beforeSave = func() {
		store.beforeSave = nil
		if _, err := ack(9); err != nil {
			t.Error(err)
		}
	}
	if e, err := ack(4); err != nil || e.Seq != 9 || store.exports["siem"].Seq != 9 {
		t.Errorf("the position went back: %+v, %v", e, err)
	}
	tries := 0
	store.beforeSave = func() {
		tries++
		e := store.exports["siem"]
		e.UpdatedMS++
		store.exports["siem"] = e
	}
	if _, err := ack(10); !errors.Is(err, job.ErrTrailExportChanged) || tries != exportTries {
		t.Errorf("%d tries: %v", tries, err)
	}
}
