// Package egress restricts outgoing requests to URLs from users, so that no user can make this
// process reach internal addresses.
//
// Invariants:
//
//  1. An address is checked when it is connected to, after names have been resolved: neither a
//     name whose address changes nor a redirect bypasses the check.
//  2. Addresses that are not public are refused unless they were allowed.
//  3. [DescribeWithoutAddresses] reveals no internal names or addresses to the author of a URL.
package egress

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"syscall"

	"code.dny.dev/ssrf"
)

// metadataAddrs are the addresses at which clouds serve a machine's credentials. Only an allowed network of that
// single address allows one.
var metadataAddrs = []netip.Addr{
	netip.MustParseAddr("169.254.169.254"), netip.MustParseAddr("fd00:ec2::254"), netip.MustParseAddr("fd20:ce::254"),
	netip.MustParseAddr("169.254.170.2"), netip.MustParseAddr("169.254.170.23"), netip.MustParseAddr("fd00:ec2::23"),
	netip.MustParseAddr("100.100.100.200"), netip.MustParseAddr("192.0.0.192"), netip.MustParseAddr("168.63.129.16"),
	netip.MustParseAddr("fe80::a9fe:a9fe"), netip.MustParseAddr("169.254.42.42"), netip.MustParseAddr("fd00:42::42"),
	netip.MustParseAddr("169.254.0.23"), netip.MustParseAddr("fd00:a9fe:a9fe::1"),
}

// embeddedIPv4Bytes are the positions at which an IPv6 address may contain an IPv4 address for a translator:
// after a prefix of 32 to 96 bits, skipping byte 8 (RFC 6052), and after that of 6to4.
var embeddedIPv4Bytes = [][4]int{
	{4, 5, 6, 7}, {5, 6, 7, 9}, {6, 7, 9, 10}, {7, 9, 10, 11}, {9, 10, 11, 12}, {12, 13, 14, 15}, {2, 3, 4, 5},
}

// teredo addresses contain an inverted IPv4 address in their last four bytes.
var teredo = netip.MustParsePrefix("2001::/32")

// leadsToMetadata checks an address itself, and the addresses embedded in it: an allowed network of a translator
// does not allow these. The prefix that a network translates is unknown here, so all lengths are checked.
func leadsToMetadata(a netip.Addr) bool {
	if slices.Contains(metadataAddrs, a) {
		return true
	}
	if a.Is4() {
		return false
	}
	b := a.As16()
	for _, at := range embeddedIPv4Bytes {
		if slices.Contains(metadataAddrs, netip.AddrFrom4([4]byte{b[at[0]], b[at[1]], b[at[2]], b[at[3]]})) {
			return true
		}
	}
	return teredo.Contains(a) && slices.Contains(metadataAddrs,
		netip.AddrFrom4([4]byte{^b[12], ^b[13], ^b[14], ^b[15]}))
}

// isPublic reports whether an address needs no permission: it is neither in a network of IANA's registries of special
// purposes, nor in a part of IPv6 from which no public addresses are assigned, as mapped and translated ones are.
func isPublic(a netip.Addr) bool {
	in := func(p netip.Prefix) bool { return p.Contains(a) }
	if a.Is4() {
		return !slices.ContainsFunc(ssrf.IPv4DeniedPrefixes, in) && !leadsToMetadata(a)
	}
	return ssrf.IPv6GlobalUnicast.Contains(a) && !slices.ContainsFunc(ssrf.IPv6DeniedPrefixes, in) &&
		!leadsToMetadata(a)
}

// Guard defines the addresses that may be connected to.
type Guard struct {
	// Allow are networks that may be reached although they are not public, at any port. The addresses at which
	// clouds serve a machine's credentials are reached only through a network of that one address.
	Allow []netip.Prefix
	// Ports are the allowed ports of public addresses.
	Ports []uint16
}

// Control refuses connections by their resolved address, so that neither a name nor a redirect bypasses it. Its
// errors contain that address: see [DescribeWithoutAddresses].
func (g Guard) Control(_ context.Context, _, address string, _ syscall.RawConn) error {
	ap, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("address %q: %w", address, err)
	}
	a := ap.Addr().WithZone("").Unmap()
	in := func(p netip.Prefix) bool {
		return p.Contains(a) && (p.IsSingleIP() || !leadsToMetadata(a))
	}
	switch {
	case slices.ContainsFunc(g.Allow, in):
		return nil
	case !isPublic(a):
		return fmt.Errorf("%w: address %s is not public", errRefused, a)
	case !slices.Contains(g.Ports, ap.Port()):
		return fmt.Errorf("%w: port %d of %s", errRefused, ap.Port(), a)
	}
	return nil
}
