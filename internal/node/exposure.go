package node

import (
	"errors"
	"fmt"
	"net"
)

// exposure is a listener that other hosts can reach and that lets them in unseen.
type exposure struct{ flag, addr, remedy string }

// exposures is the one place that says what a listener beyond loopback has to have.
// Metrics and health are not among the listeners: they take no orders.
func (c *Config) exposures() []exposure {
	var open []exposure
	for _, l := range []struct {
		exposure
		real, protected bool
	}{
		{exposure{"grpc-addr", c.GRPCAddr, "give --tls-cert and --tls-key, and --access-file or --tls-client-ca"}, c.Network.Listen == nil, c.guardsClients()},
		{exposure{"peer-addr", c.PeerAddr, "give --peer-tls-cert, --peer-tls-key and --peer-tls-ca"}, c.Network.Listen == nil, c.PeerTLS.Cert != ""},
		{exposure{"gossip-addr", c.GossipAddr, "give --gossip-key-file"}, c.Network.Gossip == nil, c.GossipKeyFile != ""},
	} {
		if l.real && !l.protected && !loopback(l.addr) {
			open = append(open, l.exposure)
		}
	}
	return open
}

// checkExposure refuses listeners that are exposed, unless that is accepted.
func (c *Config) checkExposure() error {
	if c.exposed = c.exposures(); c.Insecure {
		return nil
	}
	return refused(c.exposed)
}

// guardsClients tells whether clients and workers are asked who they are, under TLS.
func (c *Config) guardsClients() bool {
	byCertificate := c.TLS.CA != "" && (c.ClientAuth == "" || c.ClientAuth == "required")
	return c.TLS.Cert != "" && (c.Authenticates() || byCertificate)
}

// refused is nil if no listener is exposed.
func refused(exposed []exposure) error {
	var errs []error
	for _, e := range exposed {
		errs = append(errs, fmt.Errorf("--%s %s: other hosts can reach it and nothing protects it: %s, listen on 127.0.0.1, or accept it with --insecure",
			e.flag, e.addr, e.remedy))
	}
	return errors.Join(errs...)
}

// loopback tells whether only this host reaches an address. A name other than
// localhost may mean anything.
func loopback(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return true // reported as no address at all
	}
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// warnOfExposure names what --insecure has let through.
func (n *Node) warnOfExposure() {
	for _, e := range n.cfg.exposed {
		n.cfg.Logger.Warn("INSECURE: whoever reaches this listener can control the cluster; "+e.remedy, "listener", e.flag, "address", e.addr)
	}
}
