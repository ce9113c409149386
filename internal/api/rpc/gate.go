package rpc

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/fermata-io/fermata/internal/core/authz"
	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/lib/fairshare"
)

// Authority proves who calls and decides what they may do. Errors wrap those of
// package authz.
type Authority interface {
	// Generation changes when an answer of any other method may have.
	Generation() uint64
	// Token answers from what is known already when ctx is over: it must not wait then.
	Token(ctx context.Context, token string) (authz.Identity, error)
	Certificate(*x509.Certificate) (authz.Identity, error)
	Allows(id authz.Identity, want authz.Permission, namespace, queue string) authz.Decision
	// AllowsSome decides for any of the queues of a namespace.
	AllowsSome(id authz.Identity, want authz.Permission, namespace string) authz.Decision
	Limits(authz.Identity) authz.Limits
	Grants(authz.Identity) []authz.Grant
}

// gate lets calls in. Without an authority everybody is let in, within the limits
// of their host.
type gate struct {
	authority Authority
	limits    authz.Limits // without an authority
	binding   []byte       // see [Options]
	quotas    quotas
	denied    *prometheus.CounterVec
	leases    prometheus.Counter
	logger    *slog.Logger
	loud      *rate.Limiter // bounds the log
}

func newGate(o Options) (*gate, error) {
	g := &gate{
		authority: o.Authority, limits: o.Limits, binding: o.Binding, logger: o.Logger,
		quotas: quotas{by: make(map[string]*quota)}, loud: rate.NewLimiter(1, 20),
		denied: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "fermata_access_denied_total", Help: "Calls that were refused, by method and by what was amiss.",
		}, []string{"method", "reason"}),
		leases: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "fermata_access_foreign_leases_total", Help: "Leases that workers named without having got them.",
		}),
	}
	if o.Registerer == nil {
		return g, nil
	}
	var err error
	if g.denied, err = registered(o.Registerer, g.denied); err != nil {
		return nil, err
	}
	g.leases, err = registered(o.Registerer, g.leases)
	return g, err
}

// registered registers a collector, or finds the one that is there: a node has two
// gates, one for clients and one for peers.
func registered[C prometheus.Collector](r prometheus.Registerer, c C) (C, error) {
	err := r.Register(c)
	var already prometheus.AlreadyRegisteredError
	if errors.As(err, &already) {
		if there, ok := already.ExistingCollector.(C); ok {
			return there, nil
		}
	}
	return c, err
}

// caller is who makes a call.
type caller struct {
	gate     *gate
	method   string
	identity authz.Identity
	quota    *quota
}

type callerKey struct{}

// callerOf is nil where nothing is asked of callers.
func callerOf(ctx context.Context) *caller {
	c, _ := ctx.Value(callerKey{}).(*caller)
	return c
}

// CallerOf returns who makes a call; false where callers are not authenticated.
func CallerOf(ctx context.Context) (authz.Identity, bool) {
	c := callerOf(ctx)
	if c == nil {
		return authz.Identity{}, false
	}
	return c.identity, true
}

func (g *gate) unary(ctx context.Context, q any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	c, err := g.enter(ctx, info.FullMethod, q)
	if err != nil {
		return nil, err
	}
	defer c.leave()
	if c.known() {
		ctx = context.WithValue(ctx, callerKey{}, c)
	}
	return next(ctx, q)
}

func (g *gate) stream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
	c, err := g.enter(stream.Context(), info.FullMethod, nil)
	if err != nil {
		return err
	}
	defer c.leave()
	if c.known() {
		stream = &calledStream{ServerStream: stream, ctx: context.WithValue(stream.Context(), callerKey{}, c)}
	}
	return next(srv, stream)
}

// calledStream is a stream whose context knows its caller.
type calledStream struct {
	grpc.ServerStream
	ctx context.Context
}

func (s *calledStream) Context() context.Context { return s.ctx }

func (c *caller) known() bool { return c.identity.Subject != "" }

func (c *caller) leave() {
	if c.quota != nil {
		c.quota.end()
	}
}

// enter decides on a call. Who is let in has to leave.
func (g *gate) enter(ctx context.Context, method string, q any) (*caller, error) {
	c := &caller{gate: g, method: method}
	d, ok := demands[method]
	if !ok {
		return nil, c.deny(ctx, authz.AdministerCluster, authz.Everywhere, "", "no permission is decided for the method")
	}
	if d.open {
		if refusal, ok := ctx.Value(refusalKey{}).(error); ok {
			return nil, refusal
		}
		if conn := connectionOf(ctx); conn != nil {
			conn.unproved.opened(conn)
		}
		return c, nil
	}
	if err := c.authenticate(ctx); err != nil {
		return nil, err
	}
	if err := c.begin(ctx); err != nil {
		return nil, err
	}
	if err := c.authorize(ctx, d, q); err != nil {
		c.leave()
		return nil, err
	}
	return c, nil
}

