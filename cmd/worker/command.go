package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/spf13/cobra"

	"github.com/fermata-io/fermata/internal/cli/config"
	"github.com/fermata-io/fermata/internal/cli/suggest"
	"github.com/fermata-io/fermata/internal/lib/secretfile"
	"github.com/fermata-io/fermata/internal/observe/logs"
	"github.com/fermata-io/fermata/internal/observe/tracing"
	"github.com/fermata-io/fermata/worker"
	"github.com/fermata-io/fermata/worker/secrets"
)

// workerFlags are those that do not go straight into the worker's options.
type workerFlags struct {
	handlers    handlerFlags
	tls         tlsFlags
	tokenFile   string
	metricsAddr string
	logs        logs.Options
	traceTo     string
}

const rootHelp = `Run a worker with the built-in handlers.

Jobs with the handler "http" send one HTTP request an attempt. Requests go to public
addresses at --http-ports only, and to the networks given with --http-allow; no proxy is
used. Jobs with the handler "exec" run one program an attempt; it is off until
--exec-allow names programs. Payloads set only the variables of --exec-env. Payloads may
name secrets of --secrets-dir; neither schedulers nor Redis see their values.

Every flag can be set by an environment variable (--drain-timeout is
FERMATA_DRAIN_TIMEOUT) or in a YAML file named by --config, in this order of
precedence: flag, environment, file, default.

SIGTERM and SIGINT drain: the worker takes no more attempts and finishes running ones, up
to --drain-timeout. A second signal cancels them, a third one exits at once.

Exit codes: 0 after a clean stop, 1 on failure or when attempts were cut off,
2 on wrong usage.`

// rootCommand makes the command line. When halt ends, draining ends.
func rootCommand(halt context.Context) *cobra.Command {
	var o worker.Options
	var f workerFlags
	cmd := &cobra.Command{
		Use: "worker", Short: "Run a worker with the built-in handlers", Long: rootHelp,
		Args: noArgs, SilenceUsage: true, SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := config.Load(cmd, "FERMATA"); err != nil {
				return usageError{err}
			}
			s, err := f.buildService(o, cmd.ErrOrStderr())
			if err := errors.Join(config.RequirePositive(cmd.Flags(), "slots"), needsQueue(o.Queues), err); err != nil {
				return usageError{err}
			}
			f.handlers.warnOfUnread(cmd.Flags(), s.logger)
			for _, variable := range config.UnreadVariables(cmd.Flags(), "FERMATA") {
				s.logger.Warn("environment variable is not used", "name", variable.Name, "meant", variable.Meant)
			}
			return s.serveUntilDone(cmd.Context(), halt)
		},
	}
	flags := cmd.Flags()
	flags.String("config", "", "YAML file with values for these flags")
	flags.StringSliceVar(&o.Addresses, "scheduler", []string{"127.0.0.1:7070"},
		"addresses of scheduler nodes, any of them, host:port or gRPC targets such as dns:///fermata:7070")
	flags.StringVar(&o.Namespace, "namespace", "default", "namespace whose jobs are run")
	flags.StringSliceVar(&o.Queues, "queues", []string{"default"}, "queues to serve")
	flags.IntVar(&o.Slots, "slots", worker.DefaultSlots, "attempts that run at once")
	flags.IntVar(&o.Prefetch, "prefetch", worker.DefaultPrefetch,
		"attempts that may wait in this worker for a slot while handlers take little time; nodes send at most 32 "+
			"for each slot; 0: none")
	flags.StringVar(&o.ID, "id", "", "id of this worker, unique for each process (default: host name, process id "+
		"and a random suffix)")
	flags.StringToStringVar(&o.Labels, "labels", nil, "labels shown where workers are listed")
	f.handlers.registerFlags(flags)
	config.DurationVar(flags, &o.DrainTimeout, "drain-timeout", worker.DefaultDrainTimeout,
		"how long a stop may wait for running attempts")
	f.tls.registerFlags(flags)
	flags.StringVar(&f.tokenFile, "token-file", "",
		"file with this worker's token, read again when it changes; beyond loopback it needs TLS")
	flags.StringVar(&f.metricsAddr, "metrics-addr", "", "serve /metrics, /healthz and /readyz here (default: nowhere)")
	flags.StringVar(&f.traceTo, "trace-endpoint", "",
		"send the spans of handlers to this OpenTelemetry collector, by OTLP over gRPC: http://host:4317, or "+
			"https://host:4317 for TLS; "+
			"schedulers decide which runs are traced (default: OTEL_EXPORTER_OTLP_ENDPOINT, or nowhere)")
	flags.StringVar(&f.logs.Format, "log-format", "text", "text or json")
	flags.StringVar(&f.logs.Level, "log-level", "info",
		"debug, info, warn or error; with --metrics-addr, fermata log-level changes it while the worker runs")
	flags.IntVar(&f.logs.Limit, "log-repeat-limit", logs.DefaultLimit,
		"most log lines in ten seconds with the same message about the same job; ten times as many with the same "+
			"message about all jobs; further lines are counted; 0: no limit")
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usageError{config.ExplainValue(suggest.UnknownFlag(cmd, err))}
	})
	cmd.AddCommand(versionCommand())
	return cmd
}

