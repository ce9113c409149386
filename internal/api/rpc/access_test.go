package rpc

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/fermata-io/fermata/internal/api/guard"
	"github.com/fermata-io/fermata/internal/api/workerstream"
	"github.com/fermata-io/fermata/internal/core/authz"
	"github.com/fermata-io/fermata/internal/core/backoff"
	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/test/redistest"
	"github.com/fermata-io/fermata/internal/test/sessiontest"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// fakeAuthority knows tokens by their text: "x" is token:x, unless it was revoked. It has
// to wait to know "remote".
type fakeAuthority struct {
	mu         sync.Mutex
	policy     *authz.Policy
	revoked    map[string]bool
	renamed    map[string]string // tokens that mean somebody else
	expires    time.Time
	generation atomic.Uint64
	asked      atomic.Int64
}

func newAuthority(t testing.TB, fallback authz.Limits, rules ...authz.Rule) *fakeAuthority {
	t.Helper()
	p, err := authz.NewPolicy(rules, fallback)
	if err != nil {
		t.Fatal(err)
	}
	return &fakeAuthority{policy: p, revoked: map[string]bool{}, renamed: map[string]string{}}
}

func allow(role authz.Role, namespace string, names ...string) authz.Rule {
	r := authz.Rule{Role: role, Namespaces: []string{namespace}}
	for _, n := range names {
		r.Subjects = append(r.Subjects, "token:"+n)
	}
	return r
}

func (f *fakeAuthority) revoke(token string) {
	f.mu.Lock()
	f.revoked[token] = true
	f.mu.Unlock()
	f.generation.Add(1)
}

func (f *fakeAuthority) rename(token, name string) {
	f.mu.Lock()
	f.renamed[token] = name
	f.mu.Unlock()
	f.generation.Add(1)
}

// restore takes revoke back.
func (f *fakeAuthority) restore(token string) {
	f.mu.Lock()
	delete(f.revoked, token)
	f.mu.Unlock()
	f.generation.Add(1)
}

func (f *fakeAuthority) decide(t testing.TB, rules ...authz.Rule) {
	t.Helper()
	p, err := authz.NewPolicy(rules, authz.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	f.mu.Lock()
	f.policy = p
	f.mu.Unlock()
	f.generation.Add(1)
}

func (f *fakeAuthority) rules() *authz.Policy {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.policy
}

func (f *fakeAuthority) Generation() uint64 { return f.generation.Load() }
func (f *fakeAuthority) Token(ctx context.Context, token string) (authz.Identity, error) {
	f.asked.Add(1)
	f.mu.Lock()
	defer f.mu.Unlock()
	cause, named := strings.CutPrefix(token, "bad:")
	switch {
	case named:
		return authz.Identity{}, &authz.CredentialError{Cause: authz.Cause(cause), Detail: "the file has others"}
	case f.revoked[token] || strings.HasPrefix(token, "bad"):
		return authz.Identity{}, authz.ErrUnauthenticated
	case token == "unsure", token == "remote" && ctx.Err() != nil:
		return authz.Identity{}, authz.ErrUnavailable
	}
	return authz.Identity{Subject: "token:" + cmp.Or(f.renamed[token], token), Expires: f.expires}, nil
}

func (f *fakeAuthority) AllowsAnyQueue(id authz.Identity, want authz.Permission, namespace string) authz.Decision {
	return f.rules().AllowsAnyQueue(id, want, namespace)
}

func (f *fakeAuthority) Grants(id authz.Identity) []authz.Grant { return f.rules().Grants(id) }

func (f *fakeAuthority) Certificate(c *x509.Certificate) (authz.Identity, error) {
	return authz.Identity{Subject: "cn:" + c.Subject.CommonName}, nil
}

func (f *fakeAuthority) Allows(id authz.Identity, want authz.Permission, namespace, queue string) authz.Decision {
	return f.rules().Allows(id, want, namespace, queue)
}
func (f *fakeAuthority) Limits(id authz.Identity) authz.Limits { return f.rules().LimitsOf(id) }
func (f *fakeAuthority) GrantsRole(r authz.Role) bool          { return f.rules().GrantsRole(r) }

// gated is a server with a gate. Each dial is a connection of its own.
type gated struct {
	jobs     *fakeJobs
	sessions *sessiontest.Recorder
	sizes    *fakeSizes
	registry *prometheus.Registry
	logs     *bytes.Buffer
	listener *bufconn.Listener
	patience time.Duration // of a worker's stream; 0: for ever
}

func serveGated(t testing.TB, o Options) *gated {
	t.Helper()
	b := &gated{
		jobs: &fakeJobs{present: stored()}, registry: prometheus.NewRegistry(), logs: &bytes.Buffer{}, listener: bufconn.Listen(1 << 20),
		sessions: sessiontest.NewRecorder(),
	}
	worker := workerstream.NewServer(b.sessions, nil)
	if o.Jobs == nil {
		o.Jobs = b.jobs
	}
	o.Cluster, o.Worker, o.Registerer = fakeCluster{}, worker, b.registry
	if b.sizes = newFakeSizes(); o.Sizes == nil {
		o.Sizes = b.sizes
	}
	o.Reflection = true
	o.Logger = slog.New(slog.NewTextHandler(b.logs, nil))
	if o.Authority != nil {
		o.LeaseSigningKey = bytes.Repeat([]byte("k"), workerstream.MinKeyBytes)
	}
	server, _, err := NewServer(o)
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(b.listener) })
	t.Cleanup(func() {
		server.Stop()
		worker.Wait()
		serving.Wait()
	})
	return b
}