// authenticate finds who calls. A token counts before a certificate: a certificate
// may be that of a proxy, a token is the caller's own. A token that is not good is
// refused, whatever the certificate.
func (c *caller) authenticate(ctx context.Context) error {
	conn, g := connectionOf(ctx), c.gate
	if conn == nil {
		return errors.New("rpc: the server's credentials do not watch connections")
	}
	if g.authority == nil {
		c.quota = g.quotas.of("host:"+conn.host, g.limits)
		return c.counted(ctx, conn)
	}
	token, err := bearer(ctx)
	if err != nil {
		return c.unauthenticated(ctx, "invalid", err)
	}
	now, generation := time.Now(), g.authority.Generation()
	p := conn.proof.Load()
	fresh := !p.fits(token, generation, now)
	if fresh {
		if p, err = c.prove(ctx, conn, token, generation, now); err != nil {
			return err
		}
	}
	c.identity, c.quota = p.identity, p.quota
	if err := c.counted(ctx, conn); err != nil {
		return err
	}
	if fresh {
		// Only now: one that its identity has no place for is bounded as those of strangers.
		conn.proved(p)
	}
	return nil
}

// counted counts the connection for its identity.
func (c *caller) counted(ctx context.Context, conn *connection) error {
	if !conn.belongs(c.quota) {
		return c.exhausted(ctx, "connections", time.Second)
	}
	return nil
}

// prove asks the authority.
func (c *caller) prove(ctx context.Context, conn *connection, token string, generation uint64, now time.Time) (*proof, error) {
	id, err := c.identify(ctx, conn, token)
	switch {
	case errors.Is(err, errNoCredential):
		return nil, c.withoutCredential(ctx)
	case errors.Is(err, authz.ErrUnavailable):
		return nil, c.refuse(ctx, codes.Unavailable, "unavailable", &errdetails.ErrorInfo{Reason: "CREDENTIALS_UNCHECKED"},
			"this node cannot get the keys of the token's issuer, and so cannot check the token now; repeat the call", err, retryInfo(time.Second))
	case err != nil:
		return nil, c.unauthenticated(ctx, "invalid", err)
	}
	return c.gate.newProof(id, token, generation, now), nil
}

var errNoCredential = errors.New("there is neither a token nor a verified certificate")

// identify finds who a token is of, or without one the connection's certificate.
func (c *caller) identify(ctx context.Context, conn *connection, token string) (authz.Identity, error) {
	switch certificate := conn.certificate(); {
	case token != "":
		return c.gate.authority.Token(ctx, token)
	case certificate != nil:
		return c.gate.authority.Certificate(certificate)
	}
	return authz.Identity{}, errNoCredential
}

// withoutCredential refuses a call that names nobody.
func (c *caller) withoutCredential(ctx context.Context) error {
	return c.unauthenticated(ctx, "missing", errNoCredential)
}

func (g *gate) newProof(id authz.Identity, token string, generation uint64, now time.Time) *proof {
	p := &proof{token: token, generation: generation, until: now.Add(keptProof), identity: id}
	if !id.Expires.IsZero() && id.Expires.Before(p.until) {
		p.until = id.Expires
	}
	p.granted = len(g.authority.Grants(id)) > 0
	p.quota = g.quotas.of(id.Subject, g.authority.Limits(id))
	return p
}

// bearer takes the token out of the metadata; "" if there is none.
func bearer(ctx context.Context) (string, error) {
	values := metadata.ValueFromIncomingContext(ctx, "authorization")
	switch len(values) {
	case 0:
		return "", nil
	case 1:
	default:
		return "", errors.New("more than one authorization")
	}
	const scheme = "bearer "
	if v := values[0]; len(v) > len(scheme) && strings.EqualFold(v[:len(scheme)], scheme) {
		return v[len(scheme):], nil
	}
	return "", errors.New("authorization is not a bearer token")
}

// begin counts the call.
func (c *caller) begin(ctx context.Context) error {
	if limit, retry := c.quota.begin(); limit != "" {
		return c.exhausted(ctx, limit, retry)
	}
	return nil
}

// charge counts work that is worth so many calls more. It waits until the rate of the
// identity allows them.
func (c *caller) charge(ctx context.Context, calls int) error {
	if err := c.quota.charge(ctx, calls); err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return c.exhausted(ctx, "rate", time.Second) // the deadline comes before
	}
	return nil
}

