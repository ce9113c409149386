package rpc

import (
	"context"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/fermata-io/fermata/internal/api/convert"
	"github.com/fermata-io/fermata/internal/core/job"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

var errNoTrail = status.Error(codes.Unimplemented, "this node keeps no audit records")

func (s *clusterService) ListAuditRecords(ctx context.Context,
	q *fermatav1.ListAuditRecordsRequest) (*fermatav1.ListAuditRecordsResponse, error) {
	if s.trail == nil {
		return nil, errNoTrail
	}
	var r convert.Reader
	f := job.TrailFilter{
		Resource: q.GetResource(), Identity: q.GetIdentity(),
		FromMS: r.Millis("start_time", q.GetStartTime()), ToMS: r.Millis("end_time", q.GetEndTime()),
	}
	if err := r.Err(); err != nil {
		return nil, err
	}
	page, err := s.trail.List(ctx, f, int(q.GetPageSize()), q.GetPageToken())
	if err != nil {
		return nil, err
	}
	return &fermatav1.ListAuditRecordsResponse{
		Records: convert.Map(page.Records, convert.AuditRecordToPB), NextPageToken: page.Next,
	}, nil
}

func (s *clusterService) ReadAuditRecords(ctx context.Context,
	q *fermatav1.ReadAuditRecordsRequest) (*fermatav1.ReadAuditRecordsResponse, error) {
	if s.trail == nil {
		return nil, errNoTrail
	}
	page, err := s.trail.Read(ctx, q.GetAfter(), int(q.GetPageSize()))
	if err != nil {
		return nil, err
	}
	return &fermatav1.ReadAuditRecordsResponse{
		Records: convert.Map(page.Records, convert.AuditRecordToPB), HeadSequence: page.Head.Seq, HeadHash: page.Head.Hash,
		More: page.More,
	}, nil
}

func (s *clusterService) AcknowledgeAuditRecords(ctx context.Context,
	q *fermatav1.AcknowledgeAuditRecordsRequest) (*fermatav1.AuditExport, error) {
	if s.trail == nil {
		return nil, errNoTrail
	}
	BeginWrite(ctx)
	e, notes, err := s.trail.Acknowledge(ctx, job.TrailAcknowledgement{
		Export: q.GetExport(), Identity: callerSubject(ctx), RecordID: q.GetRecordId(), Seq: q.GetSequence(),
		Previous: q.PreviousRecordId,
	})
	noteExport(ctx, notes)
	if err != nil {
		return nil, err
	}
	return convert.AuditExportToPB(e), nil
}

func (s *clusterService) ListAuditExports(ctx context.Context,
	_ *fermatav1.ListAuditExportsRequest) (*fermatav1.ListAuditExportsResponse, error) {
	if s.trail == nil {
		return nil, errNoTrail
	}
	exports, err := s.trail.Exports(ctx)
	if err != nil {
		return nil, err
	}
	return &fermatav1.ListAuditExportsResponse{Exports: convert.Map(exports, convert.AuditExportToPB)}, nil
}

func (s *clusterService) DeleteAuditExport(ctx context.Context,
	q *fermatav1.DeleteAuditExportRequest) (*fermatav1.DeleteAuditExportResponse, error) {
	if s.trail == nil {
		return nil, errNoTrail
	}
	BeginWrite(ctx)
	if err := s.trail.DeleteExport(ctx, q.GetName()); err != nil {
		return nil, err
	}
	return &fermatav1.DeleteAuditExportResponse{}, nil
}
