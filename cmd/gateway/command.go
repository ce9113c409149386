package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"google.golang.org/grpc"

	"github.com/fermata-io/fermata/client"
	"github.com/fermata-io/fermata/internal/api/gateway"
	"github.com/fermata-io/fermata/internal/auth/bearer"
	"github.com/fermata-io/fermata/internal/auth/tlsfiles"
	"github.com/fermata-io/fermata/internal/cli/config"
	"github.com/fermata-io/fermata/internal/cli/httpapi"
	"github.com/fermata-io/fermata/internal/cli/suggest"
	"github.com/fermata-io/fermata/internal/lib/secretfile"
	"github.com/fermata-io/fermata/internal/observe/logs"
)

const rootHelp = `Serve the API of a cluster as JSON over HTTP: REST, events as server-sent events or JSON
lines, the OpenAPI document at /openapi.json, and the web console at /.

The gateway has no rights of its own. It sends the bearer token of each request to the
nodes, which authenticate, authorize and count it. Requests that name a host that is not
in --allowed-hosts are refused, and so are changing requests of pages of other origins.

Every flag can be set by an environment variable (--drain-timeout is
FERMATA_DRAIN_TIMEOUT) or in a YAML file named by --config, in this order of
precedence: flag, environment, file, default.

SIGTERM and SIGINT stop: event streams end, which readers resume at another gateway, and
other requests may finish, up to --drain-timeout. A second signal exits at once.

Exit codes: 0 after a clean stop, 1 on failure, 2 on wrong usage.`

// settings are the values of the flags.
type settings struct {
	addresses    []string
	address      string
	metricsAddr  string
	allowedHosts []string
	// trustedProxies are networks, such as 10.0.0.0/8.
	trustedProxies []string
	maxCallers     int
	maxCalls       int
	maxStreams     int
	drainTimeout   time.Duration
	tls            bool
	insecure       bool
	nodeFiles      tlsfiles.Files
	serverFiles    tlsfiles.Files
	logs           logs.Options
	console        consoleSettings
	basePath       string
}

func rootCommand() *cobra.Command {
	var f settings
	cmd := &cobra.Command{
		Use: "gateway", Short: "Serve the API of a cluster as JSON over HTTP", Long: rootHelp,
		Args: noArgs, SilenceUsage: true, SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := config.Load(cmd, "FERMATA"); err != nil {
				return usageError{err}
			}
			s, err := f.buildService(cmd.ErrOrStderr())
			positive := config.RequirePositive(cmd.Flags(), "max-callers", "max-calls", "max-event-streams")
			if err := errors.Join(positive, err); err != nil {
				return usageError{err}
			}
			for _, variable := range config.UnreadVariables(cmd.Flags(), "FERMATA") {
				s.logger.Warn("environment variable is not used", "name", variable.Name, "meant", variable.Meant)
			}
			return s.serveUntilDone(cmd.Context())
		},
	}
	f.registerFlags(cmd.Flags())
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usageError{config.ExplainValue(suggest.UnknownFlag(cmd, err))}
	})
	cmd.AddCommand(versionCommand())
	return cmd
}

func (f *settings) registerFlags(flags *pflag.FlagSet) {
	flags.String("config", "", "YAML file with values for these flags")
	flags.StringSliceVar(&f.addresses, "scheduler", []string{"127.0.0.1:7070"},
		"addresses of scheduler nodes, any of them, host:port or gRPC targets such as dns:///fermata:7070")
	flags.StringVar(&f.address, "rest-addr", "127.0.0.1:7073", "serve the API here")
	flags.StringSliceVar(&f.allowedHosts, "allowed-hosts", []string{"localhost", "127.0.0.1", "::1"},
		"host names, without ports, that requests may name")
	flags.StringSliceVar(&f.trustedProxies, "trusted-proxies", nil,
		"networks of proxies in front of this gateway, such as 10.0.0.0/8: limits by address then count the last address "+
			"in X-Forwarded-For that is not in them (default: none)")
	flags.StringVar(&f.serverFiles.Cert, "rest-tls-cert", "",
		"PEM file with the certificate of this server (default: plain HTTP). Files are read again when they change")
	flags.StringVar(&f.serverFiles.Key, "rest-tls-key", "", "PEM file with the key of this server")
	flags.BoolVar(&f.insecure, "insecure", false,
		"listen where other hosts can reach it without TLS, because TLS ends in front of this gateway")
	f.console.registerFlags(flags)
	flags.StringVar(&f.basePath, "base-path", "",
		"path below which everything is served, such as /ops/fermata (default: the root)")
	flags.IntVar(&f.maxCallers, "max-callers", 1024, "callers with different tokens that are served at once")
	flags.IntVar(&f.maxCalls, "max-calls", 64, "requests of one identity at once, with all its tokens")
	flags.IntVar(&f.maxStreams, "max-event-streams", 32, "event streams of one identity at once, with all its tokens")
	config.DurationVar(flags, &f.drainTimeout, "drain-timeout", 15*time.Second, "how long a stop may wait for requests")
	flags.BoolVar(&f.tls, "tls", false, "use TLS to the nodes; implied by the other --tls flags. Files are read again "+
		"when they change. Beyond loopback, tokens are sent over TLS only")
	flags.StringVar(&f.nodeFiles.Authorities, "tls-ca", "",
		"PEM file with the authority of the nodes' certificates (default: the system's)")
	flags.StringVar(&f.nodeFiles.Cert, "tls-cert", "",
		"PEM file with a certificate for nodes that require one; requests without a token are then refused")
	flags.StringVar(&f.nodeFiles.Key, "tls-key", "", "PEM file with the key of that certificate")
	flags.StringVar(&f.nodeFiles.ServerName, "tls-server-name", "",
		"name in the nodes' certificates (default: the host of --scheduler)")
	flags.StringVar(&f.metricsAddr, "metrics-addr", "", "serve /metrics, /healthz and /readyz here (default: nowhere)")
	flags.StringVar(&f.logs.Format, "log-format", "text", "text or json")
	flags.StringVar(&f.logs.Level, "log-level", "info", "debug, info, warn or error")
	flags.IntVar(&f.logs.Limit, "log-repeat-limit", logs.DefaultLimit,
		"most log lines in ten seconds with the same message; further lines are counted; 0: no limit")
}

