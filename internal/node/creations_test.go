package node_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/fermata-io/fermata/internal/core/sharding"
	"github.com/fermata-io/fermata/internal/node"
	"github.com/fermata-io/fermata/internal/test/faultproxy"
	"github.com/fermata-io/fermata/internal/test/redistest"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// creation is one of many that callers ask for at a time.
type creation struct {
	*fermatav1.CreateJobRequest
	isInvalid bool
}

// manyCreations are for one shard, so that they share calls of the store. Every tenth is invalid, and the last ten are
// copies of one.
func manyCreations(n int) (all []creation) {
	for i := 0; len(all) < n; i++ {
		id := fmt.Sprint("job-", i)
		if sharding.ShardOf("default", id, 64) != 0 {
			continue
		}
		c := creation{CreateJobRequest: &fermatav1.CreateJobRequest{
			Parent: "namespaces/default", JobId: id, RequestId: "request-" + id, Job: intervalJob(time.Hour, "h"),
		}}
		if len(all)%10 == 3 {
			c.isInvalid, c.Job.Handler = true, ""
		}
		all = append(all, c)
	}
	for range 10 {
		all = append(all, all[0])
	}
	return all
}

// createAll makes all creations at once, and returns the answer and the error of each.
func createAll(ctx context.Context, c fermatav1.JobServiceClient, all []creation) ([]*fermatav1.Job, []error) {
	answers, errs := make([]*fermatav1.Job, len(all)), make([]error, len(all))
	var calling sync.WaitGroup
	for i, q := range all {
		calling.Go(func() { answers[i], errs[i] = c.CreateJob(ctx, q.CreateJobRequest) })
	}
	calling.Wait()
	return answers, errs
}

// TestCreationsAmidALostNode: many callers create jobs of one shard at once. Their node is lost, before or after Redis
// has what it sent, and they repeat the calls at another one. Each job is created once, an invalid one fails alone, and
// what the lost node sends late changes nothing.
func TestCreationsAmidALostNode(t *testing.T) {
	for name, lost := range map[string]faultproxy.Direction{
		"before Redis has them": faultproxy.ToServer, "after Redis has stored them": faultproxy.ToClient,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			redis := redistest.Start(t)
			way := faultproxy.New(t, redis.Addr())
			a := startWith(t, fmt.Sprintf("redis://%s/0", way.Addr()), "a", func(*node.Config) {})
			first, second := jobs(t, a), jobs(t, start(t, redis.URL(), "b", a.GossipAddr()))
			all := manyCreations(60)
			// Then the node knows the time of the shard, and the next thing that it sends is a creation.
			_, errs := createAll(t.Context(), first, all[:1])
			if errs[0] != nil {
				t.Fatal(errs[0])
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			stalled := way.Counters().Stalled
			if lost == faultproxy.ToServer {
				way.Blackhole(lost)
			} else { // the first creation reaches Redis, and others wait for its reply
				way.Latency(300 * time.Millisecond)
			}
			done := make(chan []error, 1)
			go func() {
				_, errs := createAll(ctx, first, all)
				done <- errs
			}()
			redistest.Eventually(t, redistest.Patience, "creations are under way", func(ctx context.Context) error {
				list, err := second.ListJobs(ctx, &fermatav1.ListJobsRequest{Parent: "namespaces/default"})
				switch {
				case err != nil:
					return err
				case lost == faultproxy.ToServer && way.Counters().Stalled == stalled,
					lost == faultproxy.ToClient && len(list.GetJobs()) == 1:
					return errors.New("none is")
				}
				return nil
			})
			way.Blackhole(lost)
			cancel() // the callers lose their node
			failed := 0
			for _, err := range <-done {
				if status.Code(err) == codes.Canceled {
					failed++
				}
			}
			if failed == 0 {
				t.Fatal("the node was lost after all creations")
			}
			created := wantCreated(t, second, all)
			way.Pass()
			redistest.Eventually(t, redistest.Patience, "the lost node is back", func(ctx context.Context) error {
				_, err := first.GetJob(ctx, &fermatav1.GetJobRequest{Name: created[0].GetName()})
				return err
			})
			again := wantCreated(t, first, all)
			for i := range created {
				if created[i].GetEtag() != again[i].GetEtag() {
					t.Errorf("%s is another job by now", all[i].JobId)
				}
			}
		})
	}
}

