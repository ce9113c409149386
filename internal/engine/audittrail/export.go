package audittrail

import (
	"context"
	"regexp"
	"slices"

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

// Acknowledge stores that an export has delivered all records up to one. With no id it creates the export, if
// there is none. An acknowledgement never moves back.
func (r *Recorder) Acknowledge(ctx context.Context, name, id string, seq int64) (job.TrailExport, error) {
	if !exportName.MatchString(name) {
		return job.TrailExport{}, job.Invalid("export", "must have 1 to 63 lower-case letters, digits and dashes")
	}
	if id != "" && !isID(id) || seq < 0 {
		return job.TrailExport{}, job.Invalid("record_id", "is not the id of a record, or has no such sequence")
	}
	state, err := r.options.Store.TrailState(ctx)
	if err != nil {
		return job.TrailExport{}, err
	}
	at := slices.IndexFunc(state.Exports, func(e job.TrailExport) bool { return e.Name == name })
	switch {
	case at < 0 && len(state.Exports) >= job.MaxTrailExports:
		return job.TrailExport{}, job.Invalid("export",
			"would be one more than %d: delete those that are not used", job.MaxTrailExports)
	case compareIDs(id, state.Newest.ID) > 0 || seq > state.Head.Seq:
		return job.TrailExport{}, job.Invalid("record_id", "is after the newest record")
	}
	e := job.TrailExport{Name: name, Seq: oldestSequence(state) - 1}
	if at >= 0 {
		e = state.Exports[at]
	}
	if at < 0 || compareIDs(id, e.ID) > 0 {
		if id != "" {
			e.ID, e.Seq = id, max(seq, e.Seq)
		}
		e.UpdatedMS = state.NowMS
		if err := r.options.Store.SaveTrailExport(ctx, e); err != nil {
			return job.TrailExport{}, err
		}
	}
	return r.addUnacknowledged(ctx, e, state)
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

// DeleteExport forgets an export.
func (r *Recorder) DeleteExport(ctx context.Context, name string) error {
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
	if compareIDs(state.Newest.ID, e.ID) <= 0 {
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
