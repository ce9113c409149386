package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/fermata-io/fermata/internal/observe/logs"
	"github.com/fermata-io/fermata/internal/observe/telemetry"
	"github.com/fermata-io/fermata/internal/observe/tracing"
	"github.com/fermata-io/fermata/worker"
)

// metricsStopTimeout bounds the end of the metrics server.
const metricsStopTimeout = 2 * time.Second

// service is the worker and what is served about it.
type service struct {
	worker      *worker.Worker
	registry    *prometheus.Registry
	logger      *slog.Logger
	level       *logs.Level
	metricsAddr string
	spans       *sdktrace.TracerProvider // nil: none are sent
}

// spanFlushTimeout is how long the last spans may take.
const spanFlushTimeout = 3 * time.Second

// startTracing has the spans of handlers sent, if they have somewhere to go.
func (s *service) startTracing(o *worker.Options, t tracing.Settings) (err error) {
	if t.Endpoint == "" {
		return nil
	}
	if o.ID == "" {
		o.ID = worker.NewID() // which the spans are to name too
	}
	s.spans, err = tracing.Provider(context.Background(), t, tracing.Process{
		Service: "fermata-worker", Version: buildVersion, Instance: o.ID, Logger: s.logger, Registerer: s.registry,
	})
	if err == nil {
		o.TracerProvider = s.spans
	}
	return err
}

// flushSpans sends the last spans.
func (s *service) flushSpans() {
	if s.spans == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), spanFlushTimeout)
	defer cancel()
	if err := s.spans.Shutdown(ctx); err != nil {
		s.logger.Warn("failed to send the last spans", "error", err)
	}
}

// serveUntilDone works until drain ends, then drains until halt ends.
func (s *service) serveUntilDone(drain, halt context.Context) (err error) {
	if s.metricsAddr != "" {
		listener, err := net.Listen("tcp", s.metricsAddr)
		if err != nil {
			return fmt.Errorf("--metrics-addr: %w; name another address", err)
		}
		server := telemetry.Serve(listener, telemetry.ServerOptions{
			Gatherer: s.registry, Registerer: s.registry, Up: func() bool { return true }, Ready: s.missingConditions,
			Level: s.level, Logger: s.logger,
		})
		defer func() {
			ctx, cancel := context.WithTimeout(context.Background(), metricsStopTimeout)
			defer cancel()
			if stopErr := server.Stop(ctx); stopErr != nil && !errors.Is(stopErr, context.DeadlineExceeded) {
				s.logger.Warn("metrics server failed", "error", stopErr)
			}
		}()
		s.logger.Info("serving metrics", "address", server.Addr())
	}
	defer s.flushSpans()
	defer context.AfterFunc(halt, s.worker.Abort)()
	return s.worker.Run(drain)
}

// missingConditions lists why the worker is not ready.
func (s *service) missingConditions() []string {
	if err := s.worker.Ready(); err != nil {
		return []string{err.Error()}
	}
	return nil
}
