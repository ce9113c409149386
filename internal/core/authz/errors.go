package authz

import "errors"

// Errors of authentication. What wraps them says why, for the log of the node;
// callers hear no more than the cause of a [CredentialError].
var (
	// ErrUnauthenticated: the credential is missing, unknown, forged or expired.
	ErrUnauthenticated = errors.New("not authenticated")
	// ErrUnavailable: whether the credential is good cannot be told now.
	ErrUnavailable = errors.New("authentication is not possible now")
)

// Cause is why a credential is refused, as far as its holder may know. It never says what
// else the access file has.
type Cause string

// Causes of a refusal. Those about the content of a token are given for verified signatures alone.
const (
	// CauseUnknown: the file has neither the token nor its issuer.
	CauseUnknown Cause = "UNKNOWN"
	// CauseSignature: none of the issuer's keys that are known has signed the token.
	CauseSignature Cause = "SIGNATURE"
	CauseExpired   Cause = "EXPIRED"
	// CauseNotYetValid: by this host's clock the token's time has not begun.
	CauseNotYetValid Cause = "NOT_YET_VALID"
	CauseAudience    Cause = "AUDIENCE"
	// CauseClaims: the claims of a genuine token give no identity.
	CauseClaims Cause = "CLAIMS"
	// CauseCertificate: the file names none of the names of a verified certificate.
	CauseCertificate Cause = "CERTIFICATE"
	// CauseMalformed: what was sent is no credential of any known form.
	CauseMalformed Cause = "MALFORMED"
)

// CredentialError is a credential that is not accepted. It is an [ErrUnauthenticated].
type CredentialError struct {
	Cause Cause
	// Detail is for the log of the node.
	Detail string
}

func (e *CredentialError) Error() string { return ErrUnauthenticated.Error() + ": " + e.Detail }

// Unwrap has errors.Is find [ErrUnauthenticated].
func (e *CredentialError) Unwrap() error { return ErrUnauthenticated }
