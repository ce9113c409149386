package node_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	"github.com/fermata-io/fermata/internal/node"
	"github.com/fermata-io/fermata/internal/test/redistest"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// TestJobsOfANamespace: the limit of the access file holds over two nodes, comes with a
// reason, shows in the metrics, and follows the file; what no entry names has the limit of
// the flag.
func TestJobsOfANamespace(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	token, entry, err := node.NewToken("all", time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "access.yaml")
	write := func(limit int) {
		t.Helper()
		text := entry + "rules: [{subjects: [\"token:all\"], role: admin, namespaces: [\"*\"]}]\n" +
			fmt.Sprintf("namespaces: [{names: [\"team-*\"], jobs: %d}, {names: [free], jobs: 0}]\n", limit)
		if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(path+".new", path); err != nil {
			t.Fatal(err)
		}
	}
	write(2)
	change := func(c *node.Config) { c.AccessFile, c.NamespaceJobs = path, 1 }
	a := startWith(t, redis.URL(), "a", change)
	b := startWith(t, redis.URL(), "b", change, a.GossipAddr())
	nodes := []fermatav1.JobServiceClient{jobs(t, a), jobs(t, b)}
	made := 0
	add := func(namespace string) error {
		made++
		ctx := metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer "+token)
		_, err := nodes[made%2].CreateJob(ctx, &fermatav1.CreateJobRequest{
			Parent: "namespaces/" + namespace, JobId: fmt.Sprint("job", made), Job: intervalJob(time.Hour, "h"),
		})
		return err
	}
	room := func(namespace string, n int) {
		t.Helper()
		for i := range n {
			if err := add(namespace); err != nil {
				t.Fatalf("%s: %d of %d: %v", namespace, i, n, err)
			}
		}
		for range 2 { // at either node
			s := status.Convert(add(namespace))
			reason := ""
			for _, d := range s.Details() {
				if info, ok := d.(*errdetails.ErrorInfo); ok {
					reason = info.GetReason() + " " + info.GetMetadata()["namespace"]
				}
			}
			if s.Code() != codes.ResourceExhausted || reason != "NAMESPACE_JOBS "+namespace {
				t.Errorf("%s, beyond %d: %v %q", namespace, n, s, reason)
			}
		}
	}
	room("team-a", 2)
	room("team-b", 2)
	room("other", 1)
	for range 4 {
		if err := add("free"); err != nil {
			t.Fatal(err)
		}
	}
	redistest.Eventually(t, redistest.Patience, "gauges", func(ctx context.Context) error {
		q, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+a.HTTPAddr()+"/metrics", nil)
		if err != nil {
			return err
		}
		r, err := http.DefaultClient.Do(q)
		if err != nil {
			return err
		}
		defer r.Body.Close()
		text, err := io.ReadAll(r.Body)
		for _, line := range []string{`fermata_namespace_jobs{namespace="team-a"} 2`,
			`fermata_namespace_jobs_limit{namespace="team-a"} 2`, `fermata_namespace_jobs_limit{namespace="other"} 1`} {
			if !strings.Contains(string(text), line+"\n") {
				err = errors.Join(err, fmt.Errorf("%s is missing", line))
			}
		}
		if strings.Contains(string(text), `fermata_namespace_jobs{namespace="free"}`) {
			err = errors.Join(err, errors.New("a namespace without a limit has a gauge"))
		}
		return err
	})
	write(3)
	redistest.Eventually(t, redistest.Patience, "the new limit, at either node",
		func(context.Context) error { return add("team-a") })
	redistest.Eventually(t, redistest.Patience, "the new limit, at either node",
		func(context.Context) error { return add("team-b") })
	room("team-b", 0)
}

