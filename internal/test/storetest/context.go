package storetest

import (
	"context"
	"testing"
)

// contextOf is for what happens in cleanup, when the test's own context has
// ended.
func contextOf(t testing.TB) context.Context { return context.WithoutCancel(t.Context()) }
