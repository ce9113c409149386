package convert

import (
	"strings"

	"github.com/fermata-io/fermata/internal/core/authz"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

func AuthenticationToPB(id authz.Identity) fermatav1.WhoAmIResponse_Authentication {
	switch kind, _, _ := strings.Cut(id.Subject, ":"); kind {
	case authz.KindToken:
		return fermatav1.WhoAmIResponse_AUTHENTICATION_TOKEN
	case authz.KindURI, authz.KindDNS, authz.KindCommonName:
		return fermatav1.WhoAmIResponse_AUTHENTICATION_CERTIFICATE
	case authz.KindJWT:
		return fermatav1.WhoAmIResponse_AUTHENTICATION_JWT
	}
	return fermatav1.WhoAmIResponse_AUTHENTICATION_UNSPECIFIED
}

func GrantToPB(g authz.Grant) *fermatav1.RoleGrant {
	return &fermatav1.RoleGrant{Role: string(g.Role), Namespaces: g.Namespaces, Queues: g.Queues}
}

func CallLimitsToPB(l authz.Limits) *fermatav1.CallLimits {
	return &fermatav1.CallLimits{
		Rate: l.Rate, Burst: int32(l.Burst), Calls: int32(l.MaxOpenCalls), Connections: int32(l.Connections),
	}
}
