package acceptance

import (
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.opentelemetry.io/otel/trace"

	"github.com/fermata-io/fermata/client"
	"github.com/fermata-io/fermata/internal/test/redistest"
)

// traceBed is a cluster of one node with a worker, and what their requests reach.
type traceBed struct {
	*cluster
	t      *testing.T
	node   *schedulerNode
	client *client.Client
	target string
	hits   chan http.Header
}

// newTraceBed starts one that sends spans there, unless endpoint is empty. The flags are
// the node's.
func newTraceBed(t *testing.T, server *redistest.Server, endpoint string, flags ...string) *traceBed {
	t.Helper()
	work := []string{"--http-allow", "127.0.0.0/8", "--log-format", "json"}
	if endpoint != "" {
		flags, work = append(flags, "--trace-endpoint", endpoint), append(work, "--trace-endpoint", endpoint)
	}
	b := &traceBed{cluster: newCluster(t, server.URL()), t: t, hits: make(chan http.Header, 100)}
	quick := []string{"OTEL_BSP_SCHEDULE_DELAY=50"}
	b.node = b.startAs("a", "", quick, flags...)
	b.awaitSettled()
	target := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, q *http.Request) { b.hits <- q.Header }))
	t.Cleanup(target.Close)
	b.target = target.URL
	startProcess(t, "worker", quick, commandPath(t, "worker"), append(work, "--scheduler", b.node.grpc)...)
	var err error
	if b.client, err = client.Dial([]string{b.node.grpc}, client.Options{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.client.Close() })
	return b
}

// tracedContext is a context in the span that this header names.
func tracedContext(t *testing.T, traceparent string) (ctx context.Context, traceID, spanID string) {
	t.Helper()
	parts := strings.Split(traceparent, "-")
	id, err1 := trace.TraceIDFromHex(parts[1])
	span, err2 := trace.SpanIDFromHex(parts[2])
	state, err3 := trace.ParseTraceState("vendor=x")
	if err1 != nil || err2 != nil || err3 != nil {
		t.Fatal(err1, err2, err3)
	}
	return trace.ContextWithRemoteSpanContext(t.Context(), trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: id, SpanID: span, TraceFlags: trace.FlagsSampled, TraceState: state,
	})), parts[1], parts[2]
}

// awaitHit is what the target was asked next: the trace, the span, and the tracestate.
func (b *traceBed) awaitHit() (traceID, spanID, state string) {
	b.t.Helper()
	select {
	case h := <-b.hits:
		parts := strings.Split(h.Get("Traceparent"), "-")
		if len(parts) != 4 {
			return "", "", ""
		}
		return parts[1], parts[2], h.Get("Tracestate")
	case <-time.After(patience):
		b.t.Fatal("the target was not asked")
		return "", "", ""
	}
}

func (b *traceBed) newTracedJob(schedule *client.Schedule) *client.Job {
	return &client.Job{Handler: "http", Payload: client.HTTPRequest{URL: b.target}.Payload(), Schedule: schedule}
}

