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
	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/lib/protofield"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// The messages of which there are many go to and from the wire without a message of
// protobuf between. The numbers of their fields:
const (
	// Of WorkResponse, of WorkRequest, and of the lists in them.
	workLeases, workAcks = 2, 3
	workResults          = 3
	listItem             = 1
	// Of Lease.
	leaseID, leaseRun, leaseQueue, leaseHandler, leasePayload           = 1, 2, 3, 4, 5
	leaseAttempt, leaseMaxAttempts, leaseNominal, leaseDue              = 6, 7, 8, 9
	leaseTimeout, leaseToken, leaseLabels, leaseCorrelation, leaseTrace = 10, 11, 12, 13, 60
	leaseStartAfter                                                     = 14
	// Of ResultAck.
	ackLease, ackStatusField = 1, 2
	// Of Result.
	resultLease, resultOutcome, resultError, resultOutput, resultRetry, resultTook = 1, 2, 3, 4, 5, 6
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
	b, all := protofield.Open(b, workLeases)
	for i := range f.leases {
		var each int
		b, each = protofield.Open(b, listItem)
		b = protofield.Close(f.appendLease(b, &f.leases[i]), each)
	}
	return protofield.Close(b, all)
}

func (f *leaseFrame) appendLease(b []byte, l *job.Assignment) []byte {
	d, s := l.Definition, &l.State
	run := s.RunID()
	b = appendLeaseID(b, leaseID, f.signer, l.LeaseID)
	b, at := protofield.Open(b, leaseRun)
	b = protofield.Close(convert.AppendRunName(b, d.Key, run), at)
	b = protofield.AppendText(b, leaseQueue, s.Lane.Queue)
	b = protofield.AppendText(b, leaseHandler, d.Handler)
	b = protofield.AppendText(b, leasePayload, l.Payload())
	b = protofield.AppendInt(b, leaseAttempt, int64(s.Attempt)+1)
	b = protofield.AppendInt(b, leaseMaxAttempts, int64(d.Retry.MaxAttempts))
	b = appendMillis(b, leaseNominal, s.Nominal)
	b = appendMillis(b, leaseDue, s.Due)
	b = protofield.AppendDuration(b, leaseTimeout, d.Timeout)
	b = protofield.AppendInt(b, leaseToken, int64(s.Token))
	if len(d.Labels) > 0 {
		b = appendLabels(b, d.Labels)
	}
	b = protofield.AppendText(b, leaseCorrelation, job.Correlation(d.Key, run))
	if !l.StartAt.IsZero() {
		// As late as can be: what the lease waits for on its way counts.
		if wait := time.Until(l.StartAt); wait > 0 {
			b = protofield.AppendDuration(b, leaseStartAfter, wait)
		}
	}
	return f.appendTrace(b, l.Record)
}

func appendLabels(b []byte, labels map[string]string) []byte {
	for _, k := range slices.Sorted(maps.Keys(labels)) {
		var at int
		b, at = protofield.Open(b, leaseLabels)
		b = protowire.AppendString(protowire.AppendTag(b, 1, protowire.BytesType), k)
		b = protowire.AppendString(protowire.AppendTag(b, 2, protowire.BytesType), labels[k])
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
	b, at := protofield.Open(b, leaseTrace)
	return protofield.Close(protofield.AppendText(protofield.AppendText(b, 1, parent), 2, state), at)
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
	b, all := protofield.Open(b, workAcks)
	for i := range f.acks {
		a := &f.acks[i]
		var each int
		b, each = protofield.Open(b, listItem)
		b = appendLeaseID(b, ackLease, f.signer, a.LeaseID)
		b = protofield.Close(protofield.AppendInt(b, ackStatusField, int64(ackStatuses[a.Status])), each)
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
		if field.Number == workResults && field.Bytes != nil {
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
		if field.Number != listItem || field.Bytes == nil {
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
		case resultLease:
			r.LeaseID, err = f.Text()
		case resultOutcome:
			outcome = fermatav1.Result_Outcome(f.Int)
		case resultError:
			r.Error, err = f.Text()
		case resultOutput:
			r.Output = bytes.Clone(f.Bytes[:min(len(f.Bytes), job.MaxOutput)])
		case resultRetry:
			r.RetryAfter, err = f.Duration()
		case resultTook:
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
