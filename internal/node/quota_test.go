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
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/fermata-io/fermata/internal/node"
	"github.com/fermata-io/fermata/internal/redistest"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// TestJobsOfANamespace: the limit of the access file holds over two nodes, comes with a
// reason, shows in the metrics, and follows the file; what no entry names has the limit of
// the flag.
func TestJobsOfANamespace(t *testing.T) {
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
			Parent: "namespaces/" + namespace, JobId: fmt.Sprint("job", made), Job: every(time.Hour, "h"),
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
	redistest.Eventually(t, time.Minute, "gauges", func(ctx context.Context) error {
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
		for _, line := range []string{`fermata_namespace_jobs{namespace="team-a"} 2`, `fermata_namespace_jobs_limit{namespace="team-a"} 2`, `fermata_namespace_jobs_limit{namespace="other"} 1`} {
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
	redistest.Eventually(t, time.Minute, "the new limit, at either node", func(context.Context) error { return add("team-a") })
	redistest.Eventually(t, time.Minute, "the new limit, at either node", func(context.Context) error { return add("team-b") })
	room("team-b", 0)
}
