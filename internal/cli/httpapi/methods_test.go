package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/fermata-io/fermata/client"
	"github.com/fermata-io/fermata/internal/api/gateway"
	"github.com/fermata-io/fermata/internal/test/nodetest"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

var runner nodetest.Runner

func TestMain(m *testing.M) {
	runner.M = m
	os.Exit(runner.Run())
}

// startServer serves a gateway to the node of the tests.
func startServer(t *testing.T, o Options) *Server {
	t.Helper()
	o.Address, o.Flag, o.Logger = "127.0.0.1:0", "rest-addr", slog.New(slog.DiscardHandler)
	o.Gateway = gateway.Options{Dial: Dialer([]string{runner.Address()}, client.Options{})}
	s, err := Start(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := s.Stop(ctx); err != nil {
			t.Error(err)
		}
	})
	return s
}

// request is one request of the table. Code 0 is 200.
type request struct {
	verb, path, body string
	code             int
}

const ns = "/v1/namespaces/rest"

// methodRequests have for each method a request that works and one that does not. They are sent in this order.
var methodRequests = []struct {
	method    string
	good, bad request
}{
	{"CreateJob", request{"POST", ns + "/jobs?jobId=a:b", `{"handler":"h","payloadJson":{"k":[1,"x"]},"schedule":{"cron":{"expressions":["* * * * *"]}}}`, 0},
		request{"POST", ns + "/jobs?jobId=a/b", `{"handler":"h"}`, 400}},
	{"BatchCreateJobs", request{"POST", ns + "/jobs:batchCreate", `{"requests":[{"jobId":"c","job":{"handler":"h"}}]}`, 0},
		request{"POST", ns + "/jobs:batchCreate", `{"unknown":[]}`, 400}},
	{"GetJob", request{"GET", ns + "/jobs/a:b", "", 0}, request{"GET", ns + "/jobs/none", "", 404}},
	{"ListJobs", request{"GET", ns + "/jobs?pageSize=10&labels[a]=b&state=STATE_PAUSED", "", 0}, request{"GET", ns + "/jobs?pageSize=x", "", 400}},
	{"UpdateJob", request{"PATCH", ns + "/jobs/a:b", `{"timeout":"7s","payloadJson":{"k":{"deep":true}}}`, 0},
		request{"PATCH", ns + "/jobs/a:b", `{}`, 400}},
	{"ListJobRevisions", request{"GET", ns + "/jobs/a:b/revisions", "", 0}, request{"GET", ns + "/jobs/none/revisions", "", 404}},
	{"GetJobRevision", request{"GET", ns + "/jobs/a:b/revisions/1", "", 0}, request{"GET", ns + "/jobs/a:b/revisions/x", "", 400}},
	{"DiffJobRevisions", request{"GET", ns + "/jobs/a:b/revisionDiff?fromRevision=1", "", 0},
		request{"GET", ns + "/jobs/a:b/revisionDiff?fromRevision=7", "", 404}},
	{"RestoreJobRevision", request{"POST", ns + "/jobs/a:b/revisions/1:restore", `{"requestId":"back"}`, 0},
		request{"POST", ns + "/jobs/a:b/revisions/9:restore", "", 404}},
	{"PauseJob", request{"POST", ns + "/jobs/a:b:pause", `{"note":"n"}`, 0}, request{"POST", ns + "/jobs/none:pause", "", 404}},
	{"ResumeJob", request{"POST", ns + "/jobs/a:b:resume", "", 0}, request{"POST", ns + "/jobs/none:resume", "", 404}},
	{"RunJobWithPayload", request{"POST", ns + "/jobs/c:runWithPayload", `{"requestId":"p1","payloadJson":{"a":1}}`, 0}, request{"POST", ns + "/jobs/none:runWithPayload", "", 404}},
	{"RunJob", request{"POST", ns + "/jobs/c:run", `{"requestId":"r1"}`, 0}, request{"POST", ns + "/jobs/none:run", "", 404}},
	{"ListRuns", request{"GET", ns + "/jobs/c/runs", "", 0}, request{"GET", ns + "/jobs/none/runs", "", 404}},
	{"ListRuns", request{"GET", ns + "/jobs/-/runs?outcomes=OUTCOME_DEAD&page_size=5", "", 0}, request{"GET", ns + "/jobs/c/runs?page_size=5", "", 400}},
	{"GetRun", request{"GET", ns + "/jobs/c/runs/{run}", "", 0}, request{"GET", ns + "/jobs/c/runs/none", "", 404}},
	{"CancelRun", request{"POST", ns + "/jobs/c/runs/{run}:cancel", "", 0}, request{"POST", ns + "/jobs/c/runs/none:cancel", "", 404}},
	{"PreviewSchedule", request{"POST", "/v1/schedules:preview", `{"schedule":{"cron":{"expressions":["0 9 * * *"]}},"count":2}`, 0},
		request{"POST", "/v1/schedules:preview", `{"schedule":{"cron":{"expressions":["never"]}}}`, 400}},
	{"ListPresets", request{"GET", "/v1/presets", "", 0}, request{"POST", "/v1/presets", "", 405}},
	{"HintJob", request{"POST", ns + "/jobs/a:b:hint", `{"hint":{"interval":"600s","reason":"calm"}}`, 0},
		request{"POST", ns + "/jobs/c:hint", `{"hint":{"interval":"600s"}}`, 409}},
	{"TopJobs", request{"GET", ns + "/topJobs?kind=KIND_FAILING", "", 0}, request{"GET", "/v1/topJobs", "", 400}},
	{"ExplainJob", request{"GET", ns + "/jobs/a:b/explanation", "", 0}, request{"GET", ns + "/jobs/none/explanation", "", 404}},
	{"BackfillJob", request{"POST", ns + "/jobs/a:b:backfill", `{"startTime":"{hourAgo}","endTime":"{now}","requestId":"bf"}`, 0},
		request{"POST", ns + "/jobs/a:b:backfill", `{}`, 400}},
	{"CancelBackfill", request{"POST", ns + "/jobs/a:b:cancelBackfill", `{"backfillId":"bf"}`, 0},
		request{"POST", ns + "/jobs/a:b:cancelBackfill", `{"backfillId":"none"}`, 404}},
	{"ListDeadLetters", request{"GET", ns + "/deadLetters", "", 0}, request{"GET", ns + "/deadLetters?pageToken=%25", "", 400}},
	{"RedriveDeadLetters", request{"POST", ns + "/deadLetters:redrive", `{"dryRun":true}`, 0},
		request{"POST", ns + "/deadLetters:redrive", `{"names":["x"],"queue":"q"}`, 400}},
	{"DiscardDeadLetter", request{"DELETE", ns + "/jobs/c/deadLetters/0?runId=1-1", "", 404},
		request{"DELETE", ns + "/jobs/c/deadLetters/x?runId=1-1", "", 400}},
	{"ListTargets", request{"GET", ns + "/targets", "", 0}, request{"GET", ns + "/targets?pageSize=-1", "", 400}},
	{"ProbeTarget", request{"POST", ns + "/targets:probe", `{"target":"api:443"}`, 0},
		request{"POST", ns + "/targets:probe", `{}`, 400}},
	{"ResetTarget", request{"POST", ns + "/targets:reset", `{"target":"api:443"}`, 0},
		request{"POST", ns + "/targets:reset", `{"target":"x","pageToken":"%"}`, 400}},
	{"ListLocks", request{"GET", ns + "/locks", "", 0}, request{"GET", ns + "/locks?pageSize=251", "", 400}},
	{"PauseJobs", request{"POST", ns + "/jobs:pause", `{"queue":"q"}`, 0}, request{"POST", ns + "/jobs:pause", `{"pageToken":"%"}`, 400}},
	{"ResumeJobs", request{"POST", ns + "/jobs:resume", `{"queue":"q"}`, 0}, request{"POST", ns + "/jobs:resume", `{"pageToken":"%"}`, 400}},
	{"BulkPauseJobs", request{"POST", ns + "/jobs:bulkPause", `{"filter":"id = none","requestId":"BulkPauseJobs"}`, 0},
		request{"POST", ns + "/jobs:bulkPause", `{"filter":"id = none"}`, 400}},
	{"BulkResumeJobs", request{"POST", ns + "/jobs:bulkResume", `{"filter":"id = none","requestId":"BulkResumeJobs"}`, 0},
		request{"POST", ns + "/jobs:bulkResume", `{"filter":"id = none"}`, 400}},
	{"BulkRunJobs", request{"POST", ns + "/jobs:bulkRun", `{"filter":"id = none","requestId":"BulkRunJobs"}`, 0},
		request{"POST", ns + "/jobs:bulkRun", `{"filter":"id = none"}`, 400}},
	{"BulkCancelRuns", request{"POST", ns + "/jobs:bulkCancelRuns", `{"filter":"id = none","requestId":"BulkCancelRuns"}`, 0},
		request{"POST", ns + "/jobs:bulkCancelRuns", `{"filter":"id = none"}`, 400}},
	{"BulkDeleteJobs", request{"POST", ns + "/jobs:bulkDelete", `{"filter":"id = none","requestId":"BulkDeleteJobs"}`, 0},
		request{"POST", ns + "/jobs:bulkDelete", `{"filter":"id = none"}`, 400}},
	{"BulkRedriveDeadLetters", request{"POST", ns + "/deadLetters:bulkRedrive", `{"filter":"id = none","requestId":"BulkRedriveDeadLetters"}`, 0},
		request{"POST", ns + "/deadLetters:bulkRedrive", `{"filter":"id = none"}`, 400}},
	{"BulkDiscardDeadLetters", request{"POST", ns + "/deadLetters:bulkDiscard", `{"filter":"id = none","requestId":"BulkDiscardDeadLetters"}`, 0},
		request{"POST", ns + "/deadLetters:bulkDiscard", `{"filter":"id = none"}`, 400}},
	{"PlanJobs", request{"POST", ns + "/jobs:plan", `{"desiredJobs":[{"jobId":"d","job":{"handler":"h","payloadJson":1}}]}`, 0},
		request{"POST", ns + "/jobs:plan", `{"unknown":[]}`, 400}},
	{"ApplyJobs", request{"POST", ns + "/jobs:apply", `{"desiredJobs":[{"jobId":"d","job":{"handler":"h","payloadJson":1}}]}`, 0},
		request{"POST", ns + "/jobs:apply", `{"unknown":[]}`, 400}},
	{"UpdateQueueSettings", request{"PUT", ns + "/queues/q", `{"maxConcurrency":3}`, 0}, request{"PUT", ns + "/queues/q", `{"rate":-1}`, 400}},
	{"GetQueueSettings", request{"GET", ns + "/queues/q", "", 0}, request{"GET", ns + "/queues/a%20b", "", 400}},
	{"PauseQueue", request{"POST", ns + "/queues/q:pause", `{"untilTime":"{later}"}`, 0},
		request{"POST", ns + "/queues/q:pause", `{"untilTime":"{hourAgo}"}`, 400}},
	{"RenameJob", request{"POST", ns + "/jobs/d:rename", `{"newId":"e:f","requestId":"name"}`, 0},
		request{"POST", ns + "/jobs/none:rename", `{"newId":"n"}`, 404}},
	{"RenameJob", request{"POST", ns + "/jobs/e:f:rename", `{"newId":"d","requestId":"back"}`, 0},
		request{"POST", ns + "/jobs/d:rename", `{"newId":"d"}`, 400}},
	{"DeleteJob", request{"DELETE", ns + "/jobs/d", "", 0}, request{"DELETE", ns + "/jobs/none", "", 404}},
	{"ListNodes", request{"GET", "/v1/nodes", "", 0}, request{"POST", "/v1/nodes", "", 405}},
	{"ListShards", request{"GET", "/v1/shards", "", 0}, request{"PUT", "/v1/shards", "", 405}},
	{"ListQueues", request{"GET", ns + "/queues", "", 0}, request{"GET", "/v1/queues?parent=x", "", 400}},
	{"ListNamespaces", request{"GET", "/v1/namespaces", "", 0}, request{"DELETE", "/v1/namespaces", "", 405}},
	{"ForecastLoad", request{"GET", ns + "/forecast", "", 0}, request{"GET", ns + "/forecast?resolution=-1s", "", 400}},
	{"ListUpcomingJobs", request{"GET", ns + "/upcomingJobs", "", 0}, request{"GET", ns + "/upcomingJobs?filter=x%3D%3D", "", 400}},
	{"ListWorkers", request{"GET", "/v1/workers", "", 0}, request{"DELETE", "/v1/workers", "", 405}},
	{"CheckShard", request{"POST", "/v1/shards/0:check", "", 0}, request{"POST", "/v1/shards/9999:check", "", 400}},
	{"ListAuditRecords", request{"GET", "/v1/auditRecords?pageSize=5", "", 0}, request{"GET", "/v1/auditRecords?startTime=x", "", 400}},
	{"ReadAuditRecords", request{"GET", "/v1/auditRecords/chain", "", 0}, request{"GET", "/v1/auditRecords/chain?after=x", "", 400}},
	{"AcknowledgeAuditRecords", request{"POST", "/v1/auditExports/siem:acknowledge", "", 0},
		request{"POST", "/v1/auditExports/SIEM:acknowledge", "", 400}},
	{"ListAuditExports", request{"GET", "/v1/auditExports", "", 0}, request{"PATCH", "/v1/auditExports", "", 405}},
	{"DeleteAuditExport", request{"DELETE", "/v1/auditExports/siem", "", 0}, request{"PUT", "/v1/auditExports/siem", "", 405}},
	{"WatchEvents", request{"GET", ns + "/events?stopAtEnd=true&startTime={hourAgo}", "", 0},
		request{"GET", ns + "/events?resumeToken=x", "", 400}},
	{"ListWebhooks", request{"GET", "/v1/webhooks", "", 409}, request{"PUT", "/v1/webhooks", "", 405}},
	{"ListUndeliveredEvents", request{"GET", "/v1/undeliveredEvents", "", 409}, request{"GET", "/v1/undeliveredEvents?pageSize=x", "", 400}},
	{"RedeliverEvents", request{"POST", "/v1/webhooks/w:redeliver", "", 409}, request{"POST", "/v1/webhooks/w:redeliver", "{", 400}},
	{"ExportJobs", request{"GET", ns + "/backup", "", 0}, request{"GET", ns + "/backup?pageToken=%25", "", 400}},
	{"RestoreJobs", request{"POST", ns + "/jobs:restore", `{"jobs":[{"job":{"name":"namespaces/rest/jobs/e","handler":"h"}}]}`, 0},
		request{"POST", ns + "/jobs:restore", `{"unknown":[]}`, 400}},
	{"WhoAmI", request{"GET", "/v1/whoami", "", 0}, request{"POST", "/v1/whoami", "", 405}},
}

