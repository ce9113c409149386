package node_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/sharding"
	"github.com/fermata-io/fermata/internal/core/unixtime"
	"github.com/fermata-io/fermata/internal/node"
	"github.com/fermata-io/fermata/internal/redis/redisstore"
	"github.com/fermata-io/fermata/internal/test/redistest"
	storagev1 "github.com/fermata-io/fermata/proto/fermata/storage/v1"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
	"github.com/fermata-io/fermata/worker"
)

// redisWriter is somebody who can write to the Redis of a cluster with one shard.
type redisWriter struct {
	t     *testing.T
	redis *redistest.Server
}

func (w redisWriter) key(part string) string { return "fermata:{" + sharding.Tags(1)[0] + "}:" + part }

func (w redisWriter) read(id string) string {
	w.t.Helper()
	text, err := w.redis.Client().HGet(w.t.Context(), w.key("def"), "default/"+id).Result()
	if err != nil {
		w.t.Fatal(err)
	}
	return text
}

func (w redisWriter) write(id, text string) {
	w.t.Helper()
	if err := w.redis.Client().HSet(w.t.Context(), w.key("def"), "default/"+id, text).Err(); err != nil {
		w.t.Fatal(err)
	}
}

// change changes the stored definition of a job.
func (w redisWriter) change(id string, change func(*storagev1.Definition)) {
	w.t.Helper()
	var d storagev1.Definition
	if err := proto.Unmarshal([]byte(w.read(id)), &d); err != nil {
		w.t.Fatal(err)
	}
	change(&d)
	text, err := proto.Marshal(&d)
	if err != nil {
		w.t.Fatal(err)
	}
	w.write(id, string(text))
}

// makeDue puts a record into a lane, due now, whatever its job says.
func (w redisWriter) makeDue(record, lane string) {
	w.t.Helper()
	for key, member := range map[string]string{w.key("l:" + lane): record, w.key("lanes"): lane} {
		if err := w.redis.Client().Do(w.t.Context(), "zadd", key, time.Now().UnixMilli(), member).Err(); err != nil {
			w.t.Fatal(err)
		}
	}
}

// delivery is what a worker was given.
type delivery struct{ queue, job, payload string }

// workersOf runs a worker for each queue that notes what it is given.
func workersOf(t *testing.T, n *node.Node, queues ...string) <-chan delivery {
	t.Helper()
	got := make(chan delivery, 100)
	for _, queue := range queues {
		note := func(_ context.Context, task *worker.Task) error {
			got <- delivery{queue, task.Job, string(task.Payload)}
			return nil
		}
		workWith(t, worker.Options{Addresses: []string{n.GRPCAddr()}, Queues: []string{queue}, Slots: 2},
			map[string]func(context.Context, *worker.Task) error{"send": note, "exec": note})
	}
	return got
}