// buildService turns flags into a service. It reports all faults.
func (f settings) buildService(lines io.Writer) (*service, error) {
	logger, level, logErr := logs.New(lines, f.logs)
	registry := prometheus.NewRegistry()
	s := &service{
		registry: registry, logger: logger, level: level, metricsAddr: f.metricsAddr, drainTimeout: f.drainTimeout,
	}
	var drainErr error
	if f.drainTimeout <= 0 {
		drainErr = fmt.Errorf("--drain-timeout %v: must be positive", f.drainTimeout)
	}
	nodeOptions, nodeErr := f.nodeOptions(s)
	serverErr := f.serverOptions(s)
	proxies, proxiesErr := parseNetworks(f.trustedProxies)
	consoleOptions, consoleErr := f.console.options()
	_, baseErr := gateway.CheckBasePath(f.basePath)
	if baseErr != nil {
		baseErr = fmt.Errorf("--base-path %q: %w", f.basePath, baseErr)
	}
	err := errors.Join(logErr, drainErr, f.checkLimits(), proxiesErr, nodeErr, serverErr, consoleErr, baseErr)
	if err != nil {
		return nil, err
	}
	secretfile.WarnIfExposed(logger, f.nodeFiles.Key)
	secretfile.WarnIfExposed(logger, f.console.keyFile)
	secretfile.WarnIfExposed(logger, f.console.oidc.ClientSecretFile)
	registry.MustRegister(collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	s.dialNodes = httpapi.Dialer(f.addresses, nodeOptions)
	s.options.Address, s.options.Flag, s.options.Logger = f.address, "rest-addr", logger
	s.options.Gateway = gateway.Options{
		Dial: s.dialNodes, RequireToken: f.nodeFiles.Cert != "", AllowedHosts: f.allowedHosts,
		MaxConnections: f.maxCallers, MaxCalls: f.maxCalls, MaxWatches: f.maxStreams,
		TrustedProxies: proxies, Registerer: registry, BasePath: f.basePath, Console: consoleOptions,
	}
	return s, nil
}

// checkLimits refuses negative limits; 0 is refused for all commands alike.
func (f settings) checkLimits() error {
	var faults []error
	for _, limit := range []struct {
		flag  string
		value int
	}{{"max-callers", f.maxCallers}, {"max-calls", f.maxCalls}, {"max-event-streams", f.maxStreams}} {
		if limit.value < 0 {
			faults = append(faults, fmt.Errorf("--%s %d: must be positive", limit.flag, limit.value))
		}
	}
	return errors.Join(faults...)
}

// parseNetworks parses --trusted-proxies.
func parseNetworks(texts []string) (networks []netip.Prefix, err error) {
	for _, text := range texts {
		p, parseErr := netip.ParsePrefix(text)
		if parseErr != nil {
			err = errors.Join(err, fmt.Errorf("--trusted-proxies %q: want a network such as 10.0.0.0/8", text))
		}
		networks = append(networks, p)
	}
	return networks, err
}

// nodeOptions configure the connections to the nodes. It returns an error if an address or a file is invalid.
func (f settings) nodeOptions(s *service) (client.Options, error) {
	var o client.Options
	if f.tls || f.nodeFiles != (tlsfiles.Files{}) {
		source, err := tlsfiles.Open(tlsfiles.Options{
			Files: f.nodeFiles, Use: "nodes", Logger: s.logger, Registerer: s.registry,
			Called: tlsfiles.Files{Cert: "--tls-cert", Key: "--tls-key", Authorities: "--tls-ca"},
		})
		if err != nil {
			return o, err
		}
		o.DialOptions = []grpc.DialOption{grpc.WithTransportCredentials(source.Client())}
	}
	c, err := client.Dial(f.addresses, o)
	if err != nil {
		return o, fmt.Errorf("--scheduler: %w", err)
	}
	return o, c.Close()
}

// serverOptions configure TLS of the listener.
func (f settings) serverOptions(s *service) error {
	if _, _, err := net.SplitHostPort(f.address); err != nil {
		return fmt.Errorf("--rest-addr %q: want host:port", f.address)
	}
	if f.serverFiles == (tlsfiles.Files{}) {
		if !f.insecure && !bearer.IsLocal(f.address) {
			return fmt.Errorf("--rest-addr %s: other hosts can reach it, and would send tokens in plain text; it needs "+
				"--rest-tls-cert and --rest-tls-key, or --insecure if TLS ends in front of this gateway", f.address)
		}
		return nil
	}
	source, err := tlsfiles.Open(tlsfiles.Options{
		Files: f.serverFiles, Use: "rest", Logger: s.logger, Registerer: s.registry,
		Called: tlsfiles.Files{Cert: "--rest-tls-cert", Key: "--rest-tls-key"},
	})
	if err != nil {
		return err
	}
	s.options.TLS, err = source.HTTPServer()
	return err
}
