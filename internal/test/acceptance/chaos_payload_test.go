package acceptance

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/fermata-io/fermata/internal/test/redistest"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
	"github.com/fermata-io/fermata/worker"
)

const maxPayload = 256 << 10 // the default of --max-payload

// TestChaosPayloads sends what is too large, what is no text and what a later version
// might send. What fits arrives byte for byte; the rest is refused before it reaches
// Redis; and neither node nor worker falls over any of it.
func TestChaosPayloads(t *testing.T) {
	skipUnlessChosen(t, "T37")
	runBesideOthers(t)
	server := newRedis(t)
	c := newCluster(t, server.URL())
	n := c.startNode("a")
	c.awaitSettled()
	got := startPayloadWorker(t, n.grpc)

	fits := map[string][]byte{
		"empty":    {},
		"largest":  bytes.Repeat([]byte{0xff, 0x00, 0xc3, 0x28}, maxPayload/4),
		"no-utf-8": {0xff, 0xfe, 0x80, 0xc0},
	}
	for id, payload := range fits {
		n.createJob(id, payloadJob(payload))
	}
	for id, payload := range fits {
		got.awaitPayload(t, id, payload)
		redistest.Eventually(t, patience, id+" is settled", func() error {
			return wantStatus(n.getJob(id), func(s *fermatav1.JobStatus) bool { return s.GetState() == fermatav1.JobStatus_STATE_DONE })
		})
	}
	before := dumpKeyspace(t, server)
	refused := map[string]struct {
		code codes.Code
		err  error
	}{
		"one byte too many": {codes.InvalidArgument, n.tryCreateJob("x", payloadJob(make([]byte, maxPayload+1)))},
		"5 MiB":             {codes.InvalidArgument, n.tryCreateJob("x", payloadJob(make([]byte, 5<<20)))},
		"20 MiB":            {codes.ResourceExhausted, n.tryCreateJob("x", payloadJob(make([]byte, 20<<20)))},
		"10,000 labels":     {codes.InvalidArgument, n.tryCreateJob("x", manyLabels(10_000))},
		"handler no UTF-8":  {codes.Internal, n.sendRaw("x", []byte("payloads"), []byte("payl\xff\xfes"))},
	}
	for name, r := range refused {
		if status.Code(r.err) != r.code {
			t.Errorf("%s: %.200v, want %v", name, r.err, r.code)
		}
	}
	if after := dumpKeyspace(t, server); !slices.Equal(before, after) {
		t.Errorf("something of it was stored: %d records before, %d after", len(before), len(after))
	}
	// Fields that this version does not know are passed over.
	if err := n.sendRaw("later", nil, nil); err != nil {
		t.Errorf("fields of a later version: %v", err)
	}
	got.awaitPayload(t, "later", []byte("as ever"))
	// A payload that its handler cannot take ends as a dead run, and the worker lives.
	n.createJob("poison", payloadJob([]byte("poison")))
	redistest.Eventually(t, patience, "the poison is dead", func() error {
		return wantStatus(n.getJob("poison"), func(s *fermatav1.JobStatus) bool { return s.GetDeadTotal() == 1 })
	})
	n.createJob("after", payloadJob([]byte("still here")))
	got.awaitPayload(t, "after", []byte("still here"))
	redistest.Eventually(t, patience, "the output is stored", func() error {
		for _, r := range n.listRuns("after") {
			if len(r.GetOutput()) == worker.MaxOutput {
				return nil
			}
		}
		return errors.New("not in its length")
	})
	f := &figures{ID: "T37", Name: "payloads of all kinds", Faults: map[string]int{"refused": len(refused)}, Bound: calmLag}
	addFigures(f)
}

func payloadJob(payload []byte) *fermatav1.Job {
	j := newJob(behaviour{})
	j.Handler, j.Payload, j.Schedule = "payloads", payload, onceAt(time.Now())
	j.RetryPolicy = &fermatav1.RetryPolicy{MaxAttempts: 1}
	return j
}

func manyLabels(n int) *fermatav1.Job {
	j := payloadJob(nil)
	j.Labels = map[string]string{}
	for i := range n {
		j.Labels[fmt.Sprint("label-", i)] = "x"
	}
	return j
}

// tryCreateJob creates a job and returns the error.
func (n *schedulerNode) tryCreateJob(id string, j *fermatav1.Job) error {
	_, err := n.jobs.CreateJob(callContext(n.t), &fermatav1.CreateJobRequest{Parent: namespace, JobId: id, Job: j})
	return err
}

// sendRaw creates a job by a request that has unknown fields, and in which some bytes
// are replaced by as many others that this library would not send.
func (n *schedulerNode) sendRaw(id string, old, by []byte) error {
	n.t.Helper()
	j := payloadJob([]byte("as ever"))
	unknown := protowire.AppendTag(nil, 5000, protowire.BytesType)
	unknown = protowire.AppendString(unknown, strings.Repeat("of a later version ", 100))
	j.ProtoReflect().SetUnknown(unknown)
	request := &fermatav1.CreateJobRequest{Parent: namespace, JobId: id, Job: j}
	request.ProtoReflect().SetUnknown(unknown)
	text, err := proto.Marshal(request)
	if err != nil {
		n.t.Fatal(err)
	}
	if len(old) > 0 {
		text = bytes.ReplaceAll(text, old, by)
	}
	var reply []byte
	return n.conn.Invoke(callContext(n.t), fermatav1.JobService_CreateJob_FullMethodName, &text, &reply, grpc.ForceCodec(rawCodec{}))
}

// rawCodec sends bytes as they are.
type rawCodec struct{}

func (rawCodec) Name() string                  { return "proto" }
func (rawCodec) Marshal(v any) ([]byte, error) { return *v.(*[]byte), nil }
func (rawCodec) Unmarshal(b []byte, v any) error {
	*v.(*[]byte) = bytes.Clone(b)
	return nil
}

// payloadWorker notes what arrived, by job.
type payloadWorker struct {
	mu   sync.Mutex
	sums map[string][sha256.Size]byte
}

func startPayloadWorker(t testing.TB, addr string) *payloadWorker {
	t.Helper()
	w, err := worker.New(worker.Options{Addresses: []string{addr}, Queues: []string{"default"}, Slots: 4, ID: "w1"})
	if err != nil {
		t.Fatal(err)
	}
	p := &payloadWorker{sums: map[string][sha256.Size]byte{}}
	w.Handle("payloads", func(_ context.Context, task *worker.Task) error {
		if string(task.Payload) == "poison" {
			return worker.Permanent(errors.New("nobody expected this payload"))
		}
		task.SetOutput(make([]byte, 10<<20))
		p.mu.Lock()
		defer p.mu.Unlock()
		p.sums[task.Job] = sha256.Sum256(task.Payload)
		return nil
	})
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := w.Run(ctx); err != nil {
			t.Errorf("worker: %v", err)
		}
	})
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	return p
}

func (p *payloadWorker) awaitPayload(t testing.TB, id string, payload []byte) {
	t.Helper()
	redistest.Eventually(t, patience, id+" arrives", func() error {
		p.mu.Lock()
		defer p.mu.Unlock()
		sum, ran := p.sums[id]
		switch {
		case !ran:
			return errors.New("it has not")
		case sum != sha256.Sum256(payload):
			t.Fatalf("%s: other bytes arrived", id)
		}
		return nil
	})
}
