package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/fermata-io/fermata/client"
	"github.com/fermata-io/fermata/internal/auth/signin"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

const hintLogin = "run: fermata login"

func (a *app) oidcFlags(f *pflag.FlagSet) {
	f.StringVar(&a.oidc.Issuer, "oidc-issuer", "", "URL of the OpenID Connect issuer at which fermata login signs in")
	f.StringVar(&a.oidc.ClientID, "oidc-client-id", "", "id of the client that the issuer has for this command")
	f.StringVar(&a.oidc.ClientSecretFile, "oidc-client-secret-file", "",
		"file with the secret of that client (default: it has none)")
	f.StringSliceVar(&a.oidc.Scopes, "oidc-scopes", nil,
		"scopes to request in addition to openid; offline_access at issuers that give a refresh token for it alone")
	f.StringVar(&a.oidc.Audience, "oidc-audience", "",
		"audience to ask for, which the token has to name (default: of an ID token the client id)")
	f.StringVar(&a.oidc.CAFile, "oidc-ca", "",
		"PEM file with the certificate authority of the issuer (default: the system's)")
	f.StringVar(&a.oidc.Token, "oidc-token", signin.IDToken,
		"token that nodes are sent: id, or access if the issuer's access tokens are JWTs")
}

func (a *app) loginCommand() *cobra.Command {
	var showOnly bool
	cmd := &cobra.Command{
		Use: "login", Short: "Sign in at the issuer of your organization", Args: noArgs,
		Long: "Sign in by the device flow of OpenID Connect: open the address that is shown in a browser, on " +
			"whatever machine,\n" +
			"and enter the code. The session is kept in a file that only you can read, and is refreshed as long as " +
			"the issuer\n" +
			"allows it. All commands send its token to the addresses of --address that you signed in for, and " +
			"nowhere else.\n\n" +
			"At the end a node is asked who you are and which roles you have, as by fermata whoami. If none can be " +
			"reached,\n" +
			"you are signed in all the same.",
		Example: `  fermata login --address node:7070 --tls --oidc-issuer https://login.example.org --oidc-client-id fermata
  fermata login --status`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if showOnly {
				return a.showSession()
			}
			return a.signIn(cmd.Context())
		},
	}
	cmd.Flags().BoolVar(&showOnly, "status", false, "show the session; exit code 7 if there is none that can be used")
	return cmd
}

func (a *app) logoutCommand() *cobra.Command {
	return &cobra.Command{
		Use: "logout", Short: "End the session of fermata login", Args: noArgs,
		Long: "Remove the session for the addresses of --address from this machine, and have the issuer revoke it " +
			"if it can.\n" +
			"A token that was sent before stays valid until it expires.",
		RunE: func(cmd *cobra.Command, _ []string) error { return a.signOut(cmd.Context()) },
	}
}

func (a *app) sessionStore() (*signin.Store, error) {
	dir, err := signin.DefaultDir()
	if err != nil {
		return nil, fmt.Errorf("there is no directory for sessions: %w", err)
	}
	return signin.NewStore(dir, a.now), nil
}

func (a *app) signIn(ctx context.Context) error {
	if a.tokenFile != "" {
		return usageErrorf("--token-file is set, and would be used in place of the session")
	}
	settings, err := a.oidc.Complete()
	if err != nil {
		return newUsageError(err)
	}
	store, err := a.sessionStore()
	if err != nil {
		return err
	}
	session, err := store.Login(ctx, settings, a.addresses, a.printPrompt)
	switch {
	case ctx.Err() != nil:
		return &codedError{errors.New("interrupted before the sign-in was complete"), exitFailed, ""}
	case errors.Is(err, signin.ErrCodeExpired), errors.Is(err, signin.ErrDenied):
		return &codedError{err, exitSignedOut, hintLogin + ", to try again"}
	case err != nil:
		code, hint := signInHint(err)
		return &codedError{err, code, hint}
	}
	if err := a.showSignIn(session); err != nil {
		return err
	}
	return a.showCaller(ctx)
}

// showSignIn prints that the issuer has signed the user in, and until when. With -o, it prints to standard
// error.
func (a *app) showSignIn(session *signin.Session) error {
	out := a.out
	if a.output != "table" {
		out = a.err
	}
	if _, err := fmt.Fprintln(out, "signed in as "+describeUser(session)); err != nil {
		return err
	}
	if session.Refresh == "" {
		fmt.Fprintf(a.err, "The session ends at %s: the issuer gave no refresh token. Most give one for "+
			"--oidc-scopes offline_access.\n",
			session.Expires.Format(time.RFC3339))
		return nil
	}
	_, err := fmt.Fprintln(out, "The session lasts until the issuer ends it: its token is refreshed before it expires.")
	return err
}

// callerTimeout bounds the identity call of fermata login: the sign-in is complete without it.
const callerTimeout = 5 * time.Second