// needsQueue refuses an empty --queues, which would be the default: who empties a list of names has
// lost one, as with the variable of a script.
func needsQueue(queues []string) error {
	if len(queues) == 0 || slices.Equal(queues, []string{""}) {
		return errors.New("--queues is empty: name the queues to serve, or leave the flag out for the queue default")
	}
	return nil
}

// warnIfExposed logs which secrets of this worker any user of the host may read: the programs
// of exec jobs run as one.
func (f workerFlags) warnIfExposed(logger *slog.Logger) {
	secretfile.WarnIfExposed(logger, f.tokenFile)
	for _, path := range secrets.Paths(f.handlers.secretsDir) {
		secretfile.WarnIfExposed(logger, path)
	}
}

// buildService turns flags into a worker with its handlers. It reports all faults.
func (f workerFlags) buildService(o worker.Options, lines io.Writer) (*service, error) {
	logger, level, logErr := logs.New(lines, f.logs)
	registry := prometheus.NewRegistry()
	security, tlsErr := f.tls.dialOptions(logger, registry)
	handlers, handlerErr := f.handlers.buildHandlers(o.Slots, logger, f.tokenFile, f.tls.files.Key)
	var drainErr, tokenErr, prefetchErr error
	if f.tokenFile != "" {
		o.Token, tokenErr = worker.TokenFile(f.tokenFile)
	}
	if logErr == nil {
		f.warnIfExposed(logger)
	}
	switch {
	case o.Prefetch < 0:
		prefetchErr = fmt.Errorf("--prefetch %d: want 0 or more", o.Prefetch)
	case o.Prefetch == 0:
		o.Prefetch = -1 // to the package 0 is the default
	}
	if o.DrainTimeout <= 0 {
		drainErr = fmt.Errorf("--drain-timeout %v: must be positive", o.DrainTimeout)
	}
	traced, traceErr := tracing.CompleteSettings(f.traceTo, "", os.Getenv)
	if err := errors.Join(logErr, tlsErr, tokenErr, handlerErr, drainErr, prefetchErr, traceErr); err != nil {
		return nil, err
	}
	registry.MustRegister(collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	o.Version, o.DialOptions, o.Logger, o.Registerer = buildVersion, security, logger, registry
	s := &service{registry: registry, logger: logger, level: level, metricsAddr: f.metricsAddr}
	if err := s.startTracing(&o, traced); err != nil {
		return nil, err
	}
	w, err := worker.New(o)
	if err != nil {
		return nil, err
	}
	for name, h := range handlers {
		w.Handle(name, h)
	}
	s.worker = w
	return s, nil
}
