// Package httpapi runs the gateway of the API over HTTP inside a command: its connections to the nodes, its listener,
// and its graceful end.
package httpapi

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"

	"google.golang.org/grpc"

	"github.com/fermata-io/fermata/client"
	"github.com/fermata-io/fermata/internal/api/gateway"
)

// Options configure a [Server].
type Options struct {
	// Address is where to listen, host:port. Flag is the flag that names it, for errors.
	Address, Flag string
	// TLS serves HTTPS. Default nil: plain HTTP.
	TLS *tls.Config
	// Gateway configures the handler.
	Gateway gateway.Options
	// Wrap wraps the handler; nil: it is served as it is.
	Wrap   func(http.Handler) http.Handler
	Logger *slog.Logger
}

// Server is a gateway that listens.
type Server struct {
	gateway  *gateway.Gateway
	server   *http.Server
	listener net.Listener
	scheme   string
	done     chan error
}

// Start listens. [Server.Stop] ends the server.
func Start(o Options) (*Server, error) {
	listener, err := net.Listen("tcp", o.Address)
	if err != nil {
		return nil, fmt.Errorf("--%s: %w; name another address", o.Flag, err)
	}
	o.Gateway.Logger = o.Logger
	g, err := gateway.New(o.Gateway)
	if err != nil {
		_ = listener.Close()
		return nil, err
	}
	var handler http.Handler = g
	if o.Wrap != nil {
		handler = o.Wrap(g)
	}
	s := &Server{
		gateway: g, server: gateway.NewServer(handler, o.TLS), listener: listener, scheme: "http",
		done: make(chan error, 1),
	}
	bounded := g.BoundListener(s.server, listener)
	if o.TLS != nil {
		s.scheme = "https"
		go func() { s.done <- s.server.ServeTLS(bounded, "", "") }()
		return s, nil
	}
	go func() { s.done <- s.server.Serve(bounded) }()
	return s, nil
}

// Addr is the address that the server listens at.
func (s *Server) Addr() string { return s.listener.Addr().String() }

// URL is the base of all paths, without a slash at the end.
func (s *Server) URL() string { return s.scheme + "://" + s.Addr() }

// Failed receives an error if the server ends by itself.
func (s *Server) Failed() <-chan error { return s.done }

// Stop ends event streams, waits for other requests until ctx ends, and closes everything.
func (s *Server) Stop(ctx context.Context) error {
	s.gateway.EndStreams()
	err := s.server.Shutdown(ctx)
	if err != nil {
		err = errors.Join(err, s.server.Close())
	}
	s.gateway.Close()
	return err
}

// Dialer returns a function for gateway.Options.Dial: each credential gets a client of its own. Beyond loopback
// addresses, tokens are only sent over TLS.
func Dialer(addresses []string, o client.Options) func(token string) (gateway.Connection, error) {
	return func(token string) (gateway.Connection, error) {
		o := o
		o.Token = nil
		if token != "" {
			o.Token = func(context.Context) (string, error) { return token, nil }
		}
		c, err := client.Dial(addresses, o)
		if err != nil {
			return nil, err
		}
		return clientConnection{ClientConnInterface: c.Conn(), client: c}, nil
	}
}

// clientConnection closes the client of a connection.
type clientConnection struct {
	grpc.ClientConnInterface
	client *client.Client
}

func (c clientConnection) Close() error { return c.client.Close() }
