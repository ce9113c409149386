package rpc

import (
	"context"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/fermata-io/fermata/internal/core/job"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

var errNoTrail = status.Error(codes.Unimplemented, "this node keeps no audit records")

func (s *clusterService) ListAuditRecords(ctx context.Context, q *fermatav1.ListAuditRecordsRequest) (*fermatav1.ListAuditRecordsResponse, error) {
	if s.trail == nil {
		return nil, errNoTrail
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
		Sequence: r.Seq, ChainVersion: int32(r.Version), Hash: r.Hash, PreviousHash: r.Prev, KeyId: r.KeyID, Signature: r.Signature,
	}
}

func (s *clusterService) ReadAuditRecords(ctx context.Context, q *fermatav1.ReadAuditRecordsRequest) (*fermatav1.ReadAuditRecordsResponse, error) {
	if s.trail == nil {
		return nil, errNoTrail
	}
	records, head, err := s.trail.Read(ctx, q.GetAfter(), int(q.GetPageSize()))
	if err != nil {
		return nil, err
	}
	return &fermatav1.ReadAuditRecordsResponse{Records: each(records, trailToPB), HeadSequence: head.Seq, HeadHash: head.Hash}, nil
}

func (s *clusterService) AcknowledgeAuditRecords(ctx context.Context, q *fermatav1.AcknowledgeAuditRecordsRequest) (*fermatav1.AuditExport, error) {
	if s.trail == nil {
		return nil, errNoTrail
	}
	BeginWrite(ctx)
	e, err := s.trail.Acknowledge(ctx, q.GetExport(), q.GetRecordId(), q.GetSequence())
	if err != nil {
		return nil, err
	}
	return exportToPB(e), nil
}

func (s *clusterService) ListAuditExports(ctx context.Context, _ *fermatav1.ListAuditExportsRequest) (*fermatav1.ListAuditExportsResponse, error) {
	if s.trail == nil {
		return nil, errNoTrail
	}
	exports, err := s.trail.Exports(ctx)
	if err != nil {
		return nil, err
	}
	return &fermatav1.ListAuditExportsResponse{Exports: each(exports, exportToPB)}, nil
}

func (s *clusterService) DeleteAuditExport(ctx context.Context, q *fermatav1.DeleteAuditExportRequest) (*fermatav1.DeleteAuditExportResponse, error) {
	if s.trail == nil {
		return nil, errNoTrail
	}
	BeginWrite(ctx)
	if err := s.trail.DeleteExport(ctx, q.GetName()); err != nil {
		return nil, err
	}
	return &fermatav1.DeleteAuditExportResponse{}, nil
}

func exportToPB(e job.TrailExport) *fermatav1.AuditExport {
	p := &fermatav1.AuditExport{Name: e.Name, RecordId: e.ID, Sequence: e.Seq, UpdateTime: msToPB(e.UpdatedMS), Waiting: e.Waiting}
	if e.SinceMS > 0 {
		p.WaitingSince = msToPB(e.SinceMS)
	}
	return p
}