func keyFile(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "keys")
	if err := os.WriteFile(path, []byte(keyLine(keyOne, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func mailJob(payload string) *fermatav1.Job {
	return &fermatav1.Job{Handler: "send", Queue: "mail", Payload: []byte(payload),
		Labels: map[string]string{"tenant": "a"}}
}

// TestWhoWritesToRedisMakesUpNoPayload: on nodes that require sealed payloads, whoever writes to
// Redis gets no payload to a worker that nobody gave to that job, queue and handler.
func TestWhoWritesToRedisMakesUpNoPayload(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	w := redisWriter{t, redis}
	n := startWith(t, redis.URL(), "strict", func(c *node.Config) {
		c.Shards, c.PayloadKeyFile, c.PayloadRequireSealed = 1, keyFile(t), true
	})
	got := workersOf(t, n, "mail", "bulk")
	c := jobs(t, n)
	create(t, c, "other", mailJob("of the other"))
	other := w.read("other")
	attacks := map[string]func(*storagev1.Definition){
		"plain":        func(d *storagev1.Definition) { d.Payload, d.PayloadKey = []byte("made up"), "" },
		"plain-by-key": func(d *storagev1.Definition) { d.Payload = []byte("made up") },
		"empty":        func(d *storagev1.Definition) { d.Payload, d.PayloadKey = nil, "" },
		"empty-by-key": func(d *storagev1.Definition) { d.Payload = nil },
		"queue":        func(d *storagev1.Definition) { d.Queue = "bulk" },
		"handler":      func(d *storagev1.Definition) { d.Handler = "exec" },
		"labels":       func(d *storagev1.Definition) { d.Labels = map[string]string{"tenant": "b"} },
		"timeout":      func(d *storagev1.Definition) { d.TimeoutMs = 86_400_000; d.Usual = 0 },
		"version":      func(d *storagev1.Definition) { d.Payload = append([]byte{1}, d.Payload[1:]...) },
		"bit":          func(d *storagev1.Definition) { d.Payload[20] ^= 1 },
		"cut":          func(d *storagev1.Definition) { d.Payload = d.Payload[:10] },
		"key-id":       func(d *storagev1.Definition) { d.PayloadKey = "k2" },
		"of-another":   nil,
		"made-up-queue": func(d *storagev1.Definition) {
			d.Payload, d.PayloadKey, d.Queue = []byte("made up"), "",
				"bulk"
		},
	}
	for id, change := range attacks {
		create(t, c, id, mailJob("secret"))
		if change == nil {
			w.write(id, other)
		} else {
			w.change(id, change)
		}
		if _, err := c.RunJob(t.Context(), &fermatav1.RunJobRequest{Name: name(id)}); err != nil {
			t.Fatal(err)
		}
	}
	for id := range attacks {
		redistest.Eventually(t, redistest.Patience, id+" is held back", func(ctx context.Context) error {
			e, err := c.ExplainJob(ctx, &fermatav1.ExplainJobRequest{Name: name(id)})
			if err != nil || slices.ContainsFunc(e.GetReasons(),
				func(r *fermatav1.Reason) bool { return r.GetKind() == fermatav1.Reason_KIND_PAYLOAD }) {
				return err
			}
			return fmt.Errorf("reasons %v", e.GetReasons())
		})
	}
	for id := range attacks { // a new payload is not sealed for what the attacker wrote
		_, err := c.UpdateJob(t.Context(), &fermatav1.UpdateJobRequest{
			Job:        &fermatav1.Job{Name: name(id), Payload: []byte("given anew")},
			UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"payload"}},
		})
		_, err2 := c.RunJobWithPayload(t.Context(), &fermatav1.RunJobWithPayloadRequest{
			Name: name(id), Payload: []byte("given anew"),
		})
		if status.Code(err) != codes.FailedPrecondition || status.Code(err2) != codes.FailedPrecondition {
			t.Errorf("%s: %v, %v", id, err, err2)
		}
	}
	// Whoever may edit the job mends it by a whole definition, and nothing else was broken.
	whole := mailJob("given anew")
	whole.Name = name("plain")
	if _, err := c.UpdateJob(t.Context(), &fermatav1.UpdateJobRequest{
		Job: whole, UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"*"}},
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.RunJob(t.Context(), &fermatav1.RunJobRequest{Name: name("other")}); err != nil {
		t.Fatal(err)
	}
	missing := map[delivery]bool{{"mail", "other", "of the other"}: true, {"mail", "plain", "given anew"}: true}
	for len(missing) > 0 {
		d := <-got
		if !missing[d] {
			t.Fatalf("a worker was given %+v", d)
		}
		delete(missing, d)
	}
}

// TestWhoWritesToRedisMovesNoPayload: a record in the lane of another queue is not handed to the
// workers of that one.
func TestWhoWritesToRedisMovesNoPayload(t *testing.T) {
	for name, keys := range map[string]string{"sealed": keyFile(t), "plain": ""} {
		t.Run(name, func(t *testing.T) { moveRecordOfPayload(t, keys) })
	}
}

// moveRecordOfPayload puts a record into the lane of another queue, at a node with or without payload keys.
func moveRecordOfPayload(t *testing.T, keys string) {
	redis, metrics := redistest.Start(t), prometheus.NewRegistry()
	w := redisWriter{t, redis}
	n := startWith(t, redis.URL(), "sealing", func(c *node.Config) {
		c.Shards, c.PayloadKeyFile, c.Registerer, c.Gatherer = 1, keys, metrics, metrics
	})
	got := workersOf(t, n, "bulk")
	c := jobs(t, n)
	create(t, c, "moved", mailJob("secret"))
	create(t, c, "bulk", &fermatav1.Job{Handler: "send", Queue: "bulk"})
	if _, err := c.RunJob(t.Context(), &fermatav1.RunJobRequest{Name: name("moved")}); err != nil { // there is no worker for it
		t.Fatal(err)
	}
	state := w.redis.Client().HGet(t.Context(), w.key("st"), "default/moved").Val()
	forged := strings.Replace(state, "4:mail", "4:bulk", 1)
	if forged == state {
		t.Fatalf("state %q names no queue", state)
	}
	w.redis.Client().HSet(t.Context(), w.key("st"), "default/moved", forged)
	w.makeDue("default/moved", "default/bulk/5")
	redistest.Eventually(t, redistest.Patience, "the record is put back", func(context.Context) error {
		if heldBack(t, metrics, job.HeldPayload.String()) == 0 {
			return fmt.Errorf("it was not leased")
		}
		return nil
	})
	if _, err := c.RunJob(t.Context(), &fermatav1.RunJobRequest{Name: name("bulk")}); err != nil {
		t.Fatal(err)
	}
	if d := <-got; d.job != "bulk" {
		t.Errorf("a worker of another queue was given %+v", d)
	}
}

// heldBack is how many runs the gates have held back for a reason.
func heldBack(t *testing.T, metrics *prometheus.Registry, reason string) (n float64) {
	t.Helper()
	families, err := metrics.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == "fermata_admission_held_total" && m.GetLabel()[0].GetValue() == reason {
				n += m.GetCounter().GetValue()
			}
		}
	}
	return n
}

