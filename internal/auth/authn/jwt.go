package authn

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/fermata-io/fermata/internal/core/authz"
)

// Defaults and bounds of JWTs.
const (
	defaultLeeway = time.Minute
	maxLeeway     = 5 * time.Minute
	maxJWT        = 12 << 10
	maxGroups     = 256
	maxName       = 256
)

// allowedAlgorithms are the algorithms that a file may allow: public keys only.
var allowedAlgorithms = []jose.SignatureAlgorithm{
	jose.RS256, jose.RS384, jose.RS512, jose.PS256, jose.PS384, jose.PS512, jose.ES256, jose.ES384, jose.ES512,
	jose.EdDSA,
}

var defaultAlgorithms = []jose.SignatureAlgorithm{jose.RS256, jose.ES256, jose.EdDSA}

// issuer is a trusted issuer of JWTs.
type issuer struct {
	name, issuer, audience string
	leeway                 time.Duration
	algorithms             []jose.SignatureAlgorithm
	nameClaim, groupsClaim string
	source                 keySource
	keys                   *keySet
}

// newIssuer reads an entry. The caller connects its keys.
func newIssuer(e issuerEntry) (*issuer, error) {
	i := &issuer{
		name: e.Name, issuer: e.Issuer, audience: e.Audience, leeway: defaultLeeway, algorithms: defaultAlgorithms,
		nameClaim: e.NameClaim, groupsClaim: e.GroupsClaim,
		source: keySource{location: e.JWKS, ca: e.JWKSCA, token: e.JWKSToken, refetchPause: time.Duration(e.Refetch)},
	}
	var faults []error
	if fault := ValidateName(e.Name); fault != "" {
		faults = append(faults, fmt.Errorf("name: %q %s", e.Name, fault))
	}
	if e.Issuer == "" || e.Audience == "" {
		faults = append(faults, errors.New("issuer and audience must not be empty"))
	}
	faults = append(faults, i.source.validate())
	if e.Leeway != nil {
		i.leeway = time.Duration(*e.Leeway)
	}
	if i.leeway < 0 || i.leeway > maxLeeway {
		faults = append(faults, fmt.Errorf("leeway: %v, want 0s to %v", i.leeway, maxLeeway))
	}
	if i.source.refetchPause == 0 {
		i.source.refetchPause = defaultRefetchPause
	}
	if i.source.refetchPause < time.Second {
		faults = append(faults, fmt.Errorf("refetch: %v, want at least 1s", i.source.refetchPause))
	}
	if len(e.Algorithms) > 0 {
		i.algorithms = nil
	}
	for _, a := range e.Algorithms {
		if !slices.Contains(allowedAlgorithms, jose.SignatureAlgorithm(a)) {
			faults = append(faults, fmt.Errorf("algorithms: %q is none of %v", a, allowedAlgorithms))
		}
		i.algorithms = append(i.algorithms, jose.SignatureAlgorithm(a))
	}
	if i.nameClaim == "" {
		i.nameClaim = "sub"
	}
	return i, errors.Join(faults...)
}

// looksLikeJWT distinguishes a JWT from a static token, which has no dots.
func looksLikeJWT(token string) bool { return strings.Count(token, ".") == 2 }

func newRefusal(cause authz.Cause, format string, args ...any) error {
	return &authz.CredentialError{Cause: cause, Detail: fmt.Sprintf(format, args...)}
}

// identifyJWT verifies a token of one of the issuers.
func identifyJWT(ctx context.Context, issuers []*issuer, token string, now time.Time) (authz.Identity, error) {
	if len(token) > maxJWT {
		return authz.Identity{}, newRefusal(authz.CauseMalformed, "the token has %d bytes", len(token))
	}
	parsed, err := jwt.ParseSigned(token, allowedAlgorithms)
	if err != nil {
		return authz.Identity{}, newRefusal(authz.CauseMalformed, "not a JWT of an allowed algorithm")
	}
	// The claimed issuer only selects the keys to try.
	var claimed jwt.Claims
	if err := parsed.UnsafeClaimsWithoutVerification(&claimed); err != nil {
		return authz.Identity{}, newRefusal(authz.CauseMalformed, "its claims cannot be read")
	}
	for _, i := range issuers {
		if i.issuer == claimed.Issuer {
			return i.verifyToken(ctx, parsed, now)
		}
	}
	return authz.Identity{}, newRefusal(authz.CauseUnknown, "its issuer is not known")
}

