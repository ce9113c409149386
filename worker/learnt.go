package worker

import (
	"slices"
	"strings"

	"github.com/fermata-io/fermata/internal/core/job"
)

// An address that nodes have named is another way to what the configuration names: its node has
// to have a certificate for the host of a configured address, as that one has, unless the TLS
// configuration fixes the name. So whoever could make a node name an address of their own would
// still need such a certificate, and one for a name of theirs, which authorities of the system give
// to anybody, is not enough.

// usable are those addresses that are host:port, and not targets of gRPC.
func usable(addresses []string) []string {
	return slices.DeleteFunc(slices.Clone(addresses), func(a string) bool { return !job.IsAddress(a) })
}

// endpoint is the host:port, or the host, of a configured address, which may be a target of gRPC.
func endpoint(address string) string {
	scheme, rest, isTarget := strings.Cut(address, "://")
	switch {
	case !isTarget:
		return address
	case scheme == "unix" || scheme == "unix-abstract":
		return "localhost" // as gRPC calls it
	}
	return rest[strings.LastIndexByte(rest, '/')+1:]
}

// standsFor is the configured endpoint whose host the certificate at a learnt address has to name; empty for a
// configured address. One that failed is tried in the name of the next configured host, as
// certificates of nodes may be for some of them only.
func (o Options) standsFor(r *route) string {
	if r.configured {
		return ""
	}
	var hosts []string
	for _, a := range o.Addresses {
		if e := endpoint(a); !slices.ContainsFunc(hosts, func(h string) bool { return host(h) == host(e) }) {
			hosts = append(hosts, e)
		}
	}
	return hosts[r.missed%len(hosts)]
}

// host is an endpoint without its port.
func host(endpoint string) string {
	if i := strings.LastIndexByte(endpoint, ':'); i >= 0 && !strings.HasSuffix(endpoint, "]") {
		return endpoint[:i]
	}
	return endpoint
}
