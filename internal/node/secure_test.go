package node_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	"github.com/fermata-io/fermata/internal/core/sharding"
	"github.com/fermata-io/fermata/internal/node"
	"github.com/fermata-io/fermata/internal/redis/redisacl"
	"github.com/fermata-io/fermata/internal/test/keytest"
	"github.com/fermata-io/fermata/internal/test/redistest"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
	"github.com/fermata-io/fermata/worker"
)

const keyOne, keyTwo = "k1", "k2"

func keyLine(id string, b byte) string {
	return id + " " + base64.StdEncoding.EncodeToString(keytest.Key(string(b))) + "\n"
}

// everything is all that the server holds, as one text.
func everything(t *testing.T, s *redistest.Server) string {
	t.Helper()
	var all strings.Builder
	keys, err := s.Client().Keys(t.Context(), "*").Result()
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range keys {
		switch s.Client().Type(t.Context(), key).Val() {
		case "hash":
			fmt.Fprint(&all, key, s.Client().HGetAll(t.Context(), key).Val())
		case "string":
			fmt.Fprint(&all, key, s.Client().Get(t.Context(), key).Val())
		case "stream":
			fmt.Fprint(&all, key, s.Client().XRange(t.Context(), key, "-", "+").Val())
		case "zset":
			fmt.Fprint(&all, key, s.Client().ZRange(t.Context(), key, 0, -1).Val())
		}
	}
	return all.String()
}

func name(id string) string { return "namespaces/default/jobs/" + id }

