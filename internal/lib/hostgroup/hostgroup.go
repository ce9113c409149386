// Package hostgroup decides which addresses count as one client where clients are limited by address.
//
// An IPv4 address is a client of its own. A host usually has an IPv6 network of 64 bits to itself, so the addresses of
// such a network count as one.
package hostgroup

import (
	"net"
	"net/netip"
)

// Of returns the name of the group of an address, with or without a port: the IPv4 address, the IPv6 network, or the
// host as it is if it is no IP address.
func Of(address string) string {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		host = address
	}
	a, err := netip.ParseAddr(host)
	if err != nil {
		return host
	}
	network := Network(a)
	if network.Addr().Is4() {
		return network.Addr().String()
	}
	return network.String()
}

// Network returns the addresses that count as one with a valid address.
func Network(a netip.Addr) netip.Prefix {
	a = a.Unmap().WithZone("")
	bits := 64
	if a.Is4() {
		bits = 32
	}
	p, _ := a.Prefix(bits) // both lengths exist
	return p
}
