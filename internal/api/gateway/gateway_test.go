package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/protobuf/proto"

	"github.com/fermata-io/fermata/internal/api/apierror"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakeNode is a node that knows three tokens and records what reaches it.
type fakeNode struct {
	fermatav1.UnimplementedAccessServiceServer
	fermatav1.UnimplementedJobServiceServer
	fermatav1.UnimplementedEventServiceServer
	address string

	mu      sync.Mutex
	open    bool // callers are not authenticated
	revoked map[string]bool
	// sameIdentity is the identity of all callers, if set.
	sameIdentity string
	peers        map[string]string // connection → token
	mixed        bool              // a connection had two tokens
	metadata     metadata.MD       // of the last call of JobService
	request      proto.Message     // of the last call of JobService
	answer       error             // of calls of JobService
	verified     int               // calls of WhoAmI
	hold         chan struct{}     // WhoAmI waits for it
	watch        func(*fermatav1.WatchEventsRequest, grpc.ServerStreamingServer[fermatav1.WatchEventsResponse]) error
	watches      int
	payload      []byte // of all jobs
}

var fakeRoles = map[string][]*fermatav1.RoleGrant{
	"anna": {{Role: "admin"}}, "bert": {{Role: "viewer"}}, "norole": nil,
}

func newFakeNode(t *testing.T) *fakeNode {
	t.Helper()
	n := &fakeNode{revoked: map[string]bool{}, peers: map[string]string{}}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer()
	fermatav1.RegisterAccessServiceServer(s, n)
	fermatav1.RegisterJobServiceServer(s, n)
	fermatav1.RegisterEventServiceServer(s, n)
	var serving sync.WaitGroup
	serving.Go(func() { _ = s.Serve(l) })
	t.Cleanup(func() { s.Stop(); serving.Wait() })
	n.address = l.Addr().String()
	return n
}

// authenticate records the connection of a call.
func (n *fakeNode) authenticate(ctx context.Context) (token string, err error) {
	md, _ := metadata.FromIncomingContext(ctx)
	if v := md.Get("authorization"); len(v) == 1 {
		token = strings.TrimPrefix(v[0], "Bearer ")
	}
	p, _ := peer.FromContext(ctx)
	n.mu.Lock()
	defer n.mu.Unlock()
	if have, ok := n.peers[p.Addr.String()]; ok && have != token {
		n.mixed = true
	}
	n.peers[p.Addr.String()] = token
	if _, ok := fakeRoles[token]; !n.open && !ok || n.revoked[token] {
		return "", status.Error(codes.Unauthenticated, "who are you?")
	}
	return token, nil
}

func (n *fakeNode) WhoAmI(ctx context.Context, _ *fermatav1.WhoAmIRequest) (*fermatav1.WhoAmIResponse, error) {
	n.mu.Lock()
	n.verified++
	hold := n.hold
	n.mu.Unlock()
	if hold != nil {
		select {
		case <-hold:
		case <-ctx.Done():
		}
	}
	token, err := n.authenticate(ctx)
	if err != nil {
		return nil, err
	}
	w := &fermatav1.WhoAmIResponse{Identity: token, Authentication: fermatav1.WhoAmIResponse_AUTHENTICATION_TOKEN, Grants: fakeRoles[token]}
	if n.sameIdentity != "" {
		w.Identity = n.sameIdentity
	}
	if n.open {
		w.Authentication = fermatav1.WhoAmIResponse_AUTHENTICATION_NONE
	}
	return w, nil
}

// record keeps a call of JobService.
func (n *fakeNode) record(ctx context.Context, q proto.Message) error {
	if _, err := n.authenticate(ctx); err != nil {
		return err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.metadata, _ = metadata.FromIncomingContext(ctx)
	n.request = q
	return n.answer
}

func (n *fakeNode) GetJob(ctx context.Context, q *fermatav1.GetJobRequest) (*fermatav1.Job, error) {
	return &fermatav1.Job{Name: q.GetName(), Etag: "e-1", Payload: n.payload}, n.record(ctx, q)
}

func (n *fakeNode) CreateJob(ctx context.Context, q *fermatav1.CreateJobRequest) (*fermatav1.Job, error) {
	return q.GetJob(), n.record(ctx, q)
}

func (n *fakeNode) UpdateJob(ctx context.Context, q *fermatav1.UpdateJobRequest) (*fermatav1.Job, error) {
	return q.GetJob(), n.record(ctx, q)
}

func (n *fakeNode) RunJob(ctx context.Context, q *fermatav1.RunJobRequest) (*fermatav1.RunJobResponse, error) {
	return &fermatav1.RunJobResponse{}, n.record(ctx, q)
}

func (n *fakeNode) ListJobs(ctx context.Context, q *fermatav1.ListJobsRequest) (*fermatav1.ListJobsResponse, error) {
	return &fermatav1.ListJobsResponse{}, n.record(ctx, q)
}

func (n *fakeNode) WatchEvents(q *fermatav1.WatchEventsRequest, s grpc.ServerStreamingServer[fermatav1.WatchEventsResponse]) error {
	if _, err := n.authenticate(s.Context()); err != nil {
		return err
	}
	n.mu.Lock()
	n.watches++
	watch := n.watch
	n.mu.Unlock()
	return watch(q, s)
}

// dial connects to the fake node as commands do to real ones.
func (n *fakeNode) dial(token string) (Connection, error) {
	options := []grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials())}
	if token != "" {
		options = append(options, grpc.WithPerRPCCredentials(fakeToken(token)))
	}
	return grpc.NewClient(n.address, options...)
}

