package main

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"

	"github.com/fermata-io/fermata/client"
	"github.com/fermata-io/fermata/console"
	"github.com/fermata-io/fermata/internal/api/gateway"
	"github.com/fermata-io/fermata/internal/auth/bearer"
	"github.com/fermata-io/fermata/internal/cli/httpapi"
)

const (
	// consoleCookie has the secret of a console after its link was opened.
	consoleCookie = "fermata-console"
	// consoleStopTimeout bounds the end of the console.
	consoleStopTimeout = 5 * time.Second
)

func (a *app) consoleCommand() *cobra.Command {
	address, readOnly := "127.0.0.1:7073", false
	cmd := &cobra.Command{
		Use: "console", Short: "Serve the web console on this machine", Args: noArgs,
		Long: "Serve the web console and the API over HTTP on a loopback address, until interrupted. Requests act " +
			"with the\n" +
			"credential of this command. They need the secret of the link that is printed: opened in a browser, it " +
			"sets a\n" +
			"cookie; programs send the secret as a bearer token. Other users of this machine do not know it.",
		Example: `  fermata console --address node:7070 --tls`,
		RunE:    func(cmd *cobra.Command, _ []string) error { return a.serveConsole(cmd.Context(), address, readOnly) },
	}
	cmd.Flags().StringVar(&address, "rest-addr", address, "loopback address to serve at; port 0 takes a free one")
	cmd.Flags().BoolVar(&readOnly, "console-read-only", false,
		"refuse all changes by pages in a browser; programs are not concerned")
	return cmd
}

func (a *app) serveConsole(ctx context.Context, address string, readOnly bool) error {
	if !bearer.IsLocal(address) {
		return usageErrorf("--rest-addr %s: other hosts can reach it; want an address such as 127.0.0.1:7073", address)
	}
	dial, err := a.consoleDialer(ctx)
	if err != nil {
		return newUsageError(err)
	}
	secret, path := rand.Text(), "/c-"+rand.Text()
	server, err := httpapi.Start(httpapi.Options{
		Address: address, Flag: "rest-addr",
		Logger: slog.New(slog.NewTextHandler(a.err, &slog.HandlerOptions{Level: slog.LevelWarn})),
		Gateway: gateway.Options{
			Dial:    dial,
			Console: &gateway.ConsoleOptions{Files: console.Files(), ReadOnly: readOnly, Version: buildVersion},
		},
		Wrap: func(next http.Handler) http.Handler { return &consoleGuard{next: next, secret: secret, path: path} },
	})
	if err != nil {
		return newUsageError(err)
	}
	if err := a.println(fmt.Sprintf("%s%s/?secret=%s\n\nFor programs:\n  curl -H 'Authorization: Bearer %s' %s/v1/whoami",
		server.URL(), path, secret, secret, server.URL())); err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		err = nil
	case err = <-server.Failed():
	}
	stopCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), consoleStopTimeout)
	defer cancel()
	if stopErr := server.Stop(stopCtx); err == nil {
		err = stopErr
	}
	return err
}

// consoleDialer connects with the credential of this command, whatever the token of a request.
func (a *app) consoleDialer(ctx context.Context) (func(string) (gateway.Connection, error), error) {
	secure, err := a.tlsConfig()
	if err != nil {
		return nil, err
	}
	token, err := a.tokenSource(ctx)
	if err != nil {
		return nil, err
	}
	o := client.Options{TLS: secure}
	if token != nil {
		o.DialOptions = append(o.DialOptions, grpc.WithPerRPCCredentials(bearer.Credentials(token, a.addresses...)))
	}
	dial := httpapi.Dialer(a.addresses, o)
	return func(string) (gateway.Connection, error) { return dial("") }, nil
}

// consoleGuard lets requests in that know the secret of the console: from its link, its cookie or as bearer token.
//
// Browsers send a cookie to every port of a host, also to servers of other users of this machine. So the cookie is for
// a path that nobody can guess, below which the guard serves everything: a browser sends it nowhere else.
type consoleGuard struct {
	next   http.Handler
	secret string
	path   string // without a slash at its end
}

func (g *consoleGuard) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Referrer-Policy", "no-referrer")
	next := g.next
	_, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if strings.HasPrefix(r.URL.Path, g.path+"/") {
		if r.URL.Path == g.path+"/" && r.Method == http.MethodGet && g.knows(r.URL.Query().Get("secret")) {
			http.SetCookie(w, &http.Cookie{
				Name: consoleCookie, Value: g.secret, Path: g.path + "/", HttpOnly: true, SameSite: http.SameSiteStrictMode,
			})
			http.Redirect(w, r, g.path+"/", http.StatusSeeOther)
			return
		}
		if cookie, err := r.Cookie(consoleCookie); err == nil && token == "" {
			token = cookie.Value
		}
		next = http.StripPrefix(g.path, g.next)
	}
	if !g.knows(token) {
		http.Error(w, "open the link that fermata console has printed", http.StatusUnauthorized)
		return
	}
	r.Header.Del("Authorization") // the secret is for this process only
	r.Header.Del("Cookie")
	next.ServeHTTP(w, r)
}

func (g *consoleGuard) knows(secret string) bool {
	return subtle.ConstantTimeCompare([]byte(secret), []byte(g.secret)) == 1
}
