package acceptance

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/fermata-io/fermata/client"
	"github.com/fermata-io/fermata/internal/test/redistest"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
	"github.com/fermata-io/fermata/worker"
)

// guests are callers with tokens, as `scheduler token new` makes them.
type guests struct {
	t      *testing.T
	path   string // of the access file
	tokens map[string]string
	hashes map[string]string
}

func newGuests(t *testing.T, names ...string) *guests {
	t.Helper()
	binary := commandPath(t, "scheduler")
	g := &guests{t: t, path: filepath.Join(t.TempDir(), "access.yaml"), tokens: map[string]string{}, hashes: map[string]string{}}
	for _, name := range names {
		var entry strings.Builder
		cmd := exec.Command(binary, "token", "new", name)
		cmd.Stderr = &entry
		token, err := cmd.Output()
		if err != nil {
			t.Fatalf("token new: %v: %s", err, &entry)
		}
		g.tokens[name] = strings.TrimSpace(string(token))
		_, g.hashes[name], _ = strings.Cut(entry.String(), "tokens:\n")
		if strings.Contains(entry.String(), g.tokens[name]) {
			t.Error("the entry for the access file has the token")
		}
	}
	return g
}

// writeAccessFile makes an access file for these guests.
func (g *guests) writeAccessFile(names ...string) {
	g.t.Helper()
	text := "tokens:\n"
	for _, n := range names {
		text += g.hashes[n]
	}
	text += `rules:
  - {subjects: ["token:editor"], role: editor, namespaces: [default]}
  - {subjects: ["token:*"], role: viewer, namespaces: [default]}
  - {subjects: ["token:worker-a", "token:thief"], role: worker, namespaces: [default], queues: [a]}
  - {subjects: ["token:worker-b"], role: worker, namespaces: [default], queues: [b]}
`
	fresh := g.path + ".new"
	if err := os.WriteFile(fresh, []byte(text), 0o600); err != nil {
		g.t.Fatal(err)
	}
	if err := os.Rename(fresh, g.path); err != nil {
		g.t.Fatal(err)
	}
}

// contextOf is a call by a guest.
func (g *guests) contextOf(name string) context.Context {
	return metadata.AppendToOutgoingContext(callContext(g.t), "authorization", "Bearer "+g.tokens[name])
}

// rawWorker is a worker's stream, driven by hand.
type rawWorker struct {
	t      *testing.T
	stream fermatav1.WorkerService_WorkClient
}

// openWorkerStream opens a stream; the error is how it ends instead of a welcome.
func (g *guests) openWorkerStream(n *schedulerNode, who, id string, epoch int32, queues []string, live ...string) (*rawWorker, error) {
	g.t.Helper()
	stream, err := n.workers.Work(g.contextOf(who))
	if err != nil {
		g.t.Fatal(err)
	}
	w := &rawWorker{g.t, stream}
	w.sendRequest(&fermatav1.WorkRequest{Message: &fermatav1.WorkRequest_Hello{Hello: &fermatav1.Hello{
		WorkerId: id, Queues: queues, Slots: 1, SessionEpoch: epoch, LiveLeaseIds: live,
	}}})
	m, err := stream.Recv()
	if err == nil && m.GetWelcome() == nil {
		g.t.Errorf("a stream begins with %v", m)
	}
	return w, err
}

func (w *rawWorker) sendRequest(m *fermatav1.WorkRequest) {
	w.t.Helper()
	if err := w.stream.Send(m); err != nil {
		w.t.Fatal(err)
	}
}

// receiveLease waits for a lease.
func (w *rawWorker) receiveLease() *fermatav1.Lease {
	w.t.Helper()
	for {
		m, err := w.stream.Recv()
		if err != nil {
			w.t.Fatal(err)
		}
		if l := m.GetLeases().GetLeases(); len(l) == 1 {
			return l[0]
		}
	}
}

