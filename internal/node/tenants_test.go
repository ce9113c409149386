package node_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/fermata-io/fermata/internal/node"
	"github.com/fermata-io/fermata/internal/test/redistest"
	"github.com/fermata-io/fermata/proto/externalscaler"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// tenants are two namespaces on one node, and somebody of each role in each.
type tenants struct {
	t      *testing.T
	redis  *redistest.Server
	node   *node.Node
	conn   *grpc.ClientConn
	tokens map[string]string
	// accessFile is the path of the node's access file.
	accessFile string
}

func newTenants(t *testing.T, more string) *tenants {
	t.Helper()
	x := &tenants{t: t, redis: redistest.Start(t), tokens: map[string]string{}}
	entries, rules := "tokens:\n", "rules:\n"
	add := func(name, role, namespace string) {
		token, entry, err := node.NewToken(name, time.Time{})
		if err != nil {
			t.Fatal(err)
		}
		x.tokens[name] = token
		entries += strings.TrimPrefix(entry, "tokens:\n")
		rules += fmt.Sprintf("  - {subjects: [\"token:%s\"], role: %s, namespaces: [%q]}\n", name, role, namespace)
	}
	for _, namespace := range []string{"a", "b"} {
		for _, role := range []string{"viewer", "editor", "admin", "scaler"} {
			add(role+"-"+namespace, role, namespace)
		}
	}
	add("root", "admin", "*")
	path := filepath.Join(t.TempDir(), "access.yaml")
	if err := os.WriteFile(path, []byte(entries+rules+more), 0o600); err != nil {
		t.Fatal(err)
	}
	x.accessFile = path
	x.node = startWith(t, x.redis.URL(), "n", func(c *node.Config) { c.AccessFile, c.EventsKeep, c.JobRevisions = path, 10_000, 10 })
	x.conn = x.connect()
	return x
}

func (x *tenants) connect() *grpc.ClientConn {
	x.t.Helper()
	conn, err := grpc.NewClient(x.node.GRPCAddr(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		x.t.Fatal(err)
	}
	x.t.Cleanup(func() { conn.Close() })
	return conn
}

func (x *tenants) as(name string) context.Context {
	x.t.Helper()
	if x.tokens[name] == "" {
		x.t.Fatalf("nobody is called %s", name)
	}
	return metadata.AppendToOutgoingContext(x.t.Context(), "authorization", "Bearer "+x.tokens[name])
}

// watch opens a stream of events of a namespace ("": all); it ends with the test.
func (x *tenants) watch(name, namespace string) error {
	x.t.Helper()
	q := &fermatav1.WatchEventsRequest{}
	if namespace != "" {
		q.Parent = "namespaces/" + namespace
	}
	s, err := fermatav1.NewEventServiceClient(x.conn).WatchEvents(x.as(name), q)
	if err == nil {
		_, err = s.Recv()
	}
	return err
}

// TestAViewerLeavesPlacesOfWatchers to other identities, namespaces and the cluster's
// administrators.
func TestAViewerLeavesPlacesOfWatchers(t *testing.T) {
	x := newTenants(t, "")
	held := 0
	for x.watch("viewer-a", "a") == nil {
		held++
		if held > 100 {
			break
		}
	}
	if held > 25 {
		t.Errorf("one identity holds %d of 100 places", held)
	}
	for name, namespace := range map[string]string{"editor-a": "a", "viewer-b": "b", "root": ""} {
		if err := x.watch(name, namespace); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := x.watch("viewer-a", "a"); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("one more of the same identity: %v", err)
	}
}

// TestAScalerLeavesPlacesOfQueues, however many queues that do not exist it asks for.
func TestAScalerLeavesPlacesOfQueues(t *testing.T) {
	t.Parallel()
	x := newTenants(t, "")
	c := externalscaler.NewExternalScalerClient(x.conn)
	ask := func(name, namespace string, queues ...string) error {
		_, err := c.IsActive(x.as(name), &externalscaler.ScaledObjectRef{
			ScalerMetadata: map[string]string{"namespace": namespace, "queue": strings.Join(queues, ","),
				"targetBacklog": "10"},
		})
		return err
	}
	if err := ask("scaler-a", "a", "mail"); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{}, 100)
	for i := range 100 {
		go func() {
			var ghosts []string
			for n := range 50 {
				ghosts = append(ghosts, fmt.Sprintf("ghost-%d-%d", i, n))
			}
			_ = ask("scaler-a", "a", ghosts...)
			ended <- struct{}{}
		}()
	}
	for range cap(ended) {
		<-ended
	}
	if err := ask("scaler-b", "b", "mail"); err != nil {
		t.Errorf("another namespace: %v", err)
	}
}

