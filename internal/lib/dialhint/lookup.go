// Package dialhint explains why a host name has no address. gRPC does not: its resolver treats a name that
// does not exist like one without addresses, and the errors of its balancers do not mention the name.
package dialhint

import (
	"context"
	"net"
	"strings"
	"time"
)

// lookupTimeout bounds a lookup that only improves an error message.
const lookupTimeout = 2 * time.Second

// vagueErrors are the texts of gRPC's balancers, round_robin and pick_first, for a name without addresses.
var vagueErrors = []string{"no children to pick from", "produced zero addresses"}

// Explain returns why the host of an address (host:port) has no address, if err does not explain it; else err
// itself. It looks the host up, which takes two seconds at most.
func Explain(ctx context.Context, address string, err error) error {
	host, _, bad := net.SplitHostPort(address)
	if bad != nil || !isVague(err) {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	if _, reason := net.DefaultResolver.LookupHost(ctx, host); reason != nil {
		return reason
	}
	return err // the name exists by now
}

func isVague(err error) bool {
	for _, words := range vagueErrors {
		if strings.Contains(err.Error(), words) {
			return true
		}
	}
	return false
}
