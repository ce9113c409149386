package guard

import (
	"context"
	"crypto/x509"

	"github.com/fermata-io/fermata/internal/core/authz"
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
	// AllowsAnyQueue decides for any of the queues of a namespace.
	AllowsAnyQueue(id authz.Identity, want authz.Permission, namespace string) authz.Decision
	Limits(authz.Identity) authz.Limits
	Grants(authz.Identity) []authz.Grant
}
