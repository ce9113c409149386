package guard

import (
	"context"
	"errors"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/fermata-io/fermata/internal/api/apierror"
	"github.com/fermata-io/fermata/internal/core/authz"
	"github.com/fermata-io/fermata/internal/lib/fairshare"
)

// Caller is who makes a call.
type Caller struct {
	gate      *Gate
	method    string
	Identity  authz.Identity
	quota     *quota
	hasRole   bool   // the identity has a role
	namespace string // whose part of the node's turns the call takes
}

type callerKey struct{}

// CallerFrom is nil where nothing is asked of callers.
func CallerFrom(ctx context.Context) *Caller {
	c, _ := ctx.Value(callerKey{}).(*Caller)
	return c
}

// IdentityFrom returns who makes a call; false where callers are not authenticated.
func IdentityFrom(ctx context.Context) (authz.Identity, bool) {
	c := CallerFrom(ctx)
	if c == nil {
		return authz.Identity{}, false
	}
	return c.Identity, true
}

func (c *Caller) isAuthenticated() bool { return c.Identity.Subject != "" }

func (c *Caller) release() {
	if c.quota != nil {
		c.quota.endCall()
	}
}

// authenticate finds who calls. A token counts before a certificate: a certificate
// may be that of a proxy, a token is the caller's own. A token that is not good is
// refused, whatever the certificate.
func (c *Caller) authenticate(ctx context.Context) error {
	conn, g := connectionFrom(ctx), c.gate
	if conn == nil {
		return errors.New("rpc: the server's credentials do not watch connections")
	}
	if g.authority == nil {
		c.quota = g.quotas.quotaFor(conn.hostShare, g.limits)
		return c.countConnection(ctx, conn, conn.memoryShare())
	}
	token, err := bearerToken(ctx)
	if err != nil {
		return c.refuseCredential(ctx, "invalid", err)
	}
	now, generation := time.Now(), g.authority.Generation()
	p := conn.proof.Load()
	fresh := !p.matches(token, generation, now)
	if fresh {
		p, err = c.requestProof(ctx, conn, token, generation, now)
		if err != nil {
			return err
		}
	}
	c.Identity, c.quota, c.hasRole = p.identity, p.quota, p.hasRole
	if err := c.countConnection(ctx, conn, p.memoryOwner()); err != nil {
		return err
	}
	if fresh {
		// Only now: one that its identity has no place for is bounded as those of strangers.
		conn.markAuthenticated(p)
	}
	return nil
}

// countConnection counts the connection for its identity, and its memory for an owner.
func (c *Caller) countConnection(ctx context.Context, conn *connection, memoryOwner string) error {
	limit := conn.countFor(c.quota, memoryOwner)
	if limit == "" {
		return nil
	}
	return c.refuseOverLimit(ctx, limit, time.Second)
}

// requestProof asks the authority.
func (c *Caller) requestProof(ctx context.Context, conn *connection,
	token string, generation uint64, now time.Time) (*proof, error) {
	last := conn.lastQuota()
	if err := c.checkRefusals(ctx, last); err != nil {
		return nil, err
	}
	id, err := c.identify(ctx, conn, token)
	if err != nil && !errors.Is(err, authz.ErrUnavailable) {
		last.countRefused()
	}
	switch {
	case errors.Is(err, errNoCredential):
		return nil, c.refuseMissingCredential(ctx)
	case errors.Is(err, authz.ErrUnavailable):
		return nil, c.refuse(ctx, codes.Unavailable, "unavailable", &errdetails.ErrorInfo{Reason: "CREDENTIALS_UNCHECKED"},
			"this node cannot get the keys of the token's issuer, and so cannot check the token now; repeat the call",
			err, apierror.RetryInfo(time.Second))
	case err != nil:
		return nil, c.refuseCredential(ctx, "invalid", err)
	}
	return c.gate.newProof(id, token, generation, now), nil
}

var errNoCredential = errors.New("there is neither a token nor a verified certificate")

// identify finds who a token is of, or without one the connection's certificate.
func (c *Caller) identify(ctx context.Context, conn *connection, token string) (authz.Identity, error) {
	switch certificate := conn.verifiedCertificate(); {
	case token != "":
		return c.gate.authority.Token(ctx, token)
	case certificate != nil:
		return c.gate.authority.Certificate(certificate)
	}
	return authz.Identity{}, errNoCredential
}

// refuseMissingCredential refuses a call without a credential.
func (c *Caller) refuseMissingCredential(ctx context.Context) error {
	return c.refuseCredential(ctx, "missing", errNoCredential)
}

// bearerToken takes the token out of the metadata; "" if there is none.
func bearerToken(ctx context.Context) (string, error) {
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

// beginCall counts the call.
func (c *Caller) beginCall(ctx context.Context) error {
	if limit, retry := c.quota.beginCall(); limit != "" {
		return c.refuseOverLimit(ctx, limit, retry)
	}
	return nil
}

// Charge counts work that is worth so many calls more. It waits until the rate of the
// identity allows them.
func (c *Caller) Charge(ctx context.Context, calls int) error {
	if err := c.quota.chargeCalls(ctx, calls); err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return c.refuseOverLimit(ctx, "rate", time.Second) // the deadline comes before
	}
	return nil
}

// Grants are the roles of the caller.
func (c *Caller) Grants() []authz.Grant { return c.gate.authority.Grants(c.Identity) }

// Limits are the limits of the caller's identity.
func (c *Caller) Limits() authz.Limits { return c.gate.authority.Limits(c.Identity) }

// LeaseKey is the key that the leases of workers are signed with.
func (c *Caller) LeaseKey() []byte { return c.gate.binding }

// ShareHolder is the caller as one who takes places of a table for a namespace, or for all of
// them. Unauthenticated callers share one holder.
func (c *Caller) ShareHolder(namespace string) fairshare.Holder {
	if c == nil {
		return fairshare.Holder{}
	}
	return fairshare.Holder{
		Namespace: namespace, Identity: c.Identity.Subject,
		Admin: c.gate.authority.Allows(c.Identity, authz.AdministerCluster, authz.AllNamespaces, "").Allowed,
	}
}

// Reauthenticate checks the credential of a stream's caller again, and returns the caller with its present roles.
func (c *Caller) Reauthenticate(ctx context.Context) (*Caller, error) {
	now := &Caller{gate: c.gate, method: c.method}
	if err := now.authenticate(ctx); err != nil {
		if status.Code(err) == codes.Unauthenticated && c.gate.logLimiter.Allow() {
			c.gate.logger.WarnContext(ctx, "credential of a live stream is no longer accepted, the stream ends",
				"method", c.method, "subject", c.Identity.Subject, "peer", PeerAddress(ctx), "expires", c.Identity.Expires)
		}
		return nil, err
	}
	if now.Identity.Subject != c.Identity.Subject {
		return nil, now.refuseCredential(ctx, "invalid", errors.New("the credential has come to mean somebody else"))
	}
	return now, nil
}
