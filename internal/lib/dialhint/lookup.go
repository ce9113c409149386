// Package dialhint tells why a name has no address. gRPC keeps that to itself: its
// resolver takes a name that does not exist for one without addresses, and what its
// balancers then say is about themselves.
package dialhint

import (
	"context"
	"net"
	"strings"
	"time"
)

// patience bounds a look-up that is made for the sake of a message.
const patience = 2 * time.Second

// mute are the words of gRPC's balancers, round_robin and pick_first, about a name
// without addresses.
var mute = []string{"no children to pick from", "produced zero addresses"}

// Explain returns why the host of an address (host:port) has no address, where err
// says no more than that gRPC knows none; else err itself. It looks the host up, which
// takes two seconds at most.
func Explain(ctx context.Context, address string, err error) error {
	host, _, bad := net.SplitHostPort(address)
	if bad != nil || !isMute(err) {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if _, reason := net.DefaultResolver.LookupHost(ctx, host); reason != nil {
		return reason
	}
	return err // it has come into being
}

func isMute(err error) bool {
	for _, words := range mute {
		if strings.Contains(err.Error(), words) {
			return true
		}
	}
	return false
}
