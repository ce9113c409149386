package workerstream

import (
	"cmp"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/fermata-io/fermata/internal/core/job"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// helloFromPB reads a Hello and lists what is wrong with it.
func helloFromPB(h *fermatav1.Hello) (job.Hello, []job.Violation) {
	hello := job.Hello{
		WorkerID: h.GetWorkerId(), Namespace: cmp.Or(h.GetNamespace(), job.DefaultNamespace), Queues: h.GetQueues(),
		Slots: int(h.GetSlots()), Epoch: uint32(max(0, h.GetSessionEpoch())), Live: h.GetLive(),
		Version: h.GetVersion(), Labels: h.GetLabels(), Prefetch: int(max(0, h.GetPrefetch())), StartsAfter: h.GetStartsAfter(),
		Heartbeats: h.GetHeartbeats(),
	}
	return hello, hello.Validate()
}

// messageToPB is a message that is rare: leases and acknowledgements write themselves.
func messageToPB(m job.WorkerMessage) *fermatav1.WorkResponse {
	switch m := m.(type) {
	case job.Welcome:
		welcome := &fermatav1.Welcome{Node: m.Node, LeaseTtl: durationpb.New(m.LeaseTTL), Addresses: m.Addresses}
		if m.SessionTTL > 0 {
			welcome.SessionTtl = durationpb.New(m.SessionTTL)
		}
		return &fermatav1.WorkResponse{Message: &fermatav1.WorkResponse_Welcome{Welcome: welcome}}
	case job.Cancellation:
		return &fermatav1.WorkResponse{Message: &fermatav1.WorkResponse_Cancel{Cancel: &fermatav1.Cancel{
			LeaseIds: m.LeaseIDs, Reason: cancelReasons[m.Reason],
		}}}
	case job.Addresses:
		return &fermatav1.WorkResponse{Message: &fermatav1.WorkResponse_Addresses{Addresses: &fermatav1.Addresses{Addresses: m}}}
	case job.HeartbeatAck:
		return &fermatav1.WorkResponse{Message: &fermatav1.WorkResponse_HeartbeatAck{HeartbeatAck: &fermatav1.HeartbeatAck{
			Seq: m.Seq, Confirmed: m.Confirmed,
		}}}
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
