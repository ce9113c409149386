package peer

import (
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/unixtime"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

func requestKind(m *fermatav1.LinkRequest) string {
	switch m.GetMessage().(type) {
	case *fermatav1.LinkRequest_PermitResult, *fermatav1.LinkRequest_PermitResults:
		return "permit_result"
	case *fermatav1.LinkRequest_CancelAttempt:
		return "cancel"
	}
	return "other"
}

func demandToPB(demand []job.QueueDemand) *fermatav1.LinkRequest {
	queues := make([]*fermatav1.QueueDemand, len(demand))
	for i, d := range demand {
		queues[i] = &fermatav1.QueueDemand{Namespace: d.Namespace, Queue: d.Queue, FreeSlots: int32(d.Free),
			Prefetch: int32(d.Ahead), InAdvance: d.InAdvance}
	}
	return &fermatav1.LinkRequest{Message: &fermatav1.LinkRequest_Demand{Demand: &fermatav1.Demand{Queues: queues}}}
}

func demandFromPB(d *fermatav1.Demand) []job.QueueDemand {
	demand := make([]job.QueueDemand, len(d.GetQueues()))
	for i, q := range d.GetQueues() {
		demand[i] = job.QueueDemand{
			Namespace: q.GetNamespace(), Queue: q.GetQueue(), Free: max(0, int(q.GetFreeSlots())),
			Ahead: max(0, int(q.GetPrefetch())), InAdvance: q.GetInAdvance(),
		}
	}
	return demand
}

func nudgeToPB(n nudgeKey, due int64) *fermatav1.LinkRequest {
	return &fermatav1.LinkRequest{Message: &fermatav1.LinkRequest_Nudge{
		Nudge: &fermatav1.Nudge{Shard: int32(n.shard), Lane: n.lane.String(), DueMs: due},
	}}
}

func permitResultToPB(r job.LanePermitResult) *fermatav1.PermitResult {
	return &fermatav1.PermitResult{PermitId: r.ID, Leased: int32(r.Leased), NextDueMs: int64(r.DueMS)}
}

// permitResultsToPB returns one message. A single result has the form that all nodes understand; several ones answer
// permits that came together.
func permitResultsToPB(results []job.LanePermitResult) *fermatav1.LinkRequest {
	if len(results) == 1 {
		return &fermatav1.LinkRequest{Message: &fermatav1.LinkRequest_PermitResult{
			PermitResult: permitResultToPB(results[0])}}
	}
	list := make([]*fermatav1.PermitResult, len(results))
	for i, r := range results {
		list[i] = permitResultToPB(r)
	}
	return &fermatav1.LinkRequest{Message: &fermatav1.LinkRequest_PermitResults{
		PermitResults: &fermatav1.PermitResults{Results: list}}}
}

func permitResultsFromPB(list []*fermatav1.PermitResult) []job.PermitResult {
	results := make([]job.PermitResult, len(list))
	for i, r := range list {
		results[i] = permitResultFromPB(r)
	}
	return results
}

func permitResultFromPB(r *fermatav1.PermitResult) job.PermitResult {
	return job.PermitResult{
		ID: r.GetPermitId(), Leased: max(0, int(r.GetLeased())), DueMS: unixtime.Milli(r.GetNextDueMs()),
	}
}

func cancelToPB(record job.RecordID, token uint64) *fermatav1.LinkRequest {
	return &fermatav1.LinkRequest{Message: &fermatav1.LinkRequest_CancelAttempt{
		CancelAttempt: &fermatav1.CancelAttempt{Record: string(record), Token: int64(token)},
	}}
}

func permitToPB(p job.Permit) *fermatav1.Permit {
	out := &fermatav1.Permit{
		PermitId: p.ID, Shard: int32(p.Shard), Lane: p.Lane.String(), Count: int32(p.N),
		LockValue: p.LockValue, ValidFor: durationpb.New(p.ValidFor),
	}
	if p.Advance > 0 {
		out.Advance = durationpb.New(p.Advance)
	}
	return out
}

// permitsToPB returns one message. A single permit has the form that all nodes understand.
func permitsToPB(permits []job.Permit) *fermatav1.LinkResponse {
	if len(permits) == 1 {
		return &fermatav1.LinkResponse{Message: &fermatav1.LinkResponse_Permit{Permit: permitToPB(permits[0])}}
	}
	list := make([]*fermatav1.Permit, len(permits))
	for i, p := range permits {
		list[i] = permitToPB(p)
	}
	return &fermatav1.LinkResponse{Message: &fermatav1.LinkResponse_Permits{Permits: &fermatav1.Permits{Permits: list}}}
}

func permitFromPB(p *fermatav1.Permit) (job.Permit, bool) {
	lane, ok := job.ParseLane(p.GetLane())
	permit := job.Permit{
		ID: p.GetPermitId(), Shard: int(p.GetShard()), Lane: lane, N: int(p.GetCount()),
		LockValue: p.GetLockValue(),
		// The holder has given the jobs to another node by then.
		ValidFor: min(p.GetValidFor().AsDuration(), job.MaxPermitValidity),
		Advance:  min(max(0, p.GetAdvance().AsDuration()), job.MaxAdvance),
	}
	return permit, ok && permit.Shard >= 0 && permit.N > 0 && permit.LockValue != "" && permit.ValidFor > 0
}

func handOverToPB(shards []int, leaving bool) *fermatav1.LinkResponse {
	list := make([]int32, len(shards))
	for i, s := range shards {
		list[i] = int32(s)
	}
	return &fermatav1.LinkResponse{Message: &fermatav1.LinkResponse_HandOver{
		HandOver: &fermatav1.HandOver{Shards: list, Leaving: leaving},
	}}
}

func handOverFromPB(h *fermatav1.HandOver) []int {
	shards := make([]int, 0, len(h.GetShards()))
	for _, s := range h.GetShards() {
		if s >= 0 {
			shards = append(shards, int(s))
		}
	}
	return shards
}

func instantToPB(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}

func instantFromPB(t *timestamppb.Timestamp) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.AsTime()
}
