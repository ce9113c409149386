package gateway

import (
	"errors"
	"io"
	"net"
	"net/http"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// setSecurityHeaders sets the headers of every response. Only the console is a page, and has a policy of its own.
func setSecurityHeaders(h http.Header) {
	h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
}

// hostChecker knows the host names that requests may name. It keeps pages whose name was rebound to the address of
// the gateway from using it.
type hostChecker map[string]bool

func newHostChecker(hosts []string) hostChecker {
	allowed := hostChecker{}
	for _, h := range hosts {
		allowed[strings.ToLower(strings.Trim(h, "[]"))] = true
	}
	return allowed
}

func (h hostChecker) check(r *http.Request) error {
	if h[hostName(r.Host)] {
		return nil
	}
	return withReason(codes.PermissionDenied, "HOST_NOT_ALLOWED",
		"this gateway does not serve the host of the request; --allowed-hosts names those that it serves")
}

// hostName is a host without port and brackets, in lower case.
func hostName(hostport string) string {
	host, _, err := net.SplitHostPort(hostport)
	if err != nil {
		host = hostport
	}
	return strings.ToLower(strings.TrimSuffix(strings.Trim(host, "[]"), "."))
}

// bearerToken returns the token of a request; "" if it has none.
func bearerToken(r *http.Request) (string, error) {
	values := r.Header.Values("Authorization")
	if len(values) == 0 {
		return "", nil
	}
	scheme, token, _ := strings.Cut(values[0], " ")
	isToken := token != "" && isHeaderText(token) && !strings.Contains(token, " ")
	if len(values) > 1 || !strings.EqualFold(scheme, "bearer") || !isToken {
		return "", status.Error(codes.Unauthenticated, "authorization is not one bearer token")
	}
	return token, nil
}

// remoteHost is the address of the other side without its port. Addresses of one IPv6 network of 64 bits count as
// one.
func remoteHost(r *http.Request) string { return addressGroup(r.RemoteAddr) }

// batchVerbs are the methods that take many jobs in one body.
var batchVerbs = []string{":batchCreate", ":apply", ":plan", ":restore"}

// takesBatch reports whether a request is for one of these methods.
func takesBatch(r *http.Request) bool {
	for _, verb := range batchVerbs {
		if strings.HasSuffix(r.URL.Path, verb) {
			return true
		}
	}
	return false
}

// limitedBody ends a body that has too many JSON values: each takes some 200 bytes of memory. It remembers
// that a body was longer than its limits: the translation reports any error of the body as an invalid one.
type limitedBody struct {
	io.ReadCloser
	call      *call
	maxValues int

	values           int
	inText, escaping bool // where the part that was read ends
}

func (b *limitedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.countValues(p[:n])
	if b.values > b.maxValues {
		b.call.bodyTooLarge.Store(true)
		return 0, errTooManyValues
	}
	var tooLarge *http.MaxBytesError
	if errors.As(err, &tooLarge) {
		b.call.bodyTooLarge.Store(true)
	}
	return n, err
}

var errTooManyValues = errors.New("too many values")

// countValues counts the characters outside of texts that begin another value.
func (b *limitedBody) countValues(part []byte) {
	for _, c := range part {
		switch {
		case b.escaping:
			b.escaping = false
		case b.inText:
			b.escaping, b.inText = c == '\\', c != '"'
		case c == '"':
			b.inText = true
		case c == ',' || c == '[' || c == '{':
			b.values++
		}
	}
}
