// Package bearer sends tokens with calls, and keeps them from being sent where
// others could read them.
package bearer

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/credentials"

	"github.com/fermata-io/fermata/internal/lib/secretfile"
)

// Token gives the token for one call, or one stream.
type Token = func(context.Context) (string, error)

// perCall implements [credentials.PerRPCCredentials].
type perCall struct {
	token  Token
	secure bool
}

// Credentials send a token with each call to addresses. Unless all of these are
// loopback, gRPC refuses them without TLS.
func Credentials(token Token, addresses ...string) credentials.PerRPCCredentials {
	c := perCall{token: token}
	for _, a := range addresses {
		c.secure = c.secure || !Local(a)
	}
	return c
}

func (c perCall) RequireTransportSecurity() bool { return c.secure }

func (c perCall) GetRequestMetadata(ctx context.Context, _ ...string) (map[string]string, error) {
	token, err := c.token(ctx)
	if err == nil {
		err = check(token)
	}
	if err != nil {
		return nil, err
	}
	return map[string]string{"authorization": "Bearer " + token}, nil
}

// check refuses what would not arrive as it is.
func check(token string) error {
	if token == "" {
		return errors.New("the token is empty")
	}
	for _, r := range token {
		if r <= ' ' || r > '~' {
			return errors.New("the token has characters that no token has")
		}
	}
	return nil
}

// Local reports whether an address is on this host: host:port, a gRPC target of one with an
// empty authority (dns:///host:port, passthrough:///host:port), or a socket (unix:path). It is
// not where who answers is somebody else's choice: a server of names (dns://server/host:port),
// say, or another scheme.
func Local(address string) bool {
	if strings.HasPrefix(address, "unix:") {
		return true
	}
	for _, scheme := range []string{"dns:///", "passthrough:///"} {
		if rest, ok := strings.CutPrefix(address, scheme); ok {
			address = rest
			break
		}
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return false
	}
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.Zone() == "" && ip.IsLoopback()
}

const (
	// rereadAfter is how old the token of a file may be.
	rereadAfter = 2 * time.Second
	maxToken    = 12 << 10
)

// File gives the token that a file holds, and another one soon after the file has
// changed. A file that cannot be read any more leaves the last token in use.
func File(path string) (Token, error) {
	f := &file{path: path}
	if err := f.read(); err != nil {
		return nil, err
	}
	return f.get, nil
}

type file struct {
	path string

	mu    sync.Mutex
	token string
	at    time.Time
}

func (f *file) get(context.Context) (string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if time.Since(f.at) > rereadAfter {
		// What is wrong with it, the node will tell once the last token expires.
		_ = f.read()
	}
	return f.token, nil
}

func (f *file) read() error {
	f.at = time.Now()
	text, err := secretfile.Read(f.path, maxToken)
	if err != nil {
		return fmt.Errorf("token file: %w", err)
	}
	token := strings.TrimSpace(string(text))
	if err := check(token); err != nil {
		return fmt.Errorf("token file %s: %w", f.path, err)
	}
	f.token = token
	return nil
}
