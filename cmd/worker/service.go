package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fermata-io/fermata/internal/telemetry"
	"github.com/fermata-io/fermata/worker"
)

// stopMetrics bounds the end of the metrics server.
const stopMetrics = 2 * time.Second

// service is the worker and what is served about it.
type service struct {
	worker      *worker.Worker
	registry    *prometheus.Registry
	logger      *slog.Logger
	metricsAddr string
}

// serve works until drain ends, then drains until halt ends.
func (s *service) serve(drain, halt context.Context) (err error) {
	if s.metricsAddr != "" {
		listener, err := net.Listen("tcp", s.metricsAddr)
		if err != nil {
			return fmt.Errorf("listen for metrics: %w", err)
		}
		server := telemetry.Serve(listener, s.registry, s.missing)
		defer func() {
			ctx, cancel := context.WithTimeout(context.Background(), stopMetrics)
			defer cancel()
			if stopErr := server.Stop(ctx); stopErr != nil && !errors.Is(stopErr, context.DeadlineExceeded) {
				s.logger.Warn("metrics server", "error", stopErr)
			}
		}()
		s.logger.Info("serving metrics", "address", server.Addr())
	}
	defer context.AfterFunc(halt, s.worker.Stop)()
	return s.worker.Run(drain)
}

// missing lists why the worker is not ready.
func (s *service) missing() []string {
	if err := s.worker.Ready(); err != nil {
		return []string{err.Error()}
	}
	return nil
}
