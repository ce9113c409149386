package workerstream

import (
	"maps"
	"slices"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/fermata-io/fermata/internal/api/convert"
	"github.com/fermata-io/fermata/internal/api/wirefield"
	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/unixtime"
	"github.com/fermata-io/fermata/internal/lib/protofield"
)

// leaseFrame is a WorkResponse with leases.
type leaseFrame struct {
	leases job.Assignments
	signer *leaseSigner // nil: ids go out as they are
	trace  LeaseTracer  // nil: no run is traced
}

// leaseOverhead is what a lease takes beside its texts, labels and payload, at most.
const leaseOverhead = 180

func (f *leaseFrame) FrameSize() int {
	size := 16
	for i := range f.leases {
		l := &f.leases[i]
		d := l.Definition
		size += leaseOverhead + signatureLength + 2*len(l.LeaseID) + len(d.Queue) + len(d.Handler) + len(l.Payload())
		for k, v := range d.Labels {
			size += 16 + len(k) + len(v)
		}
	}
	return size
}

func (f *leaseFrame) AppendFrame(b []byte) []byte {
	b, all := protofield.StartMessage(b, wirefield.WorkResponse_Leases)
	for i := range f.leases {
		var each int
		b, each = protofield.StartMessage(b, wirefield.Leases_Leases)
		b = protofield.EndMessage(f.appendLease(b, &f.leases[i]), each)
	}
	return protofield.EndMessage(b, all)
}

func (f *leaseFrame) appendLease(b []byte, l *job.Assignment) []byte {
	d, s := l.Definition, &l.State
	run := s.RunID()
	b = appendLeaseID(b, wirefield.Lease_LeaseId, f.signer, l.LeaseID)
	b, at := protofield.StartMessage(b, wirefield.Lease_Run)
	b = protofield.EndMessage(convert.AppendRunName(b, d.Key, run), at)
	b = protofield.AppendText(b, wirefield.Lease_Queue, s.Lane.Queue)
	b = protofield.AppendText(b, wirefield.Lease_Handler, d.Handler)
	b = protofield.AppendText(b, wirefield.Lease_Payload, l.Payload())
	b = protofield.AppendInt(b, wirefield.Lease_Attempt, int64(s.Attempt)+1)
	b = protofield.AppendInt(b, wirefield.Lease_MaxAttempts, int64(d.Retry.MaxAttempts))
	b = appendMillis(b, wirefield.Lease_NominalTime, s.Nominal)
	b = appendMillis(b, wirefield.Lease_DueTime, s.Due)
	b = protofield.AppendDuration(b, wirefield.Lease_Timeout, d.Timeout)
	b = protofield.AppendInt(b, wirefield.Lease_Token, int64(s.Token))
	if len(d.Labels) > 0 {
		b = appendLabels(b, d.Labels)
	}
	b = protofield.AppendText(b, wirefield.Lease_CorrelationId, job.Correlation(d.Key, run))
	if !l.StartAt.IsZero() {
		// As late as can be: what the lease waits for on its way counts.
		if wait := time.Until(l.StartAt); wait > 0 {
			b = protofield.AppendDuration(b, wirefield.Lease_StartAfter, wait)
		}
	}
	return f.appendTrace(b, l.Record)
}

func appendLabels(b []byte, labels map[string]string) []byte {
	for _, k := range slices.Sorted(maps.Keys(labels)) {
		var at int
		b, at = protofield.StartMessage(b, wirefield.Lease_Labels)
		b = protowire.AppendString(protowire.AppendTag(b, wirefield.Lease_LabelsEntry_Key, protowire.BytesType), k)
		b = protowire.AppendString(protowire.AppendTag(b, wirefield.Lease_LabelsEntry_Value, protowire.BytesType), labels[k])
		b = protofield.EndMessage(b, at)
	}
	return b
}

// appendTrace adds the trace context of a run that is traced.
func (f *leaseFrame) appendTrace(b []byte, r *job.Record) []byte {
	if f.trace == nil {
		return b
	}
	parent, state := f.trace(r)
	if parent == "" {
		return b
	}
	b, at := protofield.StartMessage(b, wirefield.Lease_TraceContext)
	b = protofield.AppendText(b, wirefield.TraceContext_Traceparent, parent)
	b = protofield.AppendText(b, wirefield.TraceContext_Tracestate, state)
	return protofield.EndMessage(b, at)
}

// appendMillis appends an instant, if it is one.
func appendMillis(b []byte, n protowire.Number, ms unixtime.Milli) []byte {
	if ms == 0 || ms >= job.NeverMS {
		return b
	}
	return protofield.AppendTime(b, n, ms.Time())
}

// appendLeaseID appends the id of a lease as its worker has to name it.
func appendLeaseID(b []byte, n protowire.Number, s *leaseSigner, id string) []byte {
	if s != nil {
		id = s.Sign(id)
	}
	return protofield.AppendText(b, n, id)
}
