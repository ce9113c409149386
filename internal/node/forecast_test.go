package node_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/fermata-io/fermata/internal/node"
	"github.com/fermata-io/fermata/internal/test/redistest"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// cronJob is a job with a cron expression.
func cronJob(expression, queue string) *fermatav1.Job {
	return &fermatav1.Job{Handler: "h", Queue: queue, Schedule: &fermatav1.Schedule{
		Rule: &fermatav1.Schedule_Cron{Cron: &fermatav1.CronSchedule{Expressions: []string{expression}}}}}
}

func sumRuns(r *fermatav1.ForecastLoadResponse, queue string) (planned, computed, estimated int64) {
	for _, q := range r.GetQueues() {
		if q.GetQueue() != queue {
			continue
		}
		for i := range q.GetPlanned() {
			planned, computed, estimated = planned+q.GetPlanned()[i], computed+q.GetComputed()[i], estimated+q.GetEstimated()[i]
		}
	}
	return planned, computed, estimated
}

// TestForecastOfAllNodes: whichever node is asked adds up the shards of both.
func TestForecastOfAllNodes(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	a := start(t, redis.URL(), "a")
	b := start(t, redis.URL(), "b", a.GossipAddr())
	const count = 300
	for i := range count {
		q := &fermatav1.CreateJobRequest{Parent: "namespaces/n", JobId: fmt.Sprintf("j%03d", i),
			Job: cronJob("30 * * * *", "mail")}
		if _, err := jobs(t, a).CreateJob(t.Context(), q); err != nil {
			t.Fatal(err)
		}
	}
	for _, n := range []*node.Node{a, b} {
		cluster := fermatav1.NewClusterServiceClient(connect(t, n))
		redistest.Eventually(t, redistest.Patience, "the forecast of both nodes", func(ctx context.Context) error {
			r, err := cluster.ForecastLoad(ctx, &fermatav1.ForecastLoadRequest{Parent: "namespaces/n",
				Resolution: durationpb.New(time.Hour), Horizon: durationpb.New(24 * time.Hour)})
			if err != nil {
				return err
			}
			planned, computed, estimated := sumRuns(r, "mail")
			if planned != count || computed < 22*count || computed > 23*count || estimated != 0 ||
				len(r.GetMissingShards()) != 0 {
				return fmt.Errorf("%d planned, %d computed, %d estimated, missing %v", planned, computed, estimated,
					r.GetMissingShards())
			}
			h := r.GetHerds()
			if len(h) != 1 || h[0].GetJobs() != count || h[0].GetMovableJobs() != count || len(h[0].GetJobIds()) != 20 {
				return fmt.Errorf("herds %v", h)
			}
			if time.Since(r.GetPlannedTime().AsTime()) > time.Minute ||
				time.Since(r.GetDefinitionsTime().AsTime()) > time.Minute {
				return fmt.Errorf("read at %v and %v", r.GetPlannedTime().AsTime(), r.GetDefinitionsTime().AsTime())
			}
			return nil
		})
	}
	if err := b.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// TestForecastTellsNothingOfOthers: a caller of one namespace sees neither queues nor herds nor jobs of another one,
// and its answer is the same whatever the other one has.
func TestForecastTellsNothingOfOthers(t *testing.T) {
	x := newTenants(t, "")
	c, cluster := fermatav1.NewJobServiceClient(x.conn), fermatav1.NewClusterServiceClient(x.conn)
	create := func(namespace string, count int) {
		for i := range count {
			q := &fermatav1.CreateJobRequest{Parent: "namespaces/" + namespace, JobId: fmt.Sprintf("secret-%s-%d", namespace, i),
				Job: cronJob("30 * * * *", "queue-"+namespace)}
			if _, err := c.CreateJob(x.as("editor-"+namespace), q); err != nil {
				t.Fatal(err)
			}
		}
	}
	create("b", 3)
	ask := func(who, parent string) (*fermatav1.ForecastLoadResponse, error) {
		return cluster.ForecastLoad(x.as(who), &fermatav1.ForecastLoadRequest{Parent: parent, HerdJobs: 2,
			Resolution: durationpb.New(time.Hour)})
	}
	var before *fermatav1.ForecastLoadResponse
	redistest.Eventually(t, redistest.Patience, "the forecast of a namespace", func(context.Context) (err error) {
		before, err = ask("viewer-b", "namespaces/b")
		planned, _, _ := sumRuns(before, "queue-b")
		if err == nil && (planned != 3 || len(before.GetMissingShards()) > 0) {
			err = fmt.Errorf("%v", before)
		}
		return err
	})
	create("a", 5)
	redistest.Eventually(t, redistest.Patience, "the forecast of the other namespace", func(context.Context) error {
		r, err := ask("viewer-a", "namespaces/a")
		if planned, _, _ := sumRuns(r, "queue-a"); err == nil && planned != 5 {
			err = fmt.Errorf("%v", r)
		}
		return err
	})
	after, err := ask("viewer-b", "namespaces/b")
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(fmt.Sprint(after), "secret-a") || strings.Contains(fmt.Sprint(after), "queue-a") {
		t.Errorf("a caller of b sees jobs of a: %v", after)
	}
	for _, r := range []*fermatav1.ForecastLoadResponse{before, after} {
		r.PlannedTime, r.DefinitionsTime = nil, nil
	}
	if before.GetStartTime().AsTime().Equal(after.GetStartTime().AsTime()) && !proto.Equal(before, after) {
		t.Errorf("jobs of a changed the answer about b:\n%v\n%v", before, after)
	}
	for _, parent := range []string{"namespaces/a", "", "namespaces/-"} {
		if _, err := ask("viewer-b", parent); status.Code(err) != codes.PermissionDenied {
			t.Errorf("parent %q: %v", parent, err)
		}
	}
}
