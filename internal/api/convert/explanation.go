package convert

import (
	"github.com/fermata-io/fermata/internal/core/job"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

func ReasonToPB(r job.Reason) *fermatav1.Reason {
	return &fermatav1.Reason{
		Kind: reasonKinds.ToPB(r.Kind), Message: r.Message, Key: r.Key, BlockedBy: r.By,
		SinceTime: MillisToPB(r.SinceMS), UntilTime: MillisToPB(r.UntilMS),
	}
}

var reasonKinds = Enum[fermatav1.Reason_Kind, job.ReasonKind]{
	{fermatav1.Reason_KIND_NOT_DUE, job.ReasonNotDue},
	{fermatav1.Reason_KIND_RETRY, job.ReasonRetry},
	{fermatav1.Reason_KIND_BACKOFF, job.ReasonBackoff},
	{fermatav1.Reason_KIND_HINT, job.ReasonHint},
	{fermatav1.Reason_KIND_PAUSED, job.ReasonPaused},
	{fermatav1.Reason_KIND_RUNNING, job.ReasonRunning},
	{fermatav1.Reason_KIND_OVERLAP, job.ReasonOverlap},
	{fermatav1.Reason_KIND_LOCK, job.ReasonLock},
	{fermatav1.Reason_KIND_TARGET, job.ReasonTarget},
	{fermatav1.Reason_KIND_PACE, job.ReasonPace},
	{fermatav1.Reason_KIND_QUEUE_CONCURRENCY, job.ReasonQueueConcurrency},
	{fermatav1.Reason_KIND_QUEUE_RATE, job.ReasonQueueRate},
	{fermatav1.Reason_KIND_NO_WORKER, job.ReasonNoWorker},
	{fermatav1.Reason_KIND_NO_SLOT, job.ReasonNoSlot},
	{fermatav1.Reason_KIND_NO_HOLDER, job.ReasonNoHolder},
	{fermatav1.Reason_KIND_DEAD, job.ReasonDead},
	{fermatav1.Reason_KIND_DONE, job.ReasonDone},
	{fermatav1.Reason_KIND_SCHEDULE, job.ReasonSchedule},
	{fermatav1.Reason_KIND_PAYLOAD, job.ReasonPayload},
	{fermatav1.Reason_KIND_QUEUE_PAUSED, job.ReasonQueuePaused},
	{fermatav1.Reason_KIND_EXCLUSION, job.ReasonExclusion},
	{fermatav1.Reason_KIND_OVERSIZED_SHARD, job.ReasonOversizedShard},
}

var WorstKinds = map[fermatav1.TopJobsRequest_Kind]job.Ranking{
	fermatav1.TopJobsRequest_KIND_LATE:    job.RankingLate,
	fermatav1.TopJobsRequest_KIND_FAILING: job.RankingFailing,
}
