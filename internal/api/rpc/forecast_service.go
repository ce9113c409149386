package rpc

import (
	"cmp"
	"context"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/fermata-io/fermata/internal/api/convert"
	"github.com/fermata-io/fermata/internal/api/guard"
	"github.com/fermata-io/fermata/internal/core/authz"
	"github.com/fermata-io/fermata/internal/core/forecast"
	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/unixtime"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

const (
	// forecastQueues and forecastHerds bound one response.
	forecastQueues = 200
	forecastHerds  = 50
	maxHerdJobs    = 1_000_000
)

// ForecastLoad returns only what the roles of the caller cover.
func (s *clusterService) ForecastLoad(ctx context.Context,
	r *fermatav1.ForecastLoadRequest) (*fermatav1.ForecastLoadResponse, error) {
	q, err := forecastQuery(r, s.now())
	if err != nil {
		return nil, err
	}
	limits := guard.RoleScopeFrom(ctx, cmp.Or(q.Namespace, authz.AllNamespaces))
	if limits != nil && q.Queue != "" {
		if err := limits.Check(ctx, q.Queue); err != nil {
			return nil, err
		}
	}
	gathered, err := s.cluster.ForecastLoad(ctx, q, limits.Filter())
	if err != nil {
		return nil, err
	}
	return gatheredToPB(q, gathered), nil
}

// forecastQuery reads a request.
func forecastQuery(r *fermatav1.ForecastLoadRequest, now time.Time) (forecast.Query, error) {
	namespace, err := convert.ParseNamespaceOrDash("parent", r.GetParent())
	if err != nil {
		return forecast.Query{}, err
	}
	q := forecast.Query{NowMS: unixtime.MilliOf(now), Queue: r.GetQueue(), HerdJobs: cmp.Or(r.GetHerdJobs(),
		forecast.DefaultHerdJobs)}
	if namespace != authz.AllNamespaces {
		q.Namespace = namespace
	}
	if q.HerdJobs < 2 || q.HerdJobs > maxHerdJobs {
		return q, job.Invalid("herd_jobs", "is %d, want 2 to %d", q.HerdJobs, maxHerdJobs)
	}
	horizon, resolution := forecast.MaxHorizon, time.Minute
	if d := r.GetHorizon(); d != nil {
		horizon = d.AsDuration()
	}
	if d := r.GetResolution(); d != nil {
		resolution = d.AsDuration()
	}
	if horizon < time.Minute || horizon > forecast.MaxHorizon {
		return q, job.Invalid("horizon", "is %v, want 1m to %v", horizon, forecast.MaxHorizon)
	}
	if resolution < time.Minute || resolution > time.Hour || resolution%time.Minute != 0 {
		return q, job.Invalid("resolution", "is %v, want whole minutes, 1m to 1h", resolution)
	}
	q.ResolutionMS = resolution.Milliseconds()
	q.StartMS = unixtime.Milli(int64(q.NowMS) / q.ResolutionMS * q.ResolutionMS)
	q.Buckets = int((horizon + resolution - 1) / resolution)
	return q, nil
}

func gatheredToPB(q forecast.Query, g forecast.Gathered) *fermatav1.ForecastLoadResponse {
	p := &fermatav1.ForecastLoadResponse{
		StartTime:   convert.MillisToPB(q.StartMS),
		Resolution:  durationpb.New(time.Duration(q.ResolutionMS) * time.Millisecond),
		Herds:       convert.Map(g.Herds[:min(len(g.Herds), forecastHerds)], herdToPB),
		PlannedTime: convert.MillisToPB(g.DueMS), DefinitionsTime: convert.MillisToPB(g.DefinitionsMS),
	}
	queues, omitted := g.Largest(forecastQueues)
	p.OmittedQueues = int32(omitted + g.OmittedQueues)
	for _, key := range queues {
		s := g.Queues[key]
		p.Queues = append(p.Queues, &fermatav1.QueueLoad{Namespace: key.Namespace, Queue: key.Queue, Planned: s.Planned,
			Computed: s.Computed, Estimated: s.Estimated, JobsLeftOut: s.LeftOut})
	}
	for _, shard := range g.MissingShards {
		p.MissingShards = append(p.MissingShards, int32(shard))
	}
	return p
}

func herdToPB(h forecast.Herd) *fermatav1.LoadHerd {
	return &fermatav1.LoadHerd{Namespace: h.Queue.Namespace, Queue: h.Queue.Queue, Time: convert.MillisToPB(h.TimeMS),
		WholeMinute: h.WholeMinute, Jobs: h.Jobs, MovableJobs: h.Movable, Times: h.Times, Schedule: h.Schedule,
		JobIds: h.IDs, Fix: h.Fix}
}