// showCaller shows the session's identity in the cluster. The sign-in also succeeds if no node answers. A node
// that refuses the token is an error, because it would refuse every command.
func (a *app) showCaller(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, min(a.timeout, callerTimeout))
	defer cancel()
	var answer *fermatav1.WhoAmIResponse
	err := a.withClient(ctx, func(c *client.Client) (err error) {
		answer, err = c.WhoAmI(ctx)
		return err
	})
	switch {
	case err == nil:
		return printMessage(a, answer, a.showIdentity)
	case status.Code(err) == codes.Unauthenticated:
		fmt.Fprintln(a.err, "The session is kept, but the node refuses its token.")
		return err
	}
	fmt.Fprintf(a.err, "warning: no node confirmed who you are: %s\nhint: when it can be reached run: fermata "+
		"whoami\n", a.errorMessage(err))
	return nil
}

// printPrompt prints what to do on standard error, because the output may be piped.
func (a *app) printPrompt(p signin.Prompt) error {
	text := fmt.Sprintf("Open %s\nand enter the code: %s\n", printableText(p.URL), printableText(p.Code))
	if p.Complete != "" {
		text += fmt.Sprintf("or open %s\nand compare the code.\n", printableText(p.Complete))
	}
	_, err := fmt.Fprintf(a.err, "%sWaiting until %s; Ctrl-C gives up.\n", text,
		p.Expires.Local().Format(time.TimeOnly))
	return err
}

// describeUser returns the subject used in rules, and a name for people.
func describeUser(s *signin.Session) string {
	if s.Name == "" || s.Name == s.Subject {
		return printableText(s.Subject)
	}
	return fmt.Sprintf("%s (%s)", printableText(s.Name), printableText(s.Subject))
}

func (a *app) findSession() (*signin.Store, *signin.Session, error) {
	store, err := a.sessionStore()
	if err != nil {
		return nil, nil, err
	}
	session, err := store.Find(a.oidc.Issuer, a.oidc.ClientID, a.addresses)
	return store, session, err
}

func (a *app) showSession() error {
	_, s, err := a.findSession()
	if err != nil {
		return a.signInError(err)
	}
	refreshed := "no: the session ends then"
	if s.Refresh != "" {
		refreshed = "yes"
	}
	lines := []string{
		"User:      " + describeUser(s),
		"Issuer:    " + printableText(s.Issuer),
		"Client:    " + printableText(s.ClientID),
		"Servers:   " + printableText(strings.Join(s.Servers, ", ")),
		"Token:     " + s.Token + ", expires " + s.Expires.Format(time.RFC3339),
		"Refreshed: " + refreshed,
	}
	if err := a.println(strings.Join(lines, "\n")); err != nil {
		return err
	}
	if s.Refresh == "" && !a.now().Before(s.Expires) {
		return a.signInError(signin.ErrEnded)
	}
	return nil
}

func (a *app) signOut(ctx context.Context) error {
	store, session, err := a.findSession()
	if errors.Is(err, signin.ErrNone) {
		return a.println("not signed in")
	}
	if err != nil {
		return a.signInError(err)
	}
	ctx, cancel := context.WithTimeout(ctx, a.timeout)
	defer cancel()
	switch err := store.Logout(ctx, session); {
	case errors.Is(err, signin.ErrNotRevoked):
		fmt.Fprintln(a.err, "The session is removed here; the issuer has no revocation endpoint, so that a copy of "+
			"it lasts until the issuer ends it.")
	case err != nil:
		return err
	}
	return a.println("signed out")
}

// tokenSource returns the source of the calls' token: a file, the session for these addresses, or nil. It
// fetches the first token, so that an expired session fails before any call.
func (a *app) tokenSource(ctx context.Context) (func(context.Context) (string, error), error) {
	if a.tokenFile != "" {
		return client.TokenFile(a.tokenFile)
	}
	store, session, err := a.findSession()
	if err != nil {
		if a.oidc.Issuer == "" && (store == nil || errors.Is(err, signin.ErrNone)) {
			return nil, nil
		}
		return nil, a.signInError(err)
	}
	source := store.Source(session)
	if a.completing { // a refresh may take longer than a shell waits
		token := source.ValidToken()
		if token == "" {
			return nil, a.signInError(signin.ErrEnded)
		}
		return func(context.Context) (string, error) { return token, nil }, nil
	}
	source.Warn = func(err error) { fmt.Fprintln(a.err, "warning:", printableText(err.Error())) }
	ctx, cancel := context.WithTimeout(ctx, a.timeout)
	defer cancel()
	if _, err := source.Token(ctx); err != nil {
		return nil, a.signInError(err)
	}
	return source.Token, nil
}

// signInError adds exit code and hint to the error of a session.
func (a *app) signInError(err error) error {
	switch {
	case errors.Is(err, signin.ErrNone), errors.Is(err, signin.ErrEnded):
		return &codedError{fmt.Errorf("%w for %s", err, strings.Join(a.addresses, ", ")), exitSignedOut, hintLogin}
	case errors.Is(err, signin.ErrSeveral):
		return newUsageError(err)
	case errors.Is(err, signin.ErrUnsafe):
		return &codedError{err, exitSignedOut, ""}
	}
	var answer *signin.AnswerError
	code, hint := signInHint(err)
	switch {
	case errors.As(err, &answer) && code == exitFailed:
		return &codedError{err, exitSignedOut, hintLogin}
	case errors.Is(err, signin.ErrUnreachable):
		hint = "the session can be refreshed when its issuer can be reached"
	}
	return &codedError{err, exitUnavailable, hint}
}
