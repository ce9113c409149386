package peer

import (
	"context"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/fermata-io/fermata/internal/core/forecast"
	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/unixtime"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

const (
	// forecastTimeout bounds the question to one node, which may read what it is asked for.
	forecastTimeout = 7 * time.Second
	// forecastBytes bounds the response of one node.
	forecastBytes = 32 << 20
	// forecastQueues and forecastHerds bound what one node returns.
	forecastQueues = 1000
	forecastHerds  = 1000
)

// ForecastAll asks all other members for the forecasts of their shards, concurrently. The answers of those that do not
// answer, or do not know the question, are missing.
func (p *Peer) ForecastAll(ctx context.Context, q forecast.Query) []forecast.Answer {
	p.mu.Lock()
	links := make([]*link, 0, len(p.links))
	for _, l := range p.links {
		links = append(links, l)
	}
	p.mu.Unlock()
	answers := make([]*forecast.Answer, len(links))
	var asked sync.WaitGroup
	for i, l := range links {
		asked.Go(func() { answers[i] = l.forecastPeer(ctx, q) })
	}
	asked.Wait()
	known := make([]forecast.Answer, 0, len(links))
	for _, a := range answers {
		if a != nil {
			known = append(known, *a)
		}
	}
	return known
}

// forecastPeer asks the peer for its forecast; nil: there is none.
func (l *link) forecastPeer(ctx context.Context, q forecast.Query) *forecast.Answer {
	if !l.isUp() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, forecastTimeout)
	defer cancel()
	response, err := l.client.ForecastShards(ctx, &fermatav1.ForecastShardsRequest{
		StartMs: int64(q.StartMS), ResolutionMinutes: int32(q.ResolutionMS / time.Minute.Milliseconds()),
		Buckets: int32(q.Buckets), Namespace: q.Namespace, Queue: q.Queue, HerdJobs: q.HerdJobs,
	}, grpc.MaxCallRecvMsgSize(forecastBytes))
	if err != nil {
		if code := status.Code(err); code != codes.Unimplemented && code != codes.Canceled {
			l.p.o.Logger.Info("peer sent no forecast", "node", l.member.Name, "error", err)
		}
		return nil
	}
	return answerFromPB(response, q)
}

func (s *peerService) ForecastShards(ctx context.Context,
	r *fermatav1.ForecastShardsRequest) (*fermatav1.ForecastShardsResponse,
	error) {
	if s.p.o.Forecast == nil {
		return nil, status.Error(codes.Unimplemented, "this node has no forecast")
	}
	minutes, buckets := r.GetResolutionMinutes(), r.GetBuckets()
	if minutes < 1 || minutes > 60 || buckets < 1 || buckets > 24*60 || minutes*buckets > 25*60 ||
		r.GetStartMs()%time.Minute.Milliseconds() != 0 {
		return nil, status.Error(codes.InvalidArgument, "invalid buckets")
	}
	answer, err := s.p.o.Forecast(ctx, forecast.Query{
		StartMS: unixtime.Milli(r.GetStartMs()), ResolutionMS: int64(minutes) * time.Minute.Milliseconds(),
		Buckets: int(buckets), Namespace: r.GetNamespace(), Queue: r.GetQueue(), HerdJobs: max(2, r.GetHerdJobs()),
	})
	if err != nil {
		return nil, status.FromContextError(err).Err()
	}
	return answerToPB(answer), nil
}

func answerToPB(a forecast.Answer) *fermatav1.ForecastShardsResponse {
	p := &fermatav1.ForecastShardsResponse{}
	for _, s := range a.Shards {
		p.Shards = append(p.Shards, &fermatav1.ForecastShard{Shard: int32(s.Shard), PlannedMs: int64(s.DueMS),
			DefinitionsMs: int64(s.DefinitionsMS)})
	}
	queues, omitted := a.Load.Largest(forecastQueues)
	p.OmittedQueues = int32(omitted + a.OmittedQueues)
	for _, key := range queues {
		s := a.Load.Queues[key]
		p.Queues = append(p.Queues, &fermatav1.QueueLoad{Namespace: key.Namespace, Queue: key.Queue, Planned: s.Planned,
			Computed: s.Computed, Estimated: s.Estimated, JobsLeftOut: s.LeftOut})
	}
	for _, h := range a.Load.Herds[:min(len(a.Load.Herds), forecastHerds)] {
		p.Herds = append(p.Herds, &fermatav1.LoadHerd{Namespace: h.Queue.Namespace, Queue: h.Queue.Queue,
			Time: instantToPB(h.TimeMS.Time()), WholeMinute: h.WholeMinute, Jobs: h.Jobs, MovableJobs: h.Movable,
			Times: h.Times, Schedule: h.Schedule, JobIds: h.IDs, Fix: h.Fix})
	}
	return p
}

// answerFromPB leaves out queues that were not asked for, and buckets beyond those that were.
func answerFromPB(p *fermatav1.ForecastShardsResponse, q forecast.Query) *forecast.Answer {
	a := &forecast.Answer{Load: forecast.NewLoad(), OmittedQueues: int(max(0, p.GetOmittedQueues()))}
	for _, s := range p.GetShards() {
		a.Shards = append(a.Shards, forecast.ShardRead{Shard: int(s.GetShard()), DueMS: unixtime.Milli(s.GetPlannedMs()),
			DefinitionsMS: unixtime.Milli(s.GetDefinitionsMs())})
	}
	for _, s := range p.GetQueues() {
		key := job.QueueKey{Namespace: s.GetNamespace(), Queue: s.GetQueue()}
		if !q.Matches(key) {
			continue
		}
		a.Load.AddSeries(key, q.Buckets, &forecast.Series{Planned: s.GetPlanned(), Computed: s.GetComputed(),
			Estimated: s.GetEstimated(), LeftOut: s.GetJobsLeftOut()})
	}
	for _, h := range p.GetHerds() {
		herd := forecast.Herd{Queue: job.QueueKey{Namespace: h.GetNamespace(), Queue: h.GetQueue()},
			TimeMS: unixtime.MilliOf(instantFromPB(h.GetTime())), WholeMinute: h.GetWholeMinute(), Jobs: h.GetJobs(),
			Movable: h.GetMovableJobs(), Times: h.GetTimes(), Schedule: h.GetSchedule(), IDs: h.GetJobIds(), Fix: h.GetFix()}
		if q.Matches(herd.Queue) {
			a.Load.Herds = append(a.Load.Herds, herd)
		}
	}
	return a
}
