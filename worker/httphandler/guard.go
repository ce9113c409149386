package httphandler

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/fermata-io/fermata/worker"
)

var (
	errRedirects = fmt.Errorf("more than %d redirects", maxRedirects)
	errDowngrade = errors.New("redirect from https to http")
	errScheme    = errors.New("redirect to another scheme than http and https")
	errLocation  = errors.New("redirect to a malformed URL")
)

// malformedLocation begins the error of net/http that quotes a malformed URL to redirect to.
const malformedLocation = "failed to parse Location header"

// checkRedirect decides whether to follow a redirect.
func (h *handler) checkRedirect(request *http.Request, via []*http.Request) error {
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
		for _, name := range []string{"Fermata-Run", "Fermata-Attempt", "Fermata-Nominal-Time", "Fermata-Due-Time",
			"Content-Type"} {
			if v := request.Header.Get(name); v != "" {
				kept.Set(name, v)
			}
		}
		request.Header = kept
	}
	return nil
}

// changesRequest reports whether a redirect turns the request into a GET without a body.
func changesRequest(answer *http.Response) bool {
	switch answer.StatusCode {
	case http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther:
	default:
		return false
	}
	sent := answer.Request
	return sent.Method != http.MethodGet && sent.Method != http.MethodHead || sent.ContentLength > 0
}

// redirectError is the error of a redirect that is not followed because it would change the request.
func (r *redirects) redirectError(answer *http.Response) error {
	to, err := answer.Location()
	if err != nil {
		return nil // it leads nowhere
	}
	sent := answer.Request
	from := r.describeTarget(sent.URL)
	r.addLocation(answer)
	return worker.Permanent(fmt.Errorf("%s %s: status %d %s leads to %s, where the request would be a GET without "+
		"its body; "+
		`name the address that it leads to in url, or the status in expected_status, or set follow_redirects to "as_get"`,
		sent.Method, from, answer.StatusCode, http.StatusText(answer.StatusCode), r.describeTarget(to)))
}
