package client

import (
	"context"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// ForecastOptions configure [Admin.ForecastLoad].
type ForecastOptions struct {
	// AllNamespaces selects the queues of all namespaces, instead of the client's namespace.
	AllNamespaces bool
	// Queue selects one queue. Default: all.
	Queue string
	// Horizon is how far ahead: 1 minute to 24 hours. Default: 24 hours.
	Horizon time.Duration
	// Resolution is the length of a bucket: 1 minute to 1 hour in whole minutes. Default: 1 minute.
	Resolution time.Duration
	// HerdJobs is from how many jobs with the same scheduled time they are a herd. Default: 100.
	HerdJobs int
}

// ForecastLoad forecasts how many runs will be due in each bucket of the next hours, by queue, and finds jobs with the
// same scheduled time.
func (a Admin) ForecastLoad(ctx context.Context, o ForecastOptions) (*LoadForecast, error) {
	q := &fermatav1.ForecastLoadRequest{Parent: a.c.listParent(o.AllNamespaces), Queue: o.Queue,
		HerdJobs: int64(o.HerdJobs)}
	if o.Horizon != 0 {
		q.Horizon = durationpb.New(o.Horizon)
	}
	if o.Resolution != 0 {
		q.Resolution = durationpb.New(o.Resolution)
	}
	return callWithRetry(ctx, a.c, a.c.cluster.ForecastLoad, q)
}
