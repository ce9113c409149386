package httphandler

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"time"
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
		!slices.ContainsFunc(special, in) && !slices.Contains(metadata, a)
}

// guard says which addresses are connected to.
type guard struct {
	allow []netip.Prefix
	ports []uint16
}

// control refuses connections by their resolved address, so that neither a name
// nor a redirect leads around it.
func (g guard) control(_ context.Context, _, address string, _ syscall.RawConn) error {
	ap, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("address %q: %w", address, err)
	}
	a := ap.Addr().WithZone("").Unmap()
	in := func(p netip.Prefix) bool {
		return p.Contains(a) && (p.IsSingleIP() || !slices.Contains(metadata, a))
	}
	switch {
	case slices.ContainsFunc(g.allow, in):
		return nil
	case !public(a):
		return fmt.Errorf("address %s is not public, and this worker does not allow it", a)
	case !slices.Contains(g.ports, ap.Port()):
		return fmt.Errorf("port %d is not one that this worker allows", ap.Port())
	}
	return nil
}

var (
	errRedirects = fmt.Errorf("more than %d redirects", maxRedirects)
	errDowngrade = errors.New("redirect from https to http")
	errScheme    = errors.New("redirect to another scheme than http and https")
)

// redirect decides about one redirect.
func redirect(request *http.Request, via []*http.Request) error {
	first, last := via[0], via[len(via)-1]
	switch {
	case len(via) > maxRedirects:
		return errRedirects
	case request.URL.Scheme != "http" && request.URL.Scheme != "https":
		return errScheme
	case last.URL.Scheme == "https" && request.URL.Scheme == "http":
		return errDowngrade
	}
	if request.URL.Scheme != first.URL.Scheme || !strings.EqualFold(request.URL.Host, first.URL.Host) {
		kept := http.Header{}
		for _, name := range []string{"User-Agent", "Fermata-Run", "Fermata-Attempt", "Content-Type"} {
			if v := request.Header.Get(name); v != "" {
				kept.Set(name, v)
			}
		}
		request.Header = kept
	}
	return nil
}

// retryAfter reads the header of that name: seconds, or a date that counts from
// the answer's own Date, else from now. 0 means that it asks for nothing.
func retryAfter(h http.Header, now time.Time) time.Duration {
	text := strings.TrimSpace(h.Get("Retry-After"))
	if text == "" {
		return 0
	}
	if seconds, err := time.ParseDuration(text + "s"); err == nil && strings.Trim(text, "0123456789") == "" {
		return seconds
	}
	at, err := http.ParseTime(text)
	if err != nil {
		return 0
	}
	if sent, err := http.ParseTime(h.Get("Date")); err == nil {
		now = sent
	}
	return max(0, at.Sub(now))
}
