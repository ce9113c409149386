package rpc

import (
	"context"
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/fermata-io/fermata/internal/core/forecast"
	"github.com/fermata-io/fermata/internal/core/job"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// ForecastLoad has a run of two queues in each bucket.
func (fakeCluster) ForecastLoad(_ context.Context, q forecast.Query, covers func(string) bool) (forecast.Gathered,
	error) {
	load := forecast.NewLoad()
	for _, queue := range []string{"mail", "web"} {
		key := job.QueueKey{Namespace: q.Namespace, Queue: queue}
		if q.Matches(key) {
			s := forecast.NewSeries(q.Buckets)
			for i := range s.Planned {
				s.Planned[i] = 1
			}
			load.AddSeries(key, q.Buckets, s)
			load.Herds = append(load.Herds, forecast.Herd{Queue: key, TimeMS: q.StartMS, Jobs: q.HerdJobs,
				IDs: []string{queue + "-1"}})
		}
	}
	answer := forecast.Answer{Load: load, Shards: []forecast.ShardRead{{Shard: 1, DueMS: 5000, DefinitionsMS: 4000}},
		OmittedQueues: 7}
	return forecast.Gather(q, []forecast.Answer{answer}, 3, covers), nil
}

func TestForecastLoad(t *testing.T) {
	b := serve(t)
	cluster := fermatav1.NewClusterServiceClient(b.conn)
	r, err := cluster.ForecastLoad(t.Context(), &fermatav1.ForecastLoadRequest{Parent: "namespaces/n",
		Horizon: durationpb.New(90 * time.Minute), Resolution: durationpb.New(time.Hour)})
	if err != nil {
		t.Fatal(err)
	}
	if len(r.GetQueues()) != 2 || !slices.Equal(r.GetQueues()[0].GetPlanned(), []int64{1, 1}) ||
		r.GetOmittedQueues() != 7 ||
		r.GetStartTime().AsTime().Minute() != 0 || !slices.Equal(r.GetMissingShards(), []int32{0, 2}) ||
		r.GetPlannedTime().AsTime().Unix() != 5 || r.GetDefinitionsTime().AsTime().Unix() != 4 ||
		len(r.GetHerds()) != 2 || r.GetHerds()[0].GetJobs() != forecast.DefaultHerdJobs {
		t.Errorf("%v", r)
	}
	for field, q := range map[string]*fermatav1.ForecastLoadRequest{
		"parent":     {Parent: "n"},
		"horizon":    {Horizon: durationpb.New(25 * time.Hour)},
		"resolution": {Resolution: durationpb.New(90 * time.Second)},
		"herd_jobs":  {HerdJobs: 1},
	} {
		if _, err := cluster.ForecastLoad(t.Context(), q); !slices.Contains(fields(err), field) {
			t.Errorf("%s: %v", field, err)
		}
	}
	for _, all := range []string{"", "namespaces/-"} {
		r, err := cluster.ForecastLoad(t.Context(), &fermatav1.ForecastLoadRequest{Parent: all})
		if err != nil || len(r.GetQueues()) != 2 || len(r.GetQueues()[0].GetPlanned()) != 24*60 {
			t.Errorf("%q: %v, %v", all, r, err)
		}
	}
}