// TestAnAdministratorLeavesPlacesOfSettings of queues to other namespaces.
func TestAnAdministratorLeavesPlacesOfSettings(t *testing.T) {
	x := newTenants(t, "")
	c := fermatav1.NewJobServiceClient(x.conn)
	set := func(name, namespace, queue string) error {
		_, err := c.UpdateQueueSettings(x.as(name), &fermatav1.UpdateQueueSettingsRequest{
			Settings: &fermatav1.QueueSettings{Name: "namespaces/" + namespace + "/queues/" + queue, MaxConcurrency: 1},
		})
		return err
	}
	if err := set("admin-a", "a", "first"); err != nil {
		t.Fatal(err)
	}
	// As many as were taken one by one by calls, which would take a while.
	const key = "fermata:{meta}:queues"
	text, err := x.redis.Client().HGet(t.Context(), key, "a/first").Result()
	if err != nil {
		t.Fatal(err)
	}
	for taken := 1; taken < 10_000; {
		if err := set("admin-a", "a", fmt.Sprint("ghost", taken)); err != nil {
			if taken < 4000 {
				t.Fatalf("after %d: %v", taken, err)
			}
			break
		}
		taken++
		var fields []any
		for range 499 {
			fields = append(fields, fmt.Sprint("a/ghost", taken), text)
			taken++
		}
		if err := x.redis.Client().HSet(t.Context(), key, fields...).Err(); err != nil {
			t.Fatal(err)
		}
	}
	if err := set("admin-b", "b", "mail"); err != nil {
		t.Errorf("another namespace: %v", err)
	}
}

// TestAnAdministratorOfManyNamespacesLeavesPlacesOfSettings of queues to other identities, and the last ones to pauses.
func TestAnAdministratorOfManyNamespacesLeavesPlacesOfSettings(t *testing.T) {
	t.Parallel()
	x := newTenants(t, `  - {subjects: ["token:admin-a"], role: admin, namespaces: ["staging-*"]}
  - {subjects: ["token:admin-b"], role: admin, namespaces: ["*"], queues: [mail]}
`)
	c := fermatav1.NewJobServiceClient(x.conn)
	set := func(name, namespace, queue string) error {
		_, err := c.UpdateQueueSettings(x.as(name), &fermatav1.UpdateQueueSettingsRequest{
			Settings: &fermatav1.QueueSettings{Name: "namespaces/" + namespace + "/queues/" + queue, MaxConcurrency: 1},
		})
		return err
	}
	fill := func(namespace string, n int) { // as nodes of the previous version do
		t.Helper()
		const key = "fermata:{meta}:queues"
		text, err := x.redis.Client().HGet(t.Context(), key, "a/first").Result()
		if err != nil {
			t.Fatal(err)
		}
		var fields []any
		for i := range n {
			fields = append(fields, fmt.Sprintf("%s%d/q%d", namespace, i%100, i), text)
		}
		if err := x.redis.Client().HSet(t.Context(), key, fields...).Err(); err != nil {
			t.Fatal(err)
		}
	}
	if err := set("root", "a", "first"); err != nil {
		t.Fatal(err)
	}
	fill("filled-", 8999)
	takeAll := func(name string, want int) {
		t.Helper()
		taken, err := 0, error(nil)
		for taken < 1000 && err == nil {
			if err = set(name, fmt.Sprint("staging-", name, taken), "mail"); err == nil {
				taken++
			}
		}
		if taken != want || status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "this caller") {
			t.Errorf("%s gave %d queues settings (%v), want %d", name, taken, err, want)
		}
	}
	takeAll("admin-a", 250) // of 1,000
	takeAll("admin-b", 188) // of 750, as its role covers some queues only
	if err := set("root", "staging-1", "more"); err != nil {
		t.Errorf("an administrator of all namespaces: %v", err)
	}
	fill("late-", 450)
	if err := set("root", "a", "more"); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("a limit in one of the last places: %v", err)
	}
	if _, err := c.PauseQueue(x.as("root"), &fermatav1.PauseQueueRequest{Name: "namespaces/a/queues/more"}); err != nil {
		t.Errorf("a pause: %v", err)
	}
}

// TestAnEditorLeavesPlacesOfSeries to queues of other namespaces that come later.
func TestAnEditorLeavesPlacesOfSeries(t *testing.T) {
	t.Parallel()
	x := newTenants(t, "")
	c := fermatav1.NewJobServiceClient(x.conn)
	create := func(name, namespace, queue string) {
		t.Helper()
		j := intervalJob(time.Hour, "h")
		j.Queue = queue
		_, err := c.CreateJob(x.as(name), &fermatav1.CreateJobRequest{Parent: "namespaces/" + namespace,
			JobId: "j-" + queue, Job: j})
		if err != nil {
			t.Fatal(err)
		}
	}
	for i := range 230 {
		create("editor-a", "a", fmt.Sprint("q", i))
	}
	create("editor-b", "b", "mail")
	redistest.Eventually(t, redistest.Patience, "the series of another namespace", func(ctx context.Context) error {
		text, err := metricsOf(ctx, x.node)
		if err == nil && !strings.Contains(text, `fermata_starts_total{namespace="b",queue="mail"`) {
			err = errors.New("there are none")
		}
		return err
	})
}