// TestTracePropagation follows runs from the calls that asked for them to the requests
// of their handlers: across scheduler, Redis and worker, in the spans that a collector
// has of both processes.
func TestTracePropagation(t *testing.T) {
	runBesideOthers(t)
	spans := newCollector(t)
	b := newTraceBed(t, newRedis(t), spans.endpoint)

	// A run by the schedule is a trace of its own, linked to its registration.
	ctx, callerTrace, callerSpan := tracedContext(t, "00-11111111111111111111111111111111-2222222222222222-01")
	if _, err := b.client.CreateJob(ctx, "once", b.newTracedJob(client.Once(time.Now()))); err != nil {
		t.Fatal(err)
	}
	runTrace, requestSpan, _ := b.awaitHit()
	if runTrace == "" || runTrace == callerTrace {
		t.Fatalf("the request of the run is in trace %q, its registration in %s", runTrace, callerTrace)
	}
	create := spans.awaitSpan(t, callerTrace, "fermata.v1.JobService/CreateJob")
	run := spans.awaitSpan(t, runTrace, "run http")
	attempt := spans.awaitSpan(t, runTrace, "attempt http")
	handle := spans.awaitSpan(t, runTrace, "handle http")
	request := spans.awaitSpan(t, runTrace, "GET")
	for _, c := range []struct{ what, have, want string }{
		{"parent of the call", create.parentID(), callerSpan},
		{"parent of the run", run.parentID(), ""},
		{"parent of the attempt", attempt.parentID(), run.spanID()},
		{"parent of the handler", handle.parentID(), attempt.spanID()},
		{"parent of the request", request.parentID(), handle.spanID()},
		{"span that the target was told", requestSpan, request.spanID()},
		{"service of the run", run.service, "fermata-scheduler"},
		{"service of the handler", handle.service, "fermata-worker"},
	} {
		if c.have != c.want {
			t.Errorf("%s is %q, want %q", c.what, c.have, c.want)
		}
	}
	if links := run.GetLinks(); len(links) != 1 || hex.EncodeToString(links[0].GetTraceId()) != callerTrace ||
		hex.EncodeToString(links[0].GetSpanId()) != create.spanID() {
		t.Errorf("the run is linked to %v, want its registration", links)
	}
	for name, want := range map[string]string{
		"fermata.namespace": `"default"`, "fermata.queue": `"default"`, "fermata.job": `"once"`, "fermata.handler": `"http"`,
		"fermata.trigger": `"schedule"`, "fermata.outcome": `"succeeded"`, "fermata.attempts": "1",
	} {
		if have := run.attributeText(name); have != want {
			t.Errorf("%s of the run is %s, want %s", name, have, want)
		}
	}
	for _, name := range []string{"fermata.run", "fermata.correlation_id", "fermata.lag_seconds", "fermata.due_time"} {
		if run.attributeText(name) == "" {
			t.Errorf("the run has no %s", name)
		}
	}
	var steps []string
	for _, e := range attempt.GetEvents() {
		steps = append(steps, e.GetName())
	}
	if have := strings.Join(steps, " "); have != "leased started settled" {
		t.Errorf("the attempt's span has %q", have)
	}
	b.checkRunTrace("once", "", runTrace)
	for what, text := range map[string]string{
		"exported spans": `fermata_trace_spans_exported_total{result="sent"}`, "an exemplar of a histogram": fmt.Sprintf("trace_id=%q", runTrace),
	} {
		redistest.Eventually(t, patience, what, func() error { // the answer to the exporter is on its way
			if !strings.Contains(b.scrapeMetrics(), text) {
				return fmt.Errorf("there is no %s", text)
			}
			return nil
		})
	}

	// A manual run is a child of its caller, whether it takes the job's place or is a
	// record of its own, and whoever calls.
	if _, err := b.client.CreateJob(t.Context(), "hourly", b.newTracedJob(client.Every(time.Hour))); err != nil {
		t.Fatal(err)
	}
	for i, mode := range []client.RunOptions{{}, {Backoff: client.KeepBackoff}} {
		ctx, callerTrace, _ := tracedContext(t, fmt.Sprintf("00-3333333333333333333333333333333%d-4444444444444444-01", i))
		asked, _, err := b.client.RunJob(ctx, "hourly", mode)
		if err != nil {
			t.Fatal(err)
		}
		if asked.GetTraceId() != callerTrace {
			t.Errorf("the caller gets trace %q, which is its own %s", asked.GetTraceId(), callerTrace)
		}
		if runTrace, _, state := b.awaitHit(); runTrace != callerTrace || state != "vendor=x" {
			t.Errorf("manual run: its request is in trace %s (%s), that of its caller is %s", runTrace, state, callerTrace)
		}
		call := spans.awaitSpan(t, callerTrace, "fermata.v1.JobService/RunJob")
		run := spans.awaitSpan(t, callerTrace, "run http")
		if run.parentID() != call.spanID() || run.attributeText("fermata.trigger") != `"manual"` {
			t.Errorf("manual run: %v is not a child of the call", run)
		}
		b.checkRunTrace("hourly", client.RunID(asked), callerTrace)
	}
	env := []string{"TRACEPARENT=00-55555555555555555555555555555555-6666666666666666-01"}
	if code, out := personIn(t, env, "--address", b.node.grpc, "--trace-endpoint", spans.endpoint, "jobs", "run", "hourly"); code != 0 {
		t.Fatal(out)
	}
	if runTrace, _, _ := b.awaitHit(); runTrace != "55555555555555555555555555555555" {
		t.Errorf("the command's run is in trace %s", runTrace)
	}
	command := spans.awaitSpan(t, "55555555555555555555555555555555", "fermata jobs run")
	if call := spans.awaitSpan(t, "55555555555555555555555555555555", "fermata.v1.JobService/RunJob"); call.parentID() != command.spanID() || command.parentID() != "6666666666666666" {
		t.Errorf("the command's span is %v, the call's %v", command, call)
	}
}