// TestSealedPayloads follows payloads through Redis: nothing there shows them, workers
// get them, edits keep them, and what cannot be opened waits without using up attempts.
func TestSealedPayloads(t *testing.T) {
	t.Parallel()
	const canary = "canary-of-the-payload"
	redis := redistest.Start(t)
	path := filepath.Join(t.TempDir(), "keys")
	if err := os.WriteFile(path, []byte(keyLine(keyOne, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	before := startWith(t, redis.URL(), "plain", func(c *node.Config) { c.Shards = 4 })
	create(t, jobs(t, before), "old", &fermatav1.Job{Handler: "h", Payload: []byte("from before")})
	if err := before.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	n := startWith(t, redis.URL(), "sealing", func(c *node.Config) { c.Shards, c.PayloadKeyFile = 4, path })
	c := jobs(t, n)
	got := make(chan string, 10)
	work(t, n, 2, map[string]func(context.Context, *worker.Task) error{
		"h": func(_ context.Context, task *worker.Task) error { got <- string(task.Payload); return nil },
	})
	run := func(id string) string {
		t.Helper()
		if _, err := c.RunJob(t.Context(), &fermatav1.RunJobRequest{Name: name(id)}); err != nil {
			t.Fatal(err)
		}
		select {
		case payload := <-got:
			return payload
		case <-time.After(redistest.Patience):
			t.Fatalf("%s has not run", id)
			return ""
		}
	}
	for range 2 { // the same creation, repeated
		create(t, c, "new", &fermatav1.Job{Handler: "h", Payload: []byte(canary)})
	}
	if _, err := c.CreateJob(t.Context(), &fermatav1.CreateJobRequest{Parent: "namespaces/default", JobId: "new",
		Job: &fermatav1.Job{Handler: "h", Payload: []byte("other")}}); status.Code(err) != codes.AlreadyExists {
		t.Errorf("another payload under the same id: %v", err)
	}
	if payload := run("new"); payload != canary {
		t.Errorf("the worker got %q", payload)
	}
	if payload := run("old"); payload != "from before" {
		t.Errorf("of a job from before, the worker got %q", payload)
	}
	if strings.Contains(everything(t, redis), canary) || !strings.Contains(everything(t, redis), "from before") {
		t.Error("Redis holds the payload, or the look at it sees nothing")
	}
	read, err := c.GetJob(t.Context(), &fermatav1.GetJobRequest{Name: name("new")})
	if err != nil || len(read.GetPayload()) > 0 || !read.GetPayloadSealed() || read.GetPayloadKeyId() != keyOne ||
		read.GetPayloadSize() != int64(len(canary)) {
		t.Fatalf("read: %v (%v)", read, err)
	}
	read.Labels = map[string]string{"a": "b"} // and sent back
	if _, err = c.UpdateJob(t.Context(), &fermatav1.UpdateJobRequest{Job: read,
		UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"*"}}}); err != nil {
		t.Fatal(err)
	}
	if payload := run("new"); payload != canary {
		t.Errorf("after an edit the worker got %q", payload)
	}
	rotate(t, redis, c, path, run)
	// A sealed payload under another job is not that job's.
	create(t, c, "victim", &fermatav1.Job{Handler: "h", Payload: []byte("victim's")})
	shard := func(id string) string {
		return "fermata:{" + sharding.Tags(4)[sharding.ShardOf("default", id, 4)] + "}:def"
	}
	stolen := redis.Client().HGet(t.Context(), shard("new"), "default/new").Val()
	redis.Client().HSet(t.Context(), shard("victim"), "default/victim", stolen)
	if _, err := c.RunJob(t.Context(), &fermatav1.RunJobRequest{Name: name("victim")}); err != nil {
		t.Fatal(err)
	}
	redistest.Eventually(t, redistest.Patience, "the moved payload is held back", func(ctx context.Context) error {
		e, err := c.ExplainJob(ctx, &fermatav1.ExplainJobRequest{Name: name("victim")})
		if err != nil {
			return err
		}
		for _, r := range e.GetReasons() {
			if r.GetKind() == fermatav1.Reason_KIND_PAYLOAD && e.GetJob().GetStatus().GetCurrentAttempt() == 1 {
				return nil
			}
		}
		return fmt.Errorf("reasons %v", e.GetReasons())
	})
	select {
	case payload := <-got:
		t.Errorf("a worker got %q of a payload that was moved", payload)
	default:
	}
}

// TestSealedBackup: an export holds what is sealed, and works where the key is, under
// the same name; elsewhere it is refused.
func TestSealedBackup(t *testing.T) {
	const canary = "canary-of-a-backup"
	redis := redistest.Start(t)
	path := filepath.Join(t.TempDir(), "keys")
	if err := os.WriteFile(path, []byte(keyLine(keyOne, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	other := filepath.Join(t.TempDir(), "others")
	if err := os.WriteFile(other, []byte(keyLine(keyTwo, 2)), 0o600); err != nil {
		t.Fatal(err)
	}
	backups := func(keyspace, keys string) (*node.Node, fermatav1.BackupServiceClient) {
		n := startWith(t, redis.URL(), keyspace, func(c *node.Config) { c.Keyspace, c.PayloadKeyFile = keyspace, keys })
		conn, err := grpc.NewClient(n.GRPCAddr(), grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		return n, fermatav1.NewBackupServiceClient(conn)
	}
	from, source := backups("from", path)
	create(t, jobs(t, from), "a", &fermatav1.Job{Handler: "h", Payload: []byte(canary)})
	exported, err := source.ExportJobs(t.Context(), &fermatav1.ExportJobsRequest{Parent: "namespaces/default"})
	for err == nil && len(exported.GetJobs()) == 0 &&
		exported.GetNextPageToken() != "" { // pages are short on a slow machine
		exported, err = source.ExportJobs(t.Context(),
			&fermatav1.ExportJobsRequest{Parent: "namespaces/default", PageToken: exported.GetNextPageToken()})
	}
	if err != nil || len(exported.GetJobs()) != 1 || strings.Contains(exported.String(), canary) ||
		len(exported.GetJobs()[0].GetJob().GetPayload()) == 0 {
		t.Fatalf("export: %v (%v)", exported, err)
	}
	restore := func(c fermatav1.BackupServiceClient, parent string, jobs []*fermatav1.JobBackup) (codes.Code,
		fermatav1.RestoreJobsResponse_Result_Outcome) {
		t.Helper()
		r, err := c.RestoreJobs(t.Context(), &fermatav1.RestoreJobsRequest{Parent: parent, Jobs: jobs})
		if err != nil {
			t.Fatal(err)
		}
		return codes.Code(r.GetResults()[0].GetCode()), r.GetResults()[0].GetOutcome()
	}
	to, target := backups("to", path)
	if code, _ := restore(target, "namespaces/elsewhere", exported.GetJobs()); code != codes.InvalidArgument {
		t.Errorf("into another namespace: %v", code)
	}
	for _, want := range []fermatav1.RestoreJobsResponse_Result_Outcome{fermatav1.RestoreJobsResponse_Result_OUTCOME_CREATED, fermatav1.RestoreJobsResponse_Result_OUTCOME_UNCHANGED} {
		if code, outcome := restore(target, "namespaces/default", exported.GetJobs()); code != codes.OK ||
			outcome != want {
			t.Errorf("where the key is: %v, %v, want %v", code, outcome, want)
		}
	}
	got := make(chan string, 1)
	work(t, to, 1, map[string]func(context.Context, *worker.Task) error{
		"h": func(_ context.Context, task *worker.Task) error { got <- string(task.Payload); return nil },
	})
	if _, err := jobs(t, to).RunJob(t.Context(), &fermatav1.RunJobRequest{Name: name("a")}); err != nil {
		t.Fatal(err)
	}
	if payload := <-got; payload != canary {
		t.Errorf("the worker got %q", payload)
	}
	for keyspace, keys := range map[string]string{"without": "", "others": other} {
		_, c := backups(keyspace, keys)
		if code, _ := restore(c, "namespaces/default", exported.GetJobs()); code != codes.InvalidArgument {
			t.Errorf("%s: %v", keyspace, code)
		}
	}
	plain := []*fermatav1.JobBackup{{Job: &fermatav1.Job{Name: name("p"), Handler: "h", Payload: []byte(canary)}}}
	for range 2 {
		if code, _ := restore(target, "namespaces/default", plain); code != codes.OK {
			t.Errorf("plain: %v", code)
		}
	}
	if _, err := jobs(t, to).CreateJob(t.Context(),
		&fermatav1.CreateJobRequest{Parent: "namespaces/default", JobId: "copy",
			Job: exported.GetJobs()[0].GetJob()}); status.Code(err) != codes.InvalidArgument {
		t.Errorf("a sealed payload in CreateJob: %v", err)
	}
	if strings.Contains(everything(t, redis), canary) {
		t.Error("Redis holds the payload")
	}
}

// rotate seals with a second key, and reseals what the first one sealed.
func rotate(t *testing.T, redis *redistest.Server, c fermatav1.JobServiceClient, path string, run func(string) string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(keyLine(keyTwo, 2)+keyLine(keyOne, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	reseal := func(id string) (*fermatav1.Job, error) {
		return c.UpdateJob(t.Context(), &fermatav1.UpdateJobRequest{
			Job: &fermatav1.Job{Name: name(id)}, UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"payload_key_id"}},
		})
	}
	redistest.Eventually(t, redistest.Patience, "the second key", func(context.Context) error {
		j, err := reseal("new")
		if err == nil && j.GetPayloadKeyId() != keyTwo {
			err = errors.New("still the first one")
		}
		return err
	})
	if j, err := reseal("old"); err != nil || j.GetPayloadKeyId() != keyTwo {
		t.Errorf("a payload that was not sealed: %v, %v", j, err)
	}
	if strings.Contains(everything(t, redis), "from before") {
		t.Error("Redis still holds the payload from before")
	}
	if err := os.WriteFile(path, []byte(keyLine(keyTwo, 2)), 0o600); err != nil {
		t.Fatal(err)
	}
	if payload := run("old"); payload != "from before" {
		t.Errorf("resealed: %q", payload)
	}
}

// TestEditsCannotHideWhatTheyChange: whatever a mask names, and however often, the record of an edit has the fields that
// changed.
func TestEditsCannotHideWhatTheyChange(t *testing.T) {
	redis := redistest.Start(t)
	n := startWith(t, redis.URL(), "first", func(*node.Config) {})
	c := jobs(t, n)
	create(t, c, "a", &fermatav1.Job{Handler: "h", Payload: []byte("first")})
	edits := []struct {
		mask []string
		want string
	}{
		{append(slices.Repeat([]string{"priority"}, 32), "payload"), "payload,priority"},
		{[]string{"*"}, "queue"},
		{[]string{"priority", "handler", "timeout", "queue", "labels"}, "labels"},
		{[]string{"priority"}, ""},
	}
	for i, edit := range edits {
		j := &fermatav1.Job{Name: name("a"), Handler: "h", Priority: new(int32(7)), Payload: []byte("other")}
		if i > 0 {
			j.Queue = "q"
		}
		if i > 1 {
			j.Labels = map[string]string{"k": "v"}
		}
		before, err := c.GetJob(t.Context(), &fermatav1.GetJobRequest{Name: name("a")})
		if err != nil {
			t.Fatal(err)
		}
		j.Timeout = before.GetTimeout()
		_, err = c.UpdateJob(t.Context(), &fermatav1.UpdateJobRequest{Job: j, UpdateMask: &fieldmaskpb.FieldMask{Paths: edit.mask}})
		if err != nil {
			t.Fatal(err)
		}
	}
	records := auditRecordsAfterStop(t, n, redis)
	if len(records) != 1+len(edits) {
		t.Fatal(records)
	}
	for i, edit := range edits {
		fields := records[len(edits)-1-i].GetChangedFields()
		slices.Sort(fields)
		if got := strings.Join(fields, ","); got != edit.want {
			t.Errorf("mask %v: fields %s, want %s", edit.mask, got, edit.want)
		}
	}
}

// auditRecordsAfterStop returns the records of a keyspace after a node has written those in line, newest first.
func auditRecordsAfterStop(t *testing.T, n *node.Node, redis *redistest.Server) []*fermatav1.AuditRecord {
	t.Helper()
	if err := n.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	second := startWith(t, redis.URL(), "second", func(*node.Config) {})
	page, err := fermatav1.NewClusterServiceClient(connect(t, second)).ListAuditRecords(t.Context(), &fermatav1.ListAuditRecordsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	return page.GetRecords()
}

// TestRecordsNameTheJobsThatChanged: jobs that a call selects and leaves as they are, are not in its record.
func TestRecordsNameTheJobsThatChanged(t *testing.T) {
	redis := redistest.Start(t)
	n := startWith(t, redis.URL(), "first", func(*node.Config) {})
	c := jobs(t, n)
	for _, id := range []string{"a", "b", "c"} {
		create(t, c, id, &fermatav1.Job{Handler: "h", Queue: "q"})
	}
	if _, err := c.PauseJob(t.Context(), &fermatav1.PauseJobRequest{Name: name("b"), Note: "broken"}); err != nil {
		t.Fatal(err)
	}
	parent := "namespaces/default"
	if _, err := c.PauseJobs(t.Context(), &fermatav1.PauseJobsRequest{Parent: parent, Queue: "q", Note: "move"}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.ResumeJobs(t.Context(), &fermatav1.ResumeJobsRequest{Parent: parent, Note: "broken", CatchUp: true}); err != nil {
		t.Fatal(err)
	}
	records := auditRecordsAfterStop(t, n, redis)
	if len(records) != 6 {
		t.Fatal(records)
	}
	for i, want := range []struct{ names, fields []string }{
		{[]string{name("b")}, []string{"note=broken", "catch_up=true"}},
		{[]string{name("a"), name("c")}, []string{"note=move", "queue=q"}},
		{nil, []string{"note=broken"}},
	} {
		names := slices.Sorted(slices.Values(records[i].GetNames()))
		if !slices.Equal(names, want.names) || !slices.Equal(records[i].GetChangedFields(), want.fields) {
			t.Errorf("%s: names %q, fields %q", records[i].GetMethod(), names, records[i].GetChangedFields())
		}
	}
}

// TestAuditOfANode: what changed is in the cluster's records, newest first, with what
// there was before, and survives the node that answered.
func TestAuditOfANode(t *testing.T) {
	redis := redistest.Start(t)
	n := startWith(t, redis.URL(), "first", func(*node.Config) {})
	c := jobs(t, n)
	create(t, c, "a", &fermatav1.Job{Handler: "h", Payload: []byte("canary")})
	if _, err := c.UpdateJob(t.Context(), &fermatav1.UpdateJobRequest{
		Job:        &fermatav1.Job{Name: name("a"), Queue: "other"},
		UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"queue"}}, RequestId: "r1",
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.DeleteJob(t.Context(), &fermatav1.DeleteJobRequest{Name: name("a")}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.DeleteJob(t.Context(), &fermatav1.DeleteJobRequest{Name: name("a")}); status.Code(err) != codes.NotFound {
		t.Fatal(err)
	}
	if err := n.Stop(t.Context()); err != nil { // which writes what is in line
		t.Fatal(err)
	}
	n = startWith(t, redis.URL(), "second", func(*node.Config) {})
	cluster := fermatav1.NewClusterServiceClient(connect(t, n))
	page, err := cluster.ListAuditRecords(t.Context(), &fermatav1.ListAuditRecordsRequest{Resource: name("a")})
	if err != nil || len(page.GetRecords()) != 3 {
		t.Fatalf("%v (%v)", page, err)
	}
	deleted, updated, created := page.GetRecords()[0], page.GetRecords()[1], page.GetRecords()[2]
	if !strings.HasSuffix(deleted.GetMethod(), "/DeleteJob") || updated.GetRequestId() != "r1" ||
		updated.GetChangedFields()[0] != "queue" ||
		created.GetNode() != "first" || created.GetIdentity() != "anonymous" ||
		!strings.HasPrefix(created.GetPeer(), "127.0.0.1:") || created.GetTime().AsTime().IsZero() {
		t.Errorf("records %v", page.GetRecords())
	}
	if len(created.GetBeforeDigest()) != 0 || !bytes.Equal(created.GetAfterDigest(), updated.GetBeforeDigest()) ||
		!bytes.Equal(updated.GetAfterDigest(), deleted.GetBeforeDigest()) ||
		bytes.Equal(updated.GetBeforeDigest(), updated.GetAfterDigest()) {
		t.Error("the digests do not follow one another")
	}
	text := fmt.Sprint(redis.Client().XRange(t.Context(), "fermata:{meta}:audit", "-", "+").Val())
	if strings.Contains(text, "canary") {
		t.Error("the records hold a payload")
	}
	rest, err := cluster.ListAuditRecords(t.Context(),
		&fermatav1.ListAuditRecordsRequest{PageSize: 1, PageToken: deleted.GetId()})
	if err != nil || len(rest.GetRecords()) != 1 || rest.GetRecords()[0].GetId() != updated.GetId() {
		t.Errorf("the page after the first record: %v (%v)", rest, err)
	}
	if _, err := cluster.ListAuditRecords(t.Context(),
		&fermatav1.ListAuditRecordsRequest{PageToken: "+"}); status.Code(err) != codes.InvalidArgument {
		t.Errorf("odd page token: %v", err)
	}
}

// TestEachRightIsNeeded takes one right away at a time: a node does not start, and
// says which it lacks and where to read about it.
func TestEachRightIsNeeded(t *testing.T) {
	redis := redistest.Start(t, redistest.WithACL("default off"))
	for _, command := range append(redisacl.ScriptCommands(), "info", "evalsha", "fcall", "eval", "hscan") {
		functions := command == "fcall"
		rules := redisacl.User("lacking", redisacl.HashPassword("pw"),
			redisacl.UserRules("fermata", functions)+" -"+command)
		var args []any
		for _, word := range append([]string{"acl", "setuser"}, strings.Fields(rules)[1:]...) {
			args = append(args, word)
		}
		if err := redis.Client().Do(t.Context(), args...).Err(); err != nil {
			t.Fatal(err)
		}
		_, err := tryStart(t, "redis://lacking:pw@"+redis.Addr(), "n",
			func(c *node.Config) { c.RedisFunctions = functions })
		if err == nil || !strings.Contains(err.Error(), "ACL SETUSER lacking +"+command+"`") ||
			!strings.Contains(err.Error(), redisacl.Doc) {
			t.Errorf("without %s: %v", command, err)
		}
	}
}

// lackingUser is a Redis user with all rights of the nodes, some of which a test takes away.
type lackingUser struct {
	t     *testing.T
	redis *redistest.Server
}

func newLackingUser(t *testing.T) lackingUser {
	t.Helper()
	u := lackingUser{t, redistest.Start(t, redistest.WithACL("default off"))}
	u.change("reset on #" + redisacl.HashPassword("pw") + " " + redisacl.UserRules("fermata", false))
	return u
}

func (u lackingUser) url() string { return "redis://lacking:pw@" + u.redis.Addr() }

func (u lackingUser) change(rules string) {
	u.t.Helper()
	args := []any{"acl", "setuser", "lacking"}
	for _, word := range strings.Fields(rules) {
		args = append(args, word)
	}
	if err := u.redis.Client().Do(u.t.Context(), args...).Err(); err != nil {
		u.t.Fatal(err)
	}
}

// TestRightsThatAreTakenAway while a node runs: it is not ready then and names the command and the rule, and ready
// when it has the right again.
func TestRightsThatAreTakenAway(t *testing.T) {
	u := newLackingUser(t)
	n := start(t, u.url(), "n")
	redistest.Eventually(t, redistest.Patience, "the node is ready", func(ctx context.Context) error {
		if missing := n.Missing(ctx); len(missing) > 0 {
			return fmt.Errorf("%q", missing)
		}
		return nil
	})
	for _, command := range []string{"zadd", "hget", "hmget", "eval", "evalsha", "info", "hscan", "ping"} {
		u.change("-" + command)
		missing := strings.Join(n.Missing(t.Context()), "; ")
		if !strings.Contains(missing, "ACL SETUSER lacking +"+command+"`") || !strings.Contains(missing, redisacl.Doc) {
			t.Errorf("without %s: %q", command, missing)
		}
		u.change("+" + command)
		if missing := n.Missing(t.Context()); len(missing) != 0 {
			t.Errorf("with %s again: %q", command, missing)
		}
	}
	u.change("resetkeys")
	if missing := strings.Join(n.Missing(t.Context()), "; "); !strings.Contains(missing,
		"ACL SETUSER lacking ~fermata:{*`") {
		t.Errorf("without keys: %q", missing)
	}
	u.change("~fermata:{*")
}

// TestRefusalsAreLookedInto: a command that Redis refuses makes the node look at its rights with the next tick, and
// not only twice a minute.
func TestRefusalsAreLookedInto(t *testing.T) {
	t.Parallel()
	u := newLackingUser(t)
	n := start(t, u.url(), "n")
	says := func(what string, code int, text string) {
		t.Helper()
		redistest.Eventually(t, 20*time.Second, what, func(context.Context) error {
			answer, err := http.Get("http://" + n.HTTPAddr() + "/readyz")
			if err != nil {
				return err
			}
			defer answer.Body.Close()
			if body, _ := io.ReadAll(answer.Body); answer.StatusCode != code || !strings.Contains(string(body), text) {
				return fmt.Errorf("%s: %s", answer.Status, body)
			}
			return nil
		})
	}
	says("the node is ready", http.StatusOK, "")
	u.change("-zadd")
	c := jobs(t, n)
	if _, err := c.CreateJob(t.Context(), &fermatav1.CreateJobRequest{Parent: "namespaces/default", JobId: "refused",
		Job: intervalJob(time.Hour, "ok")}); err == nil {
		t.Error("a job was created without the right to")
	}
	says("the refusal was looked into", http.StatusServiceUnavailable, "ACL SETUSER lacking +zadd`")
	u.change("+zadd")
	says("the right is back", http.StatusOK, "")
}

// TestLimitOfBytesByAnEarlierGrant: a node that may not run the command of a census starts, and says
// which rule gives it the right. With it the count comes.
func TestLimitOfBytesByAnEarlierGrant(t *testing.T) {
	t.Parallel()
	u := newLackingUser(t)
	u.change("-hstrlen")
	if _, err := jobs(t, start(t, u.url(), "before")).CreateJob(t.Context(), &fermatav1.CreateJobRequest{
		Parent: "namespaces/default", JobId: "there", Job: intervalJob(time.Hour, "h"),
	}); err != nil {
		t.Fatal(err)
	}
	log := &lines{}
	n := startWith(t, u.url(), "n", func(c *node.Config) {
		c.NamespaceJobBytes, c.Logger = 1<<20, log.logger()
	})
	if log.count("limits go by the last count") == 0 || log.count("ACL SETUSER lacking +hstrlen`") == 0 {
		t.Error("the log does not say what is missing")
	}
	redistest.Eventually(t, redistest.Patience, "the node is ready", func(ctx context.Context) error {
		if missing := n.Missing(ctx); len(missing) > 0 {
			return fmt.Errorf("%q", missing)
		}
		return nil
	})
	u.change("+hstrlen")
	redistest.Eventually(t, redistest.Patience, "a census", func(ctx context.Context) error {
		if n, err := u.redis.Client().HGet(ctx, "fermata:{meta}:bytes", "default").Int(); err != nil || n == 0 {
			return fmt.Errorf("%d bytes: %w", n, err)
		}
		return nil
	})
}
