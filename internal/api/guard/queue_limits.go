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
	// checkedQueues: the handler finds out which queues are concerned, by [QueueLimits],
	// and leaves out of its answer what is of others.
	checkedQueues
)

// QueueLimits are the queues that a caller may reach with the permission of its call.
type QueueLimits struct {
	caller    *Caller
	want      authz.Permission
	namespace string
}

// QueueLimitsFrom finds the limits of a call; nil if the caller may reach all queues.
func QueueLimitsFrom(ctx context.Context, namespace string) *QueueLimits {
	c := CallerFrom(ctx)
	if c == nil {
		return nil
	}
	l := &QueueLimits{caller: c, want: methodPermissions[c.method].permission, namespace: namespace}
	if l.want == authz.Anyone || l.want == authz.AnyRole {
		l.want = authz.ReadJobs
	}
	if l.Covers("") {
		return nil
	}
	return l
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
		l := QueueLimitsFrom(ctx, q.Namespace)
		return l == nil || l.Covers(q.Queue)
	}
}

// Covers reports whether the caller may reach a queue; "" stands for all of them.
func (l *QueueLimits) Covers(queue string) bool {
	return l.caller.gate.authority.Allows(l.caller.Identity, l.want, l.namespace, queue).Allowed
}

// CoversAny reports whether the caller has a permission for any queue of the namespace.
func (l *QueueLimits) CoversAny(want authz.Permission) bool {
	return l.caller.gate.authority.AllowsAnyQueue(l.caller.Identity, want, l.namespace).Allowed
}

// Filter is covers for those who are to leave out what the caller may not see; nil where that
// is nothing.
func (l *QueueLimits) Filter() func(queue string) bool {
	if l == nil {
		return nil
	}
	return l.Covers
}

// Deny denies a call about a queue; "" stands for all of them.
func (l *QueueLimits) Deny(ctx context.Context, queue string) error {
	return l.caller.deny(ctx, l.want, l.namespace, queue, "its roles are for other queues")
}

// Check denies a call about a queue that is not covered.
func (l *QueueLimits) Check(ctx context.Context, queue string) error {
	if l.Covers(queue) {
		return nil
	}
	return l.Deny(ctx, queue)
}

// DenyItem denies one item of a call that has many, and names it by what the caller sent.
func (l *QueueLimits) DenyItem(ctx context.Context, i int, id, queue string) error {
	name := fmt.Sprintf("job %q", job.Clip(id, job.MaxID))
	if id == "" {
		name = fmt.Sprintf("entry %d", i)
	}
	p := status.Convert(l.Deny(ctx, queue)).Proto()
	p.Message = name + ": " + p.GetMessage()
	return status.ErrorProto(p)
}
