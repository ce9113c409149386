package guard

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"
	"google.golang.org/grpc"

	"github.com/fermata-io/fermata/internal/core/authz"
	"github.com/fermata-io/fermata/internal/lib/memorybudget"
)

// Gate lets calls in. Without an authority everybody is let in, within the limits
// of their host.
type Gate struct {
	authority  Authority
	limits     authz.Limits // without an authority
	binding    []byte       // see [Options]
	options    Options
	quotas     quotaTable
	turns      turnsOfNode
	asides     placesAside
	unread     *memorybudget.Budget
	strangers  *memorybudget.Budget // the same of connections without an identity
	open       *memorybudget.Budget // of open connections and streams
	requests   requestMemory
	denied     *prometheus.CounterVec
	leases     prometheus.Counter
	logger     *slog.Logger
	logLimiter *rate.Limiter // bounds the log
}

func New(o Options) (*Gate, error) {
	changes := changesOfNode(processMemory(), o.MaxPayload)
	g := &Gate{
		options: o, authority: o.Authority, limits: o.Limits, binding: o.Binding, logger: o.Logger,
		unread: newUnreadBudget(processMemory()), strangers: newStrangersBudget(processMemory()),
		open:     newOpenBudget(processMemory()),
		requests: newRequestMemory(processMemory()),
		quotas:   quotaTable{bySubject: make(map[string]*quota), changes: changes},
		turns:    newTurnsOfNode(changes), asides: newPlacesAside(changes),
		logLimiter: rate.NewLimiter(1, 20),
		denied: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "fermata_access_denied_total", Help: "Calls that were refused, by method and reason.",
		}, []string{"method", "reason"}),
		leases: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "fermata_access_foreign_leases_total", Help: "Leases that workers named without having received them.",
		}),
	}
	if o.Registerer == nil {
		return g, nil
	}
	var err error
	g.denied, err = registerOrReuse(o.Registerer, g.denied)
	if err != nil {
		return nil, err
	}
	g.leases, err = registerOrReuse(o.Registerer, g.leases)
	return g, err
}

// registerOrReuse registers a collector, or finds the one that is there: a node has two
// gates, one for clients and one for peers.
func registerOrReuse[C prometheus.Collector](r prometheus.Registerer, c C) (C, error) {
	err := r.Register(c)
	var already prometheus.AlreadyRegisteredError
	if errors.As(err, &already) {
		if there, ok := already.ExistingCollector.(C); ok {
			return there, nil
		}
	}
	return c, err
}

func (g *Gate) UnaryInterceptor(ctx context.Context, q any,
	info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	c, err := g.admitCall(ctx, info.FullMethod, q)
	if err != nil {
		return nil, err
	}
	defer c.release()
	if c.isAuthenticated() {
		ctx = context.WithValue(ctx, callerKey{}, c)
	}
	if class := turnClassOf(info.FullMethod, q); c.quota != nil && class != noTurn {
		c.namespace = sharedNamespace(info.FullMethod, q)
		withTurn, end, err := c.beginTurn(ctx, class)
		if err != nil {
			return nil, err
		}
		defer end()
		ctx = withTurn
	}
	return next(ctx, q)
}

func (g *Gate) StreamInterceptor(srv any, stream grpc.ServerStream,
	info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
	c, err := g.admitCall(stream.Context(), info.FullMethod, nil)
	if err != nil {
		return err
	}
	defer c.release()
	if c.isAuthenticated() {
		stream = &callerStream{ServerStream: stream, ctx: context.WithValue(stream.Context(), callerKey{}, c)}
	}
	return next(srv, stream)
}

// callerStream is a stream whose context knows its caller.
type callerStream struct {
	grpc.ServerStream
	ctx context.Context
}

func (s *callerStream) Context() context.Context { return s.ctx }

// admitCall decides on a call. Who is let in has to leave.
func (g *Gate) admitCall(ctx context.Context, method string, q any) (*Caller, error) {
	c := &Caller{gate: g, method: method}
	d, ok := methodPermissions[method]
	if !ok {
		return nil, c.deny(ctx, authz.AdministerCluster, authz.AllNamespaces, "", "no permission is decided for the method")
	}
	if d.open {
		if refusal, ok := ctx.Value(refusalKey{}).(error); ok {
			return nil, refusal
		}
		if conn := connectionFrom(ctx); conn != nil {
			conn.unauthenticated.extendOnce(conn)
		}
		return c, nil
	}
	if err := c.authenticate(ctx); err != nil {
		return nil, err
	}
	if err := c.beginCall(ctx); err != nil {
		return nil, err
	}
	if err := c.authorizeMethod(ctx, d, q); err != nil {
		c.release()
		return nil, err
	}
	return c, nil
}

func (g *Gate) newProof(id authz.Identity, token string, generation uint64, now time.Time) *proof {
	p := &proof{token: token, generation: generation, expires: now.Add(proofLifetime), identity: id}
	if !id.Expires.IsZero() && id.Expires.Before(p.expires) {
		p.expires = id.Expires
	}
	p.hasRole = len(g.authority.Grants(id)) > 0
	p.quota = g.quotas.quotaFor(id.Subject, g.authority.Limits(id))
	return p
}
