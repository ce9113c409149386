package acceptance

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// TestChangedDefaultKeepsExistingJobs: two nodes, restarted one after the other with another default. The
// job that is there keeps its values until a client asks for the present defaults.
func TestChangedDefaultKeepsExistingJobs(t *testing.T) {
	runBesideOthers(t)
	file := filepath.Join(t.TempDir(), "defaults.yaml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("queues: {default/mail: {retry_policy: {base_delay: 7s}}}\npresets: {partner: {retry_policy: {max_attempts: 6}}}\n")
	c := newCluster(t, newRedis(t).URL(), "--defaults-file", file)
	start := func(id, attempts string) *schedulerNode {
		return c.startAs(id, "", []string{"MAX_ATTEMPTS=" + attempts, "RETRY_BASE_DELAY=5s"})
	}
	a, b := start("a", "4"), start("b", "4")
	create := func(n *schedulerNode, id string, j *fermatav1.Job) *fermatav1.Job {
		t.Helper()
		j.Handler = "h"
		j.Schedule = &fermatav1.Schedule{Rule: &fermatav1.Schedule_Once{Once: timestamppb.New(time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC))}}
		made, err := n.jobs.CreateJob(t.Context(), &fermatav1.CreateJobRequest{Parent: "namespaces/default", JobId: id, Job: j})
		if err != nil {
			t.Fatal(err)
		}
		return made
	}
	holds := func(j *fermatav1.Job, attempts int32, base time.Duration, from string) {
		t.Helper()
		p := j.GetRetryPolicy()
		source := p.GetSources()["max_attempts"]
		if source == "" {
			source = p.GetSources()["*"]
		}
		if p.GetMaxAttempts() != attempts || p.GetBaseDelay().AsDuration() != base || source != from {
			t.Errorf("%s has %v", j.GetName(), p)
		}
	}
	holds(create(a, "plain", &fermatav1.Job{}), 4, 5*time.Second, "cluster")
	holds(create(b, "mail", &fermatav1.Job{Queue: "mail"}), 4, 7*time.Second, "cluster")
	holds(create(b, "partner", &fermatav1.Job{RetryPolicy: &fermatav1.RetryPolicy{Preset: "partner"}}), 6, 5*time.Second, "preset partner")
	c.stopNode(a)
	a = start("a2", "9")
	c.stopNode(b)
	b = start("b2", "9")
	for _, n := range []*schedulerNode{a, b} {
		stored, err := n.jobs.GetJob(t.Context(), &fermatav1.GetJobRequest{Name: "namespaces/default/jobs/mail"})
		if err != nil {
			t.Fatal(err)
		}
		holds(stored, 4, 7*time.Second, "cluster")
	}
	holds(create(a, "plain", &fermatav1.Job{}), 4, 5*time.Second, "cluster") // the same job, registered again
	holds(create(a, "new", &fermatav1.Job{}), 9, 5*time.Second, "cluster")
	stored, err := b.jobs.GetJob(t.Context(), &fermatav1.GetJobRequest{Name: "namespaces/default/jobs/plain"})
	if err != nil {
		t.Fatal(err)
	}
	answer, err := b.jobs.ApplyJobs(t.Context(), &fermatav1.ApplyJobsRequest{Parent: "namespaces/default", DesiredJobs: []*fermatav1.DesiredJob{
		{JobId: "plain", Job: stored, Etag: stored.GetEtag(), RefreshDefaults: true},
	}})
	if err != nil || answer.GetChanges()[0].GetAction() != fermatav1.JobChange_ACTION_UPDATE {
		t.Fatalf("%v, %v", answer, err)
	}
	holds(answer.GetChanges()[0].GetAfter(), 9, 5*time.Second, "cluster")
}
