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
			r, err := call(ctx, c, c.cluster.ListAuditRecords, q)
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
