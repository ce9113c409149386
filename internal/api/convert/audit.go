package convert

import (
	"github.com/fermata-io/fermata/internal/core/job"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

func AuditRecordToPB(r job.TrailRecord) *fermatav1.AuditRecord {
	return &fermatav1.AuditRecord{
		Id: r.ID, Time: MillisToPB(r.AtMS), Identity: r.Identity, Peer: r.Peer, Node: r.Node, Method: r.Method,
		Resource: r.Resource, Names: r.Names, ChangedFields: r.Fields, RequestId: r.RequestID, Code: int32(r.Code),
		Changed: r.Changed, Refused: r.Refused, BeforeDigest: r.Before, AfterDigest: r.After,
		Sequence: r.Seq, ChainVersion: int32(r.Version), Hash: r.Hash, PreviousHash: r.Prev,
		KeyId: r.KeyID, Signature: r.Signature,
	}
}

func AuditExportToPB(e job.TrailExport) *fermatav1.AuditExport {
	p := &fermatav1.AuditExport{
		Name: e.Name, RecordId: e.ID, Sequence: e.Seq, UpdateTime: MillisToPB(e.UpdatedMS), Waiting: e.Waiting,
		Identity: e.Identity,
	}
	if e.SinceMS > 0 {
		p.WaitingSince = MillisToPB(e.SinceMS)
	}
	return p
}