// TestWhoWritesToRedisRepeatsPayloads states what sealing does not keep from event: a
// payload that the same job had before runs again, with the queue and handler that it had.
func TestWhoWritesToRedisRepeatsPayloads(t *testing.T) {
	redis := redistest.Start(t)
	w := redisWriter{t, redis}
	n := startWith(t, redis.URL(), "strict", func(c *node.Config) {
		c.Shards, c.PayloadKeyFile, c.PayloadRequireSealed = 1, keyFile(t), true
	})
	got := workersOf(t, n, "mail", "bulk")
	c := jobs(t, n)
	create(t, c, "a", mailJob("first"))
	before := w.read("a")
	if _, err := c.UpdateJob(t.Context(), &fermatav1.UpdateJobRequest{
		Job: &fermatav1.Job{Name: name("a"), Payload: []byte("second"), Queue: "bulk",
			Timeout: durationpb.New(time.Minute)},
		UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"payload", "queue", "timeout"}},
	}); err != nil {
		t.Fatal(err)
	}
	for i, want := range []delivery{{"bulk", "a", "second"}, {"mail", "a", "first"}} {
		if _, err := c.RunJob(t.Context(), &fermatav1.RunJobRequest{Name: name("a"),
			RequestId: fmt.Sprint("r", i)}); err != nil {
			t.Fatal(err)
		}
		if d := <-got; d != want {
			t.Errorf("%+v, want %+v", d, want)
		}
		redistest.Eventually(t, redistest.Patience, "the end of the run", func(ctx context.Context) error {
			j, err := c.GetJob(ctx, &fermatav1.GetJobRequest{Name: name("a")})
			if err == nil && j.GetStatus().GetSucceededTotal() != int64(i+1) {
				err = fmt.Errorf("%d runs", j.GetStatus().GetSucceededTotal())
			}
			return err
		})
		w.write("a", before)
	}
}