func (b *gated) dial(t testing.TB, options ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	options = append([]grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDisableRetry(),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return b.listener.DialContext(ctx) }),
	}, options...)
	conn, err := grpc.NewClient("passthrough:///bench", options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// as carries a token.
func as(ctx context.Context, token string) context.Context {
	return metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+token)
}

func listNodes(ctx context.Context, conn *grpc.ClientConn) error {
	_, err := fermatav1.NewClusterServiceClient(conn).ListNodes(ctx, &fermatav1.ListNodesRequest{})
	return err
}

// reasonOf is the reason that an error gives to programs.
func reasonOf(err error) string {
	for _, d := range status.Convert(err).Details() {
		if info, ok := d.(*errdetails.ErrorInfo); ok {
			return info.GetReason()
		}
	}
	return ""
}

func TestCredentialsOfACall(t *testing.T) {
	b := serveGated(t, Options{Authority: newAuthority(t, authz.Limits{}, allow(authz.Viewer, "*", "*"))})
	conn := b.dial(t)
	for name, c := range map[string]struct {
		headers []string
		code    codes.Code
		reason  string
	}{
		"none":         {nil, codes.Unauthenticated, "CREDENTIALS_MISSING"},
		"good":         {[]string{"Bearer ann"}, codes.OK, ""},
		"lower case":   {[]string{"bearer ann"}, codes.OK, ""},
		"bad":          {[]string{"Bearer bad"}, codes.Unauthenticated, "CREDENTIALS_INVALID"},
		"empty":        {[]string{"Bearer "}, codes.Unauthenticated, "CREDENTIALS_INVALID"},
		"no scheme":    {[]string{"ann"}, codes.Unauthenticated, "CREDENTIALS_INVALID"},
		"other scheme": {[]string{"Basic YW5uOmFubg=="}, codes.Unauthenticated, "CREDENTIALS_INVALID"},
		"two":          {[]string{"Bearer ann", "Bearer bad"}, codes.Unauthenticated, "CREDENTIALS_INVALID"},
		"cannot tell":  {[]string{"Bearer unsure"}, codes.Unavailable, "CREDENTIALS_UNCHECKED"},
	} {
		ctx := t.Context()
		for _, h := range c.headers {
			ctx = metadata.AppendToOutgoingContext(ctx, "authorization", h)
		}
		if err := listNodes(ctx, conn); status.Code(err) != c.code || reasonOf(err) != c.reason {
			t.Errorf("%s: %v %q", name, err, reasonOf(err))
		}
	}
	if got := testutil.ToFloat64(b.denied(t, fermatav1.ClusterService_ListNodes_FullMethodName, "missing")); got != 1 {
		t.Errorf("%v calls without credentials were counted", got)
	}
}

