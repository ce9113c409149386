package httphandler

import (
	"errors"
	"net/url"

	"github.com/fermata-io/fermata/internal/lib/egress"
	"github.com/fermata-io/fermata/internal/lib/mask"
	"github.com/fermata-io/fermata/internal/lib/urlmask"
)

// maxHidden bounds the parts of URLs that are looked for in an error: a query may have very many.
const maxHidden = 100

// hideCredentials masks in the text of an error what may be a credential in URLs: it may quote what the receiver
// answered. [errors.Is] and [errors.As] see the original error.
func hideCredentials(err error, urls ...*url.URL) error {
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
