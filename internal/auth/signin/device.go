package signin

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/oauth2"
)

// codeLife is how long a code is valid if the issuer does not set its expiry.
const codeLife = 15 * time.Minute

// Errors of a sign-in that its user has denied, or has not completed.
var (
	ErrDenied      = errors.New("the sign-in was denied")
	ErrCodeExpired = errors.New("the code has expired before it was entered")
)

// Prompt is what a user has to do.
type Prompt struct {
	URL, Code string
	// Complete is the URL with the code in it; empty if the issuer sends none.
	Complete string
	Expires  time.Time
}

// Login signs in by the device flow for servers, and stores the session. It calls show with what the user has to
// do, and waits until that is done, the code has expired, or ctx ends.
func (s *Store) Login(ctx context.Context, settings Settings, servers []string, show func(Prompt) error) (*Session,
	error) {
	settings, err := settings.Complete()
	if err != nil {
		return nil, err
	}
	if len(servers) == 0 {
		return nil, errors.New("no address of a node to sign in for")
	}
	if err := s.prepareDir(); err != nil {
		return nil, err
	}
	i, err := discoverIssuer(ctx, settings, s.now)
	if err != nil {
		return nil, err
	}
	given, err := i.askUser(ctx, show)
	if err != nil {
		return nil, err
	}
	t, err := i.verifyTokens(ctx, given)
	if err != nil {
		return nil, err
	}
	session := newSession(settings, servers)
	session.setTokens(t, s.now())
	unlock, err := s.lockSession(ctx, session.filePath(s.dir))
	if err != nil {
		return nil, err
	}
	defer unlock()
	return session, s.writeSession(session)
}

// askUser requests a code, shows it and waits until it was entered.
func (i *issuer) askUser(ctx context.Context, show func(Prompt) error) (*oauth2.Token, error) {
	if i.config.Endpoint.DeviceAuthURL == "" {
		return nil, fmt.Errorf("issuer %s: %w", i.settings.Issuer, ErrNoDeviceFlow)
	}
	var parameters []oauth2.AuthCodeOption
	if i.settings.Audience != "" {
		parameters = append(parameters, oauth2.SetAuthURLParam("audience", i.settings.Audience))
	}
	asked := parameters
	if i.config.ClientSecret != "" {
		asked = append(asked, oauth2.SetAuthURLParam("client_secret", i.config.ClientSecret))
	}
	device, err := i.config.DeviceAuth(i.withClient(ctx), asked...)
	switch {
	case err != nil:
		return nil, fmt.Errorf("issuer %s: %w", i.settings.Issuer, explainError(err))
	case device.DeviceCode == "" || device.UserCode == "" || device.VerificationURI == "":
		return nil, fmt.Errorf("issuer %s gave no code", i.settings.Issuer)
	}
	if device.Expiry.IsZero() {
		device.Expiry = time.Now().Add(codeLife)
	}
	err = show(Prompt{URL: device.VerificationURI, Code: device.UserCode, Complete: device.VerificationURIComplete,
		Expires: device.Expiry})
	if err != nil {
		return nil, err
	}
	return i.pollForToken(ctx, device, parameters)
}

// pollForToken requests the token until there is an answer. A failure of the issuer or of the network is not an
// answer: the client polls again, at twice the interval, as RFC 8628 requires.
func (i *issuer) pollForToken(ctx context.Context, device *oauth2.DeviceAuthResponse,
	parameters []oauth2.AuthCodeOption) (*oauth2.Token, error) {
	for {
		token, err := i.config.DeviceAccessToken(i.withClient(ctx), device, parameters...)
		if err == nil {
			return token, nil
		}
		err = explainError(err)
		var answer *AnswerError
		answered := errors.As(err, &answer)
		switch {
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case !time.Now().Before(device.Expiry):
			return nil, ErrCodeExpired
		case !answered || answer.Transient():
			device.Interval = min(max(2*device.Interval, 5), 60)
		case answer.Code == "access_denied":
			return nil, ErrDenied
		case answer.Code == "expired_token":
			return nil, ErrCodeExpired
		default:
			return nil, fmt.Errorf("issuer %s: %w", i.settings.Issuer, err)
		}
	}
}
