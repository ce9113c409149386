package node

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"net/netip"

	"google.golang.org/grpc/credentials"

	"github.com/fermata-io/fermata/internal/auth/payloadkeys"
	"github.com/fermata-io/fermata/internal/auth/tlsfiles"
	"github.com/fermata-io/fermata/internal/cluster/membership"
	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/engine/audittrail"
	"github.com/fermata-io/fermata/internal/lib/secretfile"
	"github.com/fermata-io/fermata/internal/redis/conn"
)

// security is how the node authenticates itself and others. Nil credentials mean plain text.
type security struct {
	clients, peers credentials.TransportCredentials
	redis          func() *tls.Config // nil: as in the URL
	gossip         []netip.Prefix
	payloads       *payloadkeys.Ring  // nil: payloads are stored unencrypted
	audit          *audittrail.Signer // nil: the chain of audit records is not signed
	sources        []*tlsfiles.Source
}

// openSecurity reads the files, which must be valid at the start.
func openSecurity(c Config) (security, error) {
	var s security
	errs := []error{s.openClients(c), s.openPeers(c), s.openRedis(c), s.openPayloadKeys(c), s.openAuditKeys(c)}
	if c.GossipKeyFile != "" {
		if _, err := membership.ReadKeys(c.GossipKeyFile); err != nil {
			errs = append(errs, fmt.Errorf("--gossip-key-file: %w", err))
		}
	}
	for _, text := range c.GossipAllow {
		p, err := netip.ParsePrefix(text)
		if err != nil {
			errs = append(errs, fmt.Errorf("--gossip-allow %q: want a network such as 10.0.0.0/8", text))
		}
		s.gossip = append(s.gossip, p)
	}
	return s, errors.Join(errs...)
}

// openTLSFiles reads the files of one use. prefix is that of their flags.
func (s *security) openTLSFiles(c Config, use, prefix, ca string, files tlsfiles.Files) (*tlsfiles.Source, error) {
	source, err := tlsfiles.Open(tlsfiles.Options{
		Files: files, Use: use, Logger: c.Logger, Registerer: c.Registerer,
		Called: tlsfiles.Files{Cert: prefix + "cert", Key: prefix + "key", Authorities: prefix + ca},
	})
	if err == nil {
		s.sources = append(s.sources, source)
	}
	return source, err
}

func (s *security) openClients(c Config) error {
	if c.TLS == (tlsfiles.Files{}) && c.ClientAuth == "" {
		return nil
	}
	if c.TLS.Cert == "" {
		return errors.New("--tls-client-ca and --tls-client-auth need --tls-cert and --tls-key")
	}
	byDefault := "none"
	if c.TLS.Authorities != "" {
		byDefault = "required"
	}
	auth, err := tlsfiles.ParseClientAuth(cmp.Or(c.ClientAuth, byDefault))
	if err != nil {
		return fmt.Errorf("--tls-client-auth: %w", err)
	}
	source, err := s.openTLSFiles(c, "clients", "--tls-", "client-ca", c.TLS)
	if err == nil {
		s.clients, err = source.Server(auth)
	}
	return err
}

func (s *security) openPeers(c Config) error {
	if c.PeerTLS == (tlsfiles.Files{}) {
		if len(c.PeerNames) > 0 {
			return errors.New("--peer-tls-names needs --peer-tls-cert, --peer-tls-key and --peer-tls-ca")
		}
		return nil
	}
	if c.PeerTLS.Cert == "" || c.PeerTLS.Authorities == "" {
		return errors.New("--peer-tls-cert, --peer-tls-key and --peer-tls-ca go together")
	}
	source, err := s.openTLSFiles(c, "peers", "--peer-tls-", "ca", c.PeerTLS)
	if err != nil {
		return err
	}
	s.peers, err = source.Peers(c.PeerNames)
	if err != nil {
		return fmt.Errorf("--peer-tls-names: %w", err)
	}
	return nil
}

func (s *security) openRedis(c Config) error {
	if c.RedisTLS != (tlsfiles.Files{}) {
		source, err := s.openTLSFiles(c, "redis", "--redis-tls-", "ca", c.RedisTLS)
		if err != nil {
			return err
		}
		s.redis = source.ClientConfig
	}
	if err := s.redisOptions(c).CheckURL(); err != nil {
		return fmt.Errorf("--redis-url: %w", err)
	}
	return nil
}

// redisOptions are the options of connections to Redis.
func (s *security) redisOptions(c Config) conn.ClientOptions {
	o := c.Redis
	if s.redis != nil {
		o.TLS = s.redis
	}
	return o
}

func (s *security) openPayloadKeys(c Config) (err error) {
	if c.PayloadKeyFile == "" {
		if c.PayloadRequireSealed {
			return errors.New("--payload-require-sealed needs --payload-key-file")
		}
		return nil
	}
	if s.payloads, err = payloadkeys.Load(c.PayloadKeyFile,
		payloadkeys.Options{RequireVersion2: c.PayloadRequireSealed}); err != nil {
		return fmt.Errorf("--payload-key-file: %w", err)
	}
	return nil
}

func (s *security) openAuditKeys(c Config) (err error) {
	if c.AuditKeyFile == "" {
		return nil
	}
	s.audit, err = audittrail.LoadSigner(c.AuditKeyFile)
	if err != nil {
		return fmt.Errorf("--audit-key-file: %w", err)
	}
	secretfile.WarnIfExposed(c.Logger, c.AuditKeyFile)
	return nil
}

// auditKeys returns the keys of the chain of audit records; nil: it is not signed.
func (s *security) auditKeys() func() []job.ChainKey {
	if s.audit == nil {
		return nil
	}
	return s.audit.Keys
}

// checkFiles reloads changed files also while no connection is opened.
func (s *security) checkFiles() {
	for _, source := range s.sources {
		source.ReloadIfDue()
	}
}
