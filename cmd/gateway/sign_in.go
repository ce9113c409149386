package main

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/fermata-io/fermata/console"
	"github.com/fermata-io/fermata/internal/api/gateway"
	"github.com/fermata-io/fermata/internal/auth/signin"
	"github.com/fermata-io/fermata/internal/lib/secretfile"
)

// consoleSettings are the values of the flags of the web console.
type consoleSettings struct {
	enabled  bool
	readOnly bool
	url      string
	keyFile  string
	links    gateway.ConsoleLinks
	oidc     signin.Settings
}

const maxKeyFile = 1 << 10

func (c *consoleSettings) registerFlags(flags *pflag.FlagSet) {
	flags.BoolVar(&c.enabled, "console", true, "serve the web console")
	flags.BoolVar(&c.readOnly, "console-read-only", false,
		"refuse all changes by pages in a browser; programs are not concerned")
	flags.StringVar(&c.url, "console-url", "",
		"URL of the console as browsers see it, for the sign-in at an issuer: the issuer sends browsers back to it, "+
			"with /console/callback")
	flags.StringVar(&c.links.Trace, "console-trace-url", "",
		"template of the URL of a trace, such as https://traces.example.org/trace/{trace_id}; fields: trace_id, "+
			"correlation_id, namespace, job, run (default: runs show the id of their trace)")
	flags.StringVar(&c.links.Logs, "console-logs-url", "",
		"template of the URL of the log lines of a run, with the same fields (default: no link)")
	flags.StringVar(&c.keyFile, "console-session-key-file", "",
		"file with 32 bytes that encrypt the sessions of the console, the same for all gateways (default: a random "+
			"key, with which sessions end when the gateway stops)")
	flags.StringVar(&c.oidc.Issuer, "oidc-issuer", "",
		"URL of the OpenID Connect issuer at which people sign in to the console (default: they paste a token)")
	flags.StringVar(&c.oidc.ClientID, "oidc-client-id", "", "id of the client that the issuer has for the console")
	flags.StringVar(&c.oidc.ClientSecretFile, "oidc-client-secret-file", "",
		"file with the secret of that client (default: it has none)")
	flags.StringSliceVar(&c.oidc.Scopes, "oidc-scopes", nil,
		"scopes to request in addition to openid; offline_access at issuers that give a refresh token for it alone")
	flags.StringVar(&c.oidc.Audience, "oidc-audience", "",
		"audience to ask for, which the token has to name (default: of an ID token the client id)")
	flags.StringVar(&c.oidc.CAFile, "oidc-ca", "",
		"PEM file with the certificate authority of the issuer (default: the system's)")
	flags.StringVar(&c.oidc.Token, "oidc-token", signin.IDToken,
		"token that nodes are sent: id, or access if the issuer's access tokens are JWTs")
}

// options returns nil if the console is not served. It reports all faults.
func (c consoleSettings) options() (*gateway.ConsoleOptions, error) {
	if !c.enabled {
		return nil, nil
	}
	sessions := &gateway.SessionOptions{URL: c.url}
	var urlErr, keyErr, oidcErr error
	if c.url != "" {
		urlErr = checkConsoleURL(c.url)
	}
	if c.keyFile != "" {
		sessions.Key, keyErr = readSessionKey(c.keyFile)
	}
	if c.oidc.Issuer != "" || c.oidc.ClientID != "" {
		sessions.SignIn, oidcErr = c.signIn()
	}
	if err := errors.Join(urlErr, keyErr, oidcErr, checkLinks(c.links)); err != nil {
		return nil, err
	}
	return &gateway.ConsoleOptions{
		Files: console.Files(), ReadOnly: c.readOnly, Version: buildVersion, Links: c.links,
		Sessions: sessions,
	}, nil
}

// checkLinks refuses templates of URLs that no browser should follow.
func checkLinks(links gateway.ConsoleLinks) error {
	var errs []error
	for flag, template := range map[string]string{"console-trace-url": links.Trace, "console-logs-url": links.Logs} {
		if template == "" {
			continue
		}
		if err := gateway.CheckLinkTemplate(template); err != nil {
			errs = append(errs, fmt.Errorf("--%s %q: %w", flag, template, err))
		}
	}
	return errors.Join(errs...)
}

func (c consoleSettings) signIn() (gateway.SignIn, error) {
	flow, err := signin.NewCodeFlow(c.oidc, time.Now)
	if err != nil {
		return nil, err
	}
	if c.url == "" {
		return nil, errors.New("--oidc-issuer needs --console-url: the issuer sends browsers back to it")
	}
	return flow, nil
}

// checkConsoleURL refuses URLs that a browser could not be sent back to.
func checkConsoleURL(text string) error {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" ||
		(u.Scheme != "https" && u.Scheme != "http") {
		return fmt.Errorf("--console-url %q: want a URL such as https://fermata.example.org/ops", text)
	}
	return nil
}

// readSessionKey reads 32 bytes; one newline may follow.
func readSessionKey(path string) ([]byte, error) {
	text, err := secretfile.Read(path, maxKeyFile)
	if err != nil {
		return nil, fmt.Errorf("--console-session-key-file: %w", err)
	}
	if len(text) == 33 {
		text = []byte(strings.TrimSuffix(string(text), "\n"))
	}
	if len(text) != 32 {
		return nil, fmt.Errorf("--console-session-key-file %s: has %d bytes, want 32: openssl rand -out FILE 32", path,
			len(text))
	}
	if err := secretfile.CheckKey(text); err != nil {
		return nil, fmt.Errorf("--console-session-key-file %s: %w", path, err)
	}
	return text, nil
}