type fakeToken string

func (f fakeToken) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": "Bearer " + string(f)}, nil
}

func (fakeToken) RequireTransportSecurity() bool { return false }

// newTestGateway serves a gateway on loopback.
func newTestGateway(t *testing.T, n *fakeNode, o Options) (*Gateway, string) {
	t.Helper()
	o.Dial = n.dial
	g, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(g)
	t.Cleanup(func() {
		g.EndStreams()
		s.Close()
		g.Close()
		http.DefaultClient.CloseIdleConnections()
	})
	return g, s.URL
}

// answer is a response that was read.
type answer struct {
	code   int
	header http.Header
	body   string
}

func send(t *testing.T, method, url, token, body string, headers ...string) answer {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	for i := 0; i < len(headers); i += 2 {
		if headers[i] == "Host" {
			r.Host = headers[i+1]
			continue
		}
		r.Header.Set(headers[i], headers[i+1])
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
	return answer{resp.StatusCode, resp.Header, string(text)}
}

func (a answer) want(t *testing.T, code int, text string) {
	t.Helper()
	if a.code != code || !strings.Contains(a.body, text) {
		t.Errorf("status %d, want %d; body %s, want %q in it", a.code, code, a.body, text)
	}
}

const jobPath = "/v1/namespaces/default/jobs/a:b"

func TestHeadersBecomeFields(t *testing.T) {
	n := newFakeNode(t)
	_, url := newTestGateway(t, n, Options{})
	a := send(t, "POST", url+jobPath+":run", "anna", "", "X-Request-Id", "r-1",
		"traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "Grpc-Metadata-Evil", "1", "X-Forwarded-For", "9.9.9.9")
	a.want(t, 200, "{}")
	q, _ := n.request.(*fermatav1.RunJobRequest)
	if q.GetName() != "namespaces/default/jobs/a:b" || q.GetRequestId() != "r-1" || a.header.Get("X-Request-Id") != "r-1" {
		t.Errorf("request %v, header %q", q, a.header.Get("X-Request-Id"))
	}
	for _, name := range []string{"grpcgateway-authorization", "x-forwarded-for", "x-forwarded-host", "evil", "grpcgateway-user-agent"} {
		if v := n.metadata.Get(name); len(v) > 0 {
			t.Errorf("%s reached the node: %q", name, v)
		}
	}
	if v := n.metadata.Get("traceparent"); len(v) != 1 {
		t.Errorf("traceparent %q", v)
	}
	send(t, "POST", url+jobPath+":run", "anna", `{"requestId":"other"}`, "X-Request-Id", "r-1").want(t, 400, "X-Request-Id differs")
	send(t, "POST", url+jobPath+":run", "anna", "", "If-Match", `"x"`).want(t, 400, "takes no etag")
	if got := send(t, "GET", url+jobPath, "anna", "").header.Get("ETag"); got != `"e-1"` {
		t.Errorf("ETag %q", got)
	}
}

func TestPatchMask(t *testing.T) {
	n := newFakeNode(t)
	_, url := newTestGateway(t, n, Options{})
	for body, want := range map[string]string{
		`{"timeout":"5s"}`:                             "timeout",
		`{"timeout":null}`:                             "timeout",
		`{"retryPolicy":{"maxAttempts":3}}`:            "retry_policy.max_attempts",
		`{"labels":{"a":"b"},"etag":"e-1"}`:            "labels",
		`{"name":"x","createTime":null,"queue":"q"}`:   "queue",
		`{"payloadJson":{"a":{"b":1}},"queue":"q"}`:    "queue payload",
		`{"schedule":{"interval":{"every":"60s"}}}`:    "schedule.interval.every",
		`{"schedule":{"once":"2030-01-01T00:00:00Z"}}`: "schedule.once",
	} {
		send(t, "PATCH", url+jobPath, "anna", body, "If-Match", `"e-1"`).want(t, 200, "")
		q, _ := n.request.(*fermatav1.UpdateJobRequest)
		if got := strings.Join(q.GetUpdateMask().GetPaths(), " "); got != want || q.GetJob().GetEtag() != "e-1" ||
			q.GetJob().GetName() != "namespaces/default/jobs/a:b" {
			t.Errorf("%s: mask %q, want %q; job %v", body, got, want, q.GetJob())
		}
	}
	send(t, "PATCH", url+jobPath+"?updateMask=queue,maxLag", "anna", `{"queue":"q"}`).want(t, 200, "")
	if q, _ := n.request.(*fermatav1.UpdateJobRequest); strings.Join(q.GetUpdateMask().GetPaths(), " ") != "queue max_lag" {
		t.Errorf("mask of the query: %v", q.GetUpdateMask())
	}
}

func TestErrors(t *testing.T) {
	n := newFakeNode(t)
	_, url := newTestGateway(t, n, Options{})
	detailed := func(c codes.Code, reason string) error {
		return apierror.WithDetails(c, "no", &errdetails.ErrorInfo{Reason: reason}).Err()
	}
	for name, test := range map[string]struct {
		err     error
		code    int
		after   string
		ifMatch string
	}{
		"not found":     {err: status.Error(codes.NotFound, "no"), code: 404},
		"state":         {err: detailed(codes.FailedPrecondition, "TOO_MANY_RUNS"), code: 409},
		"exists":        {err: status.Error(codes.AlreadyExists, "no"), code: 409},
		"etag":          {err: detailed(codes.Aborted, "ETAG_MISMATCH"), code: 409},
		"etag asked":    {err: detailed(codes.Aborted, "ETAG_MISMATCH"), code: 412, ifMatch: `"e"`},
		"limit":         {err: status.Error(codes.ResourceExhausted, "no"), code: 429, after: "1"},
		"retry in 1.2s": {err: apierror.WithDetails(codes.ResourceExhausted, "no", apierror.RetryInfo(1200*1e6)).Err(), code: 429, after: "2"},
		"down":          {err: status.Error(codes.Unavailable, "no"), code: 503, after: "1"},
		"busy":          {err: apierror.WithDetails(codes.Aborted, "no", apierror.RetryInfo(1e9)).Err(), code: 409, after: "1"},
		"role":          {err: status.Error(codes.PermissionDenied, "no"), code: 403},
		"deadline":      {err: status.Error(codes.DeadlineExceeded, "no"), code: 504},
		"bad":           {err: status.Error(codes.InvalidArgument, "no"), code: 400},
	} {
		n.mu.Lock()
		n.answer = test.err
		n.mu.Unlock()
		var headers []string
		if test.ifMatch != "" {
			headers = []string{"If-Match", test.ifMatch}
		}
		a := send(t, "PATCH", url+jobPath, "anna", `{"queue":"q"}`, headers...)
		var body struct {
			Code    int
			Message string
		}
		if err := json.Unmarshal([]byte(a.body), &body); err != nil || body.Message != "no" || codes.Code(body.Code) != status.Code(test.err) {
			t.Errorf("%s: body %s, %v", name, a.body, err)
		}
		if a.code != test.code || a.header.Get("Retry-After") != test.after {
			t.Errorf("%s: status %d, want %d; Retry-After %q, want %q", name, a.code, test.code, a.header.Get("Retry-After"), test.after)
		}
	}
	n.mu.Lock()
	n.answer = nil
	n.mu.Unlock()
	send(t, "GET", url+"/v1/nothing", "anna", "").want(t, 404, "no such path")
	send(t, "DELETE", url+"/v1/nodes", "anna", "").want(t, 405, "METHOD_NOT_ALLOWED")
	send(t, "POST", url+"/v1/namespaces/default/jobs", "anna", `{"handlr":"x"}`).want(t, 400, "unknown field")
	send(t, "GET", url+"/v1/namespaces/default/jobs?pageSise=2", "anna", "").want(t, 400, "pageSise")
	send(t, "GET", url+"/v1/namespaces/default/jobs", "anna", "", "X-HTTP-Method-Override", "DELETE").want(t, 200, "")
	send(t, "POST", url+jobPath+":run", "anna", "", "X-HTTP-Method-Override", "GET").want(t, 200, "")
}

func TestBodiesAreBounded(t *testing.T) {
	n := newFakeNode(t)
	_, url := newTestGateway(t, n, Options{})
	body := `{"handler":"` + strings.Repeat("x", maxBodyBytes) + `"}`
	send(t, "POST", url+"/v1/namespaces/default/jobs", "anna", body).want(t, 413, "BODY_TOO_LARGE")
	// Without a length the body has to be read.
	r, err := http.NewRequestWithContext(t.Context(), "POST", url+"/v1/namespaces/default/jobs", io.MultiReader(strings.NewReader(body)))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer anna")
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusRequestEntityTooLarge {
		t.Errorf("a body of unknown length: status %d", resp.StatusCode)
	}
}

func TestHostsAndOrigins(t *testing.T) {
	n := newFakeNode(t)
	_, url := newTestGateway(t, n, Options{AllowedHosts: []string{"api.example.org", "127.0.0.1", "::1"}})
	for host, code := range map[string]int{
		"api.example.org": 200, "API.example.org:8443": 200, "127.0.0.1:1": 200, "[::1]:7": 200,
		"api.example.org.": 421, "API.example.org.:8443": 421, "evil.example": 421,
		"api.example.org.evil.example": 421, "localhost": 421, "10.0.0.1": 421,
	} {
		send(t, "GET", url+jobPath, "anna", "", "Host", host).want(t, code, "")
	}
	for _, headers := range [][]string{{"Origin", "https://evil.example"}, {"Sec-Fetch-Site", "cross-site"}} {
		send(t, "POST", url+jobPath+":run", "anna", "", headers...).want(t, 403, "CROSS_ORIGIN")
	}
	a := send(t, "GET", url+jobPath, "anna", "", "Origin", "https://evil.example")
	a.want(t, 200, "")
	for _, name := range []string{"Access-Control-Allow-Origin", "Access-Control-Allow-Credentials"} {
		if a.header.Get(name) != "" {
			t.Errorf("%s is set", name)
		}
	}
	if got := a.header.Get("X-Content-Type-Options"); got != "nosniff" {
		t.Errorf("X-Content-Type-Options %q", got)
	}
}

func TestOpenAPIIsServed(t *testing.T) {
	n := newFakeNode(t)
	_, url := newTestGateway(t, n, Options{})
	a := send(t, "GET", url+"/openapi.json", "", "")
	var d struct {
		OpenAPI string `json:"openapi"`
		Paths   map[string]any
	}
	if err := json.Unmarshal([]byte(a.body), &d); err != nil || d.OpenAPI != "3.1.0" || d.Paths["/v1/namespaces/{namespace}/jobs/{job}"] == nil {
		t.Errorf("status %d, version %q, %d paths: %v", a.code, d.OpenAPI, len(d.Paths), err)
	}
}

// TestPayloadsAreFolded: nodes of the previous version do not know payload_json.
func TestPayloadsAreFolded(t *testing.T) {
	n := newFakeNode(t)
	_, url := newTestGateway(t, n, Options{})
	send(t, "POST", url+"/v1/namespaces/default/jobs", "anna", `{"handler":"h","payloadJson":{"b":1,"a":null}}`).want(t, 200, "")
	if j := n.request.(*fermatav1.CreateJobRequest).GetJob(); string(j.GetPayload()) != `{"a":null,"b":1}` || j.GetPayloadJson() != nil {
		t.Errorf("created with %q, %v", j.GetPayload(), j.GetPayloadJson())
	}
	send(t, "PATCH", url+jobPath, "anna", `{"payloadJson":[1]}`).want(t, 200, "")
	u := n.request.(*fermatav1.UpdateJobRequest)
	if string(u.GetJob().GetPayload()) != "[1]" || strings.Join(u.GetUpdateMask().GetPaths(), " ") != "payload" {
		t.Errorf("updated with %v", u)
	}
	send(t, "POST", url+"/v1/namespaces/default/jobs", "anna", `{"payload":"eA==","payloadJson":1}`).want(t, 400, `"job.payload_json"`)
}

// TestPanicsAreLogged with the path and the stack, and the caller gets status 500.
func TestPanicsAreLogged(t *testing.T) {
	var log bytes.Buffer
	g, err := New(Options{Dial: func(string) (Connection, error) { panic("this fails") },
		Logger: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	w := httptest.NewRecorder()
	r := httptest.NewRequest(http.MethodGet, "http://localhost"+jobPath, nil)
	g.ServeHTTP(w, r)
	if w.Code != http.StatusInternalServerError {
		t.Errorf("status %d: %s", w.Code, w.Body)
	}
	for _, part := range []string{"panic in an HTTP handler", "path=" + jobPath, "this fails", "gateway_test.go"} {
		if !strings.Contains(log.String(), part) {
			t.Errorf("the log has no %s:\n%s", part, &log)
		}
	}
}
