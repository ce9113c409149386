package rpc

import (
	"context"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/fermata-io/fermata/internal/api/apierror"
)

// TestChangesNeedAKeyspace: every method that changes something is refused while the keyspace
// is gone, and those that read are not.
func TestChangesNeedAKeyspace(t *testing.T) {
	fault := "the keyspace is gone"
	guard := keyspaceGuard(func() string { return fault })
	call := func(method string) (served bool, code codes.Code) {
		_, err := guard.interceptUnary(t.Context(), nil, &grpc.UnaryServerInfo{FullMethod: method}, func(context.Context, any) (any, error) {
			served = true
			return nil, nil
		})
		st, _ := apierror.ToStatus(err)
		return served, st.Code()
	}
	for method := range auditRules {
		if served, code := call(method); served || code != codes.FailedPrecondition {
			t.Errorf("%s is served: %t, %s", method, served, code)
		}
	}
	for _, method := range readOnlyMethods {
		if served, _ := call(method); !served {
			t.Errorf("%s reads and is refused", method)
		}
	}
	fault = ""
	for method := range auditRules {
		if served, _ := call(method); !served {
			t.Errorf("%s is refused although nothing is wrong", method)
		}
	}
}
