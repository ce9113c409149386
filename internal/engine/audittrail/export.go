package audittrail

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"

	"github.com/fermata-io/fermata/internal/core/job"
)

var exportName = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)

// Read returns up to size records (0: 100), oldest first, after the one with the id after. A page of large records is
// shorter, and has More set.
func (r *Recorder) Read(ctx context.Context, after string, size int) (page job.TrailPart, err error) {
	switch {
	case size < 0 || size > MaxPageSize:
		return page, job.Invalid("page_size", "is %d, want 1 to %d, or 0 for %d", size, MaxPageSize,
			DefaultPageSize)
	case after != "" && !isID(after):
		return page, job.Invalid("after", "is not the id of a record")
	}
	if size == 0 {
		size = DefaultPageSize
	}
	// Read the end first: what is read later is beyond it only by what was written since.
	state, err := r.options.Store.TrailState(ctx)
	page.Head = state.Head
	for bytes := 0; err == nil && len(page.Records) < size; {
		if bytes >= maxReadBytes {
			page.More = true
			return page, nil
		}
		var records []job.TrailRecord
		n := min(scanStep, size-len(page.Records))
		records, err = r.options.Store.ReadTrailFrom(ctx, after, n)
		page.Records = append(page.Records, records...)
		if len(records) < n {
			break
		}
		after = records[n-1].ID
		for _, record := range records {
			bytes += record.Size()
		}
	}
	return page, err
}

// Acknowledge opens an export, or stores that it has delivered all records up to one. An acknowledgement creates no
// export, and never moves one back. notes says what of it has to be in the audit trail, as fields of its record; nil:
// it is a routine one, or changed nothing. If Acknowledge fails, the change that the notes are about may be stored.
func (r *Recorder) Acknowledge(ctx context.Context, a job.TrailAcknowledgement) (e job.TrailExport, notes []string,
	err error) {
	err = validateExportName(a.Export)
	if err != nil {
		return e, nil, err
	}
	if a.RecordID != "" && !isID(a.RecordID) || a.Seq < 0 {
		return e, nil, job.Invalid("record_id", "is not the id of a record, or has no such sequence")
	}
	if a.Previous != nil && *a.Previous != "" && !isID(*a.Previous) {
		return e, nil, job.Invalid("previous_record_id", "is not the id of a record")
	}
	a.Identity = job.ClipWithDigest(a.Identity, job.MaxTrailText)
	// Before the state, so that a record that is missing here and not removed by then was never there.
	delivered, err := r.findRecord(ctx, a.RecordID)
	if err != nil {
		return e, nil, err
	}
	var sent exportPlan
	for range exportTries {
		state, err := r.options.Store.TrailState(ctx)
		if err != nil {
			return e, sent.notes, err
		}
		was, plan, err := planExport(a, delivered, state)
		if err != nil {
			return e, nil, err
		}
		done := plan.export == was
		switch {
		case sent.export.Name != "" && was == sent.export:
			plan, done = sent, true // its reply was lost, and it was sent again
		case !done:
			sent = plan
			sent.export.UpdatedMS = state.NowMS
			plan = sent
			done, err = r.options.Store.SaveTrailExport(ctx, plan.export, was)
		}
		if err != nil {
			return e, plan.notes, err
		}
		if done {
			r.logExport(plan)
			e, err = r.addUnacknowledged(ctx, plan.export, state)
			return e, plan.notes, err
		}
	}
	return e, nil, job.ErrTrailExportChanged
}

// exportTries is how often an acknowledgement is planned again because the export changed meanwhile.
const exportTries = 5

// findRecord returns a record; the zero value if it is not there.
func (r *Recorder) findRecord(ctx context.Context, id string) (job.TrailRecord, error) {
	ms, seq := job.SplitTrailID(id)
	if id == "" || ms == 0 {
		return job.TrailRecord{}, nil
	}
	before := fmt.Sprintf("%d-%d", ms, seq-1)
	if seq == 0 {
		before = fmt.Sprintf("%d-%d", ms-1, uint64(math.MaxUint64))
	}
	found, err := r.options.Store.ReadTrailFrom(ctx, before, 1)
	if err != nil || len(found) == 0 || job.CompareTrailIDs(found[0].ID, id) != 0 {
		return job.TrailRecord{}, err
	}
	return found[0], nil
}

// exportPlan is what becomes of an export, and what of that has to be in the audit trail.
type exportPlan struct {
	export job.TrailExport
	notes  []string
	warns  bool
}

