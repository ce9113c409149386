package convert

import (
	"fmt"
	"math"
	"slices"

	"github.com/fermata-io/fermata/internal/core/autoscale"
	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/proto/externalscaler"
)

// ParseTrigger reads the metadata that a request carries, of whatever kind it is.
func ParseTrigger(q any) (autoscale.Trigger, error) {
	ref, ok := q.(*externalscaler.ScaledObjectRef)
	field := "scalerMetadata."
	if m, of := q.(*externalscaler.GetMetricsRequest); of {
		ref, ok, field = m.GetScaledObjectRef(), true, "scaledObjectRef."+field
	}
	if !ok {
		return autoscale.Trigger{}, fmt.Errorf("a request of type %T has no trigger", q)
	}
	trigger, faults := autoscale.Parse(ref.GetScalerMetadata())
	var invalid job.InvalidError
	for _, f := range faults {
		invalid.Violations = append(invalid.Violations, job.Violation{Field: field + f.Key, Description: f.Text})
	}
	if len(faults) == 0 {
		invalid.Violations = wrongNames(field, trigger)
	}
	if len(invalid.Violations) > 0 {
		return autoscale.Trigger{}, &invalid
	}
	return trigger, nil
}

// wrongNames lists invalid names, each once, even if several queues share it.
func wrongNames(field string, t autoscale.Trigger) (all []job.Violation) {
	for _, q := range TriggerQueues(t) {
		for _, v := range job.ValidateQueue(q) {
			v.Field = field + v.Field
			if !slices.ContainsFunc(all, func(w job.Violation) bool { return w.Field == v.Field }) {
				all = append(all, v)
			}
		}
	}
	return all
}

func TriggerQueues(t autoscale.Trigger) []job.QueueKey {
	return Map(t.Queues, func(queue string) job.QueueKey { return job.QueueKey{Namespace: t.Namespace, Queue: queue} })
}

// MetricSpecToPB rounds up for versions of KEDA that take whole numbers only: a target of 0
// would mean that there are never enough workers.
func MetricSpecToPB(m autoscale.Metric) *externalscaler.MetricSpec {
	return &externalscaler.MetricSpec{
		MetricName: m.Name, TargetSize: int64(math.Ceil(m.Target)), TargetSizeFloat: m.Target,
	}
}

func MetricValueToPB(m autoscale.Metric) *externalscaler.MetricValue {
	return &externalscaler.MetricValue{
		MetricName: m.Name, MetricValue: int64(math.Ceil(m.Value)), MetricValueFloat: m.Value,
	}
}