// TestCallersHearTheCause of a refusal in words and for programs, and no more of what the node knows.
func TestCallersHearTheCause(t *testing.T) {
	b := serveGated(t, Options{Authority: newAuthority(t, authz.Limits{}, allow(authz.Viewer, "*", "*"))})
	conn := b.dial(t)
	for _, cause := range []authz.Cause{
		authz.CauseUnknown, authz.CauseSignature, authz.CauseExpired, authz.CauseNotYetValid,
		authz.CauseAudience, authz.CauseClaims, authz.CauseCertificate, authz.CauseMalformed,
	} {
		text := guard.RefusalText(cause)
		if text == "" {
			t.Errorf("%s has no text", cause)
		}
		err := listNodes(as(t.Context(), "bad:"+string(cause)), conn)
		s := status.Convert(err)
		if s.Code() != codes.Unauthenticated || s.Message() != text || reasonOf(err) != "CREDENTIALS_INVALID" {
			t.Errorf("%s: %v", cause, err)
		}
		var named string
		for _, d := range s.Details() {
			if info, ok := d.(*errdetails.ErrorInfo); ok {
				named = info.GetMetadata()["cause"]
			}
		}
		if named != string(cause) || strings.Contains(err.Error(), "the file has others") {
			t.Errorf("%s: for programs %q, %v", cause, named, err)
		}
	}
	if err := listNodes(as(t.Context(), "bad:OTHER"), conn); !strings.Contains(err.Error(), "is not accepted") {
		t.Errorf("a cause without words: %v", err)
	}
	if !strings.Contains(b.logs.String(), "the file has others") {
		t.Error("the log of the node does not have the detail")
	}
}

// denied finds the counter of a kind of refusal.
func (b *gated) denied(t *testing.T, method, reason string) prometheus.Collector {
	t.Helper()
	return registered(t, b.registry, prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "fermata_access_denied_total", Help: "Calls that were refused, by method and reason.",
	}, []string{"method", "reason"})).WithLabelValues(method, reason)
}

// registered returns the collector that is registered under the same name.
func registered[C prometheus.Collector](t *testing.T, r prometheus.Registerer, c C) C {
	t.Helper()
	var already prometheus.AlreadyRegisteredError
	if err := r.Register(c); !errors.As(err, &already) {
		t.Fatalf("not registered before: %v", err)
	}
	return already.ExistingCollector.(C)
}

// A preview of what the request says is for everybody who has a role, one of what is stored
// for those who may read it.
func TestPreviewsOfStoredJobsTakeThePermissionToRead(t *testing.T) {
	authority := newAuthority(t, authz.Limits{}, allow(authz.Viewer, "team-a", "ann"), allow(authz.Worker, "team-a", "w"))
	jobs := fermatav1.NewJobServiceClient(serveGated(t, Options{Authority: authority}).dial(t))
	for _, c := range []struct {
		token, job string
		want       codes.Code
	}{
		{"ann", "namespaces/team-a/jobs/x", codes.OK},
		{"ann", "namespaces/team-b/jobs/x", codes.PermissionDenied},
		{"ann", "", codes.OK},
		{"w", "namespaces/team-a/jobs/x", codes.PermissionDenied},
		{"w", "", codes.OK},
		{"stranger", "", codes.PermissionDenied},
		{"stranger", "namespaces/team-a/jobs/x", codes.PermissionDenied},
	} {
		if _, err := jobs.PreviewSchedule(as(t.Context(), c.token), &fermatav1.PreviewScheduleRequest{Job: c.job}); status.Code(err) != c.want {
			t.Errorf("%s previews %q: %v, want %v", c.token, c.job, err, c.want)
		}
	}
}

// keptPreview keeps the last preview that was asked for.
type keptPreview struct {
	Jobs
	last job.PreviewRequest
}

func (k *keptPreview) Preview(_ context.Context, p job.PreviewRequest) (job.Preview, error) {
	k.last = p
	return job.Preview{}, nil
}

