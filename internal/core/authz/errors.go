package authz

import "errors"

// Errors of authentication. The error that wraps one of them has the details for the log of the node. A caller
// gets only the cause of a [CredentialError].
var (
	// ErrUnauthenticated: the credential is missing, unknown, forged or expired.
	ErrUnauthenticated = errors.New("not authenticated")
	// ErrUnavailable: the credential cannot be verified now.
	ErrUnavailable = errors.New("authentication is not possible now")
)

// Cause is the reason why a credential was refused, as far as its holder may know it. It never reveals other
// content of the access file.
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
	// CauseMalformed: the credential has no known format.
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