// TestBytesOfANamespace: nodes that register, edit, delete and restore at once keep to the limit of
// bytes together. What goes makes room for the same job under another name, and for its backup.
func TestBytesOfANamespace(t *testing.T) {
	const limit = 64 << 10
	redis := redistest.Start(t)
	change := func(c *node.Config) { c.NamespaceJobBytes = limit }
	a := startWith(t, redis.URL(), "a", change)
	b := startWith(t, redis.URL(), "b", change, a.GossipAddr())
	nodes := []fermatav1.JobServiceClient{jobs(t, a), jobs(t, b)}
	const parent = "namespaces/default"
	sized := func(n int) *fermatav1.Job {
		d := intervalJob(time.Hour, "h")
		d.Payload = []byte(strings.Repeat("x", n))
		return d
	}
	create := func(node int, id string, n int) error {
		_, err := nodes[node].CreateJob(t.Context(),
			&fermatav1.CreateJobRequest{Parent: parent, JobId: id, Job: sized(n)})
		return err
	}
	full := func(err error) bool { return status.Code(err) == codes.ResourceExhausted }
	// Each node has two callers that fill the namespace, and one that changes what is there.
	var working sync.WaitGroup
	for caller := range 6 {
		working.Go(func() {
			for i := range 12 {
				id := fmt.Sprintf("job-%d-%d", caller, i)
				err := create(caller%2, id, 2000)
				if err == nil && caller >= 4 {
					_, err = nodes[(caller+1)%2].UpdateJob(t.Context(), &fermatav1.UpdateJobRequest{
						Job: &fermatav1.Job{Name: parent + "/jobs/" + id,
							Payload: []byte(strings.Repeat("y", 1000+200*i))},
						UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"payload"}},
					})
					if err == nil && i%3 == 0 {
						_, err = nodes[caller%2].DeleteJob(t.Context(),
							&fermatav1.DeleteJobRequest{Name: parent + "/jobs/" + id})
					}
				}
				if err != nil && !full(err) {
					t.Error(err)
				}
			}
		})
	}
	working.Wait()
	used := func() (sum, n int, first string) {
		t.Helper()
		list, err := nodes[0].ListJobs(t.Context(), &fermatav1.ListJobsRequest{Parent: parent, PageSize: 1000})
		if err != nil || list.GetNextPageToken() != "" {
			t.Fatal(list.GetNextPageToken(), err)
		}
		for _, j := range list.GetJobs() {
			sum += len(j.GetPayload())
		}
		return sum, len(list.GetJobs()), list.GetJobs()[0].GetName()
	}
	settled := func(id string, n int) {
		t.Helper()
		redistest.Eventually(t, redistest.Patience, "room for "+id, func(context.Context) error { return create(0, id, n) })
	}
	// What callers held of one another is free by the next census: fill up what is left.
	for i := 0; ; i++ {
		if err := create(i%2, fmt.Sprint("rest", i), 1000); full(err) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	sum, n, first := used()
	if sum > limit || n < 20 {
		t.Fatalf("%d jobs have %d bytes of payload, of %d", n, sum, limit)
	}
	if err := create(1, "other", 2000); !full(err) {
		t.Errorf("beyond the limit: %v", err)
	}
	// Under another name: first the old one goes.
	if _, err := nodes[1].DeleteJob(t.Context(), &fermatav1.DeleteJobRequest{Name: first}); err != nil {
		t.Fatal(err)
	}
	settled("renamed", 900)
	backups := fermatav1.NewBackupServiceClient(connect(t, a))
	backup, err := backups.ExportJobs(t.Context(), &fermatav1.ExportJobsRequest{Parent: parent, IdPrefix: "renamed"})
	for err == nil && len(backup.GetJobs()) == 0 && backup.GetNextPageToken() != "" { // a page may end before it has any
		backup, err = backups.ExportJobs(t.Context(), &fermatav1.ExportJobsRequest{Parent: parent, IdPrefix: "renamed",
			PageToken: backup.GetNextPageToken()})
	}
	if err != nil || len(backup.GetJobs()) != 1 {
		t.Fatal(backup, err)
	}
	restore := func() *fermatav1.RestoreJobsResponse_Result {
		t.Helper()
		r, err := fermatav1.NewBackupServiceClient(connect(t, b)).RestoreJobs(t.Context(),
			&fermatav1.RestoreJobsRequest{Parent: parent, Jobs: backup.GetJobs(),
				Existing: fermatav1.RestoreJobsRequest_EXISTING_SKIP})
		if err != nil {
			t.Fatal(err)
		}
		return r.GetResults()[0]
	}
	if _, err := nodes[0].DeleteJob(t.Context(),
		&fermatav1.DeleteJobRequest{Name: parent + "/jobs/renamed"}); err != nil {
		t.Fatal(err)
	}
	if r := restore(); codes.Code(r.GetCode()) != codes.OK {
		t.Errorf("what was deleted is restored: %v", r)
	}
	for i := 0; !full(create(i%2, fmt.Sprint("again", i), 700)); i++ {
		if i > 100 {
			t.Fatal("no limit")
		}
	}
	if sum, _, _ := used(); sum > limit {
		t.Errorf("%d bytes of payload, of %d", sum, limit)
	}
}