// verifyToken verifies signature and claims.
func (i *issuer) verifyToken(ctx context.Context, token *jwt.JSONWebToken, now time.Time) (authz.Identity, error) {
	header := token.Headers[0]
	if !slices.Contains(i.algorithms, jose.SignatureAlgorithm(header.Algorithm)) {
		return authz.Identity{}, newRefusal(authz.CauseSignature, "algorithm %q is not allowed for issuer %q",
			header.Algorithm, i.name)
	}
	keys, complete := i.keys.findKeys(ctx, header.KeyID)
	if len(keys) == 0 && !complete {
		return authz.Identity{}, fmt.Errorf("%w: the keys of issuer %q cannot be had", authz.ErrUnavailable, i.name)
	}
	var standard jwt.Claims
	var all map[string]any
	verified := false
	for _, k := range keys {
		if k.Algorithm != "" && k.Algorithm != header.Algorithm {
			continue
		}
		if token.Claims(k.Key, &standard, &all) == nil {
			verified = true
			break
		}
	}
	if !verified {
		return authz.Identity{}, newRefusal(authz.CauseSignature, "no key of issuer %q has signed it", i.name)
	}
	if standard.Expiry == nil {
		return authz.Identity{}, newRefusal(authz.CauseClaims, "it never expires")
	}
	expected := jwt.Expected{Issuer: i.issuer, AnyAudience: jwt.Audience{i.audience}, Time: now}
	if err := standard.ValidateWithLeeway(expected, i.leeway); err != nil {
		return authz.Identity{}, newRefusal(refusalCause(err), "%v", err)
	}
	return i.identityOf(standard, all)
}

// refusalCause is the cause of the refusal of a token with a valid signature.
func refusalCause(err error) authz.Cause {
	switch {
	case errors.Is(err, jwt.ErrExpired):
		return authz.CauseExpired
	case errors.Is(err, jwt.ErrNotValidYet), errors.Is(err, jwt.ErrIssuedInTheFuture):
		return authz.CauseNotYetValid
	case errors.Is(err, jwt.ErrInvalidAudience):
		return authz.CauseAudience
	}
	return authz.CauseClaims
}

// identityOf reads the names from verified claims.
func (i *issuer) identityOf(standard jwt.Claims, all map[string]any) (authz.Identity, error) {
	name, _ := all[i.nameClaim].(string)
	if name == "" || len(name) > maxName {
		return authz.Identity{}, newRefusal(authz.CauseClaims, "claim %q is not a name", i.nameClaim)
	}
	if err := authz.CheckName(name); err != nil {
		return authz.Identity{}, newRefusal(authz.CauseClaims, "claim %q: %v", i.nameClaim, err)
	}
	id := authz.Identity{
		Subject: authz.Subject(authz.KindJWT, i.name, name),
		Expires: standard.Expiry.Time().Add(i.leeway),
	}
	if i.groupsClaim == "" {
		return id, nil
	}
	var err error
	id.Groups, err = i.groupsOf(all[i.groupsClaim])
	if err != nil {
		return authz.Identity{}, err
	}
	return id, nil
}

// groupsOf reads the names of groups from a claim, a text or a list of them.
func (i *issuer) groupsOf(claim any) ([]string, error) {
	list, ok := claim.([]any)
	if !ok {
		list = []any{claim}
	}
	if len(list) > maxGroups {
		return nil, newRefusal(authz.CauseClaims, "claim %q has %d entries", i.groupsClaim, len(list))
	}
	var groups []string
	for _, entry := range list {
		name, _ := entry.(string)
		if name == "" {
			continue
		}
		if err := authz.CheckName(name); err != nil {
			return nil, newRefusal(authz.CauseClaims, "claim %q: %v", i.groupsClaim, err)
		}
		groups = append(groups, authz.Subject(authz.KindGroup, i.name, name))
	}
	return groups, nil
}
