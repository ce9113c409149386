package node

import (
	"context"
	"crypto/ed25519"
	"fmt"
	"time"

	"google.golang.org/grpc"

	"github.com/fermata-io/fermata/internal/api/guard"
	"github.com/fermata-io/fermata/internal/api/rpc"
	"github.com/fermata-io/fermata/internal/auth/authn"
	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/sharding"
	"github.com/fermata-io/fermata/internal/engine/quota"
)

// openAccess reads the access file first: a node that has to authenticate its callers must not start without it.
func (n *Node) openAccess(ctx context.Context) (err error) {
	if !n.cfg.Authenticates() {
		n.cfg.Logger.Warn("callers have no roles, every caller may do anything; see --access-file")
		return nil
	}
	n.access, err = authn.Open(ctx, authn.Options{Path: n.cfg.AccessFile, Logger: n.cfg.Logger})
	if err != nil {
		return err
	}
	n.reportFile("access", n.access.LoadError)
	n.cfg.Registerer.MustRegister(tokenExpiries{n.access})
	n.engines.Go(func() { n.access.Run(n.ctx) })
	return nil
}

// jobLimit is the maximum number of jobs of a namespace; 0: no limit.
func (n *Node) jobLimit(namespace string) int {
	if n.access != nil {
		if limit, ok := n.access.JobsLimit(namespace); ok {
			return limit
		}
	}
	return n.cfg.NamespaceJobs
}

// limitsJobs reports whether any namespace has a limit of jobs.
func (n *Node) limitsJobs() bool {
	return n.cfg.NamespaceJobs > 0 || n.access != nil && n.access.LimitsJobs()
}

// jobBytesLimit is the maximum number of bytes of a namespace's jobs; 0: no limit.
func (n *Node) jobBytesLimit(namespace string) int {
	if n.access != nil {
		if limit, ok := n.access.JobBytesLimit(namespace); ok {
			return limit
		}
	}
	return n.cfg.NamespaceJobBytes
}

// limitsJobBytes reports whether any namespace has a limit of the bytes of its jobs.
func (n *Node) limitsJobBytes() bool {
	return n.cfg.NamespaceJobBytes > 0 || n.access != nil && n.access.LimitsJobBytes()
}

// openQuotas counts the jobs and bytes of limited namespaces. If the count fails, the node starts with the last one.
func (n *Node) openQuotas(ctx context.Context) (err error) {
	n.quota, err = quota.New(quota.Options{
		Store: n.clientStore.Limits().JobCounts(), Limit: n.jobLimit, Limited: n.limitsJobs, Logger: n.cfg.Logger,
		Registerer: n.cfg.Registerer,
	})
	if err != nil {
		return err
	}
	n.byteQuota, err = quota.New(quota.Options{
		Measure: quota.JobBytes, Store: n.clientStore.Limits().ByteCounts(),
		Limit: n.jobBytesLimit, Limited: n.limitsJobBytes,
		Logger: n.cfg.Logger, Registerer: n.cfg.Registerer,
	})
	if err != nil {
		return err
	}
	for _, q := range []*quota.Quota{n.quota, n.byteQuota} {
		if err := q.Refresh(ctx); err != nil {
			n.cfg.Logger.Warn("failed to count what namespaces have: limits go by the last count", "error", err)
		}
	}
	return ctx.Err()
}

// addAuthentication adds authentication, roles and limits to the options of the server.
func (n *Node) addAuthentication(ctx context.Context, o rpc.Options) (rpc.Options, error) {
	o.Registerer, o.Limits = n.cfg.Registerer, n.cfg.ClientLimits
	o.MaxUnauthenticated = n.cfg.MaxUnauthenticatedConnections
	o.JobLimit, o.JobBytesLimit = n.jobLimit, n.jobBytesLimit
	if n.access == nil {
		return o, nil
	}
	var err error
	o.Authority = n.access
	o.LeaseSigningKey, err = n.store.Secret(ctx, "leases")
	return o, err
}

// peerCheck lets only nodes link to this one if there is an access file. Nodes are authenticated by their
// certificates, or without TLS by a key of the keyspace.
func (n *Node) peerCheck(ctx context.Context) (guard.PeerCheck, error) {
	o := guard.Options{Logger: n.cfg.Logger, Registerer: n.cfg.Registerer}
	switch {
	case n.access == nil:
		return nil, nil
	case n.security.peers != nil:
		return guard.PeerCertificateCheck(n.access, o)
	}
	key, err := n.peerKey(ctx)
	if err != nil {
		return nil, err
	}
	self := guard.Callee{Name: n.cfg.Name, Process: n.locks.Process(), Address: n.peerAddr}
	return guard.PeerKeyCheck(key, self, o)
}

// needsPeerKey reports whether nodes authenticate each other by a key.
func (n *Node) needsPeerKey() bool { return n.access != nil && n.security.peers == nil }

// peerDialOptions authenticate this node's connections to others by a key, if they need one.
func (n *Node) peerDialOptions(ctx context.Context) (func(func() sharding.Member) []grpc.DialOption, error) {
	if !n.needsPeerKey() {
		return nil, nil
	}
	key, err := n.peerKey(ctx)
	return func(member func() sharding.Member) []grpc.DialOption {
		return key.DialOptions(func() guard.Callee {
			m := member()
			return guard.Callee{Name: m.Name, Process: m.Process, Address: m.PeerAddr}
		})
	}, err
}

// peerProofOptions have the server for other nodes prove by the key that it belongs to one, if they need that.
func (n *Node) peerProofOptions(ctx context.Context) ([]grpc.ServerOption, error) {
	if !n.needsPeerKey() {
		return nil, nil
	}
	key, err := n.peerKey(ctx)
	return key.ServerOptions(n.cfg.Name), err
}

// peerKey returns the key of the links between nodes. Earlier builds sent the secret "peers" to each address that they
// learned by gossip.
func (n *Node) peerKey(ctx context.Context) (guard.PeerKey, error) {
	return n.store.Secret(ctx, "links")
}

// NewAuditKey makes a key that signs the chain of audit records. It returns the line for --audit-key-file, and
// the public line for verification.
func NewAuditKey(id string) (private, public string, err error) {
	if fault := authn.ValidateName(id); fault != "" {
		return "", "", fmt.Errorf("the id %q %s", id, fault)
	}
	_, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		return "", "", err
	}
	k := job.ChainKey{ID: id, Key: key}
	return k.PrivateLine(), k.PublicLine(), nil
}

// NewToken makes a token with this name, and its entry for the access file. The zero time means no expiry.
func NewToken(name string, expires time.Time) (token, entry string, err error) {
	if fault := authn.ValidateName(name); fault != "" {
		return "", "", fmt.Errorf("the name %q %s", name, fault)
	}
	token, hash := authn.NewToken()
	end := ""
	if !expires.IsZero() {
		end = ", expires: " + expires.UTC().Format(time.RFC3339)
	}
	return token, fmt.Sprintf("tokens:\n  - {name: %s, sha256: %s%s}\n", name, hash, end), nil
}