// TestPreviewsShowDefaultsThatTheCallerMayRead: those of a queue to who may read its jobs, those of a namespace to who
// may read some of it.
func TestPreviewsShowDefaultsThatTheCallerMayRead(t *testing.T) {
	layer := func(source backoff.Source, attempts int) backoff.Layer {
		l := backoff.Layer{Source: source, Set: backoff.FieldSet(0).With(backoff.RetryMaxAttempts)}
		l.Values.Retry.MaxAttempts = attempts
		return l
	}
	defaults := &backoff.Defaults{
		Cluster: layer(backoff.Source{Kind: backoff.FromCluster}, 2),
		Namespaces: map[string]backoff.Layer{
			"default": layer(backoff.Source{Kind: backoff.FromNamespace, Name: "default"}, 3),
			"team-a":  layer(backoff.Source{Kind: backoff.FromNamespace, Name: "team-a"}, 4),
		},
		Queues: map[backoff.QueueName]backoff.Layer{
			{Namespace: "default", Queue: "default"}: layer(backoff.Source{Kind: backoff.FromQueue, Name: "default/default"}, 5),
			{Namespace: "team-a", Queue: "default"}:  layer(backoff.Source{Kind: backoff.FromQueue, Name: "team-a/default"}, 6),
			{Namespace: "team-a", Queue: "mail"}:     layer(backoff.Source{Kind: backoff.FromQueue, Name: "team-a/mail"}, 7),
		},
	}
	mailer := allow(authz.Viewer, "team-a", "mailer")
	mailer.Queues = []string{"mail"}
	partly := allow(authz.Viewer, "default", "partly")
	partly.Queues = []string{"mail"}
	authority := newAuthority(t, authz.Limits{}, mailer, partly, allow(authz.Viewer, "default", "all"), allow(authz.Worker, "default", "w"))
	previews := &keptPreview{}
	jobs := fermatav1.NewJobServiceClient(serveGated(t, Options{Authority: authority, Defaults: defaults, Jobs: previews}).dial(t))
	for _, c := range []struct {
		token, queue string
		attempts     int // 0: denied
	}{
		{"mailer", "namespaces/team-a/queues/mail", 7},
		{"mailer", "namespaces/team-a/queues/default", 0},
		{"mailer", "namespaces/default/queues/default", 0},
		{"mailer", "", 2},
		{"partly", "", 3},
		{"all", "", 5},
		{"all", "namespaces/team-a/queues/mail", 0},
		{"w", "", 2},
		{"w", "namespaces/default/queues/default", 0},
	} {
		_, err := jobs.PreviewSchedule(as(t.Context(), c.token), &fermatav1.PreviewScheduleRequest{PolicyQueue: c.queue, RetryPolicy: &fermatav1.RetryPolicy{}})
		switch {
		case c.attempts == 0 && status.Code(err) != codes.PermissionDenied:
			t.Errorf("%s previews %q: %v, want it denied", c.token, c.queue, err)
		case c.attempts != 0 && (err != nil || previews.last.Retry == nil || previews.last.Retry.MaxAttempts != c.attempts):
			t.Errorf("%s previews %q: %+v, %v, want %d attempts", c.token, c.queue, previews.last.Retry, err, c.attempts)
		}
	}
}

func TestCertificatesAndTokens(t *testing.T) {
	ca := newCA(t)
	authority := newAuthority(t, authz.Limits{}, authz.Rule{Subjects: []string{"cn:ops", "token:ann"}, Role: authz.Viewer, Namespaces: []string{"*"}})
	for name, c := range map[string]struct {
		clientAuth tls.ClientAuthType
		cert       tls.Certificate
		token      string
		code       codes.Code
	}{
		"certificate":                {tls.RequireAndVerifyClientCert, ca.leaf(t, "ops"), "", codes.OK},
		"certificate without a role": {tls.RequireAndVerifyClientCert, ca.leaf(t, "eve"), "", codes.PermissionDenied},
		"the token counts":           {tls.RequireAndVerifyClientCert, ca.leaf(t, "eve"), "ann", codes.OK},
		"the token counts, too":      {tls.RequireAndVerifyClientCert, ca.leaf(t, "ops"), "eve", codes.PermissionDenied},
		"no way back to it":          {tls.RequireAndVerifyClientCert, ca.leaf(t, "ops"), "bad", codes.Unauthenticated},
		"nobody verified it":         {tls.RequestClientCert, newCA(t).leaf(t, "ops"), "", codes.Unauthenticated},
		"none":                       {tls.VerifyClientCertIfGiven, tls.Certificate{}, "", codes.Unauthenticated},
	} {
		t.Run(name, func(t *testing.T) {
			b := serveGated(t, Options{Authority: authority, Credentials: credentials.NewTLS(&tls.Config{
				MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{ca.leaf(t, "node")}, ClientCAs: ca.pool, ClientAuth: c.clientAuth,
			})})
			client := &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: ca.pool, ServerName: "node"}
			if c.cert.Certificate != nil {
				client.Certificates = []tls.Certificate{c.cert}
			}
			ctx := t.Context()
			if c.token != "" {
				ctx = as(ctx, c.token)
			}
			conn := b.dial(t, grpc.WithTransportCredentials(credentials.NewTLS(client)))
			for range 2 { // the second call is judged by what the first has found out
				if err := listNodes(ctx, conn); status.Code(err) != c.code {
					t.Errorf("%v", err)
				}
			}
		})
	}
}

