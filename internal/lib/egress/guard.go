// Package egress guards requests that go where users say, so that nobody makes this
// process reach what is not meant for them.
//
// Invariants:
//
//  1. An address is judged when it is connected to, after names have been looked up:
//     neither a name that changes its mind nor a redirect leads around it.
//  2. What is not public is refused unless it was allowed.
//  3. [Plain] says nothing by which who wrote a URL learns of names and addresses inside.
package egress

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"syscall"
)

// special are the networks that are not public, by IANA's registries, as far as
// netip.Addr has no method that knows them.
var special = prefixes(
	"0.0.0.0/8", "100.64.0.0/10", "192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "198.18.0.0/15", "198.51.100.0/24",
	"203.0.113.0/24", "240.0.0.0/4",
	"2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20",
)

// unicast is the part of IPv6 from which public addresses are given out. Outside of
// it are mapped, translated (NAT64), local and unassigned ones.
var unicast = netip.MustParsePrefix("2000::/3")

// metadata are addresses at which clouds tell a machine its credentials. Only a
// network of that single address allows one.
var metadata = []netip.Addr{
	netip.MustParseAddr("169.254.169.254"), netip.MustParseAddr("fd00:ec2::254"), netip.MustParseAddr("fd20:ce::254"),
	netip.MustParseAddr("169.254.170.2"), netip.MustParseAddr("169.254.170.23"), netip.MustParseAddr("fd00:ec2::23"),
	netip.MustParseAddr("100.100.100.200"), netip.MustParseAddr("192.0.0.192"), netip.MustParseAddr("168.63.129.16"),
	netip.MustParseAddr("fe80::a9fe:a9fe"), netip.MustParseAddr("169.254.42.42"), netip.MustParseAddr("fd00:42::42"),
	netip.MustParseAddr("169.254.0.23"), netip.MustParseAddr("fd00:a9fe:a9fe::1"),
}

// places are where an address of IPv6 may hold one of IPv4 that a translator leads to: behind
// a prefix of 32 to 96 bits, whose byte 8 is left out (RFC 6052), and behind that of 6to4.
var places = [][4]int{
	{4, 5, 6, 7}, {5, 6, 7, 9}, {6, 7, 9, 10}, {7, 9, 10, 11}, {9, 10, 11, 12}, {12, 13, 14, 15}, {2, 3, 4, 5},
}

// teredo holds an address of IPv4 with all bits turned over, in its last four bytes.
var teredo = netip.MustParsePrefix("2001::/32")

// tellsCredentials is about an address itself, and what it leads to: who allows the
// network of a translator, to reach the world through it, has not allowed that. Which
// prefix a network translates is not known here, so that all are looked at, of all lengths.
func tellsCredentials(a netip.Addr) bool {
	if slices.Contains(metadata, a) {
		return true
	}
	if a.Is4() {
		return false
	}
	b := a.As16()
	for _, at := range places {
		if slices.Contains(metadata, netip.AddrFrom4([4]byte{b[at[0]], b[at[1]], b[at[2]], b[at[3]]})) {
			return true
		}
	}
	return teredo.Contains(a) && slices.Contains(metadata, netip.AddrFrom4([4]byte{^b[12], ^b[13], ^b[14], ^b[15]}))
}

func prefixes(texts ...string) []netip.Prefix {
	out := make([]netip.Prefix, 0, len(texts))
	for _, s := range texts {
		out = append(out, netip.MustParsePrefix(s))
	}
	return out
}

// public tells whether an address may be reached without leave.
func public(a netip.Addr) bool {
	in := func(p netip.Prefix) bool { return p.Contains(a) }
	return a.IsGlobalUnicast() && !a.IsPrivate() && (a.Is4() || unicast.Contains(a)) &&
		!slices.ContainsFunc(special, in) && !tellsCredentials(a)
}

// Guard says which addresses are connected to.
type Guard struct {
	// Allow are networks that may be reached although they are not public, at any port.
	// The addresses at which clouds tell a machine its credentials are reached only where
	// a network of that one address is given.
	Allow []netip.Prefix
	// Ports are those of public addresses that may be connected to.
	Ports []uint16
}

// Control refuses connections by their resolved address, so that neither a name
// nor a redirect leads around it. Its errors hold that address: see [Plain].
func (g Guard) Control(_ context.Context, _, address string, _ syscall.RawConn) error {
	ap, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("address %q: %w", address, err)
	}
	a := ap.Addr().WithZone("").Unmap()
	in := func(p netip.Prefix) bool {
		return p.Contains(a) && (p.IsSingleIP() || !tellsCredentials(a))
	}
	switch {
	case slices.ContainsFunc(g.Allow, in):
		return nil
	case !public(a):
		return fmt.Errorf("%w: address %s is not public", errRefused, a)
	case !slices.Contains(g.Ports, ap.Port()):
		return fmt.Errorf("%w: port %d of %s", errRefused, ap.Port(), a)
	}
	return nil
}