// tableRuns counts how often the table was sent to the node, which outlives a test that is repeated.
var tableRuns atomic.Int32

// TestEveryMethodOverHTTP calls every method on a real node, as its users would. A new method needs a row. Each time
// the table has a namespace of its own: some requests work once.
func TestEveryMethodOverHTTP(t *testing.T) {
	s := startServer(t, Options{})
	hasRow := map[string]bool{}
	values := map[string]string{
		"namespaces/rest": fmt.Sprintf("namespaces/rest-%d", tableRuns.Add(1)),

		"{now}":     time.Now().UTC().Format(time.RFC3339),
		"{later}":   time.Now().Add(24 * time.Hour).UTC().Format(time.RFC3339),
		"{hourAgo}": time.Now().Add(-time.Hour).UTC().Format(time.RFC3339),
	}
	for _, m := range methodRequests {
		hasRow[m.method] = true
		text := sendRequest(t, s, m.method, m.good, values)
		sendRequest(t, s, m.method, m.bad, values)
		var response struct{ Run struct{ Name string } }
		if json.Unmarshal(text, &response) == nil && response.Run.Name != "" {
			values["{run}"] = response.Run.Name[strings.LastIndexByte(response.Run.Name, '/')+1:]
		}
	}
	for _, file := range []protoreflect.FileDescriptor{
		fermatav1.File_fermata_v1_job_service_proto, fermatav1.File_fermata_v1_cluster_service_proto,
		fermatav1.File_fermata_v1_event_service_proto, fermatav1.File_fermata_v1_backup_service_proto,
		fermatav1.File_fermata_v1_access_service_proto,
	} {
		for i := range file.Services().Len() {
			methods := file.Services().Get(i).Methods()
			for j := range methods.Len() {
				if name := string(methods.Get(j).Name()); !hasRow[name] {
					t.Errorf("no request is listed for %s", name)
				}
			}
		}
	}
}

