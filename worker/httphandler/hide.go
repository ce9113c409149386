package httphandler

import (
	"errors"
	"net/http"
	"net/url"
	"slices"

	"github.com/fermata-io/fermata/internal/lib/egress"
	"github.com/fermata-io/fermata/internal/lib/mask"
	"github.com/fermata-io/fermata/internal/lib/urlmask"
	"github.com/fermata-io/fermata/worker/secrets"
)

// describeURL returns scheme, host and path of a URL without segments that may be credentials. A URL that has a secret
// is [secrets.Mask]: what is left of it could have a part of the secret, which masking does not find.
func describeURL(u *url.URL, use *secrets.Resolver) string {
	if use.HasSecret(u.String()) {
		return secrets.Mask
	}
	return urlmask.Describe(u)
}

// redirects are the redirects of one request.
type redirects struct {
	use       *secrets.Resolver
	locations []string // as the receivers wrote them
}

func (r *redirects) addLocation(answer *http.Response) {
	r.locations = append(r.locations, answer.Header.Get("Location"))
}

// describeTarget describes a URL that the redirects led to. If one of them has a secret, the URL is [secrets.Mask],
// because parsing and resolving may have left a part of the secret.
func (r *redirects) describeTarget(u *url.URL) string {
	if r.haveSecret() {
		return secrets.Mask
	}
	return describeURL(u, r.use)
}

func (r *redirects) haveSecret() bool { return slices.ContainsFunc(r.locations, r.use.HasSecret) }

// operatorError returns an error for the log of the worker: with addresses, unless the name that they are of may be a
// part of a secret.
func (r *redirects) operatorError(plain *egress.PlainError) error {
	if r.haveSecret() {
		return plain
	}
	return r.use.MaskError(plain.Err)
}

// maxHidden bounds the parts of URLs that are looked for in an error: a query may have very many.
const maxHidden = 100

// hideCredentials masks in the text of an error the given secrets, and then what may be a credential in URLs: it may
// quote what the receiver answered. Secrets are first, because a part of a URL may be a part of a secret. [errors.Is]
// and [errors.As] see the original error.
func hideCredentials(err error, use *secrets.Resolver, urls ...*url.URL) error {
	err = use.MaskError(err)
	var plain *egress.PlainError
	if errors.As(err, &plain) {
		return err // it quotes nothing
	}
	var parts []string
	for _, u := range urls {
		parts = append(parts, urlmask.Secrets(u)...)
	}
	return &hiddenError{err, maskParts(err.Error(), parts)}
}

func maskParts(text string, parts []string) string {
	if len(parts) > maxHidden {
		return mask.Mark
	}
	var masker mask.Masker
	for _, part := range parts {
		masker.Add(part)
	}
	return string(masker.MaskText([]byte(text)))
}

// hiddenError is an error with another text.
type hiddenError struct {
	err  error
	text string
}

func (e *hiddenError) Error() string { return e.text }
func (e *hiddenError) Unwrap() error { return e.err }