// TestLogLevelChangesWhileProcessesRun: of a node and a worker, by the command, and back
// by itself. A job that fails in a loop does not fill the log meanwhile.
func TestLogLevelChangesWhileProcessesRun(t *testing.T) {
	runBesideOthers(t)
	b := newTraceBed(t, newRedis(t), "", "--log-repeat-limit", "2")
	level := func(want string, args ...string) {
		t.Helper()
		code, out := runAsPerson(t, append([]string{"log-level", "--http-address", b.node.http}, args...)...)
		if code != 0 || !strings.HasPrefix(out, want) {
			t.Fatalf("exit code %d: %s", code, out)
		}
	}
	level("info\n")
	level("debug until ", "debug", "--for", "1h")
	if _, err := b.client.CreateJob(t.Context(), "noted", b.newTracedJob(client.Once(time.Now()))); err != nil {
		t.Fatal(err)
	}
	b.node.awaitLog(patience, "run_succeeded")
	level("error\n", "error")
	level("warn\n", "warn")
	level("warn\n")
	if code, out := runAsPerson(t, "log-level", "--http-address", b.node.http, "loud"); code != 2 || !strings.Contains(out, "want debug, info, warn or error") {
		t.Errorf("exit code %d: %s", code, out)
	}

	failing := &client.Job{Handler: "no-such-handler", Payload: []byte("{}"), RetryPolicy: &client.RetryPolicy{MaxAttempts: 1}}
	if _, err := b.client.CreateJob(t.Context(), "fails", failing); err != nil {
		t.Fatal(err)
	}
	const runs = 12
	for range runs {
		run, _, err := b.client.RunJob(t.Context(), "fails", client.RunOptions{})
		if err != nil {
			t.Fatal(err)
		}
		redistest.Eventually(t, patience, "the run ends", func() error {
			run, err := b.client.GetRun(t.Context(), run.GetName())
			if err == nil && run.GetFinishTime() == nil {
				err = fmt.Errorf("it is %v", run.GetState())
			}
			return err
		})
	}
	left := b.node.awaitLog(patience, "log lines left out")
	if left["message"] != "run_dead" {
		t.Errorf("left out: %v", left)
	}
	if n := b.node.countLogged(`"msg":"run_dead"`); n < 2 || n >= runs {
		t.Errorf("%d of %d runs that failed are logged", n, runs)
	}
}

// scrapeMetrics is what the node serves to Prometheus, in the format that has exemplars.
func (b *traceBed) scrapeMetrics() string {
	b.t.Helper()
	q, err := http.NewRequestWithContext(b.t.Context(), http.MethodGet, "http://"+b.node.http+"/metrics", nil)
	if err != nil {
		b.t.Fatal(err)
	}
	q.Header.Set("Accept", "application/openmetrics-text; version=1.0.0")
	a, err := http.DefaultClient.Do(q)
	if err != nil {
		b.t.Fatal(err)
	}
	defer a.Body.Close()
	text, err := io.ReadAll(a.Body)
	if err != nil {
		b.t.Fatal(err)
	}
	return string(text)
}

