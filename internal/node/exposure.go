package node

import (
	"errors"
	"fmt"
	"net"
)

// exposure is an unprotected listener that other hosts can reach.
type exposure struct{ flag, addr, remedy string }

// exposures is the only place that defines the protection that a listener beyond loopback needs. Metrics and
// health are not included: they change nothing.
func (c *Config) exposures() []exposure {
	var open []exposure
	for _, l := range []struct {
		exposure
		real, protected bool
	}{
		{exposure{"grpc-addr", c.GRPCAddr, "give --tls-cert and --tls-key, and --access-file or --tls-client-ca"},
			c.Network.Listen == nil, c.guardsClients()},
		{exposure{"peer-addr", c.PeerAddr, "give --peer-tls-cert, --peer-tls-key and --peer-tls-ca"},
			c.Network.Listen == nil, c.PeerTLS.Cert != ""},
		{exposure{"gossip-addr", c.GossipAddr, "give --gossip-key-file"}, c.Network.Gossip == nil,
			c.GossipKeyFile != ""},
	} {
		if l.real && !l.protected && !isLoopback(l.addr) {
			open = append(open, l.exposure)
		}
	}
	return open
}

// checkExposure refuses exposed listeners unless Insecure is set.
func (c *Config) checkExposure() error {
	c.exposed = c.exposures()
	if c.Insecure {
		return nil
	}
	return exposureError(c.exposed)
}

// guardsClients reports whether clients and workers are authenticated, under TLS.
func (c *Config) guardsClients() bool {
	byCertificate := c.TLS.Authorities != "" && (c.ClientAuth == "" || c.ClientAuth == "required")
	return c.TLS.Cert != "" && (c.Authenticates() || byCertificate)
}

// exposureError is nil if no listener is exposed.
func exposureError(exposed []exposure) error {
	var errs []error
	for _, e := range exposed {
		errs = append(errs, fmt.Errorf("--%s %s: other hosts can reach it and nothing protects it: %s, listen on "+
			"127.0.0.1, or accept it with --insecure",
			e.flag, e.addr, e.remedy))
	}
	return errors.Join(errs...)
}

// isLoopback reports whether only this host can reach an address. A name other than localhost may resolve to any
// address.
func isLoopback(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return true // reported as an invalid address elsewhere
	}
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// warnOfExposure logs the listeners that --insecure has accepted.
func (n *Node) warnOfExposure() {
	for _, e := range n.cfg.exposed {
		n.cfg.Logger.Warn("INSECURE: whoever reaches this listener can control the cluster; "+e.remedy, "listener",
			e.flag, "address", e.addr)
	}
}
