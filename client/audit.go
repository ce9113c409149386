package client

import (
	"context"
	"iter"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// AuditFilter selects audit records; zero fields select all.
type AuditFilter struct {
	// Resource is a full name; with a trailing '/', it selects all names below it.
	Resource string
	Identity string
	// From is inclusive, To exclusive.
	From, To time.Time
}

// AuditRecords returns who changed what, newest first. It requests pages as they are needed, and ends after the
// first error.
func (a Admin) AuditRecords(ctx context.Context, f AuditFilter) iter.Seq2[*AuditRecord, error] {
	return func(yield func(*AuditRecord, error) bool) {
		q := &fermatav1.ListAuditRecordsRequest{PageSize: 1000, Resource: f.Resource, Identity: f.Identity}
		if !f.From.IsZero() {
			q.StartTime = timestamppb.New(f.From)
		}
		if !f.To.IsZero() {
			q.EndTime = timestamppb.New(f.To)
		}
		for {
			r, err := callWithRetry(ctx, a.c, a.c.cluster.ListAuditRecords, q)
			if err != nil {
				yield(nil, err)
				return
			}
			for _, record := range r.GetRecords() {
				if !yield(record, nil) {
					return
				}
			}
			q.PageToken = r.GetNextPageToken()
			if q.PageToken == "" {
				return
			}
		}
	}
}

// ReadAuditRecords returns up to [AuditPage] records after the record with the id after, oldest first; "" starts
// at the oldest one. If it returns fewer, there are no more yet. head is the sequence number of the last record
// of the chain.
func (a Admin) ReadAuditRecords(ctx context.Context, after string) (records []*AuditRecord, head int64, err error) {
	for {
		q := &fermatav1.ReadAuditRecordsRequest{After: after, PageSize: AuditPage - int32(len(records))}
		r, err := callWithRetry(ctx, a.c, a.c.cluster.ReadAuditRecords, q)
		records = append(records, r.GetRecords()...)
		if err != nil || !r.GetMore() || len(r.GetRecords()) == 0 || len(records) >= AuditPage {
			return records, r.GetHeadSequence(), err
		}
		after = records[len(records)-1].GetId()
	}
}

// AuditPage is the maximum number of records that ReadAuditRecords returns.
const AuditPage = 1000

// AdvanceAuditExport records that an export has delivered all records from its position up to last, and returns the new
// position. If the export has another position by then, or another identity has opened it, that is an error with the
// reason AUDIT_EXPORT_CHANGED.
func (a Admin) AdvanceAuditExport(ctx context.Context, position *AuditExport, last *AuditRecord) (*AuditExport, error) {
	return callWithRetry(ctx, a.c, a.c.cluster.AcknowledgeAuditRecords, &fermatav1.AcknowledgeAuditRecordsRequest{
		Export: position.GetName(), RecordId: last.GetId(), Sequence: last.GetSequence(),
		PreviousRecordId: new(position.GetRecordId()),
	})
}

// AcknowledgeAuditRecords records that an export has delivered all records up to last, whatever its position is. With a
// nil record it opens the export for this caller, creates it if it does not exist, and returns its position.
func (a Admin) AcknowledgeAuditRecords(ctx context.Context, export string, last *AuditRecord) (*AuditExport, error) {
	return callWithRetry(ctx, a.c, a.c.cluster.AcknowledgeAuditRecords, &fermatav1.AcknowledgeAuditRecordsRequest{
		Export: export, RecordId: last.GetId(), Sequence: last.GetSequence(),
	})
}

// AuditExports returns the exports and how many records wait for each.
func (a Admin) AuditExports(ctx context.Context) ([]*AuditExport, error) {
	r, err := callWithRetry(ctx, a.c, a.c.cluster.ListAuditExports, &fermatav1.ListAuditExportsRequest{})
	return r.GetExports(), err
}

// DeleteAuditExport deletes an export. Records are no longer kept for it.
func (a Admin) DeleteAuditExport(ctx context.Context, export string) error {
	_, err := callWithRetry(ctx, a.c, a.c.cluster.DeleteAuditExport, &fermatav1.DeleteAuditExportRequest{Name: export})
	return err
}
