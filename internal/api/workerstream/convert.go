package workerstream

import (
	"bytes"
	"cmp"
	"strings"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/fermata-io/fermata/internal/core/job"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// helloFromPB reads a Hello and lists what is wrong with it.
func helloFromPB(h *fermatav1.Hello) (job.Hello, []job.Violation) {
	hello := job.Hello{
		WorkerID: h.GetWorkerId(), Namespace: cmp.Or(h.GetNamespace(), job.DefaultNamespace), Queues: h.GetQueues(),
		Slots: int(h.GetSlots()), Epoch: uint32(max(0, h.GetSessionEpoch())), Live: h.GetLiveLeaseIds(),
		Version: h.GetVersion(), Labels: h.GetLabels(), Prefetch: int(max(0, h.GetPrefetch())),
		StartsAfter: h.GetSupportsStartAfter(), Heartbeats: h.GetSupportsHeartbeats(),
	}
	return hello, hello.Validate()
}

// messageToPB writes a message other than leases, which have a [leaseFrame].
func messageToPB(m job.WorkerMessage) *fermatav1.WorkResponse {
	switch m := m.(type) {
	case job.Welcome:
		welcome := &fermatav1.Welcome{Node: m.Node, LeaseTtl: durationpb.New(m.LeaseTTL), Addresses: m.Addresses}
		if m.SessionTTL > 0 {
			welcome.SessionTtl = durationpb.New(m.SessionTTL)
		}
		return &fermatav1.WorkResponse{Message: &fermatav1.WorkResponse_Welcome{Welcome: welcome}}
	case job.ResultAcks:
		acks := &fermatav1.ResultAcks{Acks: make([]*fermatav1.ResultAck, len(m))}
		for i, a := range m {
			acks.Acks[i] = &fermatav1.ResultAck{LeaseId: a.LeaseID, Status: ackStatuses[a.Status]}
		}
		return &fermatav1.WorkResponse{Message: &fermatav1.WorkResponse_ResultAcks{ResultAcks: acks}}
	case job.Cancellation:
		return &fermatav1.WorkResponse{Message: &fermatav1.WorkResponse_Cancel{Cancel: &fermatav1.Cancel{
			LeaseIds: m.LeaseIDs, Reason: cancelReasons[m.Reason],
		}}}
	case job.Addresses:
		return &fermatav1.WorkResponse{Message: &fermatav1.WorkResponse_Addresses{
			Addresses: &fermatav1.Addresses{Addresses: m},
		}}
	case job.HeartbeatAck:
		return &fermatav1.WorkResponse{Message: &fermatav1.WorkResponse_HeartbeatAck{HeartbeatAck: &fermatav1.HeartbeatAck{
			Seq: m.Seq, Confirmed: m.Confirmed,
		}}}
	case job.Relocation:
		return &fermatav1.WorkResponse{Message: &fermatav1.WorkResponse_Relocate{
			Relocate: &fermatav1.Relocate{Addresses: m.Addresses},
		}}
	case job.Redirect:
		return &fermatav1.WorkResponse{Message: &fermatav1.WorkResponse_Drain{
			Drain: &fermatav1.Drain{Addresses: m.Addresses},
		}}
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

// resultOutcomes are the outcomes of results. An outcome that this version does not know counts as a failure.
var resultOutcomes = map[fermatav1.Result_Outcome]job.Outcome{
	fermatav1.Result_OUTCOME_SUCCEEDED:          job.OutcomeSucceeded,
	fermatav1.Result_OUTCOME_FAILED:             job.OutcomeFailed,
	fermatav1.Result_OUTCOME_FAILED_PERMANENTLY: job.OutcomeFailed,
	fermatav1.Result_OUTCOME_TIMED_OUT:          job.OutcomeTimedOut,
	fermatav1.Result_OUTCOME_CANCELLED:          job.OutcomeCancelled,
}

// resultFromPB reads a result. Its error text and output are cut to their limits here, because a node may have to
// keep results while Redis is unreachable.
func resultFromPB(p *fermatav1.Result) job.Result {
	r := job.Result{
		LeaseID: p.GetLeaseId(), Permanent: p.GetOutcome() == fermatav1.Result_OUTCOME_FAILED_PERMANENTLY,
		Error:      strings.Clone(job.Clip(p.GetError(), job.MaxError)),
		RetryAfter: max(0, p.GetRetryAfter().AsDuration()), Duration: max(0, p.GetDuration().AsDuration()),
	}
	if output := p.GetOutput(); len(output) > 0 {
		r.Output = bytes.Clone(output[:min(len(output), job.MaxOutput)])
	}
	outcome, known := resultOutcomes[p.GetOutcome()]
	if !known {
		outcome, r.Error = job.OutcomeFailed, cmp.Or(r.Error, "worker reported no outcome")
	}
	r.Outcome = outcome
	return r
}