// TestSettingsOfOthersCostCallersNothing: calls about queues do not read the settings of all
// queues, however many others have.
func TestSettingsOfOthersCostCallersNothing(t *testing.T) {
	x := newTenants(t, "")
	c, cluster := fermatav1.NewJobServiceClient(x.conn), fermatav1.NewClusterServiceClient(x.conn)
	j := intervalJob(time.Hour, "h")
	j.Queue = "mail"
	if _, err := c.CreateJob(x.as("editor-b"), &fermatav1.CreateJobRequest{Parent: "namespaces/b", JobId: "j", Job: j}); err != nil {
		t.Fatal(err)
	}
	mail := &fermatav1.QueueSettings{Name: "namespaces/b/queues/mail", MaxConcurrency: 7, Paused: new(true)}
	if _, err := c.UpdateQueueSettings(x.as("admin-b"), &fermatav1.UpdateQueueSettingsRequest{Settings: mail}); err != nil {
		t.Fatal(err)
	}
	redistest.Eventually(t, redistest.Patience, "the paused queue in the list", func(ctx context.Context) error {
		r, err := cluster.ListQueues(x.as("viewer-b"), &fermatav1.ListQueuesRequest{Parent: "namespaces/b"})
		if err == nil && (len(r.GetQueues()) != 1 || !r.GetQueues()[0].GetQueuePaused()) {
			err = fmt.Errorf("listed are %v", r.GetQueues())
		}
		return err
	})
	const calls = 100
	before := wholeReads(t, x.redis)
	for range calls {
		got, err := c.GetQueueSettings(x.as("viewer-b"), &fermatav1.GetQueueSettingsRequest{Name: mail.GetName()})
		if err != nil || got.GetMaxConcurrency() != 7 {
			t.Fatal(got, err)
		}
		why, err := c.ExplainJob(x.as("viewer-b"), &fermatav1.ExplainJobRequest{Name: "namespaces/b/jobs/j"})
		if err != nil || !strings.Contains(fmt.Sprint(why), "paused") {
			t.Fatal(why, err)
		}
		if _, err := cluster.ListQueues(x.as("viewer-b"), &fermatav1.ListQueuesRequest{Parent: "namespaces/b"}); err != nil {
			t.Fatal(err)
		}
	}
	if n := wholeReads(t, x.redis) - before; n >= calls {
		t.Errorf("%d calls read whole hashes %d times", 3*calls, n)
	}
}

// wholeReads is how often Redis was asked for all of a hash.
func wholeReads(t *testing.T, s *redistest.Server) int {
	t.Helper()
	text, err := s.Client().Info(t.Context(), "commandstats").Result()
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(text, "cmdstat_hgetall:calls=")
	number, _, _ := strings.Cut(after, ",")
	n, _ := strconv.Atoi(number)
	return n
}

// TestFailingCallsLeaveNoAuditRecords: calls that end before anything was written for them leave
// none, whatever ended them, nor do deletions of jobs that never were; those that wrote do.
func TestFailingCallsLeaveNoAuditRecords(t *testing.T) {
	x := newTenants(t, "")
	c, cluster := fermatav1.NewJobServiceClient(x.conn), fermatav1.NewClusterServiceClient(x.conn)
	head := func() int64 {
		t.Helper()
		r, err := cluster.ReadAuditRecords(x.as("root"), &fermatav1.ReadAuditRecordsRequest{PageSize: 1})
		if err != nil {
			t.Fatal(err)
		}
		return r.GetHeadSequence()
	}
	const job = "namespaces/a/jobs/j"
	ended := 0
	for i := range 300 {
		ctx, cancel := context.WithTimeout(x.as("editor-a"), time.Duration(100+10*i)*time.Microsecond)
		_, err := c.PauseJob(ctx, &fermatav1.PauseJobRequest{Name: "namespaces/a/jobs/none"})
		cancel()
		switch status.Code(err) {
		case codes.DeadlineExceeded:
			ended++
		case codes.NotFound:
		default:
			t.Fatal(err)
		}
	}
	if ended == 0 {
		t.Error("no call was ended by its deadline")
	}
	missing := &fermatav1.DeleteJobRequest{Name: "namespaces/a/jobs/none", AllowMissing: true}
	if _, err := c.DeleteJob(x.as("editor-a"), missing); err != nil {
		t.Fatal(err)
	}
	if _, err := c.CreateJob(x.as("editor-a"), &fermatav1.CreateJobRequest{Parent: "namespaces/a", JobId: "j", Job: intervalJob(time.Hour, "h")}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.PauseJob(x.as("editor-a"), &fermatav1.PauseJobRequest{Name: job}); err != nil {
		t.Fatal(err)
	}
	redistest.Eventually(t, redistest.Patience, "records of the calls that succeeded", func(context.Context) error {
		if n := head(); n < 2 {
			return fmt.Errorf("there are %d", n)
		}
		return nil
	})
	if n := head(); n != 2 {
		t.Errorf("%d calls that their deadline ended, and a deletion of a missing job, left %d records", ended, n-2)
	}
}
