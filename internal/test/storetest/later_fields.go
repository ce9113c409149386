package storetest

import (
	"strings"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/fermata-io/fermata/internal/core/job"
)

// What a later version may add to a state and to a definition.
const (
	laterState  = "!4:next~-7"
	laterNumber = protowire.Number(1000)
)

var laterDefinition = protowire.AppendString(protowire.AppendTag(nil, laterNumber, protowire.BytesType), "next")

// testLaterFields drives jobs that a later version has registered, with fields that
// this one does not know, through a long history: they are there at its end.
func testLaterFields(w *World) {
	h := newHistory(w, 31, 7)
	ctx := w.T.Context()
	h.created = func(r *job.Record) {
		record := r.Definition.Record()
		for key, add := range map[string]string{w.Key(0, "st"): laterState, w.Key(0, "def"): string(laterDefinition)} {
			stored := w.Client.HGet(ctx, key, string(record)).Val()
			if err := w.Client.HSet(ctx, key, string(record), stored+add).Err(); err != nil {
				w.T.Fatal(err)
			}
		}
		stored := w.Get(r.Definition.ID)
		if stored.State.Unknown != laterState || len(stored.Definition.Unknown) == 0 {
			w.T.Fatalf("%s is read as %+v", record, stored)
		}
		r.State, r.Definition = stored.State, stored.Definition
	}
	for range 1500 {
		h.applyRandomStep()
	}
	w.CheckConsistency()
	h.compareRecords()
	states, defs := w.Client.HGetAll(ctx, w.Key(0, "st")).Val(), w.Client.HGetAll(ctx, w.Key(0, "def")).Val()
	rewritten := 0
	for record, def := range defs {
		if isRun(job.RecordID(record)) {
			continue // it has a payload of its own, and nothing of its job's
		}
		letter := strings.Contains(record, "#d")
		if !letter && !strings.HasSuffix(states[record], laterState) {
			w.T.Errorf("%s has lost the field of its state: %s", record, states[record])
		}
		if !strings.Contains(def, string(laterDefinition)) {
			w.T.Errorf("%s has lost the field of its definition", record)
		}
		if r := h.known[job.RecordID(record)]; r != nil && (r.Definition.Revision > 1 || r.State.Runs > 0) {
			rewritten++
		}
	}
	if rewritten < 3 {
		w.T.Errorf("%d jobs were rewritten", rewritten)
	}
}