// planExport decides about an acknowledgement. delivered is the record that it names, if that is kept. was is the
// export as it is; the zero value: there is none.
func planExport(a job.TrailAcknowledgement, delivered job.TrailRecord, state job.TrailState) (was job.TrailExport,
	plan exportPlan, err error) {
	at := slices.IndexFunc(state.Exports, func(e job.TrailExport) bool { return e.Name == a.Export })
	switch {
	case at < 0 && a.RecordID != "":
		return was, plan, job.ErrNoTrailExport
	case at < 0 && len(state.Exports) >= job.MaxTrailExports:
		return was, plan, job.Invalid("export",
			"would be one more than %d: delete those that are not used", job.MaxTrailExports)
	case at < 0:
		created := job.TrailExport{Name: a.Export, Identity: a.Identity, Seq: oldestSequence(state) - 1}
		return was, exportPlan{export: created, notes: []string{"created=true"}}, nil
	case job.CompareTrailIDs(a.RecordID, state.Newest.ID) > 0 || a.Seq > state.Head.Seq:
		return was, plan, job.Invalid("record_id", "is after the newest record")
	}
	was = state.Exports[at]
	plan.export = was
	if a.RecordID != "" {
		if job.CompareTrailIDs(a.RecordID, was.ID) <= 0 {
			return was, plan, nil // once more, or by a second process
		}
		moved := a.Previous != nil && job.CompareTrailIDs(*a.Previous, was.ID) != 0
		if moved || was.Identity != "" && was.Identity != a.Identity {
			return was, plan, job.ErrTrailExportChanged
		}
		err = plan.advance(a, delivered, state)
	}
	if was.Identity != a.Identity {
		plan.export.Identity = a.Identity
		plan.notes = append(plan.notes, "previous_identity="+cmp.Or(was.Identity, "unknown"))
	}
	return was, plan, err
}

// advance moves the position to a record. One page at most was delivered since the position before: if there are more
// records between them, that leaves a record.
func (p *exportPlan) advance(a job.TrailAcknowledgement, delivered job.TrailRecord, state job.TrailState) error {
	seq := delivered.Seq
	if delivered.ID == "" {
		if job.CompareTrailIDs(a.RecordID, state.OldestID) >= 0 {
			return job.Invalid("record_id", "is not the id of a record")
		}
		seq = min(a.Seq, oldestSequence(state)-1) // it was removed since it was delivered
	}
	from := max(p.export.Seq, oldestSequence(state)-1)
	p.export.ID, p.export.Seq = a.RecordID, max(seq, p.export.Seq)
	if p.export.Seq-from > MaxPageSize {
		p.warns = true
		p.notes = append(p.notes, fmt.Sprintf("from_sequence=%d", from+1), fmt.Sprintf("to_sequence=%d", p.export.Seq))
	}
	return nil
}

// logExport warns of an export that may have left out records.
func (r *Recorder) logExport(p exportPlan) {
	if p.warns {
		r.options.Logger.Warn("an audit export acknowledged more records than one page has", "export", p.export.Name,
			"identity", p.export.Identity, "records", strings.Join(p.notes, " "))
	}
}

// oldestSequence returns the sequence of the oldest record, or of the next one if there is none.
func oldestSequence(state job.TrailState) int64 {
	switch {
	case state.OldestID == "":
		return state.Head.Seq + 1
	case state.OldestSeq == 0: // from before there was a chain
		return 1
	}
	return state.OldestSeq
}

func validateExportName(name string) error {
	if !exportName.MatchString(name) {
		return job.Invalid("export", "must have 1 to 63 lower-case letters, digits and dashes")
	}
	return nil
}

// DeleteExport forgets an export.
func (r *Recorder) DeleteExport(ctx context.Context, name string) error {
	err := validateExportName(name)
	if err != nil {
		return err
	}
	return r.options.Store.DropTrailExport(ctx, name)
}

// Exports lists all exports by name, with the records that wait for each.
func (r *Recorder) Exports(ctx context.Context) ([]job.TrailExport, error) {
	state, err := r.options.Store.TrailState(ctx)
	if err != nil {
		return nil, err
	}
	return r.exportStatus(ctx, state)
}

func (r *Recorder) exportStatus(ctx context.Context, state job.TrailState) (out []job.TrailExport, err error) {
	for _, e := range state.Exports {
		e, err = r.addUnacknowledged(ctx, e, state)
		if err != nil {
			return nil, err
		}
		out = append(out, e)
	}
	return out, nil
}

// addUnacknowledged adds the number of unacknowledged records to an export.
func (r *Recorder) addUnacknowledged(ctx context.Context, e job.TrailExport, state job.TrailState) (job.TrailExport,
	error) {
	if job.CompareTrailIDs(state.Newest.ID, e.ID) <= 0 {
		return e, nil
	}
	e.Waiting = max(1, state.Head.Seq-e.Seq)
	first, err := r.options.Store.ReadTrailFrom(ctx, e.ID, 1)
	if err != nil || len(first) == 0 {
		return e, err
	}
	e.SinceMS = first[0].AtMS
	return e, nil
}

// countMissed returns how many records were removed before an export had acknowledged them.
func countMissed(e job.TrailExport, state job.TrailState) int64 {
	return max(0, oldestSequence(state)-e.Seq-1)
}
