package node

import (
	"context"
	"crypto/ed25519"
	"fmt"
	"time"

	"google.golang.org/grpc"

	"github.com/fermata-io/fermata/internal/api/rpc"
	"github.com/fermata-io/fermata/internal/auth/authn"
	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/engine/quota"
)

// openAccess reads the access file, first of all: a node that is to authenticate its
// callers must not come up without.
func (n *Node) openAccess(ctx context.Context) (err error) {
	if !n.cfg.Authenticates() {
		n.cfg.Logger.Warn("callers have no roles: whoever is let in may do anything; see --access-file")
		return nil
	}
	n.access, err = authn.Open(ctx, authn.Options{Path: n.cfg.AccessFile, Logger: n.cfg.Logger})
	if err != nil {
		return err
	}
	n.reportFile("access", n.access.Fault)
	n.cfg.Registerer.MustRegister(tokenEnds{n.access})
	n.engines.Go(func() { n.access.Run(n.ctx) })
	return nil
}

// jobLimit is how many jobs a namespace may have; 0 is no limit.
func (n *Node) jobLimit(namespace string) int {
	if n.access != nil {
		if limit, ok := n.access.Jobs(namespace); ok {
			return limit
		}
	}
	return n.cfg.NamespaceJobs
}

// limitsJobs tells whether any namespace has a limit of jobs.
func (n *Node) limitsJobs() bool {
	return n.cfg.NamespaceJobs > 0 || n.access != nil && n.access.LimitsJobs()
}

// jobBytesLimit is how many bytes the jobs of a namespace may have; 0 is no limit.
func (n *Node) jobBytesLimit(namespace string) int {
	if n.access != nil {
		if limit, ok := n.access.JobBytes(namespace); ok {
			return limit
		}
	}
	return n.cfg.NamespaceJobBytes
}

// limitsJobBytes reports whether any namespace has a limit of the bytes of its jobs.
func (n *Node) limitsJobBytes() bool {
	return n.cfg.NamespaceJobBytes > 0 || n.access != nil && n.access.LimitsJobBytes()
}

// openQuotas counts what namespaces have of what is limited. A node starts without, and goes by
// the last count.
func (n *Node) openQuotas(ctx context.Context) (err error) {
	n.quota, err = quota.New(quota.Options{
		Store: n.clientStore.JobCounts(), Limit: n.jobLimit, Limited: n.limitsJobs, Logger: n.cfg.Logger, Registerer: n.cfg.Registerer,
	})
	if err != nil {
		return err
	}
	n.byteQuota, err = quota.New(quota.Options{
		Measure: quota.JobBytes, Store: n.clientStore.ByteCounts(), Limit: n.jobBytesLimit, Limited: n.limitsJobBytes,
		Logger: n.cfg.Logger, Registerer: n.cfg.Registerer,
	})
	if err != nil {
		return err
	}
	for _, q := range []*quota.Quota{n.quota, n.byteQuota} {
		if err := q.Look(ctx); err != nil {
			n.cfg.Logger.Warn("failed to count what namespaces have: limits go by the last count", "error", err)
		}
	}
	return ctx.Err()
}

// guarded adds to the options of the server what lets callers in.
func (n *Node) guarded(ctx context.Context, o rpc.Options) (rpc.Options, error) {
	o.Registerer, o.Limits, o.MaxUnproved = n.cfg.Registerer, n.cfg.ClientLimits, n.cfg.UnprovedConnections
	o.JobLimit, o.JobBytesLimit = n.jobLimit, n.jobBytesLimit
	if n.access == nil {
		return o, nil
	}
	var err error
	o.Authority = n.access
	o.Binding, err = n.store.Secret(ctx, "leases")
	return o, err
}

// peerGuard lets only nodes link to this one, where the access file says which are
// nodes and certificates prove it.
func (n *Node) peerGuard() ([]grpc.ServerOption, error) {
	if n.access == nil || n.security.peers == nil {
		return nil, nil
	}
	return rpc.PeerGuard(n.access, rpc.Options{Logger: n.cfg.Logger, Registerer: n.cfg.Registerer})
}

// NewAuditKey makes a key that signs the chain of audit records: the line for --audit-key-file,
// and the one for who verifies.
func NewAuditKey(id string) (private, public string, err error) {
	if fault := authn.NameFault(id); fault != "" {
		return "", "", fmt.Errorf("the id %q %s", id, fault)
	}
	_, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		return "", "", err
	}
	k := job.ChainKey{ID: id, Key: key}
	return k.PrivateLine(), k.PublicLine(), nil
}

// NewToken makes a token of this name, and its entry for the access file. The zero time is no end.
func NewToken(name string, expires time.Time) (token, entry string, err error) {
	if fault := authn.NameFault(name); fault != "" {
		return "", "", fmt.Errorf("the name %q %s", name, fault)
	}
	token, hash := authn.NewToken()
	end := ""
	if !expires.IsZero() {
		end = ", expires: " + expires.UTC().Format(time.RFC3339)
	}
	return token, fmt.Sprintf("tokens:\n  - {name: %s, sha256: %s%s}\n", name, hash, end), nil
}
