package gateway

import (
	"net"
	"net/http"
	"net/netip"
	"strings"

	"github.com/fermata-io/fermata/internal/lib/hostgroup"
)

// trustedProxies are the networks of proxies that report whom they forward for.
type trustedProxies []netip.Prefix

// trusts reports whether an address, with or without a port, is that of a trusted proxy.
func (t trustedProxies) trusts(hostport string) bool {
	a, err := parseAddress(hostport)
	if err != nil {
		return false
	}
	for _, p := range t {
		if p.Contains(a) {
			return true
		}
	}
	return false
}

func parseAddress(hostport string) (netip.Addr, error) {
	host, _, err := net.SplitHostPort(hostport)
	if err != nil {
		host = strings.Trim(hostport, "[]")
	}
	a, err := netip.ParseAddr(host)
	return a.Unmap().WithZone(""), err
}

// remoteHost is the address of the client without its port: of the other side, or behind trusted proxies the last
// address in X-Forwarded-For that is not one of theirs. What comes before it, the client may have made up. Addresses of
// one IPv6 network of 64 bits count as one.
func (t trustedProxies) remoteHost(r *http.Request) string {
	address := r.RemoteAddr
	if !t.trusts(address) {
		return hostgroup.Of(address)
	}
	hops := strings.Split(strings.Join(r.Header.Values("X-Forwarded-For"), ","), ",")
	for i := len(hops) - 1; i >= 0; i-- {
		hop := strings.TrimSpace(hops[i])
		if _, err := parseAddress(hop); err != nil {
			break // a proxy that names no address
		}
		address = hop
		if !t.trusts(hop) {
			break
		}
	}
	return hostgroup.Of(address)
}