// holder is the caller as one who takes places of a table for a namespace, or for all of
// them. Where nobody is authenticated nobody is told apart.
func (c *caller) holder(namespace string) fairshare.Holder {
	if c == nil || c.gate.authority == nil {
		return fairshare.Holder{}
	}
	return fairshare.Holder{
		Namespace: namespace, Identity: c.identity.Subject,
		Admin: c.gate.authority.Allows(c.identity, authz.AdministerCluster, authz.Everywhere, "").Allowed,
	}
}

// authorize decides by the method's row.
func (c *caller) authorize(ctx context.Context, d demand, q any) error {
	if c.gate.authority == nil || d.hello {
		return nil
	}
	namespace := authz.Everywhere
	if d.scope != nil {
		var err error
		if namespace, err = d.scope(q); err != nil {
			return err
		}
	}
	switch d.queues {
	case checkedQueues:
		return c.allowedSome(ctx, d.permission, namespace)
	case namedQueues:
		queues, err := d.named(q)
		if err != nil {
			return err
		}
		return c.allowedAll(ctx, d.permission, namespace, queues)
	}
	return c.allowed(ctx, d.permission, namespace, "")
}

// allowedSome asks for one permission in any of the queues of a namespace.
func (c *caller) allowedSome(ctx context.Context, want authz.Permission, namespace string) error {
	if d := c.gate.authority.AllowsSome(c.identity, want, namespace); !d.Allowed {
		return c.deny(ctx, want, namespace, "", d.Reason)
	}
	return nil
}

// allowedAll asks for one permission in each of these queues; there is one at least.
func (c *caller) allowedAll(ctx context.Context, want authz.Permission, namespace string, queues []string) error {
	if len(queues) == 0 {
		return c.allowed(ctx, want, namespace, "")
	}
	for _, queue := range queues {
		if err := c.allowed(ctx, want, namespace, queue); err != nil {
			return err
		}
	}
	return nil
}

// allowed asks for one permission.
func (c *caller) allowed(ctx context.Context, want authz.Permission, namespace, queue string) error {
	if d := c.gate.authority.Allows(c.identity, want, namespace, queue); !d.Allowed {
		return c.deny(ctx, want, namespace, queue, d.Reason)
	}
	return nil
}

// serves decides whether the caller may work on the queues of a hello.
func (c *caller) serves(ctx context.Context, h job.Hello) error {
	for _, queue := range h.Queues {
		if err := c.allowed(ctx, authz.Work, h.Namespace, queue); err != nil {
			return err
		}
	}
	return nil
}

// deny refuses a caller who is known. It tells what is missing, and neither who has
// it nor whether what was asked for exists.
func (c *caller) deny(ctx context.Context, want authz.Permission, namespace, queue, why string) error {
	lack := map[string]string{"permission": want.String(), "namespace": job.Clip(namespace, job.MaxID)}
	text := fmt.Sprintf("the permission to %s in namespace %q is missing", want, lack["namespace"])
	if namespace == authz.Everywhere {
		text = fmt.Sprintf("the permission to %s in all namespaces is missing", want)
	}
	if want == authz.AnyRole {
		text = "a role is missing: no rule gives one to this identity"
	}
	if queues := c.queuesOf(want, namespace); queue == "" && len(queues) > 0 {
		text = fmt.Sprintf("the permission to %s in namespace %q is limited to queues %s: name one by --queue where the call takes a queue; other calls need a role for all queues",
			want, lack["namespace"], strings.Join(queues, ", "))
	}
	if queue != "" {
		lack["queue"] = job.Clip(queue, job.MaxID)
		text += fmt.Sprintf(" for queue %q", lack["queue"])
	}
	c.note(ctx, "denied", errors.New(why), "permission", want.String(), "namespace", lack["namespace"], "queue", lack["queue"])
	return withDetails(codes.PermissionDenied, text,
		&errdetails.ErrorInfo{Reason: "PERMISSION_MISSING", Domain: errorDomain, Metadata: lack}).Err()
}

// maxShownQueues bounds the queues that a refusal names.
const maxShownQueues = 10