// TestKeyspaceDecidesHowPayloadsAreSealed: as long as older nodes may be there, payloads are
// sealed as those have it, and by version 2 once the schema is raised.
func TestKeyspaceDecidesHowPayloadsAreSealed(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	w := redisWriter{t, redis}
	schema := func(version int) {
		t.Helper()
		if err := redis.Client().HSet(t.Context(), "fermata:{meta}", "schema", version).Err(); err != nil {
			t.Fatal(err)
		}
	}
	path := keyFile(t)
	first := startWith(t, redis.URL(), "first", func(c *node.Config) { c.Shards = 1 })
	schema(redisstore.SchemaOfBoundPayloads - 1)
	strict := func(c *node.Config) { c.Shards, c.PayloadKeyFile, c.PayloadRequireSealed = 1, path, true }
	if _, err := tryStart(t, redis.URL(), "strict", strict); err == nil ||
		!strings.Contains(err.Error(), "schema of the keyspace is 3") {
		t.Errorf("a node that requires what older nodes do not know: %v", err)
	}
	if err := first.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	n := startWith(t, redis.URL(), "sealing", func(c *node.Config) { c.Shards, c.PayloadKeyFile = 1, path })
	c, made := jobs(t, n), 0
	version := func() byte {
		t.Helper()
		made++
		id := fmt.Sprint("job-", made)
		create(t, c, id, mailJob("secret"))
		var d storagev1.Definition
		if err := proto.Unmarshal([]byte(w.read(id)), &d); err != nil ||
			bytes.Contains(d.GetPayload(), []byte("secret")) {
			t.Fatalf("%q, %v", d.GetPayload(), err)
		}
		return d.GetPayload()[0]
	}
	if v := version(); v != job.SealOfJob {
		t.Errorf("version %d in a keyspace of an older schema", v)
	}
	schema(redisstore.SchemaOfBoundPayloads)
	redistest.Eventually(t, redistest.Patience, "the raised schema", func(context.Context) error {
		if v := version(); v != job.SealOfWork {
			return fmt.Errorf("version %d", v)
		}
		return nil
	})
	got := workersOf(t, n, "mail")
	if _, err := c.RunJob(t.Context(), &fermatav1.RunJobRequest{Name: name("job-1")}); err != nil {
		t.Fatal(err)
	}
	if d := <-got; d.payload != "secret" {
		t.Errorf("of version 1 a worker was given %+v", d)
	}
}

// TestRequiringSealedPayloadsNeedsKeys: else nothing could run, nor be created.
func TestRequiringSealedPayloadsNeedsKeys(t *testing.T) {
	_, err := node.New(node.Config{Name: "a", PayloadRequireSealed: true})
	if err == nil || !strings.Contains(err.Error(), "--payload-require-sealed needs --payload-key-file") {
		t.Errorf("without keys: %v", err)
	}
}

// TestForgedRenameSealsNoPayload: whoever writes to Redis leaves the entries of a rename that nobody asked for. No node
// seals the payload for the other job. A rename that somebody asked for moves it.
func TestForgedRenameSealsNoPayload(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	w := redisWriter{t, redis}
	n := startWith(t, redis.URL(), "strict", func(c *node.Config) {
		c.Shards, c.PayloadKeyFile, c.PayloadRequireSealed = 1, keyFile(t), true
	})
	got := workersOf(t, n, "mail")
	c := jobs(t, n)
	s, err := redisstore.Open(t.Context(), redisstore.Options{Client: redis.Client(), Shards: 1, AllowUnsafe: true})
	if err != nil {
		t.Fatal(err)
	}
	for i, signature := range []string{"", "AAAAAAAAAAAAAAAAAAAAAAAAAA", "no signature"} {
		from := job.Key{Namespace: "default", ID: fmt.Sprint("secret-", i)}
		to := job.Key{Namespace: "default", ID: fmt.Sprint("other-", i)}
		create(t, c, from.ID, mailJob("of the secret"))
		stored, err := s.ReadStoredJob(t.Context(), from)
		if err != nil {
			t.Fatal(err)
		}
		kept := &job.KeptJob{Rename: job.Rename{ID: fmt.Sprint("FORGED", i), From: from, To: to},
			AtMS: unixtime.MilliOf(time.Now()), Job: *stored, Signature: signature}
		_, _, err = s.ReserveName(t.Context(), kept.Rename, &stored.Records[0].Record, kept.AtMS)
		taken := false
		if err == nil {
			taken, err = s.TakeJob(t.Context(), kept, kept.AtMS)
		}
		if err != nil || !taken {
			t.Fatalf("the rename could not be forged: %v, %v", taken, err)
		}
		_, err = c.GetJob(t.Context(), &fermatav1.GetJobRequest{Name: name(to.ID)})
		if status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), "has taken it for this rename") {
			t.Errorf("the job of a rename with the signature %q: %v", signature, err)
		}
	}
	create(t, c, "before", mailJob("renamed"))
	if _, err := c.RenameJob(t.Context(), &fermatav1.RenameJobRequest{Name: name("before"), NewId: "after"}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.RunJob(t.Context(), &fermatav1.RunJobRequest{Name: name("after")}); err != nil {
		t.Fatal(err)
	}
	if d := <-got; d != (delivery{"mail", "after", "renamed"}) {
		t.Errorf("a worker was given %+v", d)
	}
	if w.read("after") == "" {
		t.Error("the renamed job is not stored")
	}
}
