package signin

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"github.com/fermata-io/fermata/internal/lib/visible"
)

// Errors of an issuer, by the action that they require.
var (
	// ErrUnreachable: the issuer does not answer.
	ErrUnreachable = errors.New("the issuer cannot be reached")
	// ErrCertificate: the issuer's certificate is not trusted.
	ErrCertificate = errors.New("the certificate of the issuer is not trusted")
	// ErrDiscovery: the server at the address does not describe itself as this issuer.
	ErrDiscovery = errors.New("no OpenID Connect issuer answers by this name")
	// ErrNoDeviceFlow: the issuer does not offer the device flow.
	ErrNoDeviceFlow = errors.New("it has no device_authorization_endpoint: the device flow is off, there or for " +
		"this client")
	// ErrToken: nodes could not verify the token that the issuer sent.
	ErrToken = errors.New("the token that the issuer gave cannot be used")
	// ErrClock: by the clock of this host a new token is not valid.
	ErrClock = errors.New("the clocks of this host and of the issuer differ")
)

// AnswerError is an error response of the issuer.
type AnswerError struct {
	// Code is the error code of OAuth 2.0, empty if there is none. Status is the HTTP status.
	Code   string
	Status int
	text   string
}

func (e *AnswerError) Error() string { return e.text }

// Transient reports whether the issuer itself fails, so that the same request may succeed later.
func (e *AnswerError) Transient() bool {
	return e.Status >= 500 || e.Status == http.StatusTooManyRequests || e.Code == "server_error" ||
		e.Code == "temporarily_unavailable"
}

// deadRefreshToken reports whether the issuer refuses a refresh token for good. RFC 6749 has invalid_grant for
// that; Dex answers invalid_request for one that it does not know any more.
func (e *AnswerError) deadRefreshToken() bool {
	return !e.Transient() && (e.Code == "invalid_grant" || e.Code == "invalid_request")
}

// maxShown bounds what is shown of an issuer's text.
const maxShown = 200

// displayText is a text of the issuer as a terminal may have it.
func displayText(text string) string {
	text, _, _ = strings.Cut(strings.TrimSpace(text), "\n")
	if runes := []rune(text); len(runes) > maxShown {
		text = string(runes[:maxShown]) + "…"
	}
	return visible.Line(text)
}

// explainError reduces the error of a failed exchange with the issuer to what may be shown: its kind, and the error
// code and description of RFC 6749. The body of the answer may contain anything, and is left out.
func explainError(err error) error {
	var answer *oauth2.RetrieveError
	var certificate *tls.CertificateVerificationError
	var network net.Error
	switch {
	case errors.As(err, &answer):
		return explainAnswer(answer)
	case errors.As(err, &certificate):
		return fmt.Errorf("%w: %s", ErrCertificate, displayText(certificate.Err.Error()))
	case errors.Is(err, context.Canceled):
		return err
	case errors.As(err, &network):
		return fmt.Errorf("%w: %s", ErrUnreachable, displayText(err.Error()))
	}
	return errors.New(displayText(err.Error()))
}

func explainAnswer(answer *oauth2.RetrieveError) error {
	e := &AnswerError{Code: answer.ErrorCode, text: displayText(answer.ErrorCode)}
	if answer.Response != nil {
		e.Status = answer.Response.StatusCode
		if e.text == "" {
			e.text = displayText(answer.Response.Status)
		}
	}
	if answer.ErrorDescription != "" {
		e.text += ": " + displayText(answer.ErrorDescription)
	}
	return e
}

// explainDiscovery is explain for the description of an issuer.
func explainDiscovery(err error) error {
	err = explainError(err)
	if errors.Is(err, ErrUnreachable) || errors.Is(err, ErrCertificate) || errors.Is(err, context.Canceled) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrDiscovery, err)
}

// explainToken describes why a new token is not accepted.
func explainToken(err error) error {
	var expired *oidc.TokenExpiredError
	if errors.As(err, &expired) || strings.Contains(err.Error(), "before the nbf") {
		return fmt.Errorf("%w: %s", ErrClock, displayText(err.Error()))
	}
	return fmt.Errorf("%w: %s", ErrToken, displayText(err.Error()))
}