// queuesOf lists the queues for which the caller has a permission in a namespace; none if it has
// it for all of them, or for none.
func (c *caller) queuesOf(want authz.Permission, namespace string) []string {
	if namespace == authz.Everywhere || !c.gate.authority.AllowsSome(c.identity, want, namespace).Allowed {
		return nil
	}
	var queues []string
	for _, g := range c.gate.authority.Grants(c.identity) {
		for _, q := range g.Queues {
			if c.gate.authority.Allows(c.identity, want, namespace, strings.TrimSuffix(q, "*")).Allowed {
				queues = append(queues, job.Clip(q, job.MaxID))
			}
		}
	}
	slices.Sort(queues)
	queues = slices.Compact(queues)
	return queues[:min(len(queues), maxShownQueues)]
}

// refusals are what callers hear of the causes.
var refusals = map[authz.Cause]string{
	authz.CauseUnknown:     "this node knows neither the token nor its issuer: the access file may not have it any more",
	authz.CauseSignature:   "none of the keys that this node has of the token's issuer has signed it; where the issuer has just replaced its keys, repeat the call in half a minute",
	authz.CauseExpired:     "the credential has expired",
	authz.CauseNotYetValid: "by the clock of this node the token is not valid yet",
	authz.CauseAudience:    "the token is for another audience than the access file demands",
	authz.CauseClaims:      "the claims of the token give no identity: the access file says which claim has the name",
	authz.CauseCertificate: "the access file has none of the names of the certificate",
	authz.CauseMalformed:   "what was sent as a token is neither a JWT nor a known token",
}

func (c *caller) unauthenticated(ctx context.Context, reason string, err error) error {
	info := &errdetails.ErrorInfo{Reason: "CREDENTIALS_" + strings.ToUpper(reason)}
	text := "the credential is not accepted: it may have expired or been removed"
	if reason == "missing" {
		text = "give a token, or a certificate that this node knows"
	}
	var refused *authz.CredentialError
	if errors.As(err, &refused) && refusals[refused.Cause] != "" {
		text, info.Metadata = refusals[refused.Cause], map[string]string{"cause": string(refused.Cause)}
	}
	return c.refuse(ctx, codes.Unauthenticated, reason, info, text, err)
}

// exhausted refuses what is beyond a limit.
func (c *caller) exhausted(ctx context.Context, limit string, retry time.Duration) error {
	return c.refuse(ctx, codes.ResourceExhausted, limit, &errdetails.ErrorInfo{Reason: "LIMIT_" + strings.ToUpper(limit)},
		"this identity is at its limit of "+limit, errors.New("limit"), retryInfo(retry))
}

func (c *caller) refuse(ctx context.Context, code codes.Code, reason string, public *errdetails.ErrorInfo, text string, why error, more ...*errdetails.RetryInfo) error {
	c.note(ctx, reason, why)
	public.Domain = errorDomain
	s := withDetails(code, text, public)
	for _, m := range more {
		if detailed, err := s.WithDetails(m); err == nil {
			s = detailed
		}
	}
	return s.Err()
}

// note counts a refusal, and logs it as long as there are few.
func (c *caller) note(ctx context.Context, reason string, why error, more ...any) {
	c.gate.denied.WithLabelValues(c.method, reason).Inc()
	if c.gate.loud.Allow() {
		c.gate.logger.WarnContext(ctx, "access denied", append([]any{
			"method", c.method, "reason", reason, "subject", cmp.Or(c.identity.Subject, "unknown"), "peer", peerAddress(ctx), "error", why,
		}, more...)...)
	}
}

// again looks at the caller of a stream once more: whether its credential is still
// good and still means the same, and its role still covers its queues.
func (c *caller) again(ctx context.Context, h job.Hello) error {
	now, err := c.renewed(ctx)
	if err != nil {
		return err
	}
	return now.serves(ctx, h)
}

// renewed is the caller of a stream as the credential says now.
func (c *caller) renewed(ctx context.Context) (*caller, error) {
	now := &caller{gate: c.gate, method: c.method}
	if err := now.authenticate(ctx); err != nil {
		if status.Code(err) == codes.Unauthenticated && c.gate.loud.Allow() {
			c.gate.logger.WarnContext(ctx, "credential of a live stream is no longer accepted, the stream ends",
				"method", c.method, "subject", c.identity.Subject, "peer", peerAddress(ctx), "expires", c.identity.Expires)
		}
		return nil, err
	}
	if now.identity.Subject != c.identity.Subject {
		return nil, now.unauthenticated(ctx, "invalid", errors.New("the credential has come to mean somebody else"))
	}
	return now, nil
}

// foreign counts and tells of leases that a worker was not given.
func (c *caller) foreign(ctx context.Context, ids []string) {
	c.gate.leases.Add(float64(len(ids)))
	c.note(ctx, "foreign_lease", errors.New("the worker names leases that it was not given"), "leases", len(ids))
}
