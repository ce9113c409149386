package httpbound

import (
	"net"
	"net/netip"
)

// Host returns the host of an address with or without a port. Addresses of one IPv6 network of 64 bits, which belong to
// one client as a rule, count as one host.
func Host(address string) string {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		host = address
	}
	a, err := netip.ParseAddr(host)
	if err != nil {
		return host
	}
	if a.Unmap().Is4() {
		return a.Unmap().String()
	}
	p, err := a.WithZone("").Prefix(64)
	if err != nil {
		return host
	}
	return p.String()
}
