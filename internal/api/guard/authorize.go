package guard

import (
	"context"
	"slices"

	"github.com/fermata-io/fermata/internal/api/convert"
	"github.com/fermata-io/fermata/internal/core/authz"
)

// authorizeMethod decides by the method's row.
func (c *Caller) authorizeMethod(ctx context.Context, d methodPermission, q any) error {
	if c.gate.authority == nil || d.decidedByHandler {
		return nil
	}
	namespace := authz.AllNamespaces
	if d.namespaceOf != nil {
		var err error
		namespace, err = d.namespaceOf(q)
		if err != nil {
			return err
		}
	}
	if d.spansNamespaces && namespace == convert.AnyNamespace {
		return c.authorizeAnywhere(ctx, d.permission)
	}
	switch d.queueRule {
	case checkedQueues:
		return c.AuthorizeAnyQueue(ctx, d.permission, namespace)
	case namedQueues:
		queues, err := d.queuesOf(q)
		if err != nil {
			return err
		}
		return c.AuthorizeQueues(ctx, d.permission, namespace, queues)
	}
	return c.Authorize(ctx, d.permission, namespace, "")
}

// authorizeAnywhere asks for one permission in any queue of any namespace.
func (c *Caller) authorizeAnywhere(ctx context.Context, want authz.Permission) error {
	grants := c.gate.authority.Grants(c.Identity)
	if !slices.ContainsFunc(grants, func(g authz.Grant) bool { return g.Role.Has(want) }) {
		return c.deny(ctx, want, authz.AllNamespaces, "", "no role of this identity allows it")
	}
	return nil
}

// AuthorizeAnyQueue asks for one permission in any of the queues of a namespace.
func (c *Caller) AuthorizeAnyQueue(ctx context.Context, want authz.Permission, namespace string) error {
	if d := c.gate.authority.AllowsAnyQueue(c.Identity, want, namespace); !d.Allowed {
		return c.deny(ctx, want, namespace, "", d.Reason)
	}
	return nil
}

// AuthorizeQueues asks for one permission in each of these queues; there is one at least.
func (c *Caller) AuthorizeQueues(ctx context.Context, want authz.Permission, namespace string, queues []string) error {
	if len(queues) == 0 {
		return c.Authorize(ctx, want, namespace, "")
	}
	for _, queue := range queues {
		if err := c.Authorize(ctx, want, namespace, queue); err != nil {
			return err
		}
	}
	return nil
}

// Authorize asks for one permission.
func (c *Caller) Authorize(ctx context.Context, want authz.Permission, namespace, queue string) error {
	if d := c.gate.authority.Allows(c.Identity, want, namespace, queue); !d.Allowed {
		return c.deny(ctx, want, namespace, queue, d.Reason)
	}
	return nil
}