// TestUnsampledTraceIsKept gives a node a share of 0: runs are traced for
// those who ask, and no others. One that sends no traces stores and passes on none.
func TestUnsampledTraceIsKept(t *testing.T) {
	runBesideOthers(t)
	spans := newCollector(t)
	b := newTraceBed(t, newRedis(t), spans.endpoint, "--trace-sample", "0")
	if _, err := b.client.CreateJob(t.Context(), "plain", b.newTracedJob(client.Once(time.Now()))); err != nil {
		t.Fatal(err)
	}
	if runTrace, _, _ := b.awaitHit(); runTrace != "" {
		t.Errorf("a run without a traced request is in trace %s", runTrace)
	}
	ctx, _, _ := tracedContext(t, "00-11111111111111111111111111111111-2222222222222222-01")
	if _, err := b.client.CreateJob(ctx, "asked", b.newTracedJob(client.Once(time.Now()))); err != nil {
		t.Fatal(err)
	}
	runTrace, _, _ := b.awaitHit()
	spans.awaitSpan(t, runTrace, "run http")

	server := newRedis(t)
	b = newTraceBed(t, server, "")
	if _, err := b.client.CreateJob(ctx, "untraced", b.newTracedJob(client.Every(time.Hour))); err != nil {
		t.Fatal(err)
	}
	if _, _, err := b.client.RunJob(ctx, "untraced", client.RunOptions{}); err != nil {
		t.Fatal(err)
	}
	if runTrace, _, _ := b.awaitHit(); runTrace != "" {
		t.Errorf("a cluster that does not trace passes trace %s on", runTrace)
	}
	b.checkRunTrace("untraced", "", "")
	if strings.Contains(b.scrapeMetrics(), "fermata_trace_spans_total") {
		t.Error("a cluster that does not trace counts spans")
	}
	b.storesNothing(server.Client(), strings.Repeat("\x11", 16), strings.Repeat("1", 32))
}

// checkRunTrace compares the trace of a run of a job that has ended, any ("") or that of an id, with
// what the API returns.
func (b *traceBed) checkRunTrace(job, run, want string) {
	b.t.Helper()
	redistest.Eventually(b.t, 20*time.Second, "the run ends", func() error {
		runs, err := b.client.Runs(b.t.Context(), job)
		for _, r := range runs {
			if r.GetFinishTime() == nil || run != "" && client.RunID(r) != run {
				continue
			}
			if r.GetTraceId() != want || r.GetCorrelationId() == "" {
				b.t.Errorf("run %s of %s has trace %q, want %q", client.RunID(r), job, r.GetTraceId(), want)
			}
			return nil
		}
		return fmt.Errorf("%v, %w", runs, err)
	})
}

// storesNothing looks for texts in all that is stored of jobs.
func (b *traceBed) storesNothing(redis *redis.Client, texts ...string) {
	b.t.Helper()
	looked := 0
	for _, kind := range []string{"def", "st", "hist"} {
		keys, err := redis.Keys(b.t.Context(), "fermata:{*}:"+kind).Result()
		if err != nil {
			b.t.Fatal(err)
		}
		for _, key := range keys {
			fields, err := redis.HGetAll(b.t.Context(), key).Result()
			if err != nil {
				b.t.Fatal(err)
			}
			for record, stored := range fields {
				looked++
				for _, text := range texts {
					if strings.Contains(stored, text) {
						b.t.Errorf("%s of %s holds a trace context", kind, record)
					}
				}
			}
		}
	}
	if looked == 0 {
		b.t.Error("nothing is stored")
	}
}