// wantCreated creates all at once and checks the answers: those of an id are one job, and each invalid creation fails.
func wantCreated(t *testing.T, c fermatav1.JobServiceClient, all []creation) []*fermatav1.Job {
	t.Helper()
	answers, errs := createAll(t.Context(), c, all)
	etags := map[string]string{}
	for i, q := range all {
		switch {
		case q.isInvalid && status.Code(errs[i]) != codes.InvalidArgument, !q.isInvalid && errs[i] != nil:
			t.Errorf("%s, invalid %v: %v", q.JobId, q.isInvalid, errs[i])
		case q.isInvalid:
		case answers[i].GetName() != "namespaces/default/jobs/"+q.JobId || answers[i].GetHandler() != "h":
			t.Errorf("%s was answered with %v", q.JobId, answers[i])
		case etags[q.JobId] != "" && etags[q.JobId] != answers[i].GetEtag():
			t.Errorf("%s was created twice", q.JobId)
		default:
			etags[q.JobId] = answers[i].GetEtag()
		}
	}
	list, err := c.ListJobs(t.Context(), &fermatav1.ListJobsRequest{Parent: "namespaces/default", PageSize: 1000})
	if err != nil || len(list.GetJobs()) != len(etags) {
		t.Errorf("%d jobs are stored, want %d: %v", len(list.GetJobs()), len(etags), err)
	}
	return answers
}

// TestOneRequestIDForDifferentJobs: of callers who create different jobs by one request id, one creates its job, and
// the others are refused, not answered with a job that they did not ask for.
func TestOneRequestIDForDifferentJobs(t *testing.T) {
	c := jobs(t, start(t, redistest.Start(t).URL(), "n"))
	for _, id := range []string{"named", ""} { // without an id, the request id decides it
		var all []creation
		for i := range 30 {
			all = append(all, creation{CreateJobRequest: &fermatav1.CreateJobRequest{
				Parent: "namespaces/default", JobId: id, RequestId: "one",
				Job: intervalJob(time.Hour, fmt.Sprint("h", i)),
			}})
		}
		answers, errs := createAll(t.Context(), c, all)
		created := 0
		for i, err := range errs {
			switch {
			case err == nil && answers[i].GetHandler() == all[i].Job.GetHandler():
				created++
			case status.Code(err) != codes.AlreadyExists:
				t.Errorf("id %q, caller %d: %v, %v", id, i, answers[i], err)
			}
		}
		if created != 1 {
			t.Errorf("id %q: %d callers have created their job", id, created)
		}
	}
}

// TestCompactBatchIsComplete: a compact answer, completed by its shared fields and the requests, has the jobs that
// GetJob returns, also of a repeated batch, and beside jobs that are invalid or exist otherwise.
func TestCompactBatchIsComplete(t *testing.T) {
	c := jobs(t, start(t, redistest.Start(t).URL(), "n"))
	create(t, c, "taken", intervalJob(time.Hour, "other"))
	batch := &fermatav1.BatchCreateJobsRequest{Parent: "namespaces/default", Compact: true}
	add := func(id string, change func(*fermatav1.Job)) {
		j := intervalJob(time.Hour, "h")
		j.Payload = []byte(id)
		change(j)
		batch.Requests = append(batch.Requests, &fermatav1.CreateJobRequest{JobId: id, RequestId: "request-" + id, Job: j})
	}
	for i := range 60 {
		add(fmt.Sprint("job-", i), func(j *fermatav1.Job) {
			switch i % 4 {
			case 1:
				j.Queue, j.Labels = "mail", map[string]string{"i": fmt.Sprint(i)}
			case 2:
				j.Schedule = &fermatav1.Schedule{}
			case 3:
				j.HistoryLimit = proto.Int32(int32(i)) // more of them than messages of shared fields
			}
		})
	}
	add("taken", func(*fermatav1.Job) {})
	add("invalid", func(j *fermatav1.Job) { j.Handler = "" })
	for range 2 {
		answer, err := c.BatchCreateJobs(t.Context(), batch)
		if err != nil {
			t.Fatal(err)
		}
		shared := 0
		for i, result := range answer.GetResults() {
			sent := batch.Requests[i]
			want := map[string]codes.Code{"taken": codes.AlreadyExists, "invalid": codes.InvalidArgument}[sent.JobId]
			if codes.Code(result.GetCode()) != want {
				t.Errorf("%s: %v", sent.JobId, result)
			}
			if want != codes.OK {
				continue
			}
			got := proto.CloneOf(result.GetJob())
			if n := result.GetShared(); n > 0 {
				shared++
				got = proto.CloneOf(answer.GetShared()[n-1])
				proto.Merge(got, result.GetJob())
				got.Handler, got.Payload = sent.GetJob().GetHandler(), sent.GetJob().GetPayload()
			}
			stored, err := c.GetJob(t.Context(), &fermatav1.GetJobRequest{Name: "namespaces/default/jobs/" + sent.JobId})
			if err != nil {
				t.Fatal(err)
			}
			got.Warnings, stored.Warnings = nil, nil
			if !proto.Equal(got, stored) {
				t.Errorf("%s is\n%v\nGetJob returns\n%v", sent.JobId, got, stored)
			}
		}
		if shared < 30 {
			t.Errorf("%d jobs share fields: the test had no power", shared)
		}
	}
}
