// Package bearer sends bearer tokens with gRPC calls, and never over connections where others could read them.
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

	"github.com/fermata-io/fermata/internal/lib/filewatch"
)

// Token returns the token for one call, or one stream.
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
		c.secure = c.secure || !IsLocal(a)
	}
	return c
}

func (c perCall) RequireTransportSecurity() bool { return c.secure }

func (c perCall) GetRequestMetadata(ctx context.Context, _ ...string) (map[string]string, error) {
	token, err := c.token(ctx)
	if err == nil {
		err = validateToken(token)
	}
	if err != nil {
		return nil, err
	}
	return map[string]string{"authorization": "Bearer " + token}, nil
}

// validateToken refuses a token that a header cannot carry unchanged.
func validateToken(token string) error {
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

// IsLocal reports whether an address is on this host: host:port, a gRPC target of one with an empty authority
// (dns:///host:port, passthrough:///host:port), or a socket (unix:path). It is false if another party chooses
// the destination: a name server (dns://server/host:port), for example, or another scheme.
func IsLocal(address string) bool {
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
	// rereadInterval is the maximum age of a token that was read from a file.
	rereadInterval = 2 * time.Second
	maxTokenSize   = 12 << 10
)

// File returns the token of a file, and a new one soon after the file has changed. If the file cannot be read
// any more, the last token stays in use.
func File(path string) (Token, error) {
	file, err := filewatch.Open(path, maxTokenSize, func(text []byte) (string, error) {
		token := strings.TrimSpace(string(text))
		if err := validateToken(token); err != nil {
			return "", fmt.Errorf("%s: %w", path, err)
		}
		return token, nil
	})
	if err != nil {
		return nil, fmt.Errorf("token file: %w", err)
	}
	f := &tokenFile{file: file, readAt: time.Now()}
	return f.currentToken, nil
}

type tokenFile struct {
	file *filewatch.File[string]

	mu     sync.Mutex
	readAt time.Time
}

func (f *tokenFile) currentToken(context.Context) (string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if time.Since(f.readAt) > rereadInterval {
		f.readAt = time.Now()
		f.file.Reload(nil, "token file") // the node refuses the last token when it expires, and the error then shows
	}
	return f.file.Content(), nil
}
