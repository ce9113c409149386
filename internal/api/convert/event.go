package convert

import (
	"github.com/fermata-io/fermata/internal/core/authz"
	"github.com/fermata-io/fermata/internal/core/job"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// EventQueryFromPB reads a request, and the namespace that its caller has to be allowed to
// read.
func EventQueryFromPB(q *fermatav1.WatchEventsRequest) (job.EventQuery, string, error) {
	namespace, err := ParseNamespaceOrAll("parent", q.GetParent())
	if err != nil {
		return job.EventQuery{}, "", err
	}
	var r Reader
	query := job.EventQuery{
		Filter: job.EventFilter{Queues: q.GetQueues(), Jobs: q.GetJobIds(), Kinds: q.GetKinds(), Labels: q.GetLabels()},
		Token:  q.GetResumeToken(), FromMS: r.Millis("start_time", q.GetStartTime()), StopAtEnd: q.GetStopAtEnd(),
	}
	if namespace != authz.AllNamespaces {
		query.Filter.Namespaces = []string{namespace}
	}
	if err := r.Err(); err != nil {
		return query, namespace, err
	}
	switch {
	case query.FromMS < 0:
		return query, namespace, job.Invalid("start_time", "is before 1970")
	case query.Token != "" && query.FromMS != 0:
		return query, namespace, job.Invalid("start_time", "excludes resume_token")
	}
	if v := query.Filter.Validate(""); len(v) > 0 {
		return query, namespace, &job.InvalidError{Violations: v}
	}
	return query, namespace, nil
}

func EventToPB(h job.Event) *fermatav1.Event {
	e := &fermatav1.Event{
		Id: h.ID(), Kind: h.Kind, Time: MillisToPB(h.AtMS), Queue: h.Queue, Labels: h.Labels, RunId: h.RunID,
		CorrelationId: h.Correlation(), Attempt: int32(h.Attempt),
		DueTime: MillisToPB(h.DueMS), StartTime: MillisToPB(h.StartMS),
		ConsecutiveFailures: int64(h.Failures), Count: h.Count, Reason: h.Reason, Error: h.Error,
		Worker: h.Worker, Node: h.Node,
	}
	if h.Key != (job.Key{}) {
		e.Job = JobName(h.Key)
	}
	if h.RunID != "" {
		e.Trigger = triggers.ToPB(h.Trigger)
	}
	if h.Kind == job.KindShardTaken {
		shard := int32(h.Shard)
		e.Shard = &shard
	}
	return e
}
