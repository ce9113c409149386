package guard

import (
	"context"
	"fmt"

	"google.golang.org/grpc/status"

	"github.com/fermata-io/fermata/internal/core/authz"
	"github.com/fermata-io/fermata/internal/core/job"
)

// queueRule is how a method treats a caller whose role is limited to queues. Each method
// has one: the zero value fails the start of a server.
type queueRule uint8

const (
	unspecifiedQueues queueRule = iota
	// allQueues: the method needs a role for all queues.
	allQueues
	// namedQueues: the request names queues, which the role has to cover.
	namedQueues
	// checkedQueues: the method needs the permission for any queue of the namespace. Package rpc (queue_scope.go)
	// then checks the queue of each job by [RoleScope], and omits jobs of other queues from its answer.
	checkedQueues
)

// RoleScope is the part of the queues that a caller may reach with the permission of its call, where its roles
// do not cover all of them.
type RoleScope struct {
	caller    *Caller
	want      authz.Permission
	namespace string
}

// RoleScopeFrom returns the scope of a call; nil if the caller may reach all queues.
func RoleScopeFrom(ctx context.Context, namespace string) *RoleScope {
	c := CallerFrom(ctx)
	if c == nil {
		return nil
	}
	scope := &RoleScope{caller: c, want: methodPermissions[c.method].permission, namespace: namespace}
	if scope.want == authz.Anyone || scope.want == authz.AnyRole {
		scope.want = authz.ReadJobs
	}
	if scope.Covers("") {
		return nil
	}
	return scope
}

// LimitedIdentity returns the identity of a caller whose roles do not cover all queues of all namespaces, and "" for
// other callers: those have no share of a table. It is "" too where callers are not authenticated.
func LimitedIdentity(ctx context.Context) string {
	scope := RoleScopeFrom(ctx, authz.AllNamespaces)
	if scope == nil {
		return ""
	}
	return scope.caller.Identity.Subject
}

// ReachableQueues are the queues that the caller of a context may reach with the permission of its
// call; nil: all. Engines check it where they read and where they change a job, because the
// job may move to another queue in between.
func ReachableQueues(ctx context.Context) job.QueueScope {
	c := CallerFrom(ctx)
	if c == nil {
		return nil
	}
	return func(q job.QueueKey) bool {
		scope := RoleScopeFrom(ctx, q.Namespace)
		return scope == nil || scope.Covers(q.Queue)
	}
}

// MayEditJobs reports whether the caller of a context may edit the jobs of a queue, whatever its call needs.
func MayEditJobs(ctx context.Context, q job.QueueKey) bool {
	c := CallerFrom(ctx)
	return c == nil || c.gate.authority.Allows(c.Identity, authz.EditJobs, q.Namespace, q.Queue).Allowed
}

// Covers reports whether the caller may reach a queue; "" stands for all of them.
func (scope *RoleScope) Covers(queue string) bool {
	return scope.caller.gate.authority.Allows(scope.caller.Identity, scope.want, scope.namespace, queue).Allowed
}

// CoversAny reports whether the caller has a permission for any queue of the namespace.
func (scope *RoleScope) CoversAny(want authz.Permission) bool {
	return scope.caller.gate.authority.AllowsAnyQueue(scope.caller.Identity, want, scope.namespace).Allowed
}

// Filter is covers for those who are to leave out what the caller may not see; nil where that
// is nothing.
func (scope *RoleScope) Filter() func(queue string) bool {
	if scope == nil {
		return nil
	}
	return scope.Covers
}

// Deny denies a call about a queue; "" stands for all of them.
func (scope *RoleScope) Deny(ctx context.Context, queue string) error {
	return scope.caller.deny(ctx, scope.want, scope.namespace, queue, "its roles are for other queues")
}

// Check denies a call about a queue that is not covered.
func (scope *RoleScope) Check(ctx context.Context, queue string) error {
	if scope.Covers(queue) {
		return nil
	}
	return scope.Deny(ctx, queue)
}

// DenyItem denies one item of a call that has many, and names it by what the caller sent.
func (scope *RoleScope) DenyItem(ctx context.Context, i int, id, queue string) error {
	name := fmt.Sprintf("job %q", job.Clip(id, job.MaxID))
	if id == "" {
		name = fmt.Sprintf("entry %d", i)
	}
	p := status.Convert(scope.Deny(ctx, queue)).Proto()
	p.Message = name + ": " + p.GetMessage()
	return status.ErrorProto(p)
}
