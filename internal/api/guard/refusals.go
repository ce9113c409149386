package guard

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"

	"github.com/fermata-io/fermata/internal/api/apierror"
	"github.com/fermata-io/fermata/internal/core/authz"
	"github.com/fermata-io/fermata/internal/core/job"
)

// deny refuses an authenticated caller. The error names the missing permission, and neither who has it nor whether the
// requested object exists.
func (c *Caller) deny(ctx context.Context, want authz.Permission, namespace, queue, why string) error {
	lack := map[string]string{"permission": want.String(), "namespace": job.Clip(namespace, job.MaxID)}
	text := fmt.Sprintf("the permission to %s in namespace %q is missing", want, lack["namespace"])
	if namespace == authz.AllNamespaces {
		text = fmt.Sprintf("the permission to %s in all namespaces is missing", want)
	}
	if want == authz.AnyRole {
		text = "a role is missing: no rule gives one to this identity"
	}
	if queues := c.permittedQueues(want, namespace); queue == "" && len(queues) > 0 {
		text = fmt.Sprintf("the permission to %s in namespace %q is limited to queues %s: "+
			"name one by --queue where the call takes a queue; other calls need a role for all queues",
			want, lack["namespace"], strings.Join(queues, ", "))
	}
	if queue != "" {
		lack["queue"] = job.Clip(queue, job.MaxID)
		text += fmt.Sprintf(" for queue %q", lack["queue"])
	}
	c.reportRefusal(ctx, "denied", errors.New(why),
		"permission", want.String(), "namespace", lack["namespace"], "queue", lack["queue"])
	return apierror.WithDetails(codes.PermissionDenied, text,
		&errdetails.ErrorInfo{Reason: "PERMISSION_MISSING", Domain: apierror.Domain, Metadata: lack}).Err()
}

// maxShownQueues bounds the queues that a refusal names.
const maxShownQueues = 10

// permittedQueues lists the queues for which the caller has a permission in a namespace; none if it has
// it for all of them, or for none.
func (c *Caller) permittedQueues(want authz.Permission, namespace string) []string {
	if namespace == authz.AllNamespaces || !c.gate.authority.AllowsAnyQueue(c.Identity, want, namespace).Allowed {
		return nil
	}
	var queues []string
	for _, g := range c.gate.authority.Grants(c.Identity) {
		for _, q := range g.Queues {
			if c.gate.authority.Allows(c.Identity, want, namespace, strings.TrimSuffix(q, "*")).Allowed {
				queues = append(queues, job.Clip(q, job.MaxID))
			}
		}
	}
	slices.Sort(queues)
	queues = slices.Compact(queues)
	return queues[:min(len(queues), maxShownQueues)]
}

// refusalTexts are the messages that callers receive.
var refusalTexts = map[authz.Cause]string{
	authz.CauseUnknown:     "this node knows neither the token nor its issuer: the access file may not have it any more",
	authz.CauseSignature:   "none of the keys that this node has of the token's issuer has signed it; where the issuer has just replaced its keys, repeat the call in half a minute",
	authz.CauseExpired:     "the credential has expired",
	authz.CauseNotYetValid: "by the clock of this node the token is not valid yet",
	authz.CauseAudience:    "the token is for another audience than the access file demands",
	authz.CauseClaims:      "the claims of the token give no identity: the access file says which claim has the name",
	authz.CauseCertificate: "the access file has none of the names of the certificate",
	authz.CauseMalformed:   "what was sent as a token is neither a JWT nor a known token",
}

// RefusalText is the message for a credential that is refused for a cause; empty if the cause has none.
func RefusalText(cause authz.Cause) string { return refusalTexts[cause] }

func (c *Caller) refuseCredential(ctx context.Context, reason string, err error) error {
	info := &errdetails.ErrorInfo{Reason: "CREDENTIALS_" + strings.ToUpper(reason)}
	text := "the credential is not accepted: it may have expired or been removed"
	if reason == "missing" {
		text = "give a token, or a certificate that this node knows"
	}
	var refused *authz.CredentialError
	if errors.As(err, &refused) && refusalTexts[refused.Cause] != "" {
		text, info.Metadata = refusalTexts[refused.Cause], map[string]string{"cause": string(refused.Cause)}
	}
	return c.refuse(ctx, codes.Unauthenticated, reason, info, text, err)
}

// refuseOverLimit refuses what is beyond a limit of the caller's identity.
func (c *Caller) refuseOverLimit(ctx context.Context, limit string, retry time.Duration) error {
	return c.refuseOver(ctx, "this identity", limit, retry)
}

// refuseOverNodeLimit refuses what is beyond a limit that all identities share.
func (c *Caller) refuseOverNodeLimit(ctx context.Context, limit string, retry time.Duration) error {
	return c.refuseOver(ctx, "this node", limit, retry)
}

func (c *Caller) refuseOver(ctx context.Context, who, limit string, retry time.Duration) error {
	return c.refuse(ctx, codes.ResourceExhausted, limit,
		&errdetails.ErrorInfo{Reason: "LIMIT_" + strings.ToUpper(limit)}, who+" is at its limit of "+limit,
		errors.New("limit"), apierror.RetryInfo(retry))
}
func (c *Caller) refuse(ctx context.Context, code codes.Code, reason string,
	public *errdetails.ErrorInfo, text string, why error, more ...*errdetails.RetryInfo) error {
	c.reportRefusal(ctx, reason, why)
	public.Domain = apierror.Domain
	s := apierror.WithDetails(code, text, public)
	for _, m := range more {
		if detailed, err := s.WithDetails(m); err == nil {
			s = detailed
		}
	}
	return s.Err()
}

// reportRefusal counts a refusal, and logs it as long as there are few.
func (c *Caller) reportRefusal(ctx context.Context, reason string, why error, more ...any) {
	c.gate.denied.WithLabelValues(c.method, reason).Inc()
	if c.gate.logLimiter.Allow() {
		c.gate.logger.WarnContext(ctx, "access denied", append([]any{
			"method", c.method, "reason", reason, "subject", cmp.Or(c.Identity.Subject, "unknown"),
			"peer", PeerAddress(ctx), "error", why,
		}, more...)...)
	}
}

// ReportForeignLeases counts and logs leases that a worker named but was not given.
func (c *Caller) ReportForeignLeases(ctx context.Context, ids []string) {
	c.gate.leases.Add(float64(len(ids)))
	c.reportRefusal(ctx, "foreign_lease", errors.New("the worker names leases that it was not given"), "leases", len(ids))
}