// sendRequest returns the body of a response that has the code of the row.
func sendRequest(t *testing.T, s *Server, method string, q request, values map[string]string) []byte {
	t.Helper()
	path, body := q.path, q.body
	for name, value := range values {
		path, body = strings.ReplaceAll(path, name, value), strings.ReplaceAll(body, name, value)
	}
	r, err := http.NewRequestWithContext(t.Context(), q.verb, s.URL()+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	want := q.code
	if want == 0 {
		want = http.StatusOK
	}
	if resp.StatusCode != want {
		t.Errorf("%s: %s %s %s: status %d, want %d: %s", method, q.verb, path, body, resp.StatusCode, want, bytes.TrimSpace(text))
	}
	var failure struct {
		Code    int
		Message string
	}
	if want >= 400 && (json.Unmarshal(text, &failure) != nil || failure.Code == 0 || failure.Message == "") {
		t.Errorf("%s: the error is not a google.rpc.Status: %s", method, text)
	}
	return text
}

// TestPayloadJSON: what is written as JSON is stored as bytes, and one of the two fields is enough.
func TestPayloadJSON(t *testing.T) {
	s := startServer(t, Options{})
	values := map[string]string{}
	create := func(id, body string, code int) string {
		return string(sendRequest(t, s, "CreateJob", request{"POST", ns + "/jobs?jobId=" + id, body, code}, values))
	}
	for i, test := range []struct{ json, stored string }{
		{`{"b":1,"a":"<&>"}`, "eyJhIjoiPCY+IiwiYiI6MX0="}, {`"text"`, "InRleHQi"}, {`null`, "bnVsbA=="}, {`[1.5,true]`, "WzEuNSx0cnVlXQ=="},
	} {
		id := fmt.Sprint("p", i)
		for range 2 { // the repetition has the same payload
			if text := create(id, `{"handler":"h","payloadJson":`+test.json+`}`, 0); !strings.Contains(text, `"payload":"`+test.stored+`"`) {
				t.Errorf("%s: %s", test.json, text)
			}
		}
	}
	if text := create("both", `{"handler":"h","payload":"eA==","payloadJson":1}`, 400); !strings.Contains(text, `"field":"job.payload_json"`) {
		t.Errorf("both: %s", text)
	}
	text := sendRequest(t, s, "UpdateJob", request{"PATCH", ns + "/jobs/p0", `{"payload":"eA==","payloadJson":1}`, 400}, values)
	if !strings.Contains(string(text), `"field":"job.payload_json"`) {
		t.Errorf("both in an update: %s", text)
	}
}

// TestTokensStayOffOpenNetworks: a gateway without TLS to nodes beyond loopback does not send tokens.
func TestTokensStayOffOpenNetworks(t *testing.T) {
	conn, err := Dialer([]string{"192.0.2.1:7070"}, client.Options{})("secret")
	if err != nil {
		return // refused before a call
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	_, err = fermatav1.NewAccessServiceClient(conn).WhoAmI(ctx, &fermatav1.WhoAmIRequest{})
	if err == nil || !strings.Contains(err.Error(), "secur") {
		t.Errorf("the call was made: %v", err)
	}
}
