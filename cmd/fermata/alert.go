package main

import (
	"context"
	"crypto/tls"
	"net"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// alertReadTimeout bounds a handshake that is made for the sake of a message.
const alertReadTimeout = 2 * time.Second

// withTLSAlert adds the reason why a node ended a TLS connection. A node that requires a certificate sends an
// alert after the handshake. If the node is fast, gRPC sees only that its write failed.
func (a *app) withTLSAlert(err error) error {
	st, ok := status.FromError(err)
	cut := strings.Contains(st.Message(), "broken pipe") || strings.Contains(st.Message(), "connection reset by peer")
	if !ok || st.Code() != codes.Unavailable || !cut || len(a.addresses) != 1 {
		return err
	}
	config, tlsErr := a.tlsConfig()
	if tlsErr != nil || config == nil {
		return err
	}
	if alert := readAlert(a.addresses[0], config); alert != nil {
		return status.Error(codes.Unavailable, alert.Error())
	}
	return err
}

// readAlert connects, sends nothing beyond the handshake, and returns the node's alert.
func readAlert(address string, config *tls.Config) error {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), alertReadTimeout)
	defer cancel()
	raw, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil
	}
	defer raw.Close()
	deadline, _ := ctx.Deadline()
	if err := raw.SetDeadline(deadline); err != nil {
		return nil
	}
	config = config.Clone()
	config.NextProtos = []string{"h2"}
	if config.ServerName == "" {
		config.ServerName = host
	}
	_, err = tls.Client(raw, config).Read(make([]byte, 1))
	if err != nil && strings.Contains(err.Error(), "tls: ") {
		return err
	}
	return nil
}
