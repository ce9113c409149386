package gateway

import (
	"net"
	"net/http"
	"net/url"
	"strings"
	"unicode/utf8"

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

// hostName is a host without port and brackets, in lower case. A dot at its end stays: a name that search domains lead
// to the gateway may belong to somebody else with the dot.
func hostName(hostport string) string {
	host, _, err := net.SplitHostPort(hostport)
	if err != nil {
		host = hostport
	}
	return strings.ToLower(strings.Trim(host, "[]"))
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

// checkText refuses what gRPC cannot send: text in the path, the query or a header that is not UTF-8.
func checkText(r *http.Request) error {
	if !utf8.ValidString(r.URL.Path) {
		return status.Error(codes.InvalidArgument, "the path is not UTF-8")
	}
	if query, err := url.ParseQuery(r.URL.RawQuery); err == nil {
		for name, values := range query {
			if !utf8.ValidString(name) || !utf8.ValidString(strings.Join(values, "")) {
				return status.Errorf(codes.InvalidArgument, "parameter %.80q is not UTF-8", name)
			}
		}
	}
	for _, name := range []string{"X-Request-Id", "If-Match", "Last-Event-Id"} {
		if !isHeaderText(r.Header.Get(name)) {
			return status.Errorf(codes.InvalidArgument, "%s has characters that are not printable ASCII", name)
		}
	}
	return nil
}