// reportSuccess sends a result and waits for its acknowledgement.
func (w *rawWorker) reportSuccess(id string) fermatav1.ResultAck_Status {
	w.t.Helper()
	w.sendRequest(&fermatav1.WorkRequest{Message: &fermatav1.WorkRequest_Results{Results: &fermatav1.Results{
		Results: []*fermatav1.Result{{LeaseId: id, Outcome: fermatav1.Result_OUTCOME_SUCCEEDED}},
	}}})
	for {
		m, err := w.stream.Recv()
		if err != nil {
			w.t.Fatal(err)
		}
		if a := m.GetResultAcks().GetAcks(); len(a) == 1 && a[0].GetLeaseId() == id {
			return a[0].GetStatus()
		}
	}
}

// tokenFile holds the token of a guest.
func (g *guests) tokenFile(name string) string {
	g.t.Helper()
	path := filepath.Join(g.t.TempDir(), name+".token")
	if err := os.WriteFile(path, []byte(g.tokens[name]+"\n"), 0o600); err != nil {
		g.t.Fatal(err)
	}
	return path
}

// checkPublicPackages uses the packages that users link, with tokens from files.
func (g *guests) checkPublicPackages(n *schedulerNode) {
	g.t.Helper()
	editor, err := client.TokenFile(g.tokenFile("editor"))
	if err != nil {
		g.t.Fatal(err)
	}
	c, err := client.Dial([]string{n.grpc}, client.Options{Token: editor})
	if err != nil {
		g.t.Fatal(err)
	}
	defer c.Close()
	o := worker.Options{Addresses: []string{n.grpc}, Queues: []string{"b"}}
	if o.Token, err = worker.TokenFile(g.tokenFile("worker-b")); err != nil {
		g.t.Fatal(err)
	}
	w, err := worker.New(o)
	if err != nil {
		g.t.Fatal(err)
	}
	ran := make(chan struct{})
	w.Handle(handlerName, func(context.Context, *worker.Task) error {
		close(ran)
		return nil
	})
	ctx, stop := context.WithCancel(g.t.Context())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	j := newJob(behaviour{})
	j.Queue, j.Schedule = "b", onceAt(time.Now())
	if _, err := c.CreateJob(callContext(g.t), "library", j); err != nil {
		g.t.Error(err)
	}
	select {
	case <-ran:
	case <-time.After(patience):
		g.t.Error("the worker with a token got no run")
	}
	stop()
	if err := <-done; err != nil {
		g.t.Error(err)
	}
}

