package redisstore

import (
	"fmt"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/redis/codec"
)

// This file encodes what a write of a job stores, and says how many bytes of it count for the limit of a namespace:
// those that census_bytes.lua of package limits finds when they are stored.

// restorationTexts are the texts that a restoration stores, but for the state of the job.
type restorationTexts struct {
	definition []byte
	// revisions are to be stored, or to be added to those that are stored if the restoration replaces a definition.
	revisions []byte
	run       runText // of a dead one-time job
	children  []childTexts
}

// runText is a run in the history; field is "" if there is none.
type runText struct {
	field string
	text  []byte
}

// childTexts are those of a run or a dead letter. definition is nil for a run without a payload of its own, and for a
// dead letter that has the definition of the job.
type childTexts struct {
	id         job.RecordID
	state      string
	run        runText
	definition []byte
}

func encodeRestoration(f codec.Encoding, r *job.Restoration) (t restorationTexts, err error) {
	d := r.Record.Definition
	t.definition, err = f.EncodeDefinition(d)
	if err != nil {
		return t, err
	}
	t.revisions, err = encodeGivenRevisions(f, r)
	if err != nil {
		return t, err
	}
	if limit := uint64(historyLimit(d)); limit > 0 && r.Record.State.Runs > 0 {
		t.run, err = encodeRunText(d.Record(), int((r.Record.State.Runs-1)%limit), r.Run)
		if err != nil {
			return t, err
		}
	}
	states := f.ForStates(historyLimit(d))
	for i := range r.Children {
		child, err := encodeChild(f, states, &r.Children[i])
		if err != nil {
			return t, fmt.Errorf("%s: %w", child.id, err)
		}
		t.children = append(t.children, child)
	}
	return t, nil
}

func encodeChild(f, states codec.Encoding, child *job.RestoredChild) (t childTexts, err error) {
	t.id = child.Record
	t.state, err = states.EncodeState(&child.State)
	if err == nil {
		t.run, err = encodeRunText(child.Record, 0, child.Run)
	}
	switch {
	case err != nil:
	case child.Definition != nil:
		t.definition, err = f.EncodeDefinition(child.Definition)
	case child.Own != nil:
		t.definition, err = codec.EncodeRunPayload(child.Own)
	}
	return t, err
}

// encodeRunText encodes a run for a slot of the history of a record; run may be nil.
func encodeRunText(id job.RecordID, slot int, run *job.Run) (t runText, err error) {
	if run == nil {
		return t, nil
	}
	t.field = codec.HistoryField(id, slot)
	t.text, err = codec.EncodeRun(run)
	return t, err
}

// WrittenBytes returns how many bytes of a write count for the limit of a namespace. Those of a dead letter that exists
// already are counted as if it did not.
func (s *Store) WrittenBytes(w *job.Restoration) (n job.WrittenBytes) {
	t, err := encodeRestoration(s.form(), w)
	if err != nil {
		return n // it cannot be stored either
	}
	id := w.Record.Definition.Record()
	n.Definition = recordBytes(id, t.definition, "")
	n.Rest = t.run.bytes()
	if w.Replaced != nil {
		n.Revision = revisionBytes(id, t.revisions)
	} else {
		n.Rest += revisionBytes(id, t.revisions)
	}
	for i := range t.children {
		child := &t.children[i]
		definition := child.definition
		if definition == nil && !child.id.IsRun() {
			definition = t.definition
		}
		n.Rest += recordBytes(child.id, definition, child.state) + child.run.bytes()
	}
	return n
}

// StoredBytes returns how many bytes of a stored job that has no live runs count for the limit of its namespace.
func (s *Store) StoredBytes(j *job.StoredJob) (bytes int) {
	for i := range j.Records {
		r := &j.Records[i]
		state, definition, err := s.encodeRecord(&r.Record)
		if err != nil {
			continue // it cannot be stored either
		}
		if r.ID.IsJob() {
			state = ""
		}
		bytes += recordBytes(r.ID, definition, state)
		for _, run := range r.Runs {
			bytes += runText{codec.HistoryField(r.ID, run.Slot), run.Text}.bytes()
		}
	}
	revisions, err := s.form().EncodeRevisions(j.Revisions)
	if err == nil && len(j.Records) > 0 {
		bytes += revisionBytes(j.Records[0].ID, revisions)
	}
	return bytes
}

// recordBytes are the counted bytes of a record without its runs. The state of a job is not counted: give "".
func recordBytes(id job.RecordID, definition []byte, countedState string) int {
	return len(id) + len(definition) + len(countedState)
}

func (t runText) bytes() int { return len(t.field) + len(t.text) }

func revisionBytes(id job.RecordID, text []byte) int {
	if len(text) == 0 {
		return 0
	}
	return len(id) + len(text)
}
