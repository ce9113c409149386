package acceptance

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/fermata-io/fermata/client"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// TestInterruptedBulkDeletion deletes 500 jobs by their label. Client and node are killed in the middle, and the same
// command on another node continues. Callers without a role for that, and tokens of others, are refused.
func TestInterruptedBulkDeletion(t *testing.T) {
	runBesideOthers(t)
	const doomed, kept, filter = 500, 20, "labels.purge = yes"
	g := newGuests(t, "editor", "second", "viewer", "mail", "admin")
	access := "tokens:\n"
	for _, hash := range g.hashes {
		access += hash
	}
	access += `rules:
  - {subjects: ["token:editor", "token:second"], role: editor, namespaces: [default]}
  - {subjects: ["token:mail"], role: editor, namespaces: [default], queues: [mail]}
  - {subjects: ["token:viewer"], role: viewer, namespaces: [default]}
  - {subjects: ["token:admin"], role: admin, namespaces: ["*"]}
`
	if err := os.WriteFile(g.path, []byte(access), 0o600); err != nil {
		t.Fatal(err)
	}
	c := newCluster(t, newRedis(t).URL(), "--access-file", g.path)
	first, second := c.startNode("a"), c.startNode("b")
	create := &fermatav1.BatchCreateJobsRequest{Parent: namespace, NamesOnly: true}
	for i := range doomed + kept {
		j := newJob(behaviour{})
		j.Queue, j.Schedule = []string{"mail", "web"}[i%2], everyInterval(time.Hour, time.Now().Add(time.Hour))
		if i < doomed {
			j.Labels = map[string]string{"purge": "yes"}
		}
		create.Requests = append(create.Requests, &fermatav1.CreateJobRequest{JobId: fmt.Sprintf("j%03d", i), Job: j})
	}
	if _, err := first.jobs.BatchCreateJobs(g.contextOf("editor"), create); err != nil {
		t.Fatal(err)
	}

	count := func(who, filter string) (*fermatav1.BulkChangeResponse, error) {
		q := &fermatav1.BulkDeleteJobsRequest{Parent: namespace, Filter: filter, DryRun: true}
		for {
			r, err := first.jobs.BulkDeleteJobs(g.contextOf(who), q)
			if err != nil || r.GetNextPageToken() == "" {
				return r, err
			}
			q.PageToken = r.GetNextPageToken()
		}
	}
	counted, err := count("editor", filter)
	if err != nil || counted.GetTotalMatched() != doomed {
		t.Fatalf("%v %v", counted, err)
	}
	if own, err := count("mail", filter); err != nil || own.GetTotalMatched() != doomed/2 {
		t.Errorf("the editor of a queue counts %v %v", own, err)
	}
	if _, err := count("mail", "queue = web"); status.Code(err) != codes.PermissionDenied {
		t.Errorf("the editor of a queue, about another: %v", err)
	}
	tampered := []byte(counted.GetConfirmation())
	tampered[5] ^= 3
	for name, refused := range map[string]struct {
		who, filter, confirmation string
		code                      codes.Code
	}{
		"viewer":       {"viewer", filter, counted.GetConfirmation(), codes.PermissionDenied},
		"no token":     {"editor", filter, "", codes.FailedPrecondition},
		"forged":       {"editor", filter, string(tampered), codes.InvalidArgument},
		"of another":   {"second", filter, counted.GetConfirmation(), codes.InvalidArgument},
		"other filter": {"editor", "id:*", counted.GetConfirmation(), codes.InvalidArgument},
	} {
		_, err := second.jobs.BulkDeleteJobs(g.contextOf(refused.who), &fermatav1.BulkDeleteJobsRequest{
			Parent: namespace, Filter: refused.filter, Confirmation: refused.confirmation, RequestId: "refused"})
		if status.Code(err) != refused.code {
			t.Errorf("%s: %v", name, err)
		}
	}

	command := func(n *schedulerNode) *exec.Cmd {
		return exec.Command(commandPath(t, "fermata"), "--address", n.grpc, "--token-file", g.tokenFile("editor"), "jobs", "delete",
			"--filter", filter, "--yes", "--request-id", "purge")
	}
	killed := command(first)
	progress, err := killed.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := killed.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(progress).ReadString('\n'); err != nil || !strings.HasPrefix(line, "deleted ") {
		t.Fatalf("progress: %q %v", line, err)
	}
	c.killNode(first)
	_ = killed.Process.Kill()
	_ = killed.Wait()

	out, err := command(second).CombinedOutput()
	if err != nil || !strings.Contains(string(out), fmt.Sprintf("deleted %d jobs", doomed)) {
		t.Fatalf("%v: %s", err, out)
	}
	checkPurged(t, g, second, kept)
	// A job that matches since is not part of the change.
	again := newJob(behaviour{})
	again.Schedule, again.Labels = everyInterval(time.Hour, time.Now().Add(time.Hour)), map[string]string{"purge": "yes"}
	if _, err := second.jobs.CreateJob(g.contextOf("editor"), &fermatav1.CreateJobRequest{Parent: namespace, JobId: "later", Job: again}); err != nil {
		t.Fatal(err)
	}
	if out, err := command(second).CombinedOutput(); err != nil || !strings.Contains(string(out), fmt.Sprintf("deleted %d jobs", doomed)) {
		t.Errorf("%v: %s", err, out)
	}
	checkPurged(t, g, second, kept+1)
	checkBulkAudit(t, g, second, filter, doomed)
}

// checkPurged compares the jobs that are left.
func checkPurged(t *testing.T, g *guests, n *schedulerNode, want int) {
	t.Helper()
	left, err := n.jobs.ListJobs(g.contextOf("editor"), &fermatav1.ListJobsRequest{Parent: namespace, PageSize: 1000})
	if err != nil || len(left.GetJobs()) != want {
		t.Errorf("%d jobs are left, want %d: %v", len(left.GetJobs()), want, err)
	}
	for _, j := range left.GetJobs() {
		if j.GetLabels()["purge"] != "" && client.JobID(j) != "later" {
			t.Errorf("%s is left", j.GetName())
		}
	}
}

// checkBulkAudit looks for one record per page, with the filter and the id of the change, of which the last has the
// sum.
func checkBulkAudit(t *testing.T, g *guests, n *schedulerNode, filter string, want int) {
	t.Helper()
	records, err := n.cluster.ListAuditRecords(g.contextOf("admin"), &fermatav1.ListAuditRecordsRequest{PageSize: 100})
	if err != nil {
		t.Fatal(err)
	}
	sums := map[string]int{}
	var changed int64
	for _, r := range records.GetRecords() {
		if !strings.HasSuffix(r.GetMethod(), "/BulkDeleteJobs") {
			continue
		}
		if r.GetRequestId() != "purge" || r.GetResource() != namespace || !slices.Contains(r.GetChangedFields(), "filter="+filter) {
			t.Errorf("record %v", r)
		}
		changed += r.GetChanged()
		for _, field := range r.GetChangedFields() {
			if strings.HasPrefix(field, "total_changed=") {
				sums[field]++
			}
		}
	}
	if sums[fmt.Sprintf("total_changed=%d", want)] != 1 || changed > int64(want) {
		t.Errorf("%d changed, sums %v", changed, sums)
	}
	for sum, n := range sums {
		if n != 1 {
			t.Errorf("%d records with %s", n, sum)
		}
	}
}
