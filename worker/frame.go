package worker

import (
	"bytes"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/fermata-io/fermata/internal/api/wirefield"
	"github.com/fermata-io/fermata/internal/lib/protofield"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// Leases, results and acknowledgements, nearly all messages of a stream, are decoded and encoded without
// protobuf messages. These are their field numbers.
const (
	workLeases, workAcks = wirefield.WorkResponse_Leases, wirefield.WorkResponse_ResultAcks
	workResults          = wirefield.WorkRequest_Results
	listItem             = wirefield.Leases_Leases // the same in Results and ResultAcks
	leaseID              = wirefield.Lease_LeaseId
	leaseRun             = wirefield.Lease_Run
	leaseQueue           = wirefield.Lease_Queue
	leaseHandler         = wirefield.Lease_Handler
	leasePayload         = wirefield.Lease_Payload
	leaseAttempt         = wirefield.Lease_Attempt
	leaseMaxAttempts     = wirefield.Lease_MaxAttempts
	leaseNominal         = wirefield.Lease_NominalTime
	leaseDue             = wirefield.Lease_DueTime
	leaseTimeout         = wirefield.Lease_Timeout
	leaseToken           = wirefield.Lease_Token
	leaseLabels          = wirefield.Lease_Labels
	leaseCorrelation     = wirefield.Lease_CorrelationId
	leaseTrace           = wirefield.Lease_TraceContext
	leaseStartAfter      = wirefield.Lease_StartAfter
	resultLease          = wirefield.Result_LeaseId
	resultOutcome        = wirefield.Result_Outcome
	resultError          = wirefield.Result_Error
	resultOutput         = wirefield.Result_Output
	resultRetry          = wirefield.Result_RetryAfter
	resultTook           = wirefield.Result_Duration
	ackLease             = wirefield.ResultAck_LeaseId
	ackStatus            = wirefield.ResultAck_Status
)

// responseFrame is a WorkResponse: leases, acknowledgements, or any other message.
type responseFrame struct {
	leases []*attempt
	acks   []resultAck
	other  fermatav1.WorkResponse
}

// resultAck is a node's acknowledgement of a result.
type resultAck struct {
	id     string
	status fermatav1.ResultAck_Status
}

func (f *responseFrame) ReadFrame(data []byte) error {
	return protofield.Fields(data, func(field protofield.Field, raw []byte) error {
		switch {
		case field.Bytes == nil:
		case field.Number == workLeases:
			return f.readLeases(field.Bytes)
		case field.Number == workAcks:
			return f.readAcks(field.Bytes)
		}
		return proto.UnmarshalOptions{Merge: true}.Unmarshal(raw, &f.other)
	})
}

func (f *responseFrame) readLeases(data []byte) error {
	last := &Task{} // strings that leases share are kept once
	return protofield.Fields(data, func(field protofield.Field, _ []byte) error {
		if field.Number != listItem || field.Bytes == nil {
			return nil
		}
		a := &attempt{}
		if err := a.readLease(field.Bytes, last); err != nil {
			return err
		}
		last = &a.task
		f.leases = append(f.leases, a)
		return nil
	})
}

func (f *responseFrame) readAcks(data []byte) error {
	return protofield.Fields(data, func(field protofield.Field, _ []byte) error {
		if field.Number != listItem || field.Bytes == nil {
			return nil
		}
		var a resultAck
		err := protofield.Fields(field.Bytes, func(field protofield.Field, _ []byte) (err error) {
			switch field.Number {
			case ackLease:
				a.id, err = field.Text()
			case ackStatus:
				a.status = fermatav1.ResultAck_Status(field.Int)
			}
			return err
		})
		f.acks = append(f.acks, a)
		return err
	})
}

// readLease decodes the attempt and its task from a lease.
func (a *attempt) readLease(lease []byte, last *Task) error {
	t := &a.task
	err := protofield.Fields(lease, func(f protofield.Field, _ []byte) (err error) {
		switch f.Number {
		case leaseID:
			a.id, err = f.Text()
		case leaseRun:
			t.Run, err = f.Text()
		case leaseQueue:
			t.Queue, err = f.TextLike(last.Queue)
		case leaseHandler:
			t.Handler, err = f.TextLike(last.Handler)
		case leasePayload:
			t.Payload = bytes.Clone(f.Bytes)
		case leaseAttempt:
			t.Attempt = int(int32(f.Int))
		case leaseMaxAttempts:
			t.MaxAttempts = int(int32(f.Int))
		case leaseNominal:
			t.NominalTime, err = f.Time()
		case leaseDue:
			t.DueTime, err = f.Time()
		case leaseTimeout:
			t.Timeout, err = f.Duration()
		case leaseToken:
			t.Token = int64(f.Int)
		case leaseLabels:
			err = t.readLabel(f.Bytes)
		case leaseCorrelation:
			t.CorrelationID, err = f.Text()
		case leaseStartAfter:
			a.startAfter, err = f.Duration()
		case leaseTrace:
			a.trace = &fermatav1.TraceContext{}
			err = proto.Unmarshal(f.Bytes, a.trace)
		}
		return err
	})
	t.Namespace, t.Job = splitRunName(t.Run)
	t.Timeout = max(0, t.Timeout)
	return err
}

func (t *Task) readLabel(entry []byte) error {
	key, value := "", ""
	err := protofield.Fields(entry, func(f protofield.Field, _ []byte) (err error) {
		switch f.Number {
		case 1:
			key, err = f.Text()
		case 2:
			value, err = f.Text()
		}
		return err
	})
	if t.Labels == nil {
		t.Labels = make(map[string]string)
	}
	t.Labels[key] = value
	return err
}

// result is the reported result of an ended attempt.
type result struct {
	outcome    fermatav1.Result_Outcome
	text       string // the error
	output     []byte
	retryAfter time.Duration // 0: no delay requested
	took       time.Duration // of the handler
}

// resultOverhead bounds the size of a result without lease id, text and output, in bytes.
const resultOverhead = 48

// resultSize returns the approximate size of the attempt's result, in bytes.
func (a *attempt) resultSize() int {
	return resultOverhead + len(a.id) + len(a.result.text) + len(a.result.output)
}

// resultFrame is a WorkRequest with the results of ended attempts, which no longer change.
type resultFrame struct{ attempts []*attempt }

func (f *resultFrame) FrameSize() int {
	size := resultOverhead
	for _, a := range f.attempts {
		size += a.resultSize()
	}
	return size
}

func (f *resultFrame) AppendFrame(b []byte) []byte {
	b, all := protofield.StartMessage(b, workResults)
	for _, a := range f.attempts {
		r := &a.result
		var each int
		b, each = protofield.StartMessage(b, listItem)
		b = protofield.AppendText(b, resultLease, a.id)
		b = protofield.AppendInt(b, resultOutcome, int64(r.outcome))
		b = protofield.AppendText(b, resultError, r.text)
		b = protofield.AppendText(b, resultOutput, r.output)
		if r.retryAfter > 0 {
			b = protofield.AppendDuration(b, resultRetry, r.retryAfter)
		}
		if r.took > 0 {
			b = protofield.AppendDuration(b, resultTook, r.took)
		}
		b = protofield.EndMessage(b, each)
	}
	return protofield.EndMessage(b, all)
}
