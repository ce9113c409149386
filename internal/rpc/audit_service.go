package rpc

import (
	"context"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/fermata-io/fermata/internal/job"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

func (s *clusterService) ListAuditRecords(ctx context.Context, q *fermatav1.ListAuditRecordsRequest) (*fermatav1.ListAuditRecordsResponse, error) {
	if s.trail == nil {
		return nil, status.Error(codes.Unimplemented, "this node keeps no audit records")
	}
	var r reader
	f := job.TrailFilter{
		Resource: q.GetResource(), Identity: q.GetIdentity(),
		FromMS: r.millis("start_time", q.GetStartTime()), ToMS: r.millis("end_time", q.GetEndTime()),
	}
	if err := r.err(); err != nil {
		return nil, err
	}
	page, err := s.trail.List(ctx, f, int(q.GetPageSize()), q.GetPageToken())
	if err != nil {
		return nil, err
	}
	return &fermatav1.ListAuditRecordsResponse{Records: each(page.Records, trailToPB), NextPageToken: page.Next}, nil
}

func trailToPB(r job.TrailRecord) *fermatav1.AuditRecord {
	return &fermatav1.AuditRecord{
		Id: r.ID, Time: msToPB(r.AtMS), Identity: r.Identity, Peer: r.Peer, Node: r.Node, Method: r.Method,
		Resource: r.Resource, Names: r.Names, ChangedFields: r.Fields, RequestId: r.RequestID, Code: int32(r.Code),
		Changed: r.Changed, Refused: r.Refused, BeforeDigest: r.Before, AfterDigest: r.After,
	}
}
