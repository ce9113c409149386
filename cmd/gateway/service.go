package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/health/grpc_health_v1"

	"github.com/fermata-io/fermata/internal/api/gateway"
	"github.com/fermata-io/fermata/internal/auth/bearer"
	"github.com/fermata-io/fermata/internal/cli/httpapi"
	"github.com/fermata-io/fermata/internal/observe/logs"
	"github.com/fermata-io/fermata/internal/observe/telemetry"
)

const (
	// metricsStopTimeout bounds the end of the metrics server.
	metricsStopTimeout = 2 * time.Second
	// readyTimeout bounds the health call behind /readyz.
	readyTimeout = 2 * time.Second
)

// service is the gateway and what is served about it.
type service struct {
	options      httpapi.Options
	dialNodes    func(token string) (gateway.Connection, error)
	registry     *prometheus.Registry
	logger       *slog.Logger
	level        *logs.Level
	metricsAddr  string
	drainTimeout time.Duration
	// health is a connection without a credential, for /readyz.
	health gateway.Connection
}

// serveUntilDone serves until ctx ends, then drains.
func (s *service) serveUntilDone(ctx context.Context) (err error) {
	s.health, err = s.dialNodes("")
	if err != nil {
		return err
	}
	defer s.health.Close()
	server, err := httpapi.Start(s.options)
	if err != nil {
		return err
	}
	stopMetrics, err := s.serveMetrics()
	if err != nil {
		return errors.Join(err, server.Stop(ctx))
	}
	defer stopMetrics()
	s.logger.Info("serving the API", "url", server.URL(), "hosts", s.options.Gateway.AllowedHosts)
	if s.options.TLS == nil && !bearer.IsLocal(server.Addr()) {
		s.logger.Warn("serving plain HTTP to other hosts", "accepted_by", "--insecure")
	}
	select {
	case <-ctx.Done():
	case err = <-server.Failed():
	}
	s.logger.Info("stopping", "timeout", s.drainTimeout)
	stopCtx, cancel := context.WithTimeout(context.Background(), s.drainTimeout)
	defer cancel()
	return errors.Join(err, server.Stop(stopCtx))
}

// serveMetrics returns a function that ends the metrics server.
func (s *service) serveMetrics() (stop func(), err error) {
	if s.metricsAddr == "" {
		return func() {}, nil
	}
	listener, err := net.Listen("tcp", s.metricsAddr)
	if err != nil {
		return nil, fmt.Errorf("--metrics-addr: %w; name another address", err)
	}
	server := telemetry.Serve(listener, telemetry.ServerOptions{
		Gatherer: s.registry, Registerer: s.registry, Up: func() bool { return true }, Ready: s.missingConditions,
		Level: s.level, Logger: s.logger,
	})
	s.logger.Info("serving metrics", "address", server.Addr())
	return func() {
		ctx, cancel := context.WithTimeout(context.Background(), metricsStopTimeout)
		defer cancel()
		_ = server.Stop(ctx)
	}, nil
}

// missingConditions lists why the gateway is not ready: no node answers.
func (s *service) missingConditions() []string {
	ctx, cancel := context.WithTimeout(context.Background(), readyTimeout)
	defer cancel()
	answer, err := grpc_health_v1.NewHealthClient(s.health).Check(ctx, &grpc_health_v1.HealthCheckRequest{})
	switch {
	case err != nil:
		return []string{"no node answers: " + err.Error()}
	case answer.GetStatus() != grpc_health_v1.HealthCheckResponse_SERVING:
		return []string{"the node that answered does not serve"}
	}
	return nil
}
