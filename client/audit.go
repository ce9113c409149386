package client

import (
	"context"
	"iter"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// AuditRecord is one call that changed something, or may have.
type AuditRecord = fermatav1.AuditRecord

// AuditFilter selects audit records; zero fields select all.
type AuditFilter struct {
	// Resource is a full name; with a trailing '/', all below it.
	Resource string
	Identity string
	// From is inclusive, To exclusive.
	From, To time.Time
}

// AuditRecords lists who changed what, newest first, page by page as they are asked
// for. It ends after the first error.
func (c *Client) AuditRecords(ctx context.Context, f AuditFilter) iter.Seq2[*AuditRecord, error] {
	return func(yield func(*AuditRecord, error) bool) {
		q := &fermatav1.ListAuditRecordsRequest{PageSize: 1000, Resource: f.Resource, Identity: f.Identity}
		if !f.From.IsZero() {
			q.StartTime = timestamppb.New(f.From)
		}
		if !f.To.IsZero() {
			q.EndTime = timestamppb.New(f.To)
		}
		for {
			r, err := callWithRetry(ctx, c, c.cluster.ListAuditRecords, q)
			if err != nil {
				yield(nil, err)
				return
			}
			for _, record := range r.GetRecords() {
				if !yield(record, nil) {
					return
				}
			}
			if q.PageToken = r.GetNextPageToken(); q.PageToken == "" {
				return
			}
		}
	}
}

// AuditExport is a consumer of audit records that acknowledges them.
type AuditExport = fermatav1.AuditExport

// ReadAuditRecords returns up to 1000 records after the one with the id after, oldest first; "": from
// the oldest one. Fewer than that: there are no more now. head is the sequence at which the chain ends.
func (c *Client) ReadAuditRecords(ctx context.Context, after string) (records []*AuditRecord, head int64, err error) {
	r, err := callWithRetry(ctx, c, c.cluster.ReadAuditRecords, &fermatav1.ReadAuditRecordsRequest{After: after, PageSize: AuditPage})
	return r.GetRecords(), r.GetHeadSequence(), err
}

// AuditPage is how many records ReadAuditRecords returns at most.
const AuditPage = 1000

// AcknowledgeAuditRecords says that an export has delivered all records up to one. With a nil
// record it makes the export, if there is none, and returns how far it has come.
func (c *Client) AcknowledgeAuditRecords(ctx context.Context, export string, last *AuditRecord) (*AuditExport, error) {
	return callWithRetry(ctx, c, c.cluster.AcknowledgeAuditRecords, &fermatav1.AcknowledgeAuditRecordsRequest{
		Export: export, RecordId: last.GetId(), Sequence: last.GetSequence(),
	})
}

// AuditExports lists the exports and what waits for each.
func (c *Client) AuditExports(ctx context.Context) ([]*AuditExport, error) {
	r, err := callWithRetry(ctx, c, c.cluster.ListAuditExports, &fermatav1.ListAuditExportsRequest{})
	return r.GetExports(), err
}

// DeleteAuditExport forgets an export: nothing is kept for it any longer.
func (c *Client) DeleteAuditExport(ctx context.Context, export string) error {
	_, err := callWithRetry(ctx, c, c.cluster.DeleteAuditExport, &fermatav1.DeleteAuditExportRequest{Name: export})
	return err
}
