package rpc

import (
	"context"
	"strings"

	"github.com/fermata-io/fermata/internal/api/convert"
	"github.com/fermata-io/fermata/internal/api/guard"
	"github.com/fermata-io/fermata/internal/core/authz"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// Anonymous is the name of callers that are not authenticated. No subject has it: those
// begin with a kind.
const Anonymous = "anonymous"

type accessService struct {
	fermatav1.UnimplementedAccessServiceServer
	limits   authz.Limits               // where callers are not authenticated
	jobLimit func(namespace string) int // nil: there are no limits
	// bytesLimit is of the bytes of jobs; nil: there are no limits
	bytesLimit func(namespace string) int
	node       string
}

func (s *accessService) WhoAmI(ctx context.Context, _ *fermatav1.WhoAmIRequest) (*fermatav1.WhoAmIResponse, error) {
	c := guard.CallerFrom(ctx)
	if c == nil {
		return &fermatav1.WhoAmIResponse{
			Identity: Anonymous, Authentication: fermatav1.WhoAmIResponse_AUTHENTICATION_NONE,
			Limits: convert.CallLimitsToPB(s.limits), Node: s.node,
		}, nil
	}
	grants, identity := c.Grants(), c.Identity
	return &fermatav1.WhoAmIResponse{
		Identity: identity.Subject, Authentication: convert.AuthenticationToPB(identity), Groups: identity.Groups,
		ExpireTime: convert.TimeToPB(identity.Expires), Grants: convert.Map(grants, convert.GrantToPB),
		Limits: convert.CallLimitsToPB(c.Limits()), Namespaces: s.namespacesOf(grants), Node: s.node,
	}, nil
}

// namespacesOf lists the limits of the namespaces that grants name without a star.
func (s *accessService) namespacesOf(grants []authz.Grant) []*fermatav1.NamespaceLimits {
	if s.jobLimit == nil && s.bytesLimit == nil {
		return nil
	}
	var list []*fermatav1.NamespaceLimits
	listed := map[string]bool{}
	for _, g := range grants {
		for _, n := range g.Namespaces {
			if strings.HasSuffix(n, "*") || listed[n] {
				continue
			}
			listed[n] = true
			list = append(list, &fermatav1.NamespaceLimits{
				Namespace: n, Jobs: limitForNamespace(s.jobLimit, n), JobBytes: limitForNamespace(s.bytesLimit, n),
			})
		}
	}
	return list
}

func limitForNamespace(limit func(string) int, namespace string) int64 {
	if limit == nil {
		return 0
	}
	return int64(limit(namespace))
}
