package httphandler

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
)

var (
	errRedirects = fmt.Errorf("more than %d redirects", maxRedirects)
	errDowngrade = errors.New("redirect from https to http")
	errScheme    = errors.New("redirect to another scheme than http and https")
)

// redirect decides about one redirect.
func (h *handler) redirect(request *http.Request, via []*http.Request) error {
	first, last := via[0], via[len(via)-1]
	switch {
	case len(via) > maxRedirects:
		return errRedirects
	case request.URL.Scheme != "http" && request.URL.Scheme != "https":
		return errScheme
	case last.URL.Scheme == "https" && request.URL.Scheme == "http":
		return errDowngrade
	}
	// Once it has led elsewhere, where it leads is that server's choice, back to the first one as well.
	elsewhere := func(r *http.Request) bool {
		return r.URL.Scheme != first.URL.Scheme || !strings.EqualFold(r.URL.Host, first.URL.Host)
	}
	if elsewhere(request) || slices.ContainsFunc(via, elsewhere) {
		// The payload's own would be sent along with the secrets that they may hold; that of
		// the body has none.
		kept := http.Header{"User-Agent": {h.agent}}
		for _, name := range []string{"Fermata-Run", "Fermata-Attempt", "Fermata-Nominal-Time", "Fermata-Due-Time", "Content-Type"} {
			if v := request.Header.Get(name); v != "" {
				kept.Set(name, v)
			}
		}
		request.Header = kept
	}
	return nil
}

// retryAfter reads the header of that name: seconds, or a date that counts from
// the answer's own Date, else from now. 0 means that it asks for nothing.
func retryAfter(h http.Header, now time.Time) time.Duration {
	text := strings.TrimSpace(h.Get("Retry-After"))
	if text == "" {
		return 0
	}
	if seconds, err := time.ParseDuration(text + "s"); err == nil && strings.Trim(text, "0123456789") == "" {
		return seconds
	}
	at, err := http.ParseTime(text)
	if err != nil {
		return 0
	}
	if sent, err := http.ParseTime(h.Get("Date")); err == nil {
		now = sent
	}
	return max(0, at.Sub(now))
}