// TestAccess has two nodes with an access file: who may do what, and whose a lease is.
func TestAccess(t *testing.T) {
	runBesideOthers(t)
	everybody := []string{"editor", "viewer", "worker-a", "worker-b", "thief"}
	g := newGuests(t, everybody...)
	g.writeAccessFile(everybody...)
	server := newRedis(t)
	c := newCluster(t, server.URL(), "--access-file", g.path, "--lease-ttl", "30s")
	first, second := c.startNode("a"), c.startNode("b")

	create := func(who, parent, id string) error {
		j := newJob(behaviour{})
		j.Queue, j.Schedule = "a", onceAt(time.Now())
		_, err := first.jobs.CreateJob(g.contextOf(who), &fermatav1.CreateJobRequest{Parent: parent, JobId: id, Job: j})
		return err
	}
	if _, err := first.jobs.ListJobs(callContext(t), &fermatav1.ListJobsRequest{Parent: namespace}); status.Code(err) != codes.Unauthenticated {
		t.Errorf("a caller without a token: %v", err)
	}
	for _, denied := range []error{create("viewer", namespace, "x"), create("worker-a", namespace, "x"), create("editor", "namespaces/other", "x")} {
		if status.Code(denied) != codes.PermissionDenied {
			t.Errorf("create: %v", denied)
		}
	}
	if _, err := g.openWorkerStream(first, "worker-b", "b-1", 1, []string{"a"}); status.Code(err) != codes.PermissionDenied {
		t.Errorf("the worker of queue b on queue a: %v", err)
	}

	if err := create("editor", namespace, "first"); err != nil {
		t.Fatal(err)
	}
	own, err := g.openWorkerStream(first, "worker-a", "a-1", 1, []string{"a"})
	if err != nil {
		t.Fatal(err)
	}
	lease := own.receiveLease()
	own.sendRequest(&fermatav1.WorkRequest{Message: &fermatav1.WorkRequest_Started{Started: &fermatav1.Started{LeaseIds: []string{lease.GetLeaseId()}}}})
	// A worker of the same queue, with an identity of its own, claims that the lease is
	// its, at the node that gave it and at one that does not know it.
	for i, n := range []*schedulerNode{first, second} {
		thief, err := g.openWorkerStream(n, "thief", fmt.Sprint("t-", i), 1, []string{"a"}, lease.GetLeaseId())
		if err != nil {
			t.Fatal(err)
		}
		if m, err := thief.stream.Recv(); err != nil || !slices.Equal(m.GetCancel().GetLeaseIds(), []string{lease.GetLeaseId()}) {
			t.Errorf("a claim at %s: %v %v", n.id, m, err)
		}
		plain := lease.GetLeaseId()[strings.Index(lease.GetLeaseId(), ".")+1:]
		for _, id := range []string{lease.GetLeaseId(), plain} {
			if got := thief.reportSuccess(id); got != fermatav1.ResultAck_STATUS_STALE {
				t.Errorf("a stolen lease at %s: %s", n.id, got)
			}
		}
		_ = thief.stream.CloseSend()
	}
	same, err := g.openWorkerStream(first, "thief", "a-1", 2, []string{"a"}) // beside the worker of the other identity
	if err != nil {
		t.Fatalf("the id of another's worker: %v", err)
	}
	if got := same.reportSuccess(lease.GetLeaseId()); got != fermatav1.ResultAck_STATUS_STALE {
		t.Errorf("a stolen lease under its worker's id: %s", got)
	}
	_ = same.stream.CloseSend()
	list, err := first.jobs.ListRuns(g.contextOf("viewer"), &fermatav1.ListRunsRequest{Parent: jobName("first")})
	if err != nil || list.GetRuns()[0].GetState() == fermatav1.Run_STATE_FINISHED {
		t.Fatalf("after the theft: %v %v", list, err)
	}
	// Whose it is takes it to the other node after a cut.
	_ = own.stream.CloseSend()
	moved, err := g.openWorkerStream(second, "worker-a", "a-1", 2, []string{"a"}, lease.GetLeaseId())
	if err != nil {
		t.Fatal(err)
	}
	if got := moved.reportSuccess(lease.GetLeaseId()); got != fermatav1.ResultAck_STATUS_ACCEPTED {
		t.Errorf("the own lease: %s", got)
	}

	g.checkPublicPackages(first)

	// Who is taken out of the file is out.
	g.writeAccessFile("editor", "worker-a", "worker-b", "thief")
	redistest.Eventually(t, patience, "a token that was taken out is refused", func() error {
		if _, err := first.jobs.GetJob(g.contextOf("viewer"), &fermatav1.GetJobRequest{Name: jobName("first")}); status.Code(err) != codes.Unauthenticated {
			return fmt.Errorf("%v", err)
		}
		return nil
	})
	if _, err := first.jobs.GetJob(g.contextOf("editor"), &fermatav1.GetJobRequest{Name: jobName("first")}); err != nil {
		t.Error(err)
	}
}

// TestNodeRefusesInvalidAccessFile starts nodes whose access file is invalid.
func TestNodeRefusesInvalidAccessFile(t *testing.T) {
	binary := commandPath(t, "scheduler")
	for name, text := range map[string]string{
		"empty":        "",
		"no rules":     "tokens: [{name: a, sha256: " + strings.Repeat("ab", 32) + "}]\n",
		"empty secret": "tokens: [{name: a, sha256: \"\"}]\nrules: [{subjects: [\"token:a\"], role: admin, namespaces: [\"*\"]}]\n",
	} {
		path := filepath.Join(t.TempDir(), "access.yaml")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		out, err := exec.Command(binary, "--access-file", path, "--redis-url", "redis://127.0.0.1:1").CombinedOutput()
		if err == nil || !strings.Contains(string(out), "access file") {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
	}
}
