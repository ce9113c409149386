package rpc

import (
	"bytes"
	"cmp"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/fermata-io/fermata/internal/job"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// helloFromPB reads a Hello and lists what is wrong with it.
func helloFromPB(h *fermatav1.Hello) (job.Hello, []job.Violation) {
	hello := job.Hello{
		WorkerID: h.GetWorkerId(), Namespace: cmp.Or(h.GetNamespace(), job.DefaultNamespace), Queues: h.GetQueues(),
		Slots: int(h.GetSlots()), Epoch: uint32(max(0, h.GetSessionEpoch())), Live: h.GetLive(),
		Version: h.GetVersion(), Labels: h.GetLabels(), Prefetch: int(max(0, h.GetPrefetch())),
	}
	return hello, hello.Validate()
}

// resultOutcomes are the outcomes of results. One that this version does not know is
// a failure: the attempt did not succeed as far as can be told.
var resultOutcomes = map[fermatav1.Result_Outcome]job.Outcome{
	fermatav1.Result_OUTCOME_SUCCEEDED:          job.OutcomeSucceeded,
	fermatav1.Result_OUTCOME_FAILED:             job.OutcomeFailed,
	fermatav1.Result_OUTCOME_FAILED_PERMANENTLY: job.OutcomeFailed,
	fermatav1.Result_OUTCOME_TIMED_OUT:          job.OutcomeTimedOut,
	fermatav1.Result_OUTCOME_CANCELLED:          job.OutcomeCancelled,
}

// resultFromPB reads a result. Text and output are cut here already, for they may
// have to be kept while Redis is away.
func resultFromPB(r *fermatav1.Result) job.Result {
	outcome, known := resultOutcomes[r.GetOutcome()]
	text := r.GetError()
	if !known {
		outcome, text = job.OutcomeFailed, cmp.Or(text, "worker reported no outcome")
	}
	output := r.GetOutput()
	if len(output) > job.MaxOutput {
		output = bytes.Clone(output[:job.MaxOutput])
	}
	return job.Result{
		LeaseID: r.GetLeaseId(), Outcome: outcome,
		Permanent: r.GetOutcome() == fermatav1.Result_OUTCOME_FAILED_PERMANENTLY,
		Error:     job.Clip(text, job.MaxError), Output: output,
		RetryAfter: notNegative(r.GetRetryAfter()), Duration: notNegative(r.GetDuration()),
	}
}

func notNegative(d *durationpb.Duration) time.Duration { return max(0, d.AsDuration()) }

func messageToPB(m job.WorkerMessage) *fermatav1.WorkResponse {
	switch m := m.(type) {
	case job.Welcome:
		return &fermatav1.WorkResponse{Message: &fermatav1.WorkResponse_Welcome{Welcome: &fermatav1.Welcome{
			Node: m.Node, LeaseTtl: durationpb.New(m.LeaseTTL), Addresses: m.Addresses,
		}}}
	case job.Assignments:
		return &fermatav1.WorkResponse{Message: &fermatav1.WorkResponse_Leases{Leases: &fermatav1.Leases{
			Leases: each(m, leaseToPB),
		}}}
	case job.ResultAcks:
		return &fermatav1.WorkResponse{Message: &fermatav1.WorkResponse_ResultAcks{ResultAcks: &fermatav1.ResultAcks{
			Acks: each(m, ackToPB),
		}}}
	case job.Cancellation:
		return &fermatav1.WorkResponse{Message: &fermatav1.WorkResponse_Cancel{Cancel: &fermatav1.Cancel{
			LeaseIds: m.LeaseIDs, Reason: cancelReasons[m.Reason],
		}}}
	case sealed:
		return m.pb
	case job.GoElsewhere:
		return &fermatav1.WorkResponse{Message: &fermatav1.WorkResponse_Drain{Drain: &fermatav1.Drain{Addresses: m.Addresses}}}
	}
	return &fermatav1.WorkResponse{}
}

var ackStatuses = map[job.AckStatus]fermatav1.ResultAck_Status{
	job.AckAccepted:  fermatav1.ResultAck_STATUS_ACCEPTED,
	job.AckDuplicate: fermatav1.ResultAck_STATUS_DUPLICATE,
	job.AckStale:     fermatav1.ResultAck_STATUS_STALE,
	job.AckNotFound:  fermatav1.ResultAck_STATUS_NOT_FOUND,
}

var cancelReasons = map[job.CancelReason]fermatav1.Cancel_Reason{
	job.CancelRequested: fermatav1.Cancel_REASON_REQUESTED,
	job.CancelLeaseLost: fermatav1.Cancel_REASON_LEASE_LOST,
	job.CancelTimedOut:  fermatav1.Cancel_REASON_TIMED_OUT,
}

func ackToPB(a job.ResultAck) *fermatav1.ResultAck {
	return &fermatav1.ResultAck{LeaseId: a.LeaseID, Status: ackStatuses[a.Status]}
}

func leaseToPB(l job.Assignment) *fermatav1.Lease {
	d, s := l.Definition, l.State
	run := s.RunID()
	return &fermatav1.Lease{
		LeaseId: l.LeaseID, Run: RunName(d.Key, run), Queue: s.Lane.Queue, Handler: d.Handler, Payload: l.Payload(),
		Attempt: int32(s.Attempt + 1), MaxAttempts: int32(d.Retry.MaxAttempts),
		NominalTime: msToPB(s.Nominal), DueTime: msToPB(s.Due), Timeout: durationpb.New(d.Timeout),
		Token: int64(s.Token), Labels: d.Labels, CorrelationId: job.Correlation(d.Key, run),
	}
}
