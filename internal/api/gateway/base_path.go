package gateway

import (
	"errors"
	"net/http"
	"net/url"
	"path"
	"strings"
)

// CheckBasePath returns a base path without a slash at its end; "" is the root.
func CheckBasePath(base string) (string, error) {
	base = strings.TrimSuffix(base, "/")
	if base == "" {
		return "", nil
	}
	if !strings.HasPrefix(base, "/") || path.Clean(base) != base || strings.ContainsAny(base, "?#%") {
		return "", errors.New("a base path begins with a slash and has no empty parts, such as /ops/fermata")
	}
	return base, nil
}

// withoutBasePath returns a request as if the gateway served at the root; ok: it is below the base path.
func withoutBasePath(r *http.Request, base string) (below *http.Request, ok bool) {
	if base == "" {
		return r, true
	}
	rest, ok := strings.CutPrefix(r.URL.Path, base)
	raw, okRaw := strings.CutPrefix(r.URL.RawPath, base)
	if !ok || !strings.HasPrefix(rest, "/") || r.URL.RawPath != "" && !okRaw {
		return nil, false
	}
	u := new(url.URL)
	*u = *r.URL
	u.Path, u.RawPath = rest, raw
	below = new(http.Request)
	*below = *r
	below.URL = u
	return below, true
}