func TestProofIsKeptAndRevoked(t *testing.T) {
	authority := newAuthority(t, authz.Limits{}, allow(authz.Viewer, "*", "*"))
	b := serveGated(t, Options{Authority: authority})
	conn := b.dial(t)
	for range 5 {
		if err := listNodes(as(t.Context(), "ann"), conn); err != nil {
			t.Fatal(err)
		}
	}
	if n := authority.asked.Load(); n != 1 {
		t.Errorf("the authority was asked %d times about one token of one connection", n)
	}
	// Another token of the same connection, as behind a proxy, is somebody else.
	if err := listNodes(as(t.Context(), "bad"), conn); status.Code(err) != codes.Unauthenticated {
		t.Errorf("another token on a connection that was proved: %v", err)
	}
	authority.revoke("ann")
	if err := listNodes(as(t.Context(), "ann"), conn); status.Code(err) != codes.Unauthenticated {
		t.Errorf("a token that was taken back: %v", err)
	}
}

func TestDenialSaysWhatIsMissingOnly(t *testing.T) {
	b := serveGated(t, Options{Authority: newAuthority(t, authz.Limits{}, allow(authz.Viewer, "secret-rule-*", "ann"))})
	conn := b.dial(t)
	for _, id := range []string{"there", "not-there"} {
		// The handler of the fake would panic: it is not reached, whether the job is
		// there or not.
		_, err := fermatav1.NewJobServiceClient(conn).PauseJob(as(t.Context(), "ann"), &fermatav1.PauseJobRequest{Name: "namespaces/team/jobs/" + id})
		st := status.Convert(err)
		if st.Code() != codes.PermissionDenied || st.Message() != `the permission to operate jobs in namespace "team" is missing` {
			t.Errorf("%s: %v", id, err)
		}
		info := st.Details()[0].(*errdetails.ErrorInfo)
		if len(st.Details()) != 1 || info.GetReason() != "PERMISSION_MISSING" || info.GetMetadata()["permission"] != "operate jobs" || info.GetMetadata()["namespace"] != "team" {
			t.Errorf("%s: %v", id, st.Details())
		}
	}
	if log := b.logs.String(); !strings.Contains(log, "access denied") || !strings.Contains(log, "subject=token:ann") || strings.Contains(log, "Bearer") {
		t.Errorf("log: %s", log)
	}
	if got := testutil.ToFloat64(b.denied(t, fermatav1.JobService_PauseJob_FullMethodName, "denied")); got != 2 {
		t.Errorf("%v denials counted", got)
	}
}

func TestBatchesReachNoOtherNamespace(t *testing.T) {
	b := serveGated(t, Options{Authority: newAuthority(t, authz.Limits{}, allow(authz.Admin, "mine", "ann"))})
	conn, ctx := b.dial(t), as(t.Context(), "ann")
	jobs := fermatav1.NewJobServiceClient(conn)
	answer, err := jobs.BatchCreateJobs(ctx, &fermatav1.BatchCreateJobsRequest{Parent: "namespaces/mine", Requests: []*fermatav1.CreateJobRequest{
		{Parent: "namespaces/mine", JobId: "a", Job: newJobPB()}, {Parent: "namespaces/theirs", JobId: "b", Job: newJobPB()},
	}})
	if err != nil || answer.GetResults()[1].GetCode() != int32(codes.InvalidArgument) || len(b.jobs.batch) != 1 || b.jobs.batch[0].Definition.Namespace != "mine" {
		t.Errorf("batch: %v %v %+v", answer, err, b.jobs.batch)
	}
	_, err = jobs.RedriveDeadLetters(ctx, &fermatav1.RedriveDeadLettersRequest{Parent: "namespaces/mine", Names: []string{"namespaces/theirs/jobs/x/deadLetters/job"}})
	if status.Code(err) != codes.InvalidArgument || b.jobs.redrive.Records != nil {
		t.Errorf("redrive: %v %+v", err, b.jobs.redrive)
	}
	_, err = fermatav1.NewBackupServiceClient(conn).RestoreJobs(ctx, &fermatav1.RestoreJobsRequest{
		Parent: "namespaces/mine", Jobs: []*fermatav1.JobBackup{{Job: &fermatav1.Job{Name: "namespaces/theirs/jobs/x", Handler: "h"}}},
	})
	if err != nil || slices.ContainsFunc(b.jobs.backups, func(b job.Backup) bool { return b.Definition.Namespace != "mine" }) {
		t.Errorf("restore: %v %+v", err, b.jobs.backups)
	}
}

