package workerstream

import (
	"bytes"
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/fermata-io/fermata/internal/api/convert"
	"github.com/fermata-io/fermata/internal/api/wirefield"
	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/lib/protofield"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
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
	b, all := protofield.Open(b, wirefield.WorkResponse_Leases)
	for i := range f.leases {
		var each int
		b, each = protofield.Open(b, wirefield.Leases_Leases)
		b = protofield.Close(f.appendLease(b, &f.leases[i]), each)
	}
	return protofield.Close(b, all)
}

func (f *leaseFrame) appendLease(b []byte, l *job.Assignment) []byte {
	d, s := l.Definition, &l.State
	run := s.RunID()
	b = appendLeaseID(b, wirefield.Lease_LeaseId, f.signer, l.LeaseID)
	b, at := protofield.Open(b, wirefield.Lease_Run)
	b = protofield.Close(convert.AppendRunName(b, d.Key, run), at)
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
		b, at = protofield.Open(b, wirefield.Lease_Labels)
		b = protowire.AppendString(protowire.AppendTag(b, wirefield.Lease_LabelsEntry_Key, protowire.BytesType), k)
		b = protowire.AppendString(protowire.AppendTag(b, wirefield.Lease_LabelsEntry_Value, protowire.BytesType), labels[k])
		b = protofield.Close(b, at)
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
	b, at := protofield.Open(b, wirefield.Lease_TraceContext)
	b = protofield.AppendText(b, wirefield.TraceContext_Traceparent, parent)
	b = protofield.AppendText(b, wirefield.TraceContext_Tracestate, state)
	return protofield.Close(b, at)
}

// appendMillis appends an instant, if it is one.
func appendMillis(b []byte, n protowire.Number, ms int64) []byte {
	if ms == 0 || ms >= job.NeverMS {
		return b
	}
	return protofield.AppendTime(b, n, time.UnixMilli(ms))
}

// appendLeaseID appends the id of a lease as its worker has to name it.
func appendLeaseID(b []byte, n protowire.Number, s *leaseSigner, id string) []byte {
	if s != nil {
		id = s.Sign(id)
	}
	return protofield.AppendText(b, n, id)
}

// ackFrame is a WorkResponse with acknowledgements.
type ackFrame struct {
	acks   job.ResultAcks
	signer *leaseSigner
}

func (f *ackFrame) FrameSize() int {
	size := 16
	for i := range f.acks {
		size += 16 + signatureLength + len(f.acks[i].LeaseID)
	}
	return size
}

func (f *ackFrame) AppendFrame(b []byte) []byte {
	b, all := protofield.Open(b, wirefield.WorkResponse_ResultAcks)
	for i := range f.acks {
		a := &f.acks[i]
		var each int
		b, each = protofield.Open(b, wirefield.ResultAcks_Acks)
		b = appendLeaseID(b, wirefield.ResultAck_LeaseId, f.signer, a.LeaseID)
		b = protofield.Close(protofield.AppendInt(b, wirefield.ResultAck_Status, int64(ackStatuses[a.Status])), each)
	}
	return protofield.Close(b, all)
}

// requestFrame is a WorkRequest: results, or any other message.
type requestFrame struct {
	results []job.Result
	other   fermatav1.WorkRequest
}

func (f *requestFrame) ReadFrame(data []byte) error {
	return protofield.Fields(data, func(field protofield.Field, raw []byte) error {
		if field.Number == wirefield.WorkRequest_Results && field.Bytes != nil {
			return f.readResults(field.Bytes)
		}
		return proto.UnmarshalOptions{Merge: true}.Unmarshal(raw, &f.other)
	})
}

func (f *requestFrame) readResults(data []byte) error {
	if f.results == nil {
		f.results = make([]job.Result, 0, len(data)/minResultSize)
	}
	return protofield.Fields(data, func(field protofield.Field, _ []byte) error {
		if field.Number != wirefield.Results_Results || field.Bytes == nil {
			return nil
		}
		r, err := readResult(field.Bytes)
		f.results = append(f.results, r)
		return err
	})
}

// minResultSize is about what the result of a success takes.
const minResultSize = 48

// resultOutcomes are the outcomes of results. One that this version does not know is
// a failure: the attempt did not succeed as far as can be told.
var resultOutcomes = map[fermatav1.Result_Outcome]job.Outcome{
	fermatav1.Result_OUTCOME_SUCCEEDED:          job.OutcomeSucceeded,
	fermatav1.Result_OUTCOME_FAILED:             job.OutcomeFailed,
	fermatav1.Result_OUTCOME_FAILED_PERMANENTLY: job.OutcomeFailed,
	fermatav1.Result_OUTCOME_TIMED_OUT:          job.OutcomeTimedOut,
	fermatav1.Result_OUTCOME_CANCELLED:          job.OutcomeCancelled,
}

// readResult reads a result. Text and output are cut here already, for they may
// have to be kept while Redis is away.
func readResult(data []byte) (r job.Result, err error) {
	var outcome fermatav1.Result_Outcome
	err = protofield.Fields(data, func(f protofield.Field, _ []byte) (err error) {
		switch f.Number {
		case wirefield.Result_LeaseId:
			r.LeaseID, err = f.Text()
		case wirefield.Result_Outcome:
			outcome = fermatav1.Result_Outcome(f.Int)
		case wirefield.Result_Error:
			r.Error, err = f.Text()
		case wirefield.Result_Output:
			r.Output = bytes.Clone(f.Bytes[:min(len(f.Bytes), job.MaxOutput)])
		case wirefield.Result_RetryAfter:
			r.RetryAfter, err = f.Duration()
		case wirefield.Result_Duration:
			r.Duration, err = f.Duration()
		}
		return err
	})
	known := false
	if r.Outcome, known = resultOutcomes[outcome]; !known {
		r.Outcome, r.Error = job.OutcomeFailed, cmp.Or(r.Error, "worker reported no outcome")
	}
	r.Permanent = outcome == fermatav1.Result_OUTCOME_FAILED_PERMANENTLY
	r.Error = strings.Clone(job.Clip(r.Error, job.MaxError))
	r.RetryAfter, r.Duration = max(0, r.RetryAfter), max(0, r.Duration)
	return r, err
}
