package worker

import (
	"slices"
	"strings"

	"github.com/fermata-io/fermata/internal/core/job"
)

// An address learnt from a node is another way to a configured address. Its node needs a certificate for the
// host of a configured address, unless the TLS configuration fixes the server name. So an attacker who makes a
// node advertise the attacker's address still needs such a certificate; a public certificate for another name is
// not enough.

// plainAddresses returns the addresses that are host:port and no gRPC targets.
func plainAddresses(addresses []string) []string {
	return slices.DeleteFunc(slices.Clone(addresses), func(a string) bool { return !job.IsAddress(a) })
}

// endpointOf returns the host:port, or the host, of a configured address, which may be a gRPC target.
func endpointOf(address string) string {
	scheme, rest, isTarget := strings.Cut(address, "://")
	switch {
	case !isTarget:
		return address
	case scheme == "unix" || scheme == "unix-abstract":
		return "localhost" // gRPC's name for it
	}
	return rest[strings.LastIndexByte(rest, '/')+1:]
}

// verifiedEndpoint returns the configured endpoint whose host the certificate at a learnt address must name. It
// is empty for a configured address. After a failure the next configured host is used, because certificates may
// name only some of them.
func (o Options) verifiedEndpoint(r *route) string {
	if r.configured {
		return ""
	}
	var hosts []string
	for _, a := range o.Addresses {
		if e := endpointOf(a); !slices.ContainsFunc(hosts, func(h string) bool { return hostOf(h) == hostOf(e) }) {
			hosts = append(hosts, e)
		}
	}
	return hosts[r.totalFailures%len(hosts)]
}

// hostOf returns an endpoint without its port.
func hostOf(endpoint string) string {
	if i := strings.LastIndexByte(endpoint, ':'); i >= 0 && !strings.HasSuffix(endpoint, "]") {
		return endpoint[:i]
	}
	return endpoint
}