func newJobPB() *fermatav1.Job { return &fermatav1.Job{Handler: "h"} }

func TestLimits(t *testing.T) {
	rules := []authz.Rule{
		{Subjects: []string{"token:slow"}, Role: authz.Viewer, Namespaces: []string{"*"}, Limits: authz.Limits{Rate: 0.001, Burst: 2}},
		{Subjects: []string{"token:narrow"}, Role: authz.Viewer, Namespaces: []string{"*"}, Limits: authz.Limits{Connections: 1}},
		allow(authz.Viewer, "*", "*"),
	}
	b := serveGated(t, Options{Authority: newAuthority(t, authz.Limits{}, rules...)})
	first, second := b.dial(t), b.dial(t)
	call := func(conn *grpc.ClientConn, token string) (string, error) {
		err := listNodes(as(t.Context(), token), conn)
		if err == nil {
			return "", nil
		}
		if status.Code(err) != codes.ResourceExhausted {
			return "", err
		}
		for _, d := range status.Convert(err).Details() {
			if info, ok := d.(*errdetails.RetryInfo); ok && info.GetRetryDelay().AsDuration() > 0 {
				return reasonOf(err), nil
			}
		}
		return "", errors.New("no delay is named")
	}
	for i, want := range []string{"", "", "LIMIT_RATE", "LIMIT_RATE"} {
		// A second connection is no second bucket.
		if got, err := call([]*grpc.ClientConn{first, second}[i%2], "slow"); got != want || err != nil {
			t.Errorf("call %d: %q %v, want %q", i, got, err, want)
		}
	}
	if got, err := call(first, "other"); got != "" || err != nil {
		t.Errorf("the limit of one is felt by another: %q %v", got, err)
	}
	if got, err := call(first, "narrow"); got != "" || err != nil {
		t.Errorf("first connection: %q %v", got, err)
	}
	if got, err := call(second, "narrow"); got != "LIMIT_CONNECTIONS" || err != nil {
		t.Errorf("second connection: %q %v", got, err)
	}
	first.Close()
	redistest.Eventually(t, patience, "a call after the first was closed", func() error {
		got, err := call(second, "narrow")
		if err == nil && got != "" {
			err = errors.New(got)
		}
		return err
	})
}

func TestCallsAtOnceAreLimited(t *testing.T) {
	rule := allow(authz.Worker, "*", "w")
	rule.Limits.MaxOpenCalls = 1
	b := serveGated(t, Options{Authority: newAuthority(t, authz.Limits{}, rule)})
	conn := b.dial(t)
	ctx, cancel := context.WithCancel(as(t.Context(), "w"))
	defer cancel()
	client := fermatav1.NewWorkerServiceClient(conn)
	s, err := client.Work(ctx)
	if err != nil {
		t.Fatal(err)
	}
	sessiontest.ExpectWelcome(t, s)
	again, err := client.Work(as(t.Context(), "w"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := again.Recv(); reasonOf(err) != "LIMIT_CALLS" {
		t.Errorf("second stream: %v", err)
	}
}

func TestLimitsWithoutAuthority(t *testing.T) {
	b := serveGated(t, Options{Limits: authz.Limits{Rate: 0.001, Burst: 1}})
	conn := b.dial(t)
	if err := listNodes(t.Context(), conn); err != nil {
		t.Fatal(err)
	}
	if err := listNodes(t.Context(), conn); reasonOf(err) != "LIMIT_RATE" {
		t.Errorf("%v", err)
	}
}
